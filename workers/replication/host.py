"""A worker as the host of one replica: store, driver, service and routes together.

The shard's operations are open for as long as this process leads; reads by position and the lists
of topics also while it follows, up to what is committed.
"""

import asyncio
import functools
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from barco._native import Reactor
from barco.cluster.ring.routes import is_cut, route_of
from barco.cluster.state import events as ev
from barco.cluster.state.core import Settings
from barco.cluster.state.kin import nearest
from barco.errors import BarcoError, NotReadyError
from barco.limits import GROUP_HEADER_BYTES
from barco.model.generation import Generation, Gid, Kind, Successor, genesis
from barco.model.options import WorkerOptions
from barco.model.ranges import end_of_slice, peer_of, slices_between, token_of_slice
from barco.model.replicas import Process
from barco.protocol.link import REPLICATION, Hello
from barco.protocol.replication import DecidedRecord, OpenedRecord
from barco.types import MiB
from barco.workers.operations.handovers import HandOvers
from barco.workers.operations.history import History
from barco.workers.operations.holding import Holding
from barco.workers.operations.kinship import Kinship
from barco.workers.operations.leaving.depot import Depot
from barco.workers.operations.leaving.ended import Ended
from barco.workers.operations.leaving.left import Left
from barco.workers.operations.network import Network
from barco.workers.operations.origins import Origins
from barco.workers.operations.service import ShardService
from barco.workers.peers.links import End
from barco.workers.peers.strangers import Strangers
from barco.workers.process.build import arena_bytes, bound_state, state_bytes_max
from barco.workers.process.selector import Upcall
from barco.workers.process.turns import Turns
from barco.workers.replication.alone import one_line
from barco.workers.replication.driver import Driver
from barco.workers.replication.persisting import read_journal
from barco.workers.replication.states import States
from barco.workers.replication.wire import identity
from barco.workers.shard.whole import WholeExtents
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.layout import range_path
from barco.workers.storage.stores.lodging import Lodging
from barco.workers.storage.stores.replicas import ReplicaStore
from barco.workers.watched import watched

RESIGN_SECONDS = 4.0
"""For the next in line to take over, at a stop; who is in sync needs a tenth of a second."""

HUSH_SECONDS = 0.1
"""For what came before a step to be answered."""

HOLD_MS = 500
"""What comes waits so long for the end of a generation; it is mostly there in a tenth of that."""

SEAL_SECONDS = 1.0
"""For the last append, where nobody takes over."""

log = logging.getLogger("barco.replication")


def genesis_of(options: WorkerOptions) -> Generation:
    """The first generation of this worker's range; of one that was made after the cluster was
    formatted only who its members are."""
    held = options.held
    return genesis(held.token, end_of_slice(options.placement, held.numbers[-1]), held.members)


class ReplicaHost:
    """The replica of one worker process."""

    extents: WholeExtents
    """There once recovery is done."""

    def __init__(
        self,
        options: WorkerOptions,
        session: int,
        *,
        reactor: Reactor,
        store: ReplicaStore,
        bulk: BulkIo,
        service: ShardService,
        network: Network,
        turns: Turns,
        opened: Callable[[], None],
        fatal: Callable[..., None],
    ) -> None:
        """`opened`: called whenever the shard's operations have been opened here."""
        assert options.process[0] in options.held.members, "a worker holds its own range"
        self._options = options
        self._reactor = reactor
        self._store = store
        self._service = service
        self._network = network
        self._turns = turns
        self._opened, self._fatal = opened, fatal
        self._opening: asyncio.Task[None] | None = None
        self._sealing: set[asyncio.Task[None]] = set()
        self._bulk = bulk
        self._me = me = identity(options.process[0], options.disk_uuid)
        self.recovered_groups, self.recovery_seconds = 0, 0.0
        """What `open` has walked."""
        self.driver = Driver(
            Settings(
                me=me,
                session=session,
                ranges=(genesis_of(options),),
                joins=not options.held.genesis,
                token=options.held.token,
                replaces=bytes.fromhex(options.replaces),
            ),
            {},
            reactor=reactor,
            store=store,
            bulk=bulk,
            group_bytes_max=arena_bytes(options) + GROUP_HEADER_BYTES + MiB,
            on_lead=self._leads,
            on_follow=self._follows,
            on_stop=self._stops,
            on_decided=self._decided,
            on_learned=self._learned,
            fatal=fatal,
        )
        links, take = self.driver.links, self.driver.take
        self._strangers = Strangers(options.held.token, links.__contains__, take)
        self._kin = Kinship(options, service.ranges, store, self.driver)
        service.voices.journal = self._kin.journal
        self._origins, self._states = self._askers()
        self.handovers = self._handing()
        self.history = self._elsewhere()
        parts = options, store, self.driver, self.history, service, network.siblings
        self.left = Left(*parts)
        holding = Holding(options.held.token, store, self._kin.far, self.driver.whole)
        service.extend(holding.operations)
        self._lodging, self._depot = self._copies()
        self._kin.changes = lambda: self._lodging.changes
        self._tasks: list[asyncio.Task[None]] = []
        self.driver.logs.slices_of = functools.partial(slices_between, options.placement)
        self.driver.logs.begun = self._has

    def _elsewhere(self) -> History:
        options, service = self._options, self._service
        cut, first = options.placement, options.range_index * options.slices_per_range
        return History(
            ranges=service.ranges,
            siblings=self._network.siblings,
            peer=options.peer,
            far=self._kin.far,
            here=self._kin.here,
            token=options.held.token,
            gone=self._store.lineage.is_gone,
            token_of=lambda index: token_of_slice(cut, first + index),
            voices=service.voices.of,
        )

    def _askers(self) -> tuple[Origins, States]:
        """What this process asks of others by operations, and answers."""
        options, service, siblings = self._options, self._service, self._network.siblings
        origins = Origins(
            options.held.token,
            self._me.ordinal,
            options.held.first,
            ranges=service.ranges,
            siblings=siblings,
            peer=options.peer,
            journal=self._kin.journal,
            wants=lambda: self.driver.machine is not None and self.driver.machine.aimless(),
            taught=lambda *told: self.driver.post(ev.Taught(*told)),
            voices=service.voices.of,
            hinted=self._hinted,
        )
        service.extend(origins.operations)
        states = States(
            options.held.token,
            self._reactor,
            self._store,
            siblings=siblings,
            holders=self._kin.others_with,
            tail_of=self.driver.tail_of,
            session_of=self.driver.session_of,
            state_bytes_max=arena_bytes(options),
            until=self._turns.until,
        )
        service.extend(states.operations)
        if options.ring_size > 1 or not options.held.genesis:
            self._store.states = states
        return origins, states

    def _handing(self) -> HandOvers:
        """What hands this range over, or takes in what was handed to it."""
        options, driver = self._options, self.driver
        handovers = HandOvers(
            options.held.token,
            store=self._store,
            reactor=self._reactor,
            committed=lambda: self._reactor.log_state()["committed"],
            ranges=self._service.ranges,
            siblings=self._network.siblings,
            peer=options.peer,
            journal=self._kin.journal,
            leads=lambda: driver.generation if driver.leading else None,
            taught=lambda *told: driver.post(ev.Taught(*told)),
            hush=self.hush,
            voices=self._service.voices.of,
            state_bytes_max=state_bytes_max(options),
        )
        self._service.extend(handovers.operations)
        return handovers

    def _copies(self) -> tuple[Lodging, Depot]:
        """What is here of generations that this broker was no member of, and what gets it here."""
        options, service, siblings = self._options, self._service, self._network.siblings
        token, driver = options.held.token, self.driver
        lodging = Lodging(
            self._store,
            range_path(options.data_dir, token),
            self._bulk,
            cluster_uuid=bytes.fromhex(options.cluster_uuid),
            token=token,
        )
        ended = Ended(
            token,
            lodging,
            record=driver.record,
            nearest=lambda generation: nearest(self._kin.known(), generation),
            whole=driver.whole,
        )
        service.extend(ended.operations)
        depot = Depot(
            token,
            self._me.ordinal,
            options.held.first,
            lodging,
            ranges=service.ranges,
            siblings=siblings,
            peer=options.peer,
            target=lambda: service.target.heard,
            voices=service.voices.of,
            bytes_per_second=options.drain_bytes_per_second,
        )
        return lodging, depot

    async def open(self) -> None:
        """Recovers, listens, takes part."""
        assert not self.driver.leading and self.driver.machine is None, "opened once"
        began = time.monotonic()
        found = await self._store.recover(self._reactor)
        first, count = self._reactor.shard_slices()  # Of the newest log that is here, if any is.
        if len(self._options.held.members) == 1:
            genesis = genesis_of(self._options) if self._options.held.genesis else None
            last = self._options.range_index * self._options.slices_per_range + first + count - 1
            end = end_of_slice(self._options.placement, last)
            found = await one_line(self._store, genesis, end, self._me, self._bulk, found)
        self._has(range(first, first + count))
        assert first >= 0 and count >= 0
        if not self._options.held.genesis and not self._store.epoch:
            await self._store.first_made()
        self.recovered_groups = self._store.walked_groups
        self.recovery_seconds = time.monotonic() - began
        await self._service.staging.recover()
        bound_state(self._options, self._reactor)
        self._service.lineage = lambda: self._kin.line(self.history.known())
        self._service.more_stats = lambda: self._store.stats() | self.driver.stats()
        self.extents = WholeExtents(self._store.extents, self.history)
        self._store.reader.between = self.history.between
        self._service.splits = self.extents.splits
        self._service.health = self._store.health
        self._service.gate = self.driver
        self._service.disks = self.driver.disks
        self._meet_all()
        self._network.links.handle(REPLICATION, self._dialled)
        await self._network.start()
        self.driver.start(found)
        what = "who has begun this range was not asked"
        self._tasks.append(watched(self._origins.run(), what, self._fatal))
        what = "what was handed to this range was not asked"
        self._tasks.append(watched(self.handovers.run(), what, self._fatal))
        if self._options.ring_size > 1:
            what = "history of brokers that leave is not copied"
            self._tasks.append(watched(self._depot.run(), what, self._fatal))

    @property
    def epoch(self) -> int:
        """Of the newest generation known."""
        generation = self.driver.generation
        return generation.gid.epoch if generation is not None else 1

    async def hush(self) -> None:
        """Before this process ends its own generation: from now on produces wait, and those that
        came before are answered, so that nobody's outcome is unknown. If that takes long it is not
        waited for: whoever has to know is told at the fence."""
        await self._turns.until(lambda: self._reactor.hold(HOLD_MS), HUSH_SECONDS)

    async def leave(self) -> None:
        """Before an orderly stop: somebody else leads from now on, or the log gets its last word,
        by which damage to its end is known from a torn write."""
        if self.driver.leading:
            self.driver.resign()
            await self._turns.until(lambda: not self.driver.has_heir(), RESIGN_SECONDS)
        if self.driver.leading:
            self._reactor.seal()
            await self._turns.until(self._settled, SEAL_SECONDS)

    def _settled(self) -> bool:
        state = self._reactor.log_state()
        return bool(state["failed"] or state["settled"])

    async def close(self) -> None:
        """Before the store is closed."""
        tasks = [task for task in (self._opening, *self._tasks) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._origins.close()
        self._strangers.close()
        await self.handovers.close()
        self._states.close()
        await self.driver.close()

    def upcall(self, upcall: Upcall) -> None:
        """What the driver takes, or segment_sealed."""
        if upcall[0] == "segment_sealed":
            sealing = self._sealed(self._store.epoch, upcall[1])
            task = watched(sealing, "a full segment was not sealed", self._fatal)
            self._sealing.add(task)  # The loop alone does not keep a task.
            task.add_done_callback(self._sealing.discard)
        else:
            self.driver.upcall(upcall)

    async def _sealed(self, epoch: int, index: int) -> None:
        try:
            if await self._store.segment_sealed(epoch, index):
                self._reactor.drop_index(index)
        except (BarcoError, OSError) as error:
            self._fatal(str(error))

    # --- Peers --------------------------------------------------------------------------------

    def _holder(self, ordinal: int) -> Process:
        """The process of another member, as its broker tells now."""
        process = self._service.ranges.process_at(ordinal, self._options.held.token)
        if process is None:
            raise NotReadyError(f"Broker {ordinal} has no process for this range.")
        return process

    async def _dial(self, ordinal: int) -> tuple[Hello, End]:
        return await self._network.dial(self._holder(ordinal), REPLICATION)

    async def _ask(self, ordinal: int, op: str, args: Any, timeout: float = 5.0) -> Any:
        peer = peer_of(self._holder(ordinal))
        return await self._network.siblings.call(peer, op, args, timeout)

    def _meet_all(self) -> None:
        """At a start: whoever has held the range since it was formatted, as far as the journal
        tells. One that waits for its first generation dials nobody: none would take it yet."""
        assert not self.driver.links, "nobody has been met yet"
        if self._options.held.genesis:
            self._meet(self._options.held.members)
        for record in read_journal(self._store.lineage.journal):
            if isinstance(record, OpenedRecord):
                self._meet_members(record.generation)
            elif isinstance(record, DecidedRecord):
                for child in record.value.children:
                    self._meet_members(child)

    def _meet_members(self, generation: Generation | None) -> None:
        """Whoever holds a generation of this range, one that has ended as well."""
        if generation is not None and generation.gid.token == self._options.held.token:
            self._meet(member.ordinal for member in generation.members)

    def _meet(self, ordinals: Iterable[int]) -> None:
        """Links to other holders of the range, and who is asked for what was staged."""
        for ordinal in ordinals:
            if ordinal != self._me.ordinal and self.driver.links.meet(
                ordinal, functools.partial(self._dial, ordinal)
            ):
                self._strangers.met(ordinal)
                staging = self._service.staging
                staging.others = [*staging.others, functools.partial(self._ask, ordinal)]

    def _dialled(self, hello: Hello, end: End) -> None:
        assert hello.kind == REPLICATION, "others take what is for others"
        self._strangers.dialled(hello, end)

    # --- What the machine decides ---------------------------------------------------------------

    def _has(self, slices: range) -> None:
        """The core has these slices. Who asks it for others is told to ask elsewhere."""
        assert slices.step == 1 and slices.start >= 0, "side by side, counted in the range"
        self._service.hold(slices)
        first = self._service.first_slice
        self._network.hand_off.hold(range(first + slices.start, first + slices.stop))

    def _came_from(self, generation: Generation) -> None:
        """Who holds what the range was split off is asked for what was staged there before; also
        by who leads later: the first leader may have died with what it had begun of it."""
        call, own = self._network.siblings.call, generation.gid.token
        if all(each.gid.token == own for each in generation.parents):
            return
        self._service.staging.before = [
            functools.partial(call, peer_of(process))
            for token in sorted({each.gid.token for each in generation.parents} - {own})
            for process in self._service.ranges.processes_of_token(token)
        ]

    def _leads(self, generation: Generation) -> None:
        assert self.driver.leading and self.driver.generation == generation
        # Whatever an earlier leadership of this process left waiting must not go on in this one.
        self._service.staging.rest()
        self._came_from(generation)
        # Events are taken from here on, and packed as the settings of their topics say.
        self._service.topics.open()
        opening = self._open_service(generation)
        self._opening = watched(opening, "the shard was not opened", self._fatal)

    async def _open_service(self, generation: Generation) -> None:
        """GEN_START has to be committed before anything is built upon it."""
        epoch, core = generation.gid.epoch, self._reactor

        def goes_on() -> bool:
            return self.driver.generation == generation and self.driver.leading

        await self._turns.until(lambda: core.log_state()["committed"] >= 1 or not goes_on())
        if not goes_on() or core.log_state()["committed"] < 1:
            return  # Both may come in one turn: what has ended is opened by nobody.
        log.info("epoch %d of shard %d is open", epoch, generation.gid.token)
        self._service.open(epoch)
        self._opened()
        self._tell(generation)
        try:
            await self._service.adopt_topics(self._network.siblings)
        except BarcoError as error:
            log.warning("topic settings of siblings are not known: %s", error)
        await self._service.staging.take_over()
        await self.history.look()

    def _follows(self, generation: Generation) -> None:
        assert not self.driver.leading and self.driver.generation == generation
        self._came_from(generation)
        self._service.follow(generation.gid.epoch)
        self._tell(generation)

    def _stops(self, reason: str) -> None:
        assert not self.driver.leading, "it is told after it is so"
        self._service.follow(self.epoch)
        if self.driver.generation is not None:
            self._tell(self.driver.generation, stopped=True)

    def _hinted(self, parent: Generation, value: Successor) -> None:
        """Somebody says that this process is to lead: the state is asked for while it is found out
        whether that is so, and journalled; clients wait meanwhile."""
        own, of = self._options.held.token, self.driver.logs.slices_of
        mine = next((each for each in value.children if each.gid.token == own), None)
        if mine is None or mine.leader != self._me or len(mine.parents) != 1 or of is None:
            return
        known = parent.gid.token == own or self.driver.tail_of(parent.gid) is not None
        if value.tail and not known and is_cut(self._service.ranges.cut, mine):
            holders = self._kin.others_of(parent.gid, parent)
            self._states.ahead(parent, value.tail, of(own, mine.end), holders)

    def _learned(self, gid: Gid, value: Successor) -> None:
        """It is decided, and on its way into this member's journal: clients wait meanwhile."""
        if (ended := self.driver.record(gid)) is not None:
            self._origins.learned(ended, value)

    def _decided(self, gid: Gid, value: Successor) -> None:
        """It stands in this member's journal: so this broker may tell of it, and does, whoever is
        to lead what follows. What goes on here is told when it is led or followed."""
        assert (value.kind is Kind.HANDOFF) != bool(value.children)
        own = self._options.held.token
        for each in (self.driver.record(gid), *value.children):
            self._meet_members(each)
        for child in value.children:
            if child.gid.token != own or child.seat(self._me.ordinal) is None:
                self._tell(child)
        ended = self.driver.record(gid)
        if ended is None:
            return
        if value.kind is Kind.HANDOFF:
            self._tell(ended, handed=True)
        self._origins.decided(ended, value)
        self.handovers.decided(ended, value)

    def _tell(self, generation: Generation, *, handed: bool = False, stopped: bool = False) -> None:
        assert not (handed and stopped), "what is handed over was stopped before"
        if not is_cut(self._service.ranges.cut, generation):
            log.error("nobody is told of %s, which does not end between slices", generation.gid)
            return
        route = route_of(self._service.ranges.cut, generation, handed=handed)
        assert route.epoch == generation.gid.epoch and route.token == generation.gid.token
        self._network.told(route, stopped=stopped)
