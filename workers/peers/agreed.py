"""What holders of history say alike: no single broker's word counts where another can be asked.

H1: chunks are taken when a second holder has the same. H2: where something begins, or that nothing
is left, is a claim of the form "nothing is before this"; of all such claims the latest counts that
two make or pass. So one that lies makes nobody go past events, nor remove them. H3: who never had a
generation has no word. H4: where nobody else can be asked one is believed by readers, as in P5, and
by retention never. The processes of one's own broker are believed alone.
"""

import asyncio
import hashlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Generic, NamedTuple, TypeVar

from msgspec import Struct, field

from barco.cluster.state.kin import Ancestor
from barco.errors import BarcoError, CorruptDataError, NotReadyError, ProtocolError
from barco.limits import OFFSET_MAX
from barco.model.generation import Gid
from barco.model.ranges import process_of
from barco.workers.peers.voices import VOICES

MORE_SECONDS = 1.0
"""For others, once two have answered and differ: of two the safer word counts."""

ANSWER_SECONDS = 10.0
"""For a holder: a read from its disk, behind others."""

CONFIRM_SECONDS = 3.0
"""For who shall say the same as another: where nobody else does by then, one alone is believed."""

HEDGE_SECONDS = 0.3
"""For one of those who can answer a read, before another is asked as well. Reads from a busy disk
take a tenth of that."""

ASKED_MAX = 3
"""At once for one read: as many as there are members."""

BESIDE_MAX = 4
"""At each of them, of what is read beside others; more wait. Where all disks are slow, their load
must not double."""

SLOW_SECONDS = 60.0
"""For so long one comes last that was overtaken, or not there when it was waited for."""

LATE_WAIT, LATE_EVERY = 0.2, 2.0
"""Who did not answer while it was waited for is waited for so long only, every so many seconds,
until it answers: a process that is stopped costs one long wait, and not one for each read."""

FOREVER = float("inf")

SUM_BYTES = 32

T = TypeVar("T")
Ask = Callable[[int], Awaitable[tuple[T] | None]]
"""Asks one process, by its number in the cluster. None: it never had the generation, and says so. A
BarcoError: it can not be asked, or can not tell now."""


_Tasks = dict[asyncio.Future[tuple[T] | None], tuple[int, float]]
"""Who is asked, and since when."""


class _Said(Struct, Generic[T]):
    answers: dict[int, T] = field(default_factory=dict)
    failures: list[BarcoError] = field(default_factory=list)
    silent: set[int] = field(default_factory=set)
    """Who has not answered yet."""

    @property
    def is_all(self) -> bool:
        """Whether nobody else could have a word."""
        return not self.failures and not self.silent


class Sum:
    """Of stored chunks as a read gives them: a strong one, for a crc can be made to fit."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=SUM_BYTES)

    def add(self, chunks: Iterable[bytes | memoryview]) -> None:
        """What comes next. Not for the loop: it takes a millisecond a mebibyte."""
        for piece in chunks:
            self._hash.update(piece)

    def of(self, end: int) -> bytes:
        """All of it, with the offset behind the last event."""
        self._hash.update(b"%d" % end)
        return self._hash.digest()


def sum_of(chunks: Iterable[bytes | memoryview], end: int) -> bytes:
    """Of chunks and the offset behind their last event, at once."""
    found = Sum()
    found.add(chunks)
    return found.of(end)


def second_latest(said: Sequence[T], key: Callable[[T], Any]) -> T:
    """The latest that two say or pass, one of whom is honest; of one voice that."""
    assert said, "somebody has answered"
    return sorted(said, key=key, reverse=True)[min(len(said), VOICES) - 1]


def offset_key(at: int | None) -> int:
    """Of an offset before which nothing is; None: nothing is there at all."""
    return OFFSET_MAX + 1 if at is None else at


class Line(NamedTuple):
    """What a holder says of what a generation continues."""

    lacks: tuple[Ancestor, ...]
    """What it does not have."""
    has: frozenset[tuple[Gid, int]]
    """(name, T) of what it has, or has had."""


def _known(*lines: Line, voices: int = VOICES) -> list[Ancestor]:
    """Those of which so many know. Who has no record of one says that it goes to the end of the
    ring; of two ends the later counts: so more is asked, never less."""
    found: dict[tuple[Gid, int], Ancestor] = {}
    heard: Counter[tuple[Gid, int]] = Counter()
    for line in lines:
        names = {(each.gid, each.tail) for each in line.lacks}
        heard.update(names | line.has)
        for each in line.lacks:
            known = found.get((each.gid, each.tail), each)
            end, members = max(known.end, each.end), known.members or each.members
            found[each.gid, each.tail] = each._replace(end=end, members=members)
    few = min(voices, len(lines))
    return [each for name, each in found.items() if heard[name] >= few]


class Agreed:
    """Of one process: it asks holders, and takes what is not one broker's word alone."""

    def __init__(self, ordinal: int) -> None:
        """ordinal: of this broker, whose processes are believed."""
        self._ordinal = ordinal
        self._slow: dict[int, float] = {}
        """By their numbers in the cluster: until when they come last."""
        self._late: dict[int, float] = {}
        """When those were last waited for who did not answer then; they are slow as well."""
        self._rooms: dict[int, asyncio.Semaphore] = {}

    def order(self, peers: Iterable[int]) -> list[int]:
        """Those that were slow lately come last."""
        now = asyncio.get_running_loop().time()
        self._slow = {peer: until for peer, until in self._slow.items() if until > now}
        self._late = {peer: at for peer, at in self._late.items() if peer in self._slow}
        return sorted(peers, key=self._slow.__contains__)

    async def first(
        self, peers: Sequence[int], ask: Ask[T], failures: list[BarcoError]
    ) -> tuple[int, T] | None:
        """Who has answered first, and what: one is asked, and after a short while another beside
        it. None: nobody has; why not is added to `failures`."""
        said = await self._ask(peers, ask, lambda said: bool(said.answers), each=True)
        failures += said.failures
        return next(iter(said.answers.items()), None)

    async def latest(
        self, peers: Sequence[int], ask: Ask[T], key: Callable[[T], Any], *, alone: bool = True
    ) -> tuple[T]:
        """Rule H2. alone: whether one is believed where nobody else can be asked (H4).
        NotReadyError or CorruptDataError: too few can tell."""
        if (own := await self._own(peers, ask)) is not None:
            return own

        def is_enough(said: _Said[T]) -> bool:
            keys = [key(each) for each in said.answers.values()]
            return len(keys) >= VOICES and keys.count(max(keys)) >= VOICES

        said = await self._ask(peers, ask, is_enough, CONFIRM_SECONDS if alone else FOREVER)
        self._check(said, alone)
        return (second_latest(list(said.answers.values()), key),)

    async def line(self, peers: Sequence[int], ask: Ask[Line]) -> tuple[list[Ancestor], bool]:
        """Ancestors of which two holders know: who lacks one says what it is, who has it only that;
        and whether that stays so. All are asked: one of three may never have had what the others
        have. NotReadyError: nobody can tell."""
        if (own := await self._own(peers, ask)) is not None:
            return _known(*own), True

        said = await self._ask(peers, ask, lambda said: False, CONFIRM_SECONDS)
        self._check(said, True)
        return _known(*said.answers.values()), len(said.answers) >= VOICES or said.is_all

    async def confirmed(self, peers: Sequence[int], ask: Ask[bytes], sum_: bytes) -> bool:
        """Rule H1, of chunks that somebody else has given. ask: the sum of what it has there; empty
        if it has nothing any more. NotReadyError: one says other things, and nobody else can be
        asked."""

        def is_enough(said: _Said[bytes]) -> bool:
            words = list(said.answers.values())
            return sum_ in words or len(words) >= VOICES

        said = await self._ask(peers, ask, is_enough, CONFIRM_SECONDS, each=True)
        words = list(said.answers.values())
        if sum_ in words:
            return True
        others = [each for each in words if each]
        if others or len(words) >= VOICES:
            return False
        if words and not said.is_all:
            raise NotReadyError("One holder has what another says is gone; others are away.")
        return True  # Nobody else can be asked, or was ever there.

    async def _own(self, peers: Sequence[int], ask: Ask[T]) -> tuple[T] | None:
        for peer in peers:
            if process_of(peer)[0] == self._ordinal:
                with suppress(BarcoError):
                    if (found := await ask(peer)) is not None:
                        return found
        return None

    def _check(self, said: _Said[Any], alone: bool) -> None:
        if len(said.answers) >= VOICES or said.answers and (alone or said.is_all):
            return
        for failure in said.failures:
            if isinstance(failure, CorruptDataError):
                raise failure
        why = said.failures[0] if said.failures else "no process has told of it"
        raise NotReadyError(f"Too few who hold it can be asked: {why}")

    async def _ask(
        self,
        peers: Sequence[int],
        ask: Ask[T],
        is_enough: Callable[[_Said[T]], bool],
        seconds: float = FOREVER,
        *,
        each: bool = False,
    ) -> _Said[T]:
        """Until it is enough. All at once, and when one has answered so long at most, and not much
        longer once two have. each: of what is read, one, and the next when that was not enough or
        takes long; so long at most in all."""
        loop, said = asyncio.get_running_loop(), _Said[T]()
        due = loop.time()
        until = due + seconds if each else FOREVER
        todo = deque(self.order(peers))
        tasks: _Tasks[T] = {}
        try:
            while (todo or tasks) and not is_enough(said):
                now = loop.time()
                while todo and (not each or self._is_next(tasks, now >= due)):
                    peer, due = todo.popleft(), now + HEDGE_SECONDS
                    asking = self._beside(peer, ask) if each and tasks else ask(peer)
                    tasks[asyncio.ensure_future(asking)] = (peer, now)
                if said.answers and not each:
                    more = MORE_SECONDS if len(said.answers) >= VOICES else seconds
                    until = min(until, now + more)
                end = until
                if until < FOREVER and not todo and self._are_late(tasks):
                    end = min(until, now + self._patience(tasks, now))
                    if end == now:
                        break
                another = bool(todo) and len(tasks) < ASKED_MAX and due < end
                done = await _done(tasks, (due if another else end) - now)
                for task in done:
                    self._take(said, task, *tasks.pop(task))
                    due = loop.time()
                if not done and not another:
                    self._note_late(tasks)
                    break
            self._note_slow(tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        said.silent = {peer for peer, _ in tasks.values()} | set(todo)
        return said

    async def _beside(self, peer: int, ask: Ask[T]) -> tuple[T] | None:
        async with self._rooms.setdefault(peer, asyncio.Semaphore(BESIDE_MAX)):
            return await ask(peer)

    def _is_next(self, tasks: _Tasks[T], is_due: bool) -> bool:
        """Whether another is asked now. Nobody waits for those alone that were late."""
        return len(tasks) < ASKED_MAX and (is_due or self._are_late(tasks))

    def _are_late(self, tasks: _Tasks[T]) -> bool:
        return all(peer in self._late for peer, _ in tasks.values())

    def _patience(self, tasks: _Tasks[T], now: float) -> float:
        waited = min((self._late[peer] for peer, _ in tasks.values()), default=now)
        return LATE_WAIT if now - waited >= LATE_EVERY else 0.0

    def _take(
        self, said: _Said[T], task: asyncio.Future[tuple[T] | None], peer: int, began: float
    ) -> None:
        try:
            answer = task.result()
        except BarcoError as error:
            said.failures.append(error)
            self._note_slow({task: (peer, began)})
            return
        self._late.pop(peer, None)
        if answer is not None:
            said.answers[peer] = answer[0]

    def _note_slow(self, tasks: _Tasks[T]) -> None:
        """They have not answered, and others have, or they never will."""
        now = asyncio.get_running_loop().time()
        for peer, began in tasks.values():
            if now - began >= HEDGE_SECONDS:
                self._slow[peer] = now + SLOW_SECONDS

    def _note_late(self, tasks: _Tasks[T]) -> None:
        now = asyncio.get_running_loop().time()
        for peer, _ in tasks.values():
            self._late[peer], self._slow[peer] = now, now + SLOW_SECONDS


async def _done(tasks: _Tasks[T], seconds: float) -> set[asyncio.Future[tuple[T] | None]]:
    timeout = None if seconds == FOREVER else max(0.0, seconds)
    return (await asyncio.wait(tasks, timeout=timeout, return_when=asyncio.FIRST_COMPLETED))[0]


def take_sum(answer: Mapping[str, Any]) -> bytes:
    """The sum that a holder says; ProtocolError: it is none."""
    found = answer.get("sum")
    if not isinstance(found, bytes) or len(found) not in (0, SUM_BYTES):
        raise ProtocolError("a sum of history that is none")
    return found
