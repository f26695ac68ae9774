"""How a process learns that its range has a generation: it asks members of the parent.

The parent of a range that was made by a split is another range's, with other processes: no link of
replication leads there. So who has no open generation asks for how it came to be (`origin`), and
takes what two members of the parent say alike; the machine looks at it once more (rule P8).

The question is held where it was asked (`origin_wait`), and answered as soon as that is known
there: clients wait, and a connection is there. Of whom no question is held is hinted that it is
worth to ask now, and whom (`begun_by`), which anybody may do.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from barco.cluster.state.kin import KnownLineage, origin
from barco.errors import BarcoError, ProtocolError, RequestError
from barco.limits import BROKERS_MAX
from barco.log import Seldom
from barco.model.generation import Generation, Gid, Successor
from barco.model.ranges import peer_of, process_of
from barco.model.token import TOKEN_MAX, TOKEN_MIN
from barco.protocol.replication import DecidedRecord, OpenedRecord
from barco.protocol.replication_codec import U63, record_from_map, to_map
from barco.workers.peers.callers import CALLER
from barco.workers.peers.ranges import RingRanges
from barco.workers.peers.voices import VOICES
from barco.workers.seams import SiblingsLike

Args = Mapping[str, Any]
Told = tuple[Generation, Successor]
"""A generation, and what was decided to follow it."""

ASK_SECONDS, ASK_SECONDS_MAX = 0.25, 2.0
"""Between two rounds of questions: a hint may be lost, and routes may be news. They become rarer:
who was made long before its range is decided, or is a member no more, has to wait for a hint."""

HINT_SECONDS = 0.02
"""Between two hints that count: anybody may give them, and each is a round of questions."""

ANSWER_SECONDS = 2.0
TELL_SECONDS = 1.0

HELD_SECONDS = 2.0
"""A question is held so long, and then asked again; of HELD_MAX processes of one broker."""
HELD_MAX = 64

LEFT_RANGES, WIDE_SECONDS = 4, 4.0
"""The range on the left is asked as well: the first child of a split keeps the parent's processes.
It may have been split again meanwhile: so now and then that many are asked. Not at once: each is a
connection to three processes, just when others wait for the processor."""

log = logging.getLogger("barco.replication")
unread = Seldom(log)


def number(args: Args, name: str, low: int, high: int) -> int:
    """An argument that came from another process; RequestError if it is no such number."""
    value = args.get(name)
    if type(value) is not int or not low <= value <= high:
        raise RequestError(f"{name} is no number of {low} to {high}.")
    return value


def epoch_of(told: Told | None, token: int, ordinal: int) -> int:
    """Of the generation of this range, with this broker, that an origin tells of; 0: of none."""
    if told is None:
        return 0
    mine = (each.gid.epoch for each in told[1].children if _is_of(each, token, ordinal))
    return max(mine, default=0)


def _is_of(child: Generation, token: int, ordinal: int) -> bool:
    return child.gid.token == token and child.seat(ordinal) is not None


def unpack(given: Any) -> Told | None:
    """An answer to `origin`; None: it knows of nothing. ProtocolError: it is none."""
    if given is None:
        return None
    if not isinstance(given, (list, tuple)) or len(given) != 2:
        raise ProtocolError("an origin is two records")
    if not all(isinstance(each, Mapping) for each in given):
        raise ProtocolError("an origin is two maps")
    opened, decided = map(record_from_map, given)
    if not isinstance(opened, OpenedRecord) or not isinstance(decided, DecidedRecord):
        raise ProtocolError("an origin is a generation and its successor")
    if opened.generation.gid != decided.gid:
        raise ProtocolError("an origin of two generations")
    return opened.generation, decided.value


class Origins:
    """Both sides of it, for the replica of one process."""

    def __init__(
        self,
        token: int,
        ordinal: int,
        first_slice: int,
        *,
        ranges: RingRanges,
        siblings: SiblingsLike,
        peer: int,
        journal: Callable[[], KnownLineage | None],
        wants: Callable[[], bool],
        taught: Callable[[Generation, Successor, frozenset[int]], None],
        voices: Callable[[Iterable[int]], frozenset[int]] = frozenset,
        hinted: Callable[[Generation, Successor], None] = lambda parent, value: None,
    ) -> None:
        """token, ordinal, first_slice, peer: of the own process; the slice's number in the ring.
        `journal`: what is known here, once it was read. `wants`: whether there is no open
        generation here. `taught`: two have said the same. `voices`: whose word counts. `hinted`:
        somebody has said so, and whether it is true is not known yet."""
        self._token, self._ordinal, self._first_slice = token, ordinal, first_slice
        self._ranges, self._siblings, self._peer = ranges, siblings, peer
        self._journal, self._wants, self._taught = journal, wants, taught
        self._voices, self._hinted_of = voices, hinted
        self._kick = asyncio.Event()
        self._hinted: asyncio.TimerHandle | None = None
        self._hint_at, self._all_at = 0.0, 0.0
        self._left, self._wide_at = 1, 0.0
        """How many ranges on the left are asked, and when next all of LEFT_RANGES."""
        self._parent: int | None = None
        """Whose end is hinted: its processes are asked, and all others another time."""
        self._telling: set[asyncio.Task[Any]] = set()
        self._held: dict[asyncio.Future[None], tuple[int, int, int]] = {}
        """Questions: by which broker, of which range, for which broker."""
        self._answered: tuple[Gid | None, set[tuple[int, int]]] = (None, set())
        """Who had a question here when a successor was learned."""
        self.operations: dict[str, Callable[[Args], Awaitable[Any]]] = {
            "origin": self._origin,
            "origin_wait": self._origin_wait,
            "begun_by": self._begun_by,
        }

    # --- Who is asked -----------------------------------------------------------------------------

    async def _origin(self, args: Args) -> list[dict[str, Any]] | None:
        token = number(args, "token", TOKEN_MIN, TOKEN_MAX)
        ordinal = number(args, "ordinal", 0, BROKERS_MAX)
        return _packed(self._origin_of(token, ordinal))

    async def _origin_wait(self, args: Args) -> list[dict[str, Any]] | None:
        """As `origin`, once it tells of a later epoch than the one that who asks has."""
        token = number(args, "token", TOKEN_MIN, TOKEN_MAX)
        ordinal, has = number(args, "ordinal", 0, BROKERS_MAX), number(args, "has", 0, U63)
        caller = CALLER.get()
        if (
            epoch_of(self._origin_of(token, ordinal), token, ordinal) <= has
            and sum(each[0] == caller for each in self._held.values()) < HELD_MAX
        ):
            learned = asyncio.get_running_loop().create_future()
            self._held[learned] = caller, token, ordinal
            try:
                await asyncio.wait([learned], timeout=HELD_SECONDS)
            finally:
                del self._held[learned]
        return _packed(self._origin_of(token, ordinal))

    def _origin_of(self, token: int, ordinal: int) -> Told | None:
        journal = self._journal()
        return None if journal is None else origin(journal, token, ordinal)

    def learned(self, parent: Generation, value: Successor) -> None:
        """It is decided, and on its way into the journal here: whose questions are held are told.
        It stays so, whoever forgets it (P3)."""
        told = set[tuple[int, int]]()
        for learned, (_, token, ordinal) in self._held.items():
            if any(_is_of(child, token, ordinal) for child in value.children):
                told.add((token, ordinal))
                if not learned.done():
                    learned.set_result(None)
        self._answered = parent.gid, told

    async def _begun_by(self, args: Args) -> None:
        of = args.get("of")
        self._parent = None if of is None else number(args, "of", TOKEN_MIN, TOKEN_MAX)
        if self._hinted is None:
            loop = asyncio.get_running_loop()
            self._hinted = loop.call_at(self._hint_at, self._begin_round)

    def _begin_round(self) -> None:
        self._hinted = None
        self._hint_at = asyncio.get_running_loop().time() + HINT_SECONDS
        self._kick.set()

    def decided(self, parent: Generation, value: Successor) -> None:
        """Stable here: who held the parent hints it to processes that can not have heard, of ranges
        and members that the parent did not have, unless they had asked before."""
        if parent.gid.token != self._token or parent.seat(self._ordinal) is None:
            return  # Of what was made others hear as this process has; they ask for it.
        before = {(int(parent.gid.token), int(member.ordinal)) for member in parent.members}
        if self._answered[0] == parent.gid:
            before |= self._answered[1]
            self._answered = (None, set())  # Who tells it once more tells everybody.
        for child in value.children:
            for member in child.members:
                if (child.gid.token, member.ordinal) in before:
                    continue
                process = self._ranges.process_at(member.ordinal, child.gid.token)
                if process is not None and peer_of(process) != self._peer:
                    call = self._tell(peer_of(process), parent.gid.token)
                    task = asyncio.get_running_loop().create_task(call)
                    self._telling.add(task)
                    task.add_done_callback(self._telling.discard)

    async def _tell(self, peer: int, parent: int) -> None:
        with suppress(BarcoError):  # It asks by itself.
            await self._siblings.call(peer, "begun_by", {"of": parent}, TELL_SECONDS)

    # --- Who asks ---------------------------------------------------------------------------------

    async def run(self) -> None:
        """For as long as the process lives: asks while there is something to learn."""
        pause, time = ASK_SECONDS, asyncio.get_running_loop().time
        self._wide_at = time() + WIDE_SECONDS
        while True:
            self._left = 1
            if time() >= self._wide_at:
                self._left, self._wide_at = LEFT_RANGES, time() + WIDE_SECONDS
            pause = ASK_SECONDS if self._kick.is_set() else min(2 * pause, ASK_SECONDS_MAX)
            if not self._kick.is_set() or time() >= self._all_at:  # Hints may be lies.
                self._parent, self._all_at = None, time() + 2 * ASK_SECONDS_MAX
            self._kick.clear()
            began = time()
            if self._wants():
                await self._ask()
                if time() - began >= HELD_SECONDS:
                    continue  # It was held: no moment is to be without a question.
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._kick.wait()

    async def close(self) -> None:
        """Ends what is under way."""
        if self._hinted is not None:
            self._hinted.cancel()
        for task in list(self._telling):
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)

    def _asked(self) -> list[int]:
        """Who may know: the processes of this range, of the one that its slices are in, and of some
        on the left; or those of the range that a hint has named."""
        tokens = [self._token, self._ranges.of_slice(self._first_slice)]
        left = sorted((each.token for each in self._ranges.all), reverse=True)
        tokens += [token for token in left if token < self._token][: self._left]
        if self._parent is not None:
            tokens = [self._parent]
        found = {
            peer_of(process)
            for token in dict.fromkeys(tokens)
            for process in self._ranges.processes_of_token(token)
        }
        return sorted(found - {self._peer})

    async def _ask(self) -> None:
        """One round: until two have said the same, or all have answered, or had time to.

        A hint asks all again who have answered: one that had heard of nothing may have by now, and
        another, that is just being started, may not answer for as long as it is waited for.
        """
        loop, args = asyncio.get_running_loop(), {"token": self._token, "ordinal": self._ordinal}
        known = self._origin_of(self._token, self._ordinal)
        args["has"] = epoch_of(known, self._token, self._ordinal)
        until = loop.time() + HELD_SECONDS + ANSWER_SECONDS
        said: list[tuple[Told, set[int]]] = []
        tasks: dict[asyncio.Task[Any], int] = {}
        hint = loop.create_task(self._kick.wait())
        try:
            while True:
                for peer in set(self._asked()) - set(tasks.values()):
                    tasks[loop.create_task(self._ask_one(peer, args))] = peer
                while tasks and not hint.done() and (left := until - loop.time()) > 0:
                    done, _ = await asyncio.wait(
                        (hint, *tasks), timeout=left, return_when=asyncio.FIRST_COMPLETED
                    )
                    for task in tasks.keys() & done:
                        ordinal, told = task.result()
                        del tasks[task]
                        if told is not None:
                            note_told(said, told, ordinal)
                            self._hinted_of(*told)
                    if self._learn(said):
                        return
                if not tasks or loop.time() >= until:
                    return
                self._kick.clear()
                hint = loop.create_task(self._kick.wait())
        finally:
            for each in (hint, *tasks):
                each.cancel()
            await asyncio.gather(hint, *tasks, return_exceptions=True)

    async def _ask_one(self, peer: int, args: Args) -> tuple[int, Told | None]:
        """What a process says, and whose it is: no connection is made to any other."""
        ordinal, seconds = process_of(peer)[0], HELD_SECONDS + ANSWER_SECONDS
        try:
            try:
                answer = await self._siblings.call(peer, "origin_wait", args, seconds)
            except RequestError:  # Of a version that holds no questions.
                answer = await self._siblings.call(peer, "origin", args, ANSWER_SECONDS)
            return ordinal, unpack(answer)
        except ProtocolError as error:
            unread.error("broker %d tells of no origin: %s", ordinal, error)
        except BarcoError:
            pass  # It is away, and is asked again.
        return ordinal, None

    def _learn(self, said: list[tuple[Told, set[int]]]) -> bool:
        """Whether enough have said the same, and it is news, which is told then. What is known here
        may be said again by who is late: of a range that was taken in and split off once more."""
        journal = self._journal()
        assert journal is not None, "who wants to learn has read its own"
        for (parent, value), ordinals in said:
            voices = self._voices(ordinals & {member.ordinal for member in parent.members})
            if len(voices) < min(VOICES, len(parent.members)):
                continue
            if not any(_is_of(each, self._token, self._ordinal) for each in value.children):
                continue
            if journal.decided.get(parent.gid) != value:
                self._taught(parent, value, voices)
                return True
        return False


def _packed(told: Told | None) -> list[dict[str, Any]] | None:
    if told is None:
        return None
    parent, value = told
    return [to_map(OpenedRecord(parent)), to_map(DecidedRecord(parent.gid, value))]


def note_told(said: list[tuple[Told, set[int]]], told: Told, ordinal: int) -> None:
    """One more says something; who says the same is counted together."""
    for known, ordinals in said:
        if known == told:
            ordinals.add(ordinal)
            return
    said.append((told, {ordinal}))
