"""Generations whose log is here, given to who asks: the answers to `history` and `begun`.

Whoever answers has all of it, or has had it, and says so before it says that there is nothing (E7:
nothing of a child is given out before its parents' tails); who never had it says that.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from barco import limits
from barco.cluster.state.kin import Ancestor
from barco.errors import NotReadyError, RequestError
from barco.limits import OFFSET_MAX
from barco.model.token import TOKEN_MAX, TOKEN_MIN
from barco.protocol.replication_codec import U63
from barco.workers.operations.origins import Args, number
from barco.workers.peers.agreed import Sum
from barco.workers.storage.stores.replicas import ReplicaStore

READS_MAX = 8
"""Reads for others under way at once; more wait. Each holds an answer in memory."""

HAD_MAX = 1024
"""Generations that a holder names as its own, the newest."""

SUM_READS_MAX = 4096
"""For one sum: what one read gave elsewhere comes in one here, or a few."""

FOREVER_US = 2**62


def _text(args: Args, name: str) -> str:
    value = args.get(name)
    if not isinstance(value, str) or not 0 < len(value.encode()) <= limits.TOPIC_NAME_BYTES_MAX:
        raise RequestError(f"{name} is no topic.")
    return value


class Holding:
    """The side that answers, for one replica's files."""

    def __init__(
        self,
        token: int,
        store: ReplicaStore,
        far: Callable[[], Sequence[Ancestor]],
        whole: Callable[[], bool] = lambda: True,
    ) -> None:
        """`far`: what the range continues and this process does not have. `whole`: whether all else
        is here, and in the catalog: what follows a generation may be sealed before it is."""
        self._token, self._store, self._far, self._whole = token, store, far, whole
        self._room = asyncio.Semaphore(READS_MAX)
        self.operations: dict[str, Callable[[Args], Awaitable[Any]]] = {
            "history": self._history,
            "begun": self._begun,
        }

    async def _begun(self, args: Args) -> bool:
        """Whether the first group of a generation of this range, or of what followed it where it
        had none, is committed here: then nobody needs its parents for a beginning (S8)."""
        token, epoch = number(args, "token", TOKEN_MIN, TOKEN_MAX), number(args, "epoch", 1, U63)
        return token == self._token and self._store.has_begun(epoch)

    async def _history(self, args: Args) -> dict[str, Any]:
        epoch, tail = number(args, "epoch", 1, U63), number(args, "tail", 1, U63)
        token, what = number(args, "token", TOKEN_MIN, TOKEN_MAX), args.get("what")
        if what == "gone":
            return {"gone": self._is_gone(token, epoch, tail)}
        if not self._had(token, epoch, tail):
            return {"never": True}
        if what == "line":
            return self._line(epoch)
        stream = _text(args, "topic"), number(args, "slice", 0, limits.SLICES_PER_RANGE_MAX)
        if what == "read":
            async with self._room:
                return await self._read(*stream, args)
        extents, reader = self._store.extents, self._store.reader
        if what == "begins":
            return {"at": await extents.begins(*stream, 0)}
        if what == "after":
            return {"at": await self._after(*stream, number(args, "from", 0, OFFSET_MAX))}
        if what == "sum":
            async with self._room:
                return {"sum": await self._sum(*stream, args)}
        if what == "time":
            time_us = number(args, "time", -FOREVER_US, FOREVER_US)
            return {"at": await reader.by_timestamp(*stream, time_us)}
        if what == "since":
            time_us = number(args, "time", -FOREVER_US, FOREVER_US)
            return {"at": await extents.since(*stream, time_us)}
        if what == "within":
            return {"at": await extents.within(*stream, number(args, "bytes", 0, OFFSET_MAX))}
        if what == "splits":
            start, size = number(args, "from", 0, OFFSET_MAX), number(args, "bytes", 1, OFFSET_MAX)
            total, cuts = await extents.splits(*stream, start, size)
            return {"total": total, "cuts": [list(cut) for cut in cuts]}
        raise RequestError("There is no such question about history.")

    def _had(self, token: int, epoch: int, tail: int) -> bool:
        """Whether it was ever here. NotReadyError: it is not all here, and was not removed."""
        known = self._store.lineage.get(epoch) if token == self._token else None
        if known is None and token == self._token and self._whole():
            return False
        if known is None or known.tail != tail or not self._whole():
            raise NotReadyError(f"Not all of epoch {epoch} of the range at {token} is here.")
        return True

    def _is_gone(self, token: int, epoch: int, tail: int) -> bool:
        """Whether retention has removed all of what was here, or two have told so of elsewhere."""
        if self._store.lineage.is_gone((token, epoch)):
            return True
        known = self._store.lineage.get(epoch) if token == self._token else None
        return known is not None and known.expired and known.tail == tail

    def _line(self, epoch: int) -> dict[str, Any]:
        had = [
            [self._token, each.epoch, each.tail]
            for each in self._store.lineage.generations()
            if each.epoch < epoch and each.tail
        ]
        lacks = [_plain(each) for each in self._far() if each.gid.epoch < epoch]
        return {"line": lacks, "has": had[-HAD_MAX:]}

    async def _after(self, topic: str, slice_: int, start: int) -> int | None:
        """The lowest offset from one on that is here, or what damage hides; None: there is none."""
        first = await self._store.extents.begins(topic, slice_, start)
        if first is None or first == start:
            return first
        return start if await self._is_hole(topic, slice_, start) else first

    async def _sum(self, topic: str, slice_: int, args: Args) -> bytes:
        """Of the chunks that were read elsewhere from an offset up to an end; empty: there are
        none. Read as they were there, so that who goes on is read ahead for here as well."""
        start, stop = number(args, "from", 0, OFFSET_MAX), number(args, "stop", 0, OFFSET_MAX)
        end = number(args, "end", 0, OFFSET_MAX)
        left = number(args, "bytes", 1, limits.POLL_BYTES_MAX)
        columns = number(args, "columns", -1, 2**31 - 1)
        if await self._after(topic, slice_, start) != start:
            return b""
        at, found, pieces = start, Sum(), 0
        while at < end:
            result = await self._store.reader.read(
                topic, slice_, at, max(1, left), columns=columns, stop=stop
            )
            pieces += 1
            if not result.runs or pieces > SUM_READS_MAX:
                return b""
            await asyncio.to_thread(found.add, result.chunks)
            at, left = result.next_offset, left - result.bytes
        return found.of(at)

    async def _read(self, topic: str, slice_: int, args: Args) -> dict[str, Any]:
        start, stop = number(args, "from", 0, OFFSET_MAX), number(args, "stop", 0, OFFSET_MAX)
        first = await self._after(topic, slice_, start)
        if first != start or start >= stop:
            return {"at": first}
        raw = args.get("raw")
        result = await self._store.reader.read(
            topic,
            slice_,
            start,
            number(args, "bytes", 1, limits.POLL_BYTES_MAX),
            raw_bytes_max=None if raw is None else number(args, "raw", 0, OFFSET_MAX),
            columns=number(args, "columns", -1, 2**31 - 1),
            stop=stop,
        )
        if not result.runs:
            return {"at": None}
        chunks = b"".join(result.chunks)
        raw_bytes = sum(run.raw_bytes for run in result.runs)
        return {"chunks": chunks, "end": result.next_offset, "epoch": result.epoch} | {
            "raw": raw_bytes
        }

    async def _is_hole(self, topic: str, slice_: int, start: int) -> bool:
        """Whether retention has not been there: then it is damaged, and the reader says so. Where
        something was never here it can not be told."""
        if self._far():
            return False
        earliest = await self._store.reader.earliest(topic, slice_)
        return earliest is not None and start >= earliest


def _plain(ancestor: Ancestor) -> list[Any]:
    return [*ancestor.gid, ancestor.tail, ancestor.end, list(ancestor.members)]
