"""The files of one replica of a shard: several generations, of which the core has the newest.

    store = ReplicaStore(...)
    logs = await store.recover(core)           # what the machine is told of each generation
    await store.begin(epoch, session)          # the core holds this generation from now on
    await store.seal(epoch, tail)              # history ends there: into the catalog with it

A generation is `sealed` in lineage.log when all of its history is here.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from itertools import zip_longest

from barco.errors import BarcoError, DiskFullError, NotReadyError
from barco.model.generation import Parent
from barco.workers.storage.files import kept, layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.errors import CorruptLogError, explain
from barco.workers.storage.files.records import Claim, Generation
from barco.workers.storage.files.segment import APPEND_FLAGS, remove_temporaries
from barco.workers.storage.files.slack import cut
from barco.workers.storage.files.trash import discard, empty_trash
from barco.workers.storage.index import scan
from barco.workers.storage.index.catalog import SegmentKey
from barco.workers.storage.index.scan import SegmentSummary, Tags
from barco.workers.storage.index.sidecar import write_sidecar
from barco.workers.storage.index.verdict import (
    CORRUPT,
    SEALED,
    Found,
    Judged,
    Recorded,
    Seen,
    Start,
)
from barco.workers.storage.reading.groups import GroupFiles
from barco.workers.storage.stores.copied import CopiedLog, Position
from barco.workers.storage.stores.loading import Load, LogCore, walk_generation
from barco.workers.storage.stores.recovery import clear_torn, make_stable, sources_of
from barco.workers.storage.stores.restoring import (
    Part,
    Restoring,
    State,
    StateAt,
    StateSource,
    as_ended,
    resolve,
)
from barco.workers.storage.stores.retention import Policy
from barco.workers.storage.stores.scrub import RepairSource
from barco.workers.storage.stores.shard_files import ShardFiles

CUT_AFTER_SECONDS = 1.0
"""Freeing 128 MiB is 20 to 40 ms of work that a fail-over must not wait for."""


class ReplicaStore(ShardFiles):
    """Recovers, extends, seals, reads and expires the generations of one replica."""

    _core: LogCore

    def __init__(
        self,
        shard_dir: str | os.PathLike[str],
        bulk: BulkIo,
        *,
        cluster_uuid: bytes,
        token: int,
        segment_bytes: int,
        policy: Policy,
        on_error: Callable[[BarcoError], None],
        claim: Claim | None = None,
    ) -> None:
        super().__init__(
            shard_dir,
            bulk,
            cluster_uuid=cluster_uuid,
            token=token,
            segment_bytes=segment_bytes,
            policy=policy,
            on_error=on_error,
            claim=claim,
        )
        self.groups = GroupFiles(self._shard, bulk, self._catalog.files)
        self.epoch = self.walked_groups = 0
        """Of the generation that the core has, 0: none; how many groups recovery has looked at."""
        self._preparing = asyncio.Lock()
        self.first_made, self.expect = self._pool.make_ahead, self._pool.expect
        self._before: State = (0, 0)
        self._copies: dict[int, CopiedLog] = {}
        self._cutting: set[asyncio.Task[None]] = set()
        self._damaged: set[int] = set()
        """Epochs whose log ended in corruption when this process started."""
        self.states: StateSource | None = None
        """Who may have the state of a history that is not here."""
        self._hurt: list[CorruptLogError] = []
        """In a generation that has ended: to be repaired, and nobody votes on it."""

    # --- Recovery -----------------------------------------------------------------------------

    async def recover(self, core: LogCore) -> dict[int, Found]:
        """Finds the end of every log; the core gets the newest that has one. By epoch.

        Nothing is sealed, and nothing is given up: that is for the members to decide. So a log
        without a stable record in lineage.log is kept too; its record comes again from a member.
        """
        self._core = core
        await self._check_disk()
        remove_temporaries(self._shard)
        empty_trash(self._shard)
        logs: dict[int, Found] = {}
        start = Start()
        for generation in reversed(self.lineage.own()):
            epoch = generation.epoch
            known = Recorded(epoch, generation.tail, generation.expired)
            if not start.looks(known):
                logs[epoch] = start.unseen(known)
                continue
            recover = self._recover_sealed if generation.sealed else self._recover_one
            verdict = await recover(generation, known, start)
            if verdict.told:
                logs[epoch] = verdict.found
            assert self.epoch == start.current, "the core has what it is to have"
        await self._catalog.load()
        for epoch, log in self._copies.items():
            self._know_closed(epoch, log.position.segment)
        self._know_closed(self.epoch, self._next_index - 1)
        self._start_reading(self.epoch, core)
        self.groups.damage = self._catalog.damage
        return logs

    def repair_from(self, source: RepairSource) -> None:
        """Members can be asked from now on for what is damaged here."""
        assert self.scrub is not None, "recover first"
        self.scrub.source = source
        for error in self._hurt:
            for key in self.scrub.keys_at(error.path):
                self.scrub.suspect(key)

    def _committed(self, epoch: int) -> int | None:
        if epoch == self.epoch:
            return self._core.log_state()["committed"]
        log = self._copies.get(epoch)
        return log.position.tail if log is not None else None

    def _begun(self, epoch: int) -> bool:
        return epoch == self.epoch and self._core.log_state()["committed"] > 0

    async def _recover_sealed(
        self, generation: Generation, known: Recorded, start: Start
    ) -> Judged:
        """The newest that has ended: the core gets its state, if it is sound.

        Else it is repaired, and the state comes with the next generation, or from it by then.
        """
        load: Load | None = None
        try:
            sources = sources_of(self._shard, generation)
            load = Load(self._core, generation, sources)
            result = await walk_generation(*self._of(generation), sources, load)
        except CorruptLogError as error:
            if load is not None and load.fd >= 0:
                self._core.begin_generation(generation.epoch, 0)  # It forgets the descriptor.
                os.close(load.fd)
            if self._policy.sole_member:
                raise  # Nobody has another copy: an operator has to decide.
            self._on_error(error.to_be_repaired())
            self._hurt.append(error)
            return start.saw(known, Seen(), CORRUPT)
        self.walked_groups += result.groups
        self.epoch, self._next_index = generation.epoch, result.end_segment + 1
        self._fds[result.end_segment] = load.fd
        return start.saw(known, result.seen, SEALED)

    def _of(self, generation: Generation) -> tuple[Generation, Tags, BulkIo]:
        return generation, self._tags_of(generation), self._bulk

    async def _recover_one(self, generation: Generation, known: Recorded, start: Start) -> Judged:
        """Scans a log that has not ended; loads it into the core if that has none yet."""
        await self._bulk.run(kept.restore, self._shard, generation.epoch)
        sources = sources_of(self._shard, generation)
        # Before it is read: what a sync lost that failed can be there until the next one.
        await make_stable(sources, self._bulk)
        load = Load(self._core, generation, sources) if not self.epoch else None
        try:
            result = await walk_generation(*self._of(generation), sources, load)
            verdict = start.saw(known, result.seen, result.stop)
        except CorruptLogError as error:
            if self._policy.sole_member:
                raise
            self._on_error(error.to_be_repaired())
            self._damaged.add(generation.epoch)
            result = await walk_generation(*self._of(generation), sources, load, accept_loss=True)
            verdict = start.saw(known, result.seen, CORRUPT)
        self.walked_groups += result.groups
        if verdict.clears:
            await self._drop_behind(generation.epoch, result)
            if result.tail:  # Else there is no file of it any more.
                await clear_torn(sources, result, self._bulk)
        position = Position(result.tail, result.last_crc, result.end_segment, result.end_bytes)
        if result.tail == 0:
            position.segment = -1
        if verdict.loads:
            assert load is not None, "the core had none"
            self.epoch, self._next_index = generation.epoch, result.end_segment + 1
            self._fds[result.end_segment] = load.fd
        else:
            tags = self._tags_of(generation)
            self._copies[generation.epoch] = CopiedLog(self._shard, self._bulk, tags, position)
        return verdict

    async def _drop_behind(self, epoch: int, result: scan.ScanResult) -> None:
        """Segments behind the end were never acknowledged: their names are needed again."""
        for index in layout.segment_indexes(self._shard, epoch):
            if index > result.end_segment or result.tail == 0:
                await self._bulk.run(
                    discard, self._shard, layout.segment_path(self._shard, epoch, index)
                )

    def _know_closed(self, epoch: int, open_index: int) -> None:
        """All segments of an unsealed generation but its last are whole."""
        for index in layout.segment_indexes(self._shard, epoch) if epoch else ():
            if index < open_index:
                self._catalog.add_known(epoch, index)

    def _tags_of(self, generation: Generation) -> Tags:
        return Tags(self._cluster_uuid, self._token, generation.epoch, generation.session)

    # --- The core's generation ----------------------------------------------------------------

    async def begin(self, epoch: int, session: int, *, followers: bool = True) -> None:
        """The core leaves its generation, of which nothing may be under way, and has this one."""
        assert epoch > self.epoch
        self._pool.begins(epoch)
        async with self._pool.installing:  # No segment gets its name in the middle of this.
            if self.epoch:
                self._leave()
            self._core.begin_generation(epoch, session, followers)
            self.epoch, self._next_index = epoch, 0
        self.reader.open_epoch = epoch
        if self._retention is not None:
            self._retention.open_epoch = epoch

    def _leave(self) -> None:
        """What the core had goes on as a log of files, if there is more of it to come."""
        state = self._core.log_state()
        if state["gseq"]:
            self._before = (self.epoch, state["gseq"])
        generation = self.lineage.get(self.epoch)
        if generation is not None and not generation.sealed:
            segment = state["segment"]
            position = Position(
                state["stable_gseq"], state["header_crc"], segment, state["segment_used"]
            )
            tags = self._tags_of(generation)
            self._copies[self.epoch] = CopiedLog(self._shard, self._bulk, tags, position)
        for index, fd in self._fds.items():
            os.close(fd)
            if index > state["segment"]:  # Prepared, and not needed.
                discard(self._shard, layout.segment_path(self._shard, self.epoch, index))
                # Who served groups has looked into it; one of the same name may come by copying.
                self._catalog.files.forget(SegmentKey(self.epoch, index))
        self._fds.clear()

    @property
    def state(self) -> State:
        """What the core's state is the sum of."""
        gseq = self._core.log_state()["gseq"] if self.epoch else 0
        return (self.epoch, gseq) if gseq else self._before

    async def next_segment(self) -> tuple[int, int, int] | None:
        """(index, descriptor, capacity) for the core; errors as `SegmentPool.prepare`.

        None: another generation has begun meanwhile, which asks for its own.
        """
        epoch = self.epoch
        async with self._preparing:
            if self.epoch != epoch:
                return None
            index = self._next_index
            made = await self._behind_damage(epoch, index)
            if made is not None and self.epoch != epoch:
                os.close(made[0])
                return None
            if made is None:
                made = await self._pool.prepare_if(epoch, index, lambda: self.epoch == epoch)
            if made is None:
                return None
            self._next_index = index + 1
        fd, capacity = made
        self._fds[index] = fd
        return index, fd, capacity

    async def _behind_damage(self, epoch: int, index: int) -> tuple[int, int] | None:
        """Descriptor and capacity of a file of that name which is there already, behind damage.

        The groups that come back from the members are the same bytes in the same places. Until they
        are there, the old ones tell a start that its log was longer once: they must not go first.
        """
        path = layout.segment_path(self._shard, epoch, index)
        if epoch not in self._damaged or not path.exists():
            return None
        try:
            fd = await self._bulk.run(os.open, path, APPEND_FLAGS)
        except OSError as error:
            raise explain(error, path, "open") from error
        return fd, os.fstat(fd).st_size

    async def segment_sealed(self, epoch: int, index: int) -> bool:
        """All of a segment is history: into the catalog. False: its generation has gone by."""
        if epoch != self.epoch:
            return False
        body = self._core.export_index(index)
        summary = SegmentSummary(*self._core.segment_summary(index))
        await self._add_sealed(epoch, index, body, summary)
        if epoch != self.epoch:
            return False  # The descriptor with this number is another generation's now.
        self._close_segment(index)
        return True

    async def restore_state(self, parents: Sequence[Parent], slices: Sequence[range] = ()) -> None:
        """Makes the core's state the sum of the history that ends with these parents. slices: what
        comes of each."""
        if [each.gid.token for each in parents] not in ([], [self._token]):
            self._core.restore(None)
            shares = zip_longest(parents, slices)
            await self._restoring().restore_joined([self._part(*each) for each in shares])
            return
        wanted = resolve(self.lineage, [(each.gid.epoch, each.tail) for each in parents])
        if self.state == wanted:
            return
        self._core.restore(None)
        epoch, tail = wanted
        if not tail:
            return
        await self._restoring().restore(self.lineage.get(epoch), self._tags(epoch), tail)

    def whole(self, epoch: int, tail: int) -> bool:
        """Whether a generation that ends with this group is here up to there."""
        return self._ended(epoch, tail) is not None

    def _ended(self, epoch: int, tail: int) -> Generation | None:
        core = self._core.log_state() if epoch == self.epoch else None
        return as_ended(self.lineage.get(epoch), tail, core)

    async def state_at(self, epoch: int, tail: int, slices: range) -> StateAt:
        """The state behind its last group, of these slices. Raises BarcoError; ValueError: they are
        not its slices."""
        generation = self._ended(epoch, tail)
        if generation is None:
            raise NotReadyError(f"the groups of epoch {epoch} are not here")
        return await self._restoring().state_at(generation, self._tags_of(generation), slices)

    def _part(self, parent: Parent, slices: range | None) -> Part:
        gid = parent.gid
        here = self.lineage.get(gid.epoch) if gid.token == self._token else None
        return Part(parent, slices, here, self._tags(gid.epoch))

    def _restoring(self) -> Restoring:
        parts = (self._core, self._shard, self._bulk, self.groups, self.scrub, self.states)
        return Restoring(*parts, self._on_error)

    async def keep(self, session: int | None, groups: list[bytes | bytearray]) -> int:
        """Keeps the next groups of the core's generation, of which nothing may be under way.

        Returns the number of the last one kept, or 0: see `kept`. Raises BarcoError.
        """
        epoch, state = self.epoch, self._core.log_state()
        position = Position(
            state["gseq"], state["header_crc"], state["segment"], state["segment_used"]
        )
        tags = Tags(self._cluster_uuid, self._token, epoch, session)
        row, end = CopiedLog(self._shard, self._bulk, tags, position).row(groups)
        if len(row) > 1:
            data = b"".join(row)
            at = (position.segment, position.offset)
            await self._bulk.run(kept.keep, self._shard, epoch, *at, data)
        return end.tail if len(row) > 1 else 0

    # --- Other generations --------------------------------------------------------------------

    def copy(self, epoch: int, session: int | None) -> CopiedLog:
        """The log of a generation that the core does not have, to append to."""
        assert epoch != self.epoch, "where that one ends the core knows"
        log = self._copies.get(epoch)
        if log is None:
            tags = Tags(self._cluster_uuid, self._token, epoch, session)
            log = self._copies[epoch] = CopiedLog(self._shard, self._bulk, tags, Position())
        return log

    async def skip(self, epoch: int, session: int | None, first: int, prev_crc: int) -> None:
        """The log of a generation that has ended begins with group `first`: see `first_group`."""
        # In which segment that is, its groups will tell (`seal`).
        await self._bulk.run(self.lineage.begins, epoch, 0, first, prev_crc)
        for index in layout.segment_indexes(self._shard, epoch):
            path = layout.segment_path(self._shard, epoch, index)
            self._catalog.remove(SegmentKey(epoch, index))
            await self._bulk.run(discard, self._shard, path)
            await self._bulk.run(discard, self._shard, layout.sidecar_path(path))
        self.copy(epoch, session).position = Position(first - 1, prev_crc)

    async def seal(self, epoch: int, tail: int) -> None:
        """All of a generation's history is here, and it ends with this group."""
        generation = self.lineage.get(epoch)
        if generation is not None and generation.sealed:
            return
        segments, place = await (
            self._seal_core(tail) if epoch == self.epoch else self._seal_copy(epoch, tail)
        )
        await self._bulk.run(self.lineage.sealed, epoch, tail, place[0], place[1])
        self._cut_later(epoch)
        if tail and not segments:
            await self._bulk.run(self.lineage.expired, epoch)  # Nobody had any of it any more.
        if segments and generation is not None and generation.begin[1] > 1:
            mark = (epoch, segments[0], *generation.begin[1:])
            await self._bulk.run(self.lineage.begins, *mark)
        for index in segments:
            self._catalog.add_known(epoch, index)
        self._copies.pop(epoch, None)
        await self._bulk.run(kept.forget, self._shard, epoch)

    def _cut_later(self, epoch: int) -> None:
        """Nothing is appended to its last segment any more."""
        if epoch == self.epoch:
            state = self._core.log_state()
            index, used = state["segment"], state["segment_used"]
        elif epoch in self._copies and epoch not in self._damaged:
            position = self._copies[epoch].position
            index, used = position.segment, position.offset
        else:
            return  # A start looks at it again.
        if index >= 0 and used:
            task = asyncio.get_running_loop().create_task(self._cut(epoch, index, used))
            self._cutting.add(task)
            task.add_done_callback(self._cutting.discard)

    async def _cut(self, epoch: int, index: int, used: int) -> None:
        if not self._policy.sole_member:
            await asyncio.sleep(CUT_AFTER_SECONDS)
        try:
            await self._bulk.run(cut, layout.segment_path(self._shard, epoch, index), used)
            self._catalog.cut(SegmentKey(epoch, index))
        except BarcoError as error:
            self._on_error(error)  # A start tries again.

    async def close(self) -> None:
        """As `ShardFiles.close`; what is still to be cut is left to the next start."""
        for task in self._cutting:
            task.cancel()
        await asyncio.gather(*self._cutting, return_exceptions=True)
        await super().close()

    async def _seal_core(self, tail: int) -> tuple[list[int], tuple[int, int]]:
        """Segments with history, and where it ends."""
        history: list[int] = []
        place = (0, 0)
        generation = self.lineage.get(self.epoch)
        first = generation.begin[0] if generation is not None else 0  # Where retention has been.
        for index in range(first, self._core.log_state()["segment"] + 1 if tail else 0):
            try:
                summary = SegmentSummary(*self._core.segment_summary(index))
            except ValueError:
                history.append(index)  # In the catalog already.
                continue
            if summary.first_gseq > tail:
                break
            history.append(index)
            place = (index, summary.end_bytes)
            if summary.last_gseq <= tail:
                await self._write_sidecar(index, summary)
            else:
                place = await self._end_of(self.epoch, tail)
        return history, place

    async def _write_sidecar(self, index: int, summary: SegmentSummary) -> None:
        """Unless it has to wait: without one it is made when somebody asks for it."""
        if self._sealing.locked():
            return  # Two must not write one file, and a generation must not wait for room.
        body = self._core.export_index(index)  # Whoever has the lock first may drop it.
        async with self._sealing:
            path = layout.segment_path(self._shard, self.epoch, index)
            try:
                await self._bulk.run(write_sidecar, path, body, self.epoch, summary)
            except DiskFullError as error:
                self._on_error(error)

    async def _seal_copy(self, epoch: int, tail: int) -> tuple[list[int], tuple[int, int]]:
        place = await self._end_of(epoch, tail)
        indexes = layout.segment_indexes(self._shard, epoch) if tail else []
        return [index for index in indexes if index <= place[0]], place

    async def _end_of(self, epoch: int, tail: int) -> tuple[int, int]:
        """(segment, byte) behind a group."""
        place = await self.groups.end_of(epoch, tail) if tail else None
        if place is None:  # It is damaged: then what there is, is history, and is repaired.
            return (max(layout.segment_indexes(self._shard, epoch), default=0), 0)
        return (place.segment, place.offset)
