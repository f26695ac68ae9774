"""Generations whose log is not here: read from processes that hold them, and given to who asks.

One operation, `history`, with what is wanted of which generation: whoever answers has all of it,
or has had it, and says so before it says that there is nothing (E7: nothing of a child is given out
before its parents' tails). A generation that has ended never changes, and neither does what it
continues, so that is asked for once.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
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
from barco.workers.operations.holding import HAD_MAX
from barco.workers.operations.origins import Args, number
from barco.workers.peers.agreed import (
    ANSWER_SECONDS,
    Agreed,
    Line,
    offset_key,
    sum_of,
    take_sum,
)
from barco.workers.peers.ranges import RingRanges
from barco.workers.peers.voices import VOICES
from barco.workers.seams import SiblingsLike
from barco.workers.storage.reading.readahead import ChunkRun, ReadResult

ANCESTORS_MAX = 64
"""Of one slice that are elsewhere: one for each time that its range was split or moved."""


GOOD_MAX = 256
"""Generations of which it is remembered who answered last."""

SPLITS_MAX = 2048


Taken = TypeVar("Taken")


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
        voices: Callable[[Iterable[int]], Collection[int]] = frozenset,
        token: int = TOKEN_MIN,
        gone: Callable[[Gid], bool] = lambda gid: False,
    ) -> None:
        """peer, token: of the own process. `far`: what its range continues and it does not have,
        the newest first. `here`: what it has. `token_of`: where a slice begins. `voices`: who of
        these brokers is asked. `gone`: whether it was noted that nothing is left of one."""
        self._ranges, self._siblings, self._peer = ranges, siblings, peer
        self._far, self._here, self._token_of, self._voices = far, here, token_of, voices
        self._token, self._gone = token, gone
        self._agreed = Agreed(process_of(peer)[0])
        self._lines: dict[Gid, list[Ancestor]] = {}
        """What each of them continues that one of its holders does not have."""
        self._good: OrderedDict[Gid, int] = OrderedDict()
        """Who has answered last: a reader that goes on is read ahead for there."""

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
        while from_offset < stop:
            later: list[int] = []
            failure: NotReadyError | None = None
            failed: list[Gid] = []
            span = {"from": from_offset, "stop": stop, "columns": columns}
            take = partial(_result, topic, slice_, from_offset, columns)
            for ancestor in await self._ancestors(slice_):
                try:
                    found = await self._read(ancestor, {**stream, **budget, **span}, take)
                except NotReadyError as error:  # Who holds an older one may have it for sure.
                    failure = failure or error
                    failed.append(ancestor.gid)
                    continue
                if isinstance(found, ReadResult):
                    return found
                if found is not None and found > from_offset:
                    later.append(found)
            if failure is not None:
                for gid in failed:  # Who was away may lack one of which it was not heard.
                    self._lines.pop(gid, None)
                raise failure
            if not later:
                return None
            from_offset = min(later)
        return None

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
        return await self._oldest("since", args, slice_, alone=False)

    async def within(self, topic: str, slice_: int, bytes_max: int) -> int | None:
        """The oldest of the newest chunks that fit, of the nearest ancestor that has any; if all of
        that one does, what is before it is kept as well."""
        stream = {"topic": topic, "slice": slice_}
        args = {**stream, "bytes": bytes_max}
        for ancestor in await self._ancestors(slice_, alone=False):
            if (kept := await self._where(ancestor, "within", args, alone=False)) is None:
                continue
            first = await self._where(ancestor, "begins", stream, alone=False)
            return 0 if first is None or kept <= first else kept
        return None

    async def splits(
        self, topic: str, slice_: int, start: int, piece_bytes: int
    ) -> tuple[int, list[tuple[int, int]]]:
        """Of the ancestor that has the most: for planning."""
        most: tuple[int, list[tuple[int, int]]] = (0, [])
        args = {"topic": topic, "slice": slice_, "from": start, "bytes": piece_bytes}
        for ancestor in await self._ancestors(slice_):
            asks = self._asks(ancestor, "splits", args, _splits)
            told = await self._agreed.latest(self._holders(ancestor), asks, lambda each: each[0])
            most = max(most, told[0])
        return most

    # --- Ancestors ------------------------------------------------------------------------------

    def known(self) -> list[Ancestor]:
        """Those of which it is known by now, the newest first."""
        found = {each.gid: each for each in self._far()}
        found |= {each.gid: each for line in self._lines.values() for each in line}
        found = {gid: each for gid, each in found.items() if not self._here(gid)}
        return sorted(found.values(), key=lambda each: (-each.gid.epoch, each.gid.token))

    async def look(self) -> None:
        """Learn of all of them, as far as somebody can be asked."""
        for ancestor in self._far():
            with suppress(BarcoError):  # It is asked again by who reads.
                await self._chain([ancestor], lambda each: True)

    async def look_for_gone(
        self, note: Callable[[Gid], None], own: Sequence[Ancestor] = ()
    ) -> None:
        """Before retention: of what two brokers say that it has removed all is noted, and nobody is
        asked for that any more; so nobody has to stay who could say it (H2). own: what is here, and
        nothing will follow here."""
        await self.look()
        for each in (*self.known(), *own):
            if self._gone(each.gid):
                continue
            fellows = map(peer_of, self._ranges.processes_of_token(self._token))
            peers = {*self._holders(each), *fellows} - {self._peer}
            words = await who_removed(self._siblings, peers, each)
            here = process_of(self._peer)[0] in words
            if here or len(self._voices(words)) >= VOICES:
                await asyncio.to_thread(note, each.gid)

    async def _ancestors(self, slice_: int, *, alone: bool = True) -> list[Ancestor]:
        """Of a slice, the nearest first. alone: whether one is believed, if need be (H4)."""
        token = self._token_of(slice_)
        return await self._chain(
            [each for each in self._far() if each.covers(token)],
            lambda each: each.covers(token),
            alone=alone,
        )

    async def _chain(
        self, first: Sequence[Ancestor], wanted: Callable[[Ancestor], bool], *, alone: bool = True
    ) -> list[Ancestor]:
        found: dict[Gid, Ancestor] = {}
        todo = deque(first)
        while todo:
            each = todo.popleft()
            if each.gid in found or self._gone(each.gid):
                continue
            found[each.gid] = each
            if len(found) > ANCESTORS_MAX:
                raise ProtocolError("a slice has too many ancestors elsewhere")
            todo.extend(filter(wanted, await self._line(each, alone)))
        return sorted(found.values(), key=lambda each: -each.gid.epoch)

    async def _line(self, ancestor: Ancestor, alone: bool) -> list[Ancestor]:
        """What an ancestor continues that one of its holders does not have, nor this process."""
        known = self._lines.get(ancestor.gid)
        if known is None:
            asks = self._asks(ancestor, "line", {}, partial(_line, ancestor.gid))
            known, stays = await self._agreed.line(self._holders(ancestor), asks)
            if stays:
                self._lines[ancestor.gid] = known
            elif not alone:
                raise NotReadyError("One holder alone says what its range continues.")
        return [each for each in known if not self._here(each.gid)]

    # --- Questions ------------------------------------------------------------------------------

    async def _oldest(
        self, what: str, args: Args, slice_: int, *, alone: bool = True
    ) -> int | None:
        """The lowest of what is said of the ancestors: who holds one may hold what came long
        after, and says that where retention has removed the older one."""
        found = [
            await self._where(ancestor, what, args, alone=alone)
            for ancestor in await self._ancestors(slice_, alone=alone)
        ]
        return min((at for at in found if at is not None), default=None)

    async def _where(
        self, ancestor: Ancestor, what: str, args: Args, *, alone: bool = True
    ) -> int | None:
        """Before which nothing is, as two say (H2)."""
        asks = self._asks(ancestor, what, args, _offset)
        return (await self._agreed.latest(self._holders(ancestor), asks, offset_key, alone=alone))[
            0
        ]

    async def _read(
        self,
        ancestor: Ancestor,
        args: Args,
        take: Callable[[Mapping[str, Any]], ReadResult | int | None],
    ) -> ReadResult | int | None:
        """Chunks that two have (H1), or the next offset that is there, as two say (H2)."""
        holders = self._holders(ancestor)
        left, looked = list(holders), False
        while left or not holders:
            peer, found = await self._first(ancestor, "read", args, take, left)
            left.remove(peer)
            if not isinstance(found, ReadResult):
                if not looked:
                    at = await self._where(ancestor, "after", args)
                    if at != args["from"]:
                        return at
                looked = True
            elif await self._is_confirmed(ancestor, args, found, peer):
                self._note(ancestor.gid, peer)
                return found
        raise NotReadyError(
            f"Those who hold epoch {ancestor.gid.epoch} say different things of it."
        )

    async def _is_confirmed(
        self, ancestor: Ancestor, args: Args, found: ReadResult, peer: int
    ) -> bool:
        if process_of(peer)[0] == process_of(self._peer)[0]:
            return True
        span = {"end": found.next_offset, "bytes": min(found.bytes, limits.POLL_BYTES_MAX)}
        asks = self._asks(ancestor, "sum", {**args, **span}, take_sum)
        others = [each for each in self._holders(ancestor) if each != peer]
        sum_ = await asyncio.to_thread(sum_of, found.chunks, found.next_offset)
        return await self._agreed.confirmed(others, asks, sum_)

    def _holders(self, ancestor: Ancestor) -> list[int]:
        """Who may have it, by their numbers in the cluster; who answered last comes first."""
        good, (own, _) = self._good.get(ancestor.gid), process_of(self._peer)
        told = self._ranges.processes_of_token(ancestor.gid.token)
        voices = self._voices(ordinal for ordinal, _ in told)
        found = [each for each in told if each[0] in voices]
        found.sort(
            key=lambda at: (peer_of(at) != good, at[0] not in ancestor.members, at[0] != own)
        )
        peers = [peer for peer in map(peer_of, found) if peer != self._peer]
        return self._agreed.order(peers)

    def _asks(
        self, ancestor: Ancestor, what: str, args: Args, take: Callable[[Mapping[str, Any]], Taken]
    ) -> Callable[[int], Awaitable[tuple[Taken] | None]]:
        """Asks one of them; None: it never had it. take: raises a BarcoError for what is no
        answer."""
        gid = ancestor.gid
        name = {"token": gid.token, "epoch": gid.epoch, "tail": ancestor.tail, "what": what}

        async def ask(peer: int) -> tuple[Taken] | None:
            answer = await self._siblings.call(peer, "history", {**name, **args}, ANSWER_SECONDS)
            if not isinstance(answer, Mapping):
                raise ProtocolError("history that is none")
            return None if answer.get("never") is True else (take(answer),)

        return ask

    async def _first(
        self,
        ancestor: Ancestor,
        what: str,
        args: Args,
        take: Callable[[Mapping[str, Any]], Taken],
        peers: Sequence[int],
    ) -> tuple[int, Taken]:
        """Who answers first, and what. NotReadyError: nobody can be asked."""
        failures: list[BarcoError] = []
        ask = self._asks(ancestor, what, args, take)
        if (found := await self._agreed.first(peers, ask, failures)) is not None:
            return found
        for failure in failures:
            if isinstance(failure, CorruptDataError):
                raise failure
        gid = ancestor.gid
        raise NotReadyError(
            f"Nobody who holds epoch {gid.epoch} of the range at {gid.token} can be asked: "
            f"{failures[0] if failures else 'no process has told of it'}"
        )

    def _note(self, gid: Gid, peer: int) -> None:
        self._good[gid] = peer
        self._good.move_to_end(gid)
        while len(self._good) > GOOD_MAX:
            self._good.popitem(last=False)


# --- What comes from outside ------------------------------------------------------------------


async def who_removed(siblings: SiblingsLike, peers: Iterable[int], ended: Ancestor) -> set[int]:
    """Brokers of these processes that say that retention has removed all of a generation, or that
    they have noted so."""
    asked = {"token": ended.gid.token, "epoch": ended.gid.epoch, "tail": ended.tail, "what": "gone"}
    calls = {peer: asked for peer in sorted(peers)}
    said = await siblings.broadcast("history", calls, ANSWER_SECONDS)
    return {
        process_of(peer)[0]
        for peer, answer in said.items()
        if isinstance(answer, Mapping) and answer.get("gone") is True
    }


def _offset(answer: Mapping[str, Any]) -> int | None:
    at = answer.get("at")
    if at is not None and (type(at) is not int or not 0 <= at <= OFFSET_MAX):
        raise ProtocolError("an offset of history that is none")
    return at


def _splits(answer: Mapping[str, Any]) -> tuple[int, list[tuple[int, int]]]:
    total, cuts = answer.get("total"), answer.get("cuts")
    if (
        type(total) is not int
        or not 0 <= total <= OFFSET_MAX
        or not isinstance(cuts, list)
        or len(cuts) > SPLITS_MAX
    ):
        raise ProtocolError("splits that are none")
    if not all(map(_is_pair, cuts)) or any(b[0] <= a[0] for a, b in pairwise(cuts)):
        raise ProtocolError("splits that are none")
    return total, [(at, size) for at, size in cuts]


def _is_pair(cut: Any) -> bool:
    return (
        isinstance(cut, (list, tuple))
        and len(cut) == 2
        and all(type(each) is int and 0 <= each <= OFFSET_MAX for each in cut)
    )


def _line(child: Gid, answer: Mapping[str, Any]) -> Line:
    line, has = answer.get("line"), answer.get("has")
    if not isinstance(line, list) or len(line) > ANCESTORS_MAX:
        raise ProtocolError("a line of ancestors that is none")
    if not isinstance(has, list) or len(has) > HAD_MAX:
        raise ProtocolError("a line of ancestors without those that are there")
    had = (_ancestor([*each, TOKEN_END, ()], child) for each in has if isinstance(each, list))
    names = frozenset((each.gid, each.tail) for each in had)
    return Line(tuple(_ancestor(each, child) for each in line), names)


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
