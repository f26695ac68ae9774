"""Two ranges that become one: what the leader of the right one looks at before it hands its range
over, and how the leader of the left one learns of it.

The register of the right one is another range's, with no link between them. So who leads what is
before it asks the members (`handed`), and takes what two of them say alike; the machine looks at it
once more (rule P8), and takes the range in by itself. That it is worth to ask now the routes say,
or a hint without content (`handed_to`), which anybody may give.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from barco.cluster.state.kin import KnownLineage, handed, taker
from barco.errors import BarcoError, NotReadyError, ProtocolError
from barco.limits import PRODUCERS_RESTORED_MAX, TOPICS_MAX
from barco.model.generation import Generation, Gid, Kind, Successor
from barco.model.ranges import peer_of, process_of
from barco.model.token import TOKEN_MAX, TOKEN_MIN
from barco.protocol.replication import DecidedRecord, OpenedRecord
from barco.protocol.replication_codec import U63, to_map
from barco.types import Epoch, Token
from barco.workers.operations.origins import (
    ANSWER_SECONDS,
    Args,
    Told,
    note_told,
    number,
    unpack,
)
from barco.workers.peers.ranges import RingRanges
from barco.workers.peers.voices import VOICES
from barco.workers.seams import ReactorLike, SiblingsLike
from barco.workers.storage.stores.replicas import ReplicaStore

LOOK_SECONDS = 0.25
"""Between two looks at the routes, which cost nothing."""

ASK_SECONDS, ASK_SECONDS_MAX = 0.1, 2.0
"""Between two rounds of questions about one generation: clients wait, and it may not be decided
everywhere yet. Twice as long each time."""

TELL_SECONDS = 1.0

LEFT_RANGES = 8
"""So many ranges on the left are asked who has taken something in."""

RETENTION_SECONDS = 10.0
"""For an answer that nobody waits for."""

log = logging.getLogger("barco.replication")


class HandOvers:
    """Both sides of it, for the process of one range."""

    def __init__(
        self,
        token: int,
        *,
        store: ReplicaStore,
        reactor: ReactorLike,
        committed: Callable[[], int],
        ranges: RingRanges,
        siblings: SiblingsLike,
        peer: int,
        journal: Callable[[], KnownLineage | None],
        leads: Callable[[], Generation | None],
        taught: Callable[[Generation, Successor, frozenset[int]], None],
        hush: Callable[[], Awaitable[None]] | None = None,
        state_bytes_max: int,
        voices: Callable[[Iterable[int]], frozenset[int]] = frozenset,
    ) -> None:
        """token, peer: of the own process. `committed`: of what the core
        has. `leads`: the generation that is led here, if one is.
        `taught`: two have said the same; `hush`: before that, what comes waits. `voices`: whose
        word counts. state_bytes_max: of what a generation begins with."""
        self._token, self._peer, self._store, self._reactor = token, peer, store, reactor
        self._ranges, self._siblings = ranges, siblings
        self._journal, self._leads, self._taught = journal, leads, taught
        self._voices, self._hush = voices, hush
        self._committed, self._state_bytes_max = committed, state_bytes_max
        self._kick = asyncio.Event()
        self._hinted: Gid | None = None
        self._asked: tuple[Gid | None, float, float] = (None, 0.0, 0.0)
        self._telling: set[asyncio.Task[Any]] = set()
        self.operations: dict[str, Callable[[Args], Awaitable[Any]]] = {
            "handed": self._handed,
            "handed_to": self._handed_to,
            "room": self._room,
            "taken": self._taken,
        }

    # --- Answers ----------------------------------------------------------------------------------

    async def _handed(self, args: Args) -> list[dict[str, Any]] | None:
        """That a generation was handed over, as the journal here has it."""
        journal = self._journal()
        found = handed(journal, _gid(args)) if journal is not None else None
        if found is None:
            return None
        parent, value = found
        return [to_map(OpenedRecord(parent)), to_map(DecidedRecord(parent.gid, value))]

    async def _handed_to(self, args: Args) -> None:
        self._hinted = _gid(args)
        self._kick.set()

    async def _room(self, args: Args) -> dict[str, int]:
        """What the state of this range takes, and may take, by who leads it."""
        if self._leads() is None:
            raise NotReadyError("This process leads nothing.")
        return {**self._size(), "bytes_max": self._state_bytes_max}

    def _size(self) -> dict[str, int]:
        stats = self._reactor.stats()
        return {
            "topics": stats["topics"],
            "producers": stats["producers"],
            "bytes": stats["state_bytes"],
        }

    async def _taken(self, args: Args) -> bool:
        """Whether this range has taken in a generation, and the first group of what came of both is
        committed here: then nobody needs that one for a beginning (S8)."""
        journal, gid = self._journal(), _gid(args)
        found = taker(journal, gid) if journal is not None else None
        own = found is not None and found.token == self._token
        return own and found is not None and self._store.has_begun(found.epoch)

    # --- Before a range is handed over ------------------------------------------------------------

    async def refusal(self, leader: int, token: int) -> str:
        """Why the range here can not be taken in by the one at a token, which this broker leads;
        empty: it can. BarcoError: that can not be asked."""
        if self._committed() < 1:
            return "it has only begun"  # Whoever takes it in needs its state, not its parents'.
        process = self._ranges.process_at(leader, token)
        if process is None:
            raise NotReadyError(f"Broker {leader} has not told of a process for that range.")
        answer = await self._siblings.call(peer_of(process), "room", {}, ANSWER_SECONDS)
        if not isinstance(answer, Mapping):
            raise ProtocolError("a size that is none")
        return _refusal(self._size(), {name: number(answer, name, 0, U63) for name in _SIZES})

    def decided(self, ended: Generation, value: Successor) -> None:
        """Known here. Of a hand-over the range on the left gets a hint: its clients wait."""
        if value.kind is not Kind.HANDOFF or ended.gid.token != self._token:
            return
        first = self._ranges.slice_at(self._token)
        if first == 0:
            return
        args = {"token": ended.gid.token, "epoch": ended.gid.epoch}
        for process in self._ranges.holders(self._ranges.of_slice(first - 1)):
            if peer_of(process) != self._peer:
                task = asyncio.get_running_loop().create_task(self._tell(peer_of(process), args))
                self._telling.add(task)
                task.add_done_callback(self._telling.discard)

    async def _tell(self, peer: int, args: Args) -> None:
        with suppress(BarcoError):  # The routes say it as well.
            await self._siblings.call(peer, "handed_to", args, TELL_SECONDS)

    # --- Who takes it in --------------------------------------------------------------------------

    async def run(self) -> None:
        """For as long as the process lives: learns of what was handed to it."""
        while True:
            self._kick.clear()
            await self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._kick.wait()

    async def look(self) -> bool:
        """Asks, if something behind what is led here was handed over; whether that was learned."""
        gid = self._due()
        now = asyncio.get_running_loop().time()
        before, at, pause = self._asked
        if gid is None or (gid == before and now < at):
            return False
        pause = min(2 * pause, ASK_SECONDS_MAX) if gid == before else ASK_SECONDS
        self._asked = (gid, now + pause, pause)
        return await self._ask(gid)

    def _due(self) -> Gid | None:
        """What begins where the generation that is led here ends, and nobody leads."""
        own, journal = self._leads(), self._journal()
        if own is None or journal is None or own.end > TOKEN_MAX:
            return None
        route = self._ranges.routes.at(self._ranges.slice_at(own.end))
        gid = self._hinted
        if route is not None and route.handed and route.token == own.end:
            gid = Gid(Token(route.token), Epoch(route.epoch))
        if gid is None or gid.token != own.end or gid in journal.decided:
            return None
        return gid

    async def _ask(self, gid: Gid) -> bool:
        args = {"token": gid.token, "epoch": gid.epoch}
        peers = sorted(set(map(peer_of, self._ranges.processes_of_token(gid.token))))
        tasks = {asyncio.create_task(self._ask_one(peer, args)) for peer in peers}
        said: list[tuple[Told, set[int]]] = []
        try:
            while tasks:
                done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for ordinal, told in (task.result() for task in done):
                    if told is not None and told[0].gid == gid:
                        note_told(said, told, ordinal)
                if await self._learn(said):
                    return True
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return False

    async def _ask_one(self, peer: int, args: Args) -> tuple[int, Told | None]:
        ordinal = process_of(peer)[0]
        with suppress(BarcoError):  # It is away, or talks nonsense: two others have to say it.
            return ordinal, unpack(await self._siblings.call(peer, "handed", args, ANSWER_SECONDS))
        return ordinal, None

    async def _learn(self, said: list[tuple[Told, set[int]]]) -> bool:
        for (parent, value), ordinals in said:
            voices = self._voices(ordinals & {member.ordinal for member in parent.members})
            if value.kind is Kind.HANDOFF and len(voices) >= min(VOICES, len(parent.members)):
                log.info("%s was handed to this range, up to group %d", parent.gid, value.tail)
                if self._hush is not None:
                    await self._hush()
                self._taught(parent, value, voices)
                return True
        return False

    async def close(self) -> None:
        """Ends what is under way."""
        for task in list(self._telling):
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)


# --- Before retention (S8) --------------------------------------------------------------------


async def look_for_children(
    token: int,
    store: ReplicaStore,
    ranges: RingRanges,
    siblings: SiblingsLike,
    voices_of: Callable[[Iterable[int]], frozenset[int]] = frozenset,
) -> None:
    """Rule S8: asks whether children of other ranges have begun, or those of this one that this
    broker is no member of, for retention to go on here. What two brokers say alike is noted; who
    would lie alone could only keep groups for longer. A single broker has nobody to say it but
    itself. `voices_of`: who of these has a voice."""
    voices_min = 1 if len(ranges.members(token)) == 1 else VOICES
    for generation in store.lineage.generations():
        parent, asked = (token, generation.epoch), list[tuple[int, int] | None]()
        if not generation.expired:
            known = store.lineage.elsewhere(parent)
            asked += [child for child, has_begun in known.items() if not has_begun]
        if (child := store.moved_to(generation.epoch)) is not None:
            asked.append(child)
        for child in asked:
            if child is None:
                voices = await who_took(parent, ranges, siblings, RETENTION_SECONDS)
            else:
                voices = await _who_began(child, ranges, siblings)
            # Who its members are now, one alone may have told.
            if len(voices_of(voices)) >= voices_min:
                await asyncio.to_thread(store.lineage.begun, parent, child)


async def _who_began(
    child: tuple[int, int], ranges: RingRanges, siblings: SiblingsLike
) -> set[int]:
    """Brokers that say that the first group of a generation is committed."""
    peers = [peer_of(process) for process in ranges.processes_of_token(child[0])]
    if not peers:
        return set()
    asked = {"token": child[0], "epoch": child[1]}
    said = await siblings.broadcast("begun", dict.fromkeys(peers, asked), RETENTION_SECONDS)
    return {process_of(peer)[0] for peer, answer in said.items() if answer is True}


async def who_took(
    parent: tuple[int, int], ranges: RingRanges, siblings: SiblingsLike, seconds: float
) -> set[int]:
    """Brokers that say that what was handed over was taken in, and that this has begun."""
    token, epoch = parent
    tokens = [ranges.of_slice(ranges.slice_at(token)), *ranges.left_of(token, LEFT_RANGES)]
    peers = {
        peer_of(process)
        for each in dict.fromkeys(tokens)
        for process in ranges.processes_of_token(each)
    }
    asked = {"token": token, "epoch": epoch}
    said = await siblings.broadcast("taken", dict.fromkeys(sorted(peers), asked), seconds)
    return {process_of(peer)[0] for peer, answer in said.items() if answer is True}


_SIZES = ("topics", "producers", "bytes", "bytes_max")


def _gid(args: Args) -> Gid:
    token, epoch = number(args, "token", TOKEN_MIN, TOKEN_MAX), number(args, "epoch", 1, U63)
    return Gid(Token(token), Epoch(epoch))


def _refusal(own: Mapping[str, int], left: Mapping[str, int]) -> str:
    """Why both states do not fit into one range, in words; empty: they do."""
    bounds = {
        "producers": PRODUCERS_RESTORED_MAX,
        "topics": TOPICS_MAX,
        "bytes": left["bytes_max"],
    }
    for name, most in bounds.items():
        if own[name] + left[name] > most:
            what = "bytes of state" if name == "bytes" else name
            return f"{own[name]} and {left[name]} {what} are more than the {most} of one range"
    return ""
