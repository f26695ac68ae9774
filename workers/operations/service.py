"""What a worker does for its siblings and for its own HTTP routes: the operations on its shard.

Every operation is named, takes and returns plain values, and is called the same way from the
worker itself and over the sockets of `barco.workers.peers.rpc`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from barco import limits
from barco.errors import NotReadyError, RequestError
from barco.model.options import WorkerOptions
from barco.workers.delays.delays import Delays
from barco.workers.groups.desk import ConsumerDesk
from barco.workers.groups.views import GroupView
from barco.workers.operations.access import AccessDesk
from barco.workers.operations.groups import GroupDesk
from barco.workers.operations.target import TargetDesk
from barco.workers.peers.leaders import Leaders
from barco.workers.peers.neighbours import Neighbours
from barco.workers.peers.ranges import RingRanges
from barco.workers.peers.voices import Voices
from barco.workers.queues.desk import QueueDesk
from barco.workers.queues.queues import Queues
from barco.workers.schemas.keeper import SLICE as SCHEMAS_SLICE
from barco.workers.schemas.keeper import SchemaKeeper
from barco.workers.seams import (
    Gate,
    LogReaderLike,
    ReactorLike,
    SiblingsLike,
    SpoolLike,
    SupervisorLike,
)
from barco.workers.shard import internal, producers
from barco.workers.shard.appends import Appends
from barco.workers.shard.made import MadeProduces
from barco.workers.shard.reads import Reads, extent_to_list
from barco.workers.shard.topics import TopicRecord, TopicRegistry
from barco.workers.shard.waiting import Waiters
from barco.workers.writes.copies import told
from barco.workers.writes.jobs import jobs_of
from barco.workers.writes.notes import Notes
from barco.workers.writes.staging import Staging

Args = Mapping[str, Any]

LEADERS_ONLY = frozenset(
    ("poll", "commit", "goodbye", "revoke", "start_group", "groups", "positions", "seek", "forget")
    + ("topic_apply", "commit_to", "reject", "lags", "delay_cancel", "jobs")
)
"""Operations on what only the leader has, or that write to the log."""
Sealed = Callable[[], dict[str, Any] | None]
Splits = Callable[[str, int, int, int], Awaitable[tuple[int, list[tuple[int, int]]]]]


async def _no_splits(
    topic: str, slice: int, start: int, piece_bytes: int
) -> tuple[int, list[tuple[int, int]]]:
    return 0, []


NO_ROOM = "waits for room to begin its log: the disk is full."

UNOPENED = ("ping", "standing", "stats", "leaders", "written")
"""Answered before the shard is recovered."""

OF_ONE_SLICE = frozenset(("read", "wait"))
CONSUMING = ("poll", "commit", "commit_to", "reject", "goodbye")
READING = ("read", "plan")


class Open:
    """The gate of a shard whose replica is not there yet."""

    def serves_consumers(self) -> bool:
        """Nobody else does."""
        return True

    def readable(self) -> bool:
        """All of it is here."""
        return True

    def status(self) -> dict[str, Any]:
        """It has no followers to tell of."""
        return {}


class ShardService:
    """The shard of this worker, as a set of named operations."""

    gate: Gate = Open()
    """Set by the host of a replica."""

    sealing: Sealed = staticmethod(lambda: None)
    """What seals connections of clients, for `/status`; set by the worker."""

    sealing_between: Sealed = staticmethod(lambda: None)
    """And those between brokers."""

    def __init__(
        self,
        options: WorkerOptions,
        *,
        reactor: ReactorLike,
        reader: LogReaderLike,
        supervisor: SupervisorLike,
        spool: SpoolLike,
        now_us: Callable[[], int],
        wall_us: Callable[[], int],
    ) -> None:
        """`now_us`: the log's own clock, for all that ages. `wall_us`: to be shown, no more."""
        self.options, self.now_us = options, now_us
        self.slices = options.slices
        """Those that the core has, within the token range."""
        self.epoch = 0
        self.leading = False
        """Whether this worker leads its shard; else it shows what is committed, and no more."""
        self.first_slice = options.range_index * options.slices_per_range
        self.lineage: Callable[[], list[dict[str, Any]]] = list
        """The generations of the shard, oldest first; set by the worker that opened them."""
        self.more_stats: Callable[[], dict[str, Any]] = dict
        self.health: Callable[[], dict[str, int]] = dict
        """Figures of the storage; set by the worker as well."""
        self.splits: Splits = _no_splits
        """Where large slices can be cut (`StreamExtents.splits`); set by the worker as well."""
        self.disks: Callable[[], Mapping[int, str]] = dict
        """By ordinal the disks that the shard's lineage names; set by the host of a replica."""
        self.unreached: Callable[[], list[int]] = list
        """Tokens of ranges whose leader is not known, or not connected to; set by the network."""
        self.wall_us, self.reactor = wall_us, reactor
        self.appends, self.made = Appends(reactor), MadeProduces(reactor)
        self.waiters = Waiters(reactor)
        self.reads = Reads(reactor, reader)
        self.ranges = RingRanges(options)
        """Which process holds which range of the ring."""
        self.leaders = Leaders(self.ranges, alone=options.never_split)
        """Who leads each of them."""
        self.neighbours = Neighbours(options, self.ranges, self.leaders, wall_us)
        """The other brokers, as far as the supervisor has heard."""
        heard = (self.ranges, self.leaders, self.neighbours)
        self.target = TargetDesk(options, reactor, self.appends, heard, lambda: self.disks())
        self.access = AccessDesk(options, reactor, self.appends, heard[:2])
        self.membership = GroupView(supervisor, options.placement)
        self.topics = TopicRegistry(reactor, self.appends, self.slices)
        self.consumers = ConsumerDesk(
            reactor,
            reads=self.reads,
            appends=self.appends,
            waiters=self.waiters,
            membership=self.membership,
            slices=self.slices,
            first_slice=self.first_slice,
            peer=options.peer,
            now_us=now_us,
        )
        self.consumption, self.written = self.consumers.consumption, self.consumers.written
        part_bytes = min(limits.COMMIT_PART_BYTES, options.request_bytes_max)
        self.staging = Staging(
            *(reactor, self.appends, spool), now_us=now_us, part_bytes=part_bytes
        )
        self.notes = Notes(reactor, self.appends, self.slices, now_us)
        self.schemas = self._make_schemas()
        self.queues, self.groups, self.leases = self._make_queues()
        self._beyond = self.leases.operations()
        self.delays = Delays(reactor, reads=self.reads, appends=self.appends, wall_us=wall_us)
        self.topics.on_deleting = self.delays.topic_deleted
        self.topics.on_deleted = self.staging.topic_deleted
        self.membership.on_change = self.consumption.membership_changed
        self._operations = self._named()

    def _make_schemas(self) -> SchemaKeeper:
        return SchemaKeeper(
            self.reactor,
            self.appends,
            lambda: SCHEMAS_SLICE in self.ranges.numbers_of(self.options.held.token),
            lambda: self.gate.serves_consumers(),
        )

    def _make_queues(self) -> tuple[Queues, GroupDesk, QueueDesk]:
        queues = Queues(
            self.reactor,
            reads=self.reads,
            appends=self.appends,
            waiters=self.waiters,
            consumption=self.consumption,
            first_slice=self.first_slice,
            now_us=self.now_us,
        )
        groups = GroupDesk(self.consumption, queues, self.reads, self.topics, self.first_slice)
        leases = QueueDesk(queues, self.reads, lambda: self.gate.serves_consumers())
        return queues, groups, leases

    @property
    def voices(self) -> Voices:
        """Whose word counts where two have to say the same."""
        return self.target.voices

    def extend(self, operations: Mapping[str, Callable[[Args], Awaitable[Any]]]) -> None:
        """More of them, which look by themselves whether they can be answered; also of a shard of
        which only the history is here."""
        assert not operations.keys() & (self._operations.keys() | self._beyond.keys())
        self._beyond.update(operations)

    def _named(self) -> dict[str, Callable[[Args], Awaitable[Any]]]:
        """The operations, by the names that frames carry."""
        return {
            **self._copies(),
            **self.consumers.operations(),
            **self.target.operations(),
            **self.access.operations(),
            **self.notes.operations(),
            **self.schemas.operations(),
            **self.groups.operations(),
            **self.delays.operations(),
            **producers.operations(self.reactor, self.first_slice, lambda: self.leading),
            "ping": self._ping,
            "standing": self._standing,
            "leaders": self._leaders,
            "read": self._read,
            "plan": self._plan,
            "topics": self._topics,
            "topic_apply": self._topic_apply,
            "stats": self._stats,
        }

    def hold(self, slices: range) -> None:
        """The core has these slices from now on, whoever leads them: nothing is done here that was
        begun for others."""
        self.staging.slices = self.notes.slices = slices
        if slices == self.slices:
            return
        self.follow(self.epoch)
        self.slices = self.topics.slices = self.consumption.slices = slices

    def follow(self, epoch: int) -> None:
        """Somebody else leads the shard's generation, or nobody yet: what is committed is read."""
        self.epoch = epoch
        self.leading = False
        self.staging.rest()
        self.notes.close()
        self.schemas.close()
        self.target.close()
        self.access.close()
        self.queues.close()
        self.delays.close()
        self.consumption.close()
        self.waiters.wake()

    def open(self, epoch: int) -> None:
        """The shard's generation is open here and its state restored: lead it."""
        self.epoch = epoch
        self.leading = True
        self.topics.open()
        self.target.open()
        self.access.open()
        self.consumption.open(epoch)
        self.queues.open(epoch)
        self.delays.open(epoch)
        self.staging.open(self.topics.deleted())
        self.notes.open()
        self.schemas.open()

    def hear_topics(self) -> None:
        """Where somebody else leads: take up the settings that have come in with its groups."""
        if not self.leading and self.epoch:
            self.topics.follow()

    async def adopt_topics(self, siblings: SiblingsLike) -> int:
        """Learn of topic settings decided while this worker was away; returns how many."""
        taken = 0
        leaders = {self.leaders.peer(held.token) for held in self.ranges.all}
        leaders -= {None, self.options.peer}
        others = sorted(worker for worker in leaders if worker is not None)
        answers = await siblings.broadcast("topics", {w: {"topic": None} for w in others})
        for answer in answers.values():
            if isinstance(answer, dict):
                taken += await self.topics.adopt(answer.values())
        return taken

    def upcall(self, upcall: Sequence[Any]) -> bool:
        """Take an upcall of the reactor, if it is one for the shard: appended or stable."""
        if upcall[0] == "appended":
            _, tag, status, _, _, offset = upcall
            self.appends.appended(tag, status, offset)
        elif upcall[0] == "stable":
            self.waiters.look()
            self.delays.look()
        else:
            return False
        return True

    async def operation(self, op: str, args: Args) -> Any:
        """One operation by name."""
        if (beyond := self._beyond.get(op)) is not None:
            return await beyond(args)
        found = self._operations.get(op)
        if found is None:
            raise RequestError(f"There is no operation {op[:64]!r}.")
        if not self.epoch and op not in UNOPENED:
            why = NO_ROOM if self.reactor.disk_full() else "is recovering its shard."
            raise NotReadyError(f"Worker {self.options.worker} {why}")
        if not self.leading and op in LEADERS_ONLY:
            raise NotReadyError("This worker does not lead the shard (any more).")
        if op in OF_ONE_SLICE and args.get("slice", self.slices.start) not in self.slices:
            raise NotReadyError("This worker does not have the slice (any more).")
        if op in CONSUMING and not self.gate.serves_consumers():
            raise NotReadyError("The shard's leader has not heard of its followers for a while.")
        bounds = op == "topics" and args["topic"] is not None
        if (bounds or op in READING) and not self.gate.readable():
            raise NotReadyError("This replica is catching up.")
        return await found(args)

    # --- Events ----------------------------------------------------------------------------------

    async def _read(self, args: Args) -> dict[str, Any]:
        """Events of one slice, without a group; the bounds are those from before the read."""
        topic, index = args["topic"], args["slice"]
        start, end = self.reads.bounds(topic, index)
        where = args["from"]
        if where == "earliest":
            offset = await self.reads.earliest(topic, index)
        elif where == "latest":
            offset = end
        elif isinstance(where, str):
            offset = await self.reads.at_timestamp(topic, index, int(where))
        else:
            offset = where
        answer: dict[str, Any] = {"epoch": self.epoch, "start": start, "end": end}
        answer |= {"offset": offset, "extent": None, "known": end > 0}
        if start <= offset < end and args["budget"] > 0:
            extent = await self.reads.read(
                topic,
                index,
                offset,
                args["budget"],
                stored=args["stored"],
                columns=args.get("columns"),
                stop=args.get("stop"),
                frame=args.get("frame", 0),
            )
            # Where retention has been, events begin later than the log says.
            answer["start"] = max(start, extent.start) if extent.chunks else end
            answer["end"] = max(end, extent.high_watermark)
            if extent.chunks:
                answer["extent"] = extent_to_list(extent, self.first_slice)
                answer["stopped"] = True  # At the place that was asked for, if there was one.
        return answer

    async def _plan(self, args: Args) -> dict[int, dict[str, Any]]:
        """For readers of whole slices: their sizes, where to cut them, where a time begins."""
        topic, piece_bytes, at_us = args["topic"], args["piece_bytes"], args["at_us"]
        plans: dict[int, dict[str, Any]] = {}
        for index in self.slices:
            start, end = self.reads.bounds(topic, index)
            if start >= end:
                continue
            plan = plans[self.first_slice + index] = {}
            if piece_bytes:
                first = await self.reads.earliest(topic, index)
                plan["bytes"], cuts = await self.splits(topic, index, first, piece_bytes)
                plan["splits"] = [list(cut) for cut in cuts if first < cut[0] < end]
            if at_us is not None:
                plan["at"] = await self.reads.at_timestamp(topic, index, at_us)
        return plans

    # --- Topics and the shard itself ------------------------------------------------------------

    async def _topics(self, args: Args) -> dict[str, Any]:
        if not self.leading:
            self.topics.open()  # Changes come in with the leader's groups.
        described = self.topics.describe(args["topic"])
        if (only := described.get(args["topic"])) is not None:
            streams = only["streams"]
            starts = await self.reads.earliest_of([(args["topic"], each[0]) for each in streams])
            for stream, start in zip(streams, starts, strict=True):
                stream[1] = start
        for entry in described.values():
            for stream in entry["streams"]:
                stream[0] += self.first_slice
        return described

    async def _topic_apply(self, args: Args) -> None:
        await self.topics.apply(TopicRecord.from_dict(args["record"]), args.get("most", 0))

    def _copies(self) -> dict[str, Callable[[Args], Awaitable[Any]]]:
        return {"staged": self._staged, "staged_piece": self._staged_piece, "jobs": self._jobs}

    async def _jobs(self, args: Args) -> dict[str, Any]:
        return jobs_of(self.staging)

    async def _staged(self, args: Args) -> dict[str, Any]:
        return told(self.staging, args)

    async def _staged_piece(self, args: Args) -> bytes:
        stream = (args["topic"], args["slice"])
        return await self.staging.piece(
            args["writer"], args["batch"], args["attempt"], stream, args["seq"]
        )

    async def _leaders(self, args: Args) -> list[Any]:
        """Take a sibling's news of who leads, and give all of ours."""
        self.leaders.learn_all(args["news"])
        return self.leaders.all()

    async def _ping(self, args: Args) -> dict[str, Any]:
        return {
            "worker": self.options.worker,
            "epoch": self.epoch,
            "leading": self.leading,
            "engine": self.reactor.engine,
            "engineReason": self.reactor.engine_reason,
            "slices": [self.slices.start, self.slices.stop - 1],
            "seat": self.options.seat,
            "shard": self.ranges.shard_number(self.options.held.token),
            "lineage": self.lineage(),
            "replication": self.gate.status(),
        }

    async def _standing(self, args: Args) -> dict[str, Any]:
        """For readiness, of this broker and of others: small, for it is asked often."""
        return {
            "epoch": self.epoch,
            "leading": self.leading,
            "replication": self.gate.status(),
            "unreached": self.unreached(),
            "storage": self.health() | self._room(),
        }

    def _room(self) -> dict[str, bool]:
        return {"diskFull": True} if self.reactor.disk_full() else {}

    async def _stats(self, args: Args) -> dict[str, Any]:
        stats = self.reactor.stats() | self.more_stats() | self.staging.stats()
        stats["internal_events_skipped"] = internal.skipped()
        stats["long_polls_waiting"] = len(self.waiters)
        stats["group_offsets"] = self.consumption.cursor_count + len(self.queues)
        stats |= self.delays.stats()
        stats["consumers_registered"] = self.membership.member_count
        return stats
