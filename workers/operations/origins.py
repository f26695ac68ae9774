"""How a process learns that its range has a generation: it asks members of the parent.

The parent of a range that was made by a split is another range's, with other processes: no link of
replication leads there. So who has no open generation asks for how it came to be (`origin`), and
takes what two members of the parent say alike; the machine looks at it once more (rule P8). That it
is worth to ask now, and whom, is a hint (`begun_by`), which anybody may give.
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
from barco.model.generation import Generation, Successor
from barco.model.ranges import peer_of, process_of
from barco.model.token import TOKEN_MAX, TOKEN_MIN
from barco.protocol.replication import DecidedRecord, OpenedRecord
from barco.protocol.replication_codec import record_from_map, to_map
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

LEFT_RANGES = 4
"""So many ranges on the left are asked as well: the first child of a split keeps the parent's
processes, and may have been split again meanwhile."""

log = logging.getLogger("barco.replication")
unread = Seldom(log)


def number(args: Args, name: str, low: int, high: int) -> int:
    """An argument that came from another process; RequestError if it is no such number."""
    value = args.get(name)
    if type(value) is not int or not low <= value <= high:
        raise RequestError(f"{name} is no number of {low} to {high}.")
    return value


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
    ) -> None:
        """token, ordinal, first_slice, peer: of the own process; the slice's number in the ring.
        `journal`: what is known here, once it was read. `wants`: whether there is no open
        generation here. `taught`: two have said the same. `voices`: whose word counts."""
        self._token, self._ordinal, self._first_slice = token, ordinal, first_slice
        self._ranges, self._siblings, self._peer = ranges, siblings, peer
        self._journal, self._wants, self._taught = journal, wants, taught
        self._voices = voices
        self._kick = asyncio.Event()
        self._hinted: asyncio.TimerHandle | None = None
        self._hint_at, self._all_at = 0.0, 0.0
        self._parent: int | None = None
        """Whose end is hinted: its processes are asked, and all others another time."""
        self._telling: set[asyncio.Task[Any]] = set()
        self.operations: dict[str, Callable[[Args], Awaitable[Any]]] = {
            "origin": self._origin,
            "begun_by": self._begun_by,
        }

    # --- Who is asked -----------------------------------------------------------------------------

    async def _origin(self, args: Args) -> list[dict[str, Any]] | None:
        token = number(args, "token", TOKEN_MIN, TOKEN_MAX)
        ordinal = number(args, "ordinal", 0, BROKERS_MAX)
        journal = self._journal()
        found = origin(journal, token, ordinal) if journal is not None else None
        if found is None:
            return None
        parent, value = found
        return [to_map(OpenedRecord(parent)), to_map(DecidedRecord(parent.gid, value))]

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
        """Known here: hint it to processes that can not have heard, of ranges and members that the
        parent did not have."""
        before = {(parent.gid.token, member.ordinal) for member in parent.members}
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
        while True:
            pause = ASK_SECONDS if self._kick.is_set() else min(2 * pause, ASK_SECONDS_MAX)
            if not self._kick.is_set() or time() >= self._all_at:  # Hints may be lies.
                self._parent, self._all_at = None, time() + 2 * ASK_SECONDS_MAX
            self._kick.clear()
            if self._wants():
                await self._ask()
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
        tokens += [token for token in left if token < self._token][:LEFT_RANGES]
        if self._parent is not None:
            tokens = [self._parent]
        found = {
            peer_of(process)
            for token in dict.fromkeys(tokens)
            for process in self._ranges.processes_of_token(token)
        }
        return sorted(found - {self._peer})

    async def _ask(self) -> None:
        """One round: until two have said the same, or all have answered.

        A hint asks all again who have answered: one that had heard of nothing may have by now, and
        another, that is just being started, may not answer for as long as it is waited for.
        """
        loop, args = asyncio.get_running_loop(), {"token": self._token, "ordinal": self._ordinal}
        until = loop.time() + ANSWER_SECONDS
        said: list[tuple[Told, set[int]]] = []
        tasks: dict[asyncio.Task[Any], int] = {}
        hint = loop.create_task(self._kick.wait())
        try:
            while True:
                for peer in set(self._asked()) - set(tasks.values()):
                    tasks[loop.create_task(self._ask_one(peer, args))] = peer
                while tasks and not hint.done():
                    watched = (hint, *tasks) if loop.time() < until else tuple(tasks)
                    done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                    for task in tasks.keys() & done:
                        ordinal, told = task.result()
                        del tasks[task]
                        if told is not None:
                            note_told(said, told, ordinal)
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
        ordinal = process_of(peer)[0]
        try:
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
            if not any(
                child.gid.token == self._token and child.seat(self._ordinal) is not None
                for child in value.children
            ):
                continue
            if journal.decided.get(parent.gid) != value:
                self._taught(parent, value, voices)
                return True
        return False


def note_told(said: list[tuple[Told, set[int]]], told: Told, ordinal: int) -> None:
    """One more says something; who says the same is counted together."""
    for known, ordinals in said:
        if known == told:
            ordinals.add(ordinal)
            return
    said.append((told, {ordinal}))
