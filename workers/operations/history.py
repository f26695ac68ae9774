"""Generations whose log is not here: read from processes that hold them, and given to who asks.

One operation, `history`, with what is wanted of which generation: whoever answers has all of it,
or has had it, and says so before it says that there is nothing (E7: nothing of a child is given out
before its parents' tails). A generation that has ended never changes, and neither does what it
continues, so that is asked for once.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from barco import limits
from barco._native import chunk_place, chunks_fit, chunks_scan
from barco.cluster.state.kin import TOKEN_END, Ancestor
from barco.errors import (
    BarcoError,
    CorruptDataError,
    NotReadyError,
    ProtocolError,
    RequestError,
)
from barco.limits import BROKERS_MAX, OFFSET_MAX
from barco.model.generation import Gid
from barco.model.ranges import peer_of, process_of
from barco.model.token import TOKEN_MAX, TOKEN_MIN
from barco.protocol.replication_codec import MEMBERS_MAX, U63
from barco.types import Epoch, Token
from barco.workers.operations.handovers import who_took
from barco.workers.operations.hedged import Hedges
from barco.workers.operations.origins import VOICES, Args, number
from barco.workers.peers.ranges import RingRanges
from barco.workers.seams import SiblingsLike
from barco.workers.storage.reading.readahead import ChunkRun, ReadResult
from barco.workers.storage.stores.replicas import ReplicaStore

ANSWER_SECONDS = 10.0
"""For one holder: a read from its disk, behind others. Others are asked long before that."""

ANCESTORS_MAX = 64
"""Of one slice that are elsewhere: one for each time that its range was split or moved."""

READS_MAX = 8
"""Reads for others under way at once; more wait. Each holds an answer in memory."""

GOOD_MAX = 256
"""Generations of which it is remembered who answered last."""

SPLITS_MAX = 2048

FOREVER_US = 2**62

Taken = TypeVar("Taken")


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
        """Each answer says what it was made without: of two holders one may have been a member of
        an ancestor, and the other not."""
        epoch, tail = number(args, "epoch", 1, U63), number(args, "tail", 1, U63)
        self._check(number(args, "token", TOKEN_MIN, TOKEN_MAX), epoch, tail)
        line = [_plain(each) for each in self._far() if each.gid.epoch < epoch]
        return {"line": line} | await self._answer(args)

    async def _answer(self, args: Args) -> dict[str, Any]:
        what = args.get("what")
        if what == "line":
            return {}
        stream = _text(args, "topic"), number(args, "slice", 0, limits.SLICES_PER_RANGE_MAX)
        if what == "read":
            async with self._room:
                return await self._read(*stream, args)
        extents, reader = self._store.extents, self._store.reader
        if what == "begins":
            return {"at": await extents.begins(*stream, 0)}
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

    def _check(self, token: int, epoch: int, tail: int) -> None:
        """NotReadyError: it is not all here, and never was removed from here."""
        known = self._store.lineage.get(epoch) if token == self._token else None
        if known is None or known.tail != tail or not self._whole():
            raise NotReadyError(f"Not all of epoch {epoch} of the range at {token} is here.")

    async def _read(self, topic: str, slice_: int, args: Args) -> dict[str, Any]:
        start, stop = number(args, "from", 0, OFFSET_MAX), number(args, "stop", 0, OFFSET_MAX)
        first = await self._store.extents.begins(topic, slice_, start)
        gone = first is None or first > start and not await self._is_hole(topic, slice_, start)
        if gone or start >= stop:
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


async def look_for_children(
    token: int, store: ReplicaStore, ranges: RingRanges, siblings: SiblingsLike
) -> None:
    """Rule S8: asks whether children of other ranges have begun, for retention to go on here. What
    two brokers say alike is noted; who would lie alone could only keep groups for longer. A single
    broker has nobody to say it but itself."""
    voices_min = 1 if len(ranges.members(token)) == 1 else VOICES
    for generation in store.lineage.generations():
        parent = (token, generation.epoch)
        for child, has_begun in store.lineage.elsewhere(parent).items():
            if has_begun or generation.expired:
                continue
            if child is None:
                voices = await who_took(parent, ranges, siblings, ANSWER_SECONDS)
                if len(voices) >= voices_min:
                    await asyncio.to_thread(store.lineage.begun, parent, None)
                continue
            peers = [peer_of(process) for process in ranges.processes_of_token(child[0])]
            asked = {"token": child[0], "epoch": child[1]}
            said = await siblings.broadcast("begun", dict.fromkeys(peers, asked), ANSWER_SECONDS)
            voices = {process_of(peer)[0] for peer, answer in said.items() if answer is True}
            if len(voices) >= voices_min:  # Who its members are now, one alone may have told.
                await asyncio.to_thread(store.lineage.begun, parent, child)


class History:
    """The side that asks: an `Elsewhere` (`barco.workers.shard.whole`)."""

    def __init__(
        self,
        *,
        ranges: RingRanges,
        siblings: SiblingsLike,
        peer: int,
        far: Callable[[], Sequence[Ancestor]],
        here: Callable[[Gid], bool] = lambda gid: False,
        token_of: Callable[[int], int],
    ) -> None:
        """peer: the own process. `far`: what its range continues and it does not have, the newest
        first. `here`: what it has. `token_of`: where a slice begins."""
        self._ranges, self._siblings, self._peer = ranges, siblings, peer
        self._far, self._here, self._token_of = far, here, token_of
        self._lines: dict[Gid, dict[Gid, Ancestor]] = {}
        """What each of them continues that one of its holders does not have."""
        self._good: OrderedDict[Gid, int] = OrderedDict()
        """Who has answered last: a reader that goes on is read ahead for there."""
        self._hedges = Hedges()

    # --- Elsewhere ------------------------------------------------------------------------------

    def needed(self, slice_: int) -> bool:
        """Whether there are generations of it that were never here, or are not all here yet."""
        far = self._far()
        return bool(far) and any(each.covers(self._token_of(slice_)) for each in far)

    def between(self, slice_: int, after: int, before: int) -> bool:
        """Whether some of these lie between two epochs."""
        token = self._token_of(slice_)
        known = (each for each in self.known() if each.covers(token))
        return any(after < each.gid.epoch < before for each in known)

    async def read(
        self,
        topic: str,
        slice_: int,
        from_offset: int,
        max_bytes: int,
        *,
        raw_bytes_max: int | None,
        columns: int,
        stop: int,
    ) -> ReadResult | None:
        """Of the nearest ancestor that has the offset; where none has, retention was there, and
        what comes next is read."""
        stream = {"topic": topic, "slice": slice_}
        budget = {"bytes": min(max(1, max_bytes), limits.POLL_BYTES_MAX), "raw": raw_bytes_max}
        while True:
            later: list[int] = []
            span = {"from": from_offset, "stop": stop, "columns": columns}
            take = partial(_result, topic, slice_, from_offset, columns)
            ancestors = await self._ancestors(slice_)
            for ancestor in ancestors:
                found = await self._ask(ancestor, "read", {**stream, **budget, **span}, take)
                if isinstance(found, ReadResult):
                    return found
                if found is not None and found > from_offset:
                    later.append(found)
            if len(await self._ancestors(slice_)) > len(ancestors):
                continue  # A holder has said what it lacks.
            if not later or min(later) >= stop:
                return None
            from_offset = min(later)

    async def earliest(self, topic: str, slice_: int) -> int | None:
        """The lowest offset that is left."""
        return await self._oldest("begins", {"topic": topic, "slice": slice_}, slice_)

    async def by_timestamp(self, topic: str, slice_: int, timestamp_us: int) -> int | None:
        """An offset at or shortly before the first event that is as late as this."""
        args = {"topic": topic, "slice": slice_, "time": timestamp_us}
        return await self._oldest("time", args, slice_)

    async def since(self, topic: str, slice_: int, time_us: int) -> int | None:
        """The first chunk that may have been appended as late as this."""
        args = {"topic": topic, "slice": slice_, "time": time_us}
        return await self._oldest("since", args, slice_)

    async def within(self, topic: str, slice_: int, bytes_max: int) -> int | None:
        """The oldest of the newest chunks that fit, of the nearest ancestor that has any; if all of
        that one does, what is before it is kept as well."""
        stream = {"topic": topic, "slice": slice_}
        for ancestor in await self._ancestors(slice_):
            args = {**stream, "bytes": bytes_max}
            if (kept := await self._ask(ancestor, "within", args, _offset)) is None:
                continue
            first = await self._ask(ancestor, "begins", stream, _offset)
            return 0 if first is None or kept <= first else kept
        return None

    async def splits(
        self, topic: str, slice_: int, start: int, piece_bytes: int
    ) -> tuple[int, list[tuple[int, int]]]:
        """Of the ancestor that has the most: for planning."""
        most: tuple[int, list[tuple[int, int]]] = (0, [])
        args = {"topic": topic, "slice": slice_, "from": start, "bytes": piece_bytes}
        for ancestor in await self._ancestors(slice_):
            most = max(most, await self._ask(ancestor, "splits", args, _splits))
        return most

    # --- Ancestors ------------------------------------------------------------------------------

    def known(self) -> list[Ancestor]:
        """Those of which it is known by now, the newest first."""
        found = {each.gid: each for each in self._far()}
        found |= {gid: each for line in self._lines.values() for gid, each in line.items()}
        found = {gid: each for gid, each in found.items() if not self._here(gid)}
        return sorted(found.values(), key=lambda each: (-each.gid.epoch, each.gid.token))

    async def look(self) -> None:
        """Learn of all of them, as far as somebody can be asked."""
        for ancestor in self._far():
            with suppress(BarcoError):  # It is asked again by who reads.
                await self._chain([ancestor], lambda each: True)

    async def _ancestors(self, slice_: int) -> list[Ancestor]:
        """Of a slice, the nearest first."""
        token = self._token_of(slice_)
        return await self._chain(
            [each for each in self._far() if each.covers(token)], lambda each: each.covers(token)
        )

    async def _chain(
        self, first: Sequence[Ancestor], wanted: Callable[[Ancestor], bool]
    ) -> list[Ancestor]:
        found: dict[Gid, Ancestor] = {}
        todo = deque(first)
        while todo:
            each = todo.popleft()
            if each.gid in found:
                continue
            found[each.gid] = each
            if len(found) > ANCESTORS_MAX:
                raise ProtocolError("a slice has too many ancestors elsewhere")
            todo.extend(filter(wanted, await self._line(each)))
        return sorted(found.values(), key=lambda each: -each.gid.epoch)

    async def _line(self, ancestor: Ancestor) -> list[Ancestor]:
        """What an ancestor continues that one of its holders does not have, nor this process."""
        if ancestor.gid not in self._lines:
            await self._ask(ancestor, "line", {}, lambda answer: None)
        line = self._lines[ancestor.gid]
        return [each for gid, each in line.items() if not self._here(gid)]

    # --- Questions ------------------------------------------------------------------------------

    async def _oldest(self, what: str, args: Args, slice_: int) -> int | None:
        """The lowest of what the ancestors say: who holds one may hold what came long after."""
        found: dict[Gid, int | None] = {}
        while left := [each for each in await self._ancestors(slice_) if each.gid not in found]:
            for ancestor in left:
                found[ancestor.gid] = await self._ask(ancestor, what, args, _offset)
        return min((at for at in found.values() if at is not None), default=None)

    def _holders(self, ancestor: Ancestor) -> list[int]:
        """Who may have it, by their numbers in the cluster; who answered last comes first."""
        good, (own, _) = self._good.get(ancestor.gid), process_of(self._peer)
        found = self._ranges.processes_of_token(ancestor.gid.token)
        found.sort(
            key=lambda at: (peer_of(at) != good, at[0] not in ancestor.members, at[0] != own)
        )
        return [peer for peer in map(peer_of, found) if peer != self._peer]

    async def _ask(
        self, ancestor: Ancestor, what: str, args: Args, take: Callable[[Mapping[str, Any]], Taken]
    ) -> Taken:
        """What somebody who holds it answers, as it was taken. NotReadyError: nobody can be asked.

        take: raises a BarcoError for what is no answer; then another is asked."""
        gid, take = ancestor.gid, partial(self._taken, ancestor.gid, take)
        name = {"token": gid.token, "epoch": gid.epoch, "tail": ancestor.tail, "what": what}

        async def ask(peer: int) -> Taken:
            answer = await self._siblings.call(peer, "history", {**name, **args}, ANSWER_SECONDS)
            if not isinstance(answer, Mapping):
                raise ProtocolError("history that is none")
            return take(answer)

        failures: list[BarcoError] = []
        found = await self._hedges.first_good(self._holders(ancestor), ask, failures)
        if found is not None:
            self._note(gid, found[0])
            return found[1]
        damaged = [each for each in failures if isinstance(each, CorruptDataError)]
        if damaged:
            raise damaged[-1]
        why = failures[0] if failures else "no process has told of it"
        raise NotReadyError(
            f"Nobody who holds epoch {gid.epoch} of the range at {gid.token} can be asked: {why}"
        )

    def _taken(
        self, gid: Gid, take: Callable[[Mapping[str, Any]], Taken], answer: Mapping[str, Any]
    ) -> Taken:
        """The answer, and what it was made without."""
        taken, line = take(answer), _line(gid, answer)
        known = self._lines.setdefault(gid, {})
        known.update({each.gid: each for each in line})
        if len(known) > 2 * ANCESTORS_MAX:
            raise ProtocolError("a generation has too many ancestors elsewhere")
        return taken

    def _note(self, gid: Gid, peer: int) -> None:
        self._good[gid] = peer
        self._good.move_to_end(gid)
        while len(self._good) > GOOD_MAX:
            self._good.popitem(last=False)


# --- What comes from outside ------------------------------------------------------------------


def _offset(answer: Mapping[str, Any]) -> int | None:
    at = answer.get("at")
    if at is not None and (type(at) is not int or not 0 <= at <= OFFSET_MAX):
        raise ProtocolError("an offset of history that is none")
    return at


def _splits(answer: Mapping[str, Any]) -> tuple[int, list[tuple[int, int]]]:
    total, cuts = answer.get("total"), answer.get("cuts")
    if type(total) is not int or not isinstance(cuts, list) or len(cuts) > SPLITS_MAX:
        raise ProtocolError("splits that are none")
    if not all(map(_is_pair, cuts)):
        raise ProtocolError("splits that are none")
    return total, [(at, size) for at, size in cuts]


def _is_pair(cut: Any) -> bool:
    return (
        isinstance(cut, (list, tuple))
        and len(cut) == 2
        and all(type(each) is int and 0 <= each <= OFFSET_MAX for each in cut)
    )


def _plain(ancestor: Ancestor) -> list[Any]:
    return [*ancestor.gid, ancestor.tail, ancestor.end, list(ancestor.members)]


def _line(child: Gid, answer: Mapping[str, Any]) -> list[Ancestor]:
    line = answer.get("line")
    if not isinstance(line, list) or len(line) > ANCESTORS_MAX:
        raise ProtocolError("a line of ancestors that is none")
    return [_ancestor(each, child) for each in line]


def _ancestor(given: Any, child: Gid) -> Ancestor:
    """One of a line; they are older than what continues them, so no line comes back to itself."""
    try:
        token, epoch, tail, end, members = given
        args = {"token": token, "epoch": epoch, "tail": tail, "end": end}
        number(args, "token", TOKEN_MIN, TOKEN_MAX)
        number(args, "epoch", 1, child.epoch - 1)
        number(args, "tail", 1, U63)
        number(args, "end", token + 1, TOKEN_END)
        if len(members) > MEMBERS_MAX:
            raise RequestError("too many members")
        ordinals = tuple(number({"at": each}, "at", 0, BROKERS_MAX) for each in members)
    except (RequestError, ValueError, TypeError) as error:
        raise ProtocolError(f"an ancestor that is none: {error}") from None
    return Ancestor(Gid(Token(token), Epoch(epoch)), tail, end, ordinals)


def _result(
    topic: str, slice_: int, from_offset: int, columns: int, answer: Mapping[str, Any]
) -> ReadResult | int | None:
    """Chunks that came, as a read gives them, or the next offset that is there, if any is.
    CorruptDataError: they are not what was asked for.

    Their heads are looked at; whoever unpacks them looks at the rest, as with those from a disk of
    another broker that a client reads.
    """
    if "chunks" not in answer:
        return _offset(answer)
    chunks, end, raw, epoch = (answer.get(name) for name in ("chunks", "end", "raw", "epoch"))
    numbers = (end, raw, epoch)
    if not isinstance(chunks, bytes) or any(type(each) is not int or each < 0 for each in numbers):
        raise ProtocolError("chunks of history that are none")
    assert isinstance(end, int) and isinstance(raw, int) and isinstance(epoch, int)
    try:
        size, _, last = chunks_fit(chunks, OFFSET_MAX, OFFSET_MAX, OFFSET_MAX, True, columns)
        start, _, first_epoch = chunk_place(chunks)
        fine = (size, last, first_epoch) == (len(chunks), end, epoch)
        fine = fine and start <= from_offset < end
        fine = fine and (columns >= 0 or _are_of(chunks, topic, slice_, epoch))
    except ValueError:
        fine = False
    if not fine:
        raise CorruptDataError(
            f"What was given of {topic}, slice {slice_}, from offset {from_offset} is not that."
        )
    return ReadResult([ChunkRun(memoryview(chunks), raw, end, 0)], end, epoch)


def _are_of(chunks: bytes, topic: str, slice_: int, epoch: int) -> bool:
    """Whether whole chunks are of one stream and generation, and follow each other."""
    at, offset = 0, None
    for begin, size, name, index, of_epoch, base, count, *_ in chunks_scan(chunks):
        if (begin, name, index, of_epoch) != (at, topic, slice_, epoch):
            return False
        if offset is not None and base != offset:
            return False
        at, offset = begin + size, base + count
    return at == len(chunks)
