"""The brokers of which the cluster shall consist: as this worker has heard, and how it changes.

Whoever leads slice 0 keeps the target (`barco.workers.shard.target`), and tells it by gossip. Where
gossip tells another one than is known the keeper is asked, and before a step once more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.depots import Depots
from barco.cluster.ring.plan import StepKind, plan
from barco.cluster.ring.routes import RouteTable
from barco.cluster.ring.target import (
    Known,
    Target,
    TargetBroker,
    check_shape,
    first_target,
    next_target,
    unpack_target,
)
from barco.errors import (
    BarcoError,
    ConflictError,
    NoLeaderError,
    NotReadyError,
    ProtocolError,
    RequestError,
)
from barco.model.generation import Gid
from barco.model.options import WorkerOptions, cluster_mark
from barco.model.ranges import peer_of, process_of
from barco.workers.peers.leaders import Leaders
from barco.workers.peers.neighbours import Neighbours
from barco.workers.peers.ranges import RingRanges
from barco.workers.peers.voices import Voices
from barco.workers.seams import ReactorLike, SiblingsLike
from barco.workers.shard.appends import Appends
from barco.workers.shard.target import SLICE, TargetKeeper

ASK_SECONDS = 2.0

LOOK_PAUSES = (0.0, 0.05, 0.2, 0.5)
"""Before another one is asked whether it has what the keeper said: its log may be a moment late."""


class TargetDesk:
    """Where a worker asks for the target, and has it changed."""

    def __init__(
        self,
        options: WorkerOptions,
        reactor: ReactorLike,
        appends: Appends,
        heard: tuple[RingRanges, Leaders, Neighbours],
        disks: Callable[[], Mapping[int, str]],
    ) -> None:
        """disks: by ordinal, those that the lineage of this worker's range names."""
        self.cut = Cut(options.ring_size, options.slices_per_range)
        self._options = options
        self._ranges, self._leaders, self._neighbours = heard
        self._disks = disks
        self._keeper = TargetKeeper(
            reactor, appends, self.cut, first_target(self.cut, options.workers)
        )
        self._leads = False
        self.heard = self._keeper.target
        """The latest that its keeper has said."""
        self.voices = Voices(self._ranges, lambda: self.heard)
        """Whose word counts where two have to say the same."""
        self.is_asked_for = False
        """Whether the supervisor wants its keeper to be asked."""
        self.on_news: Callable[[], None] = lambda: None
        """Called when another one is heard of."""
        self.tell: Callable[[bytes, bool], None] = lambda packed, kept: None
        """Tells the supervisor; if it is kept here, all brokers by it."""
        self.copies: Callable[[set[int]], Awaitable[Mapping[Gid, Collection[int]]]] = _no_copies
        """Of generations that have ended, for brokers that are to leave: who in reach has all."""

    # --- Who keeps it ------------------------------------------------------------------------

    def open(self) -> None:
        """This worker leads its range now."""
        self._leads = SLICE in self._ranges.numbers_of(self._options.held.token)
        if self._leads:
            self._keeper.open()
            self._say(self._keeper.target)

    def close(self) -> None:
        """It does not any more."""
        self._leads = False

    @property
    def leads(self) -> bool:
        """Whether the target is kept here."""
        return self._leads

    def kept(self) -> Target:
        """The target itself; NotReadyError where it is not kept."""
        self._check_leads()
        return self._keeper.target

    async def name_depots(self, named: Depots) -> None:
        """A version of the target with these more, those that are named already left out."""

        def propose(current: Target) -> Target:
            news = tuple(
                each
                for each in dict.fromkeys(named)
                if each not in current.depots and each[1] in current.workers
            )
            return current.with_depots(news) if news else current

        target = await self._keeper.change(propose)
        self._check_leads()
        self._say(target)

    def _say(self, target: Target) -> None:
        self.heard = target
        self.on_news()
        self.tell(target.packed(), True)

    def hear(self, packed: bytes | None) -> None:
        """The supervisor says what the keeper has said; None: that it shall be asked."""
        if packed is None:
            self.is_asked_for = True
            self.on_news()
            return
        try:
            target = unpack_target(self.cut, packed)
        except ProtocolError:
            return  # The supervisor has looked; nothing that it says ends a worker.
        if target != self.heard and not self._leads:
            self.heard = target
            self.on_news()

    async def look(self, siblings: SiblingsLike) -> Target:
        """Ask who keeps it: that counts, whatever gossip tells. The supervisor is told."""
        self.heard = await self.ask(siblings)
        self.is_asked_for = False
        self.tell(self.heard.packed(), False)
        return self.heard

    # --- Operations ----------------------------------------------------------------------------

    def operations(self) -> dict[str, Callable[[Mapping[str, Any]], Awaitable[Any]]]:
        """By name."""
        return {"target": self._target, "target_seen": self._seen, "target_change": self._change}

    async def _target(self, args: Mapping[str, Any]) -> bytes:
        self._check_leads()
        return self._keeper.target.packed()

    async def _seen(self, args: Mapping[str, Any]) -> bytes:
        """As this process's log has it, whoever leads."""
        if SLICE not in self._ranges.numbers_of(self._options.held.token):
            raise NotReadyError("This worker does not hold slice 0.")
        return self._keeper.seen().packed()

    async def _change(self, args: Mapping[str, Any]) -> bytes:
        """{"cluster": its mark, "seen": a version, "brokers": [[ordinal, workers, host, disk]]}."""
        self._check_leads()
        listed = [_broker(each) for each in args["brokers"]]
        cluster, seen = str(args["cluster"]), int(args["seen"])
        check_shape(self.cut, listed)  # Whatever else is known, or not.
        leaving = self._keeper.target.workers.keys() - {each.ordinal for each in listed}
        copies = await self.copies(leaving) if leaving else {}

        def propose(current: Target) -> Target:
            known = replace(self._known(current), copies=copies)
            target = next_target(current, seen, listed, cluster_uuid=cluster, known=known)
            try:
                unpack_target(self.cut, target.packed())  # As whoever opens the log next does.
            except ProtocolError as error:
                raise RequestError(error.detail) from None
            if target is not current:
                self._check_joins(target)
            return target

        target = await self._keeper.change(propose)
        self._check_leads()
        self._say(target)
        return target.packed()

    def _check_leads(self) -> None:
        if not self._leads:
            raise NotReadyError("This worker does not lead slice 0 (any more).")

    def _known(self, current: Target) -> Known:
        table = self.routes()
        if not table.is_covering:
            raise NotReadyError("Not every range of the ring has been heard of yet.")
        wanted = current.wanted(self.joined(current, table))
        disks = {each.ordinal: each.disk_uuid for each in self._neighbours.brokers.values()}
        return Known(
            cluster_uuid=cluster_mark(self._options.cluster_uuid),
            steps_left=[str(step) for steps in plan(table, wanted) for step in steps],
            disks=disks | dict(self._disks()),
        )

    def _check_joins(self, target: Target) -> None:
        """What is handed over and can not be taken in would be led by nobody for good."""
        steps = (step for steps in plan(self.routes(), target.wanted()) for step in steps)
        ends = (step.ends for step in steps if step.kind is StepKind.JOIN)
        found = [
            each for each in ends if len({self.cut.range_of(route.first) for route in each}) > 1
        ]
        if found:
            first, last = found[0][0].first, found[0][-1].end - 1
            raise ConflictError(
                f"slices {first} to {last} would have to be joined, and were of two ranges when the"
                " cluster was formatted: both count their slices from 0, which this version can not"
                f" unite. A cluster that was formatted with {self.cut.brokers} brokers does not"
                " shrink below that"
            )

    def described(self, packed: bytes | None = None) -> dict[str, Any]:
        """As documents have it: as it was heard, or as the one who keeps it has answered."""
        target = self.heard if packed is None else unpack_target(self.cut, packed)
        brokers = [each.described() for each in target.brokers]
        found: dict[str, Any] = {"version": target.version, "brokers": brokers}
        if target.depots:
            found["depots"] = [{"first": at, "ordinal": ordinal} for at, ordinal in target.depots]
        return found

    # --- What there is -------------------------------------------------------------------------

    def routes(self) -> RouteTable:
        """As this worker has heard them."""
        return self._ranges.routes

    def joined(self, target: Target, table: RouteTable) -> set[int]:
        """Those of the target who are there, or hold something."""
        up = [each.ordinal for each in self._neighbours.brokers.values() if each.up]
        return target.joined(table, [*up, self._options.process[0]])

    async def ask(self, siblings: SiblingsLike) -> Target:
        """The target, as who keeps it says now, if another who holds slice 0 has it in its log: who
        leads it was told by gossip, and may be a lie. NotReadyError where nobody does."""
        peer = self._leaders.peer(self._ranges.of_slice(SLICE))
        if peer is None:
            raise NoLeaderError("Nobody leads slice 0 at the moment.")
        target = unpack_target(self.cut, await siblings.call(peer, "target", {}, ASK_SECONDS))
        for pause in LOOK_PAUSES if target != self.heard else ():
            await asyncio.sleep(pause)
            if await self._is_seen(siblings, process_of(peer)[0], target):
                break
        else:
            if target != self.heard:
                raise NotReadyError("Nobody else who holds slice 0 has this target in its log.")
        return target

    async def _is_seen(self, siblings: SiblingsLike, leader: int, target: Target) -> bool:
        """Whether a second broker has it. Where none is known of whom there is more than its own
        word, as for who has just joined, any counts."""
        told = self._ranges.processes_of_token(int(self.cut.token(SLICE)))
        others = {int(each[0]): peer_of(each) for each in told if each[0] != leader}
        if leader == self._options.process[0] or not others:
            return True
        voices = self.voices.of(others) or others.keys()
        asks = [
            siblings.call(others[each], "target_seen", {}, ASK_SECONDS) for each in sorted(voices)
        ]
        tasks = [asyncio.ensure_future(ask) for ask in asks]
        try:
            for task in asyncio.as_completed(tasks):
                with suppress(BarcoError):
                    if unpack_target(self.cut, await task) == target:
                        return True
        finally:
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return False


async def _no_copies(leaving: set[int]) -> Mapping[Gid, Collection[int]]:
    return {}


def _broker(given: Any) -> TargetBroker:
    try:
        ordinal, workers, host, disk_uuid = given
        return TargetBroker(
            ordinal=int(ordinal), workers=int(workers), host=str(host), disk_uuid=str(disk_uuid)
        )
    except (TypeError, ValueError) as error:
        raise RequestError(f"A broker of a target: {str(error)[:100]}") from None
