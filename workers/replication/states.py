"""States of generations that have ended, asked of who holds them and given to who asks
(docs/elastic.md).

Who is to lead a child whose parent's groups are not here asks the processes that have them, of its
own range or of another's, part by part. The machine hears of neither.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from crc32c import crc32c

from barco._native import Reactor, state_cut
from barco.errors import BarcoError, NotReadyError, ProtocolError
from barco.limits import STATE_ANSWER_SECONDS, STATE_PART_BYTES, STATE_WAIT_SECONDS
from barco.model.generation import Generation, Gid
from barco.model.ranges import process_of
from barco.model.token import TOKEN_MAX, TOKEN_MIN
from barco.protocol.replication_codec import U32, U63, U64
from barco.types import Epoch, KiB, Token
from barco.workers.operations.origins import Args, number
from barco.workers.peers.callers import CALLER
from barco.workers.seams import SiblingsLike
from barco.workers.storage.stores.replicas import ReplicaStore
from barco.workers.storage.stores.restoring import StateAt

ASK_AGAIN_SECONDS, ASK_AGAIN_SECONDS_MAX = 0.02, 0.25
"""After nobody had it: who has just learned of the end is about to note that all is there, and
clients wait. Twice as long each time."""

HELD_SECONDS, HELD_MAX = 0.5, 8
"""Whoever is asked before it has learned of the end, or before all groups are here, answers as soon
as they are, or after so long that they are not; so many such questions of one broker."""

THIRD_SECONDS = 0.05
"""Two who say the same are enough: whoever else has it is asked so much later. To make a state is
work for the processors that clients wait for."""

PATIENCE = 0.75
"""For this last part of STATE_WAIT_SECONDS the word of one is enough."""

FIRST_BYTES = 32 * KiB
"""Of a state come with its sums: most are no longer, and nothing more has to be asked for."""

KEPT_SECONDS = 10.0
KEPT_EACH, KEPT_CALLERS = 2, 3
"""So many states that a broker asked for last, of so many brokers, are there for so long, for
whoever asks for the next part. A broker may lead both children of a split."""

BYTES_A_SECOND = 2**20
"""Whoever sends a state more slowly than this is given up, and another one asked: meanwhile
nobody writes."""

WORDS_CHARS_MAX = 200
"""Of what another says, in the log."""

log = logging.getLogger("barco.replication")


class Asked(NamedTuple):
    """A question: the state behind the last group of a generation, of some slices."""

    gid: Gid
    tail: int
    first: int
    """The first slice, by its number in the token range."""
    slices: int
    session: int
    """Of the record that is meant: two have one name if a disk went back in time. 0: any."""


class Sums(NamedTuple):
    """What each part says of the whole."""

    total: int
    """Bytes."""
    crc: int
    """crc32c."""
    header_crc: int
    """Of the last group's header."""


class _Kept(NamedTuple):
    found: StateAt
    sums: Sums


class States:
    """Both sides of it, for one replica."""

    def __init__(
        self,
        token: int,
        reactor: Reactor,
        store: ReplicaStore,
        *,
        siblings: SiblingsLike,
        holders: Callable[[Gid], list[int]],
        tail_of: Callable[[Gid], int | None],
        session_of: Callable[[Gid], int | None],
        state_bytes_max: int,
        until: Callable[[Callable[[], bool], float], Awaitable[bool]],
    ) -> None:
        """`holders`: the other processes that may have a generation, by their numbers in the
        cluster. `tail_of`: where it ended, `session_of`: whose it was, as far as is known here.
        `state_bytes_max`: of a state that is taken. `until`: waits for what the core or the replica
        comes to, so many seconds at most (`Turns.until`)."""
        self._token, self._until = token, until
        self._held = Counter[int]()
        self._reactor = reactor
        self._store = store
        self._siblings, self._holders = siblings, holders
        self._tail_of, self._session_of = tail_of, session_of
        self._state_bytes_max = state_bytes_max
        self._making = asyncio.Lock()
        self._turns: dict[int, asyncio.Lock] = {}
        """Of each broker one is made at a time: who asks for ever others holds up nobody for longer
        than one of them takes."""
        self._kept: dict[Asked, _Kept] = {}
        self._lately: dict[int, list[Asked]] = {}
        """By broker what it asked for last, the latest at the end; and so are the brokers."""
        self._forget: asyncio.TimerHandle | None = None
        self._early: tuple[Asked, asyncio.Task[bytes]] | None = None
        """What is asked for before it is known to be needed."""
        self.operations: dict[str, Callable[[Args], Awaitable[Any]]] = {"state": self._state}

    # --- Answers --------------------------------------------------------------------------------

    async def _state(self, args: Args) -> dict[str, Any]:
        """A part of it, which begins at byte `at`; none for who wants the sums alone."""
        gid = Gid(
            Token(number(args, "token", TOKEN_MIN, TOKEN_MAX)),
            Epoch(number(args, "epoch", 1, U63)),
        )
        slices = number(args, "first", 0, U32), number(args, "slices", 1, U32)
        asked = Asked(gid, number(args, "tail", 1, U63), *slices, number(args, "session", 0, U64))
        at, size = number(args, "at", 0, U32), number(args, "size", 0, STATE_PART_BYTES)
        caller = CALLER.get()
        if self._may_come(asked) and self._held[caller] < HELD_MAX:
            self._held[caller] += 1
            assert self._held[caller] <= HELD_MAX, "each takes memory"
            try:
                await self._until(lambda: not self._may_come(asked), HELD_SECONDS)
            finally:
                self._held -= Counter([caller])  # Who has none left is forgotten.
        if reason := self._refusal(asked):
            raise NotReadyError(reason)
        async with self._turns.setdefault(caller, asyncio.Lock()):
            self._asks(caller, asked)
            if (kept := self._kept.get(asked)) is None:
                async with self._making:  # One after the other: each takes memory.
                    kept = self._kept.get(asked) or await self._make(asked)
        self._keep()
        return {"sums": list(kept.sums), "part": kept.found.state[at : at + size]}

    def _refusal(self, asked: Asked) -> str:
        """Why it can not be had here; empty: it can."""
        gid = asked.gid
        ended, session = self._tail_of(gid), self._session_of(gid)
        if gid.token != self._token:
            return f"no groups of {gid} are here"
        if ended is None:
            return f"it is not known here that {gid} has ended"
        if ended != asked.tail:
            return f"{gid} has ended with group {ended}"
        if asked.session and session is not None and asked.session != session:
            return f"{gid} is another one here"
        generation = self._store.lineage.get(gid.epoch)
        if generation is not None and generation.expired:
            return f"{gid} is too old: its groups are removed"
        return "" if self._store.whole(gid.epoch, ended) else f"not all groups of {gid} are here"

    def _may_come(self, asked: Asked) -> bool:
        """Whether its end is news that may be on its way here, or the rest of its groups are."""
        assert asked.tail > 0, "without a group there is no state of its own"
        if asked.gid.token != self._token:
            return False
        ended = self._tail_of(asked.gid)
        return ended is None or (
            ended == asked.tail and not self._store.whole(asked.gid.epoch, ended)
        )

    def _asks(self, caller: int, asked: Asked) -> None:
        """What a broker asked for before that is not kept for it any more."""
        lately = [each for each in self._lately.pop(caller, []) if each != asked]
        self._lately[caller] = [*lately, asked][-KEPT_EACH:]
        while len(self._lately) > KEPT_CALLERS:
            del self._lately[next(iter(self._lately))]
        wanted = {each for of in self._lately.values() for each in of}
        self._kept = {each: kept for each, kept in self._kept.items() if each in wanted}

    async def _make(self, asked: Asked) -> _Kept:
        slices = range(asked.first, asked.first + asked.slices)
        try:
            found = await self._store.state_at(asked.gid.epoch, asked.tail, slices)
        except ValueError as error:
            raise NotReadyError(str(error)) from None
        sums = Sums(len(found.state), crc32c(found.state), found.header_crc)
        kept = self._kept[asked] = _Kept(found, sums)
        assert len(self._kept) <= KEPT_EACH * KEPT_CALLERS + 1, "each takes memory"
        return kept

    def _keep(self) -> None:
        assert self._kept, "one was just made, or is there"
        if self._forget is not None:
            self._forget.cancel()
        loop = asyncio.get_running_loop()
        self._forget = loop.call_later(KEPT_SECONDS, self._kept.clear)

    # --- Questions ------------------------------------------------------------------------------

    async def fetch(
        self, gid: Gid, tail: int, header_crc: int | None, slices: range | None = None
    ) -> bytes:
        """As `StateSource`: asks all who may have it, for STATE_WAIT_SECONDS.

        The same groups make the same bytes everywhere: what one gives is taken when another says
        that it has the same, or when no other has it.
        """
        assert tail > 0, "without a group there is no state of its own"
        of = self._reactor.shard_slices() if slices is None else (slices.start, len(slices))
        asked = Asked(gid, tail, *of, self._session_of(gid) or 0)
        if (early := self._taken_ahead(asked)) is not None and header_crc is None:
            with suppress(BarcoError, ValueError):
                return await early
        loop = asyncio.get_running_loop()
        until, said = loop.time() + STATE_WAIT_SECONDS, dict[int, str]()
        pause = ASK_AGAIN_SECONDS
        while True:
            # A lie is there at once, and who has just learned of the end a moment later.
            alone = header_crc is not None or loop.time() > until - STATE_WAIT_SECONDS * PATIENCE
            holders = self._holders(asked.gid)
            sums, members = await self._agreed(asked, holders, said, alone=alone)
            for member, first in members.items():
                try:
                    assert sums is not None
                    return await self._whole(member, asked, sums, first, header_crc)
                except (BarcoError, ValueError) as error:
                    self._refused(gid, member, str(error), said)
            if loop.time() > until:
                words = "; ".join(f"broker {process_of(each)[0]}: {said[each]}" for each in said)
                raise NotReadyError(f"Nobody gives the state behind group {tail} of {gid}. {words}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, ASK_AGAIN_SECONDS_MAX)

    def ahead(self, parent: Generation, tail: int, slices: range, holders: Sequence[int]) -> None:
        """Ask now, once, for what `fetch` is likely to be asked for in a moment: somebody has said
        that a generation has ended so. It may be a lie, and nothing is made of it before others say
        the same; of one such word at a time."""
        asked = Asked(parent.gid, tail, slices.start, len(slices), parent.session)
        if self._early is None or self._early[1].done() and self._early[0] != asked:
            task = asyncio.get_running_loop().create_task(self._once(asked, holders))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._early = asked, task

    async def _once(self, asked: Asked, holders: Sequence[int]) -> bytes:
        sums, members = await self._agreed(asked, holders, {}, alone=False)
        for member, first in members.items():
            assert sums is not None, "they have said it"
            return await self._whole(member, asked, sums, first, None)
        raise NotReadyError(f"No two say the same of the state of {asked.gid}.")

    def _taken_ahead(self, asked: Asked) -> asyncio.Task[bytes] | None:
        """What was asked for ahead, if it is this; it is taken once."""
        early, self._early = self._early, None
        if early is None or early[0] == asked:
            return None if early is None else early[1]
        early[1].cancel()
        return None

    def _refused(self, gid: Gid, member: int, words: str, said: dict[int, str]) -> None:
        why = "".join(filter(str.isprintable, words))[:WORDS_CHARS_MAX]
        if said.get(member) != why:
            log.warning("the state of %s: broker %d: %s", gid, process_of(member)[0], why)
        said[member] = why

    async def _agreed(
        self, asked: Asked, holders: Sequence[int], said: dict[int, str], *, alone: bool
    ) -> tuple[Sums | None, dict[int, bytes]]:
        """The sums that two tell alike, or one where no other has any; and who does, with the first
        bytes that came with them. alone: whether
        one is enough though others may have it. Who has refused is asked again while another one
        has not answered at all: that may take as long as it is waited for."""
        found: dict[Sums, dict[int, bytes]] = {}
        tasks = {
            asyncio.create_task(self._sums(each, asked, THIRD_SECONDS * (at > 1))): each
            for at, each in enumerate(holders)
        }
        silent, pauses = set(holders), dict.fromkeys(holders, ASK_AGAIN_SECONDS)
        try:
            while silent:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    member = tasks.pop(task)
                    silent.discard(member)
                    try:
                        sums, first = task.result()
                    except BarcoError as error:
                        self._refused(asked.gid, member, str(error), said)
                        again = self._sums(member, asked, after=pauses[member])
                        tasks[asyncio.create_task(again)] = member
                        pauses[member] = min(2 * pauses[member], ASK_AGAIN_SECONDS_MAX)
                        continue
                    members = found.setdefault(sums, {})
                    members[member] = first
                    if len(members) > 1:
                        return sums, members
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if len(found) == 1:
            enough = alone or len(holders) == 1
            return next(iter(found.items())) if enough else (None, {})
        for members in found.values():
            for member in members:
                self._refused(asked.gid, member, "the others have another state", said)
        return None, {}

    async def _whole(
        self, member: int, asked: Asked, sums: Sums, first: bytes, header_crc: int | None
    ) -> bytes:
        """All of it, of one member, which has sent the first bytes. BarcoError or ValueError: it is
        not what was said."""
        if header_crc is not None and sums.header_crc != header_crc:
            raise ProtocolError(f"its group {asked.tail} is another one")
        if sums.total > self._state_bytes_max:
            raise ProtocolError(f"a state of {sums.total} bytes is too large for this broker")
        if len(first) > sums.total:
            raise ProtocolError("more of a state than was asked for")
        parts = bytearray(first)
        try:
            async with asyncio.timeout(STATE_ANSWER_SECONDS + sums.total / BYTES_A_SECOND):
                while len(parts) < sums.total:
                    size = min(STATE_PART_BYTES, sums.total - len(parts))
                    told, part = await self._part(member, asked, len(parts), size)
                    if told != sums or len(part) != size:
                        raise ProtocolError("the parts are not of one state")
                    parts += part
        except TimeoutError:
            raise NotReadyError(f"it sent {len(parts)} bytes of {sums.total}, too slowly") from None
        assert len(parts) == sums.total, "each part was as long as it was asked for"
        if crc32c(parts) != sums.crc:
            raise ProtocolError("the parts are not what was sent")
        # All of it is looked through, and what is of other slices does not come in.
        if len(parts) <= FIRST_BYTES:  # Sooner than a thread is there, for which clients wait.
            return state_cut(parts, asked.first, asked.slices)
        return await asyncio.to_thread(state_cut, parts, asked.first, asked.slices)

    async def _sums(self, member: int, asked: Asked, after: float = 0.0) -> tuple[Sums, bytes]:
        """What it says of the whole, and its first bytes. BarcoError: why there is none."""
        await asyncio.sleep(after)
        return await self._part(member, asked, 0, FIRST_BYTES)

    async def _part(self, member: int, asked: Asked, at: int, size: int) -> tuple[Sums, bytes]:
        """A part, and what is said of the whole. BarcoError: why there is none."""
        gid = asked.gid
        names = {"token": gid.token, "epoch": gid.epoch, "tail": asked.tail}
        names |= {"first": asked.first, "slices": asked.slices, "session": asked.session}
        args = {**names, "at": at, "size": size}
        answer = await self._siblings.call(member, "state", args, STATE_ANSWER_SECONDS)
        if not isinstance(answer, Mapping) or not isinstance(part := answer.get("part"), bytes):
            raise ProtocolError("a state without a part")
        sums = answer.get("sums")
        if not isinstance(sums, (list, tuple)) or len(sums) != len(Sums._fields):
            raise ProtocolError("a state without its sums")
        if any(type(each) is not int or not 0 <= each <= U32 for each in sums):
            raise ProtocolError("a state with strange sums")
        if len(part) > size:
            raise ProtocolError("more of a state than was asked for")
        return Sums(*sums), part

    def close(self) -> None:
        """Nothing is kept any more."""
        if self._forget is not None:
            self._forget.cancel()
        if self._early is not None:
            self._early[1].cancel()
        self._kept.clear()
