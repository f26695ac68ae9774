"""Where groups from peers go: the core has the newest generation, files the older ones.

One change of generation at a time: `follow`, `lead` and `seal` are carried out in the order in
which they were asked for; groups for a generation that is to come wait for it.
"""

import asyncio
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from barco._native import Reactor
from barco.errors import BarcoError, DiskFullError
from barco.model.generation import Generation, Gid, GroupHead
from barco.types import KiB
from barco.workers.storage.stores.recovery import pack_parents
from barco.workers.storage.stores.replicas import ReplicaStore

SETTLE_SECONDS = 0.0005
"""Between two looks at whether the core's last appends have landed; a fail-over waits for it."""

DISK_FULL_RETRY_SECONDS = 2.0

KEEP_GROUPS_MIN, KEEP_GROUPS_MAX = 16, 128
"""So many that wait are kept, and written together."""

KEEP_GROUP_BYTES_MAX = 64 * KiB
"""Of a larger one to write it twice costs more than the wait."""

Data = bytes | bytearray

log = logging.getLogger("barco.replication")


class Logs:
    """The logs of one replica."""

    def __init__(
        self,
        reactor: Reactor,
        store: ReplicaStore,
        *,
        stable: Callable[[Gid, int, int], None],
        refused: Callable[[Gid, int, int, str], None],
        failed: Callable[[Gid, str], None],
        fatal: Callable[[str], None],
        tail_of: Callable[[Gid], int | None],
        session_of: Callable[[Gid], int | None],
    ) -> None:
        """`stable(gid, gseq, header_crc)`, `failed(gid, reason)`: of any generation.
        `refused(gid, gseq, header_crc, reason)`: the group after this one was not taken. `tail_of`:
        where one ended, if that is known; `session_of`: whose groups it has."""
        self._tail_of = tail_of
        self._session_of = session_of
        self._reactor = reactor
        self._store = store
        self._stable = stable
        self._refused = refused
        self._failed = failed
        self._fatal = fatal
        self.current: Gid | None = None
        """The generation that the core has."""
        self.leading: Gid | None = None
        self._opening: Gid | None = None
        """About to be led; None again when it is not to be any more."""
        self._coming: list[Gid] = []
        """To be the core's, in this order."""
        self._beginning: Gid | None = None
        """About to be the core's: whatever comes of it waits for that."""
        self._told = 0
        """Of the generations up to this epoch it is settled whether the core is to have them."""
        self._pending: dict[Gid, deque[Data]] = {}
        self.pending_bytes = 0
        self._landed = 0
        """What recovery found stable of the core's generation, or was told since."""
        self._keeping = False
        self._free = 0
        """The core may have groups up to this one as they come."""
        self._copying: dict[Gid, asyncio.Task[None]] = {}
        self._jobs: deque[Callable[[], Awaitable[None]]] = deque()
        self.sealing = 0
        """Generations whose files are about to become part of what is read."""
        self._worker: asyncio.Task[None] | None = None
        self._wanting = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.token = 0
        self._alone = False
        """What is led has no followers: the core commits it by itself, and tells of no group."""

    def adopt(self, token: int, *, alone: bool = False) -> None:
        """After recovery: the core may hold a generation already. `alone`: there is no other
        member, so nothing more of it will come."""
        self.token = token
        if self._store.epoch:
            self.current = Gid(token, self._store.epoch)  # type: ignore[arg-type]
            self._landed = self._reactor.log_state()["stable_gseq"]
            generation = self._store.lineage.get(self._store.epoch)
            if generation is not None and not generation.sealed and not alone:
                self._reactor.follow()

    # --- Groups -------------------------------------------------------------------------------

    def append(self, gid: Gid, head: GroupHead, data: Data) -> None:
        """The next group of this generation, as its leader built it."""
        self._pending.setdefault(gid, deque()).append(data)
        self.pending_bytes += len(data)
        if gid == self.current:
            self._feed()
        elif gid not in self._coming and not self._may_come(gid):
            self._copy(gid)

    def _may_come(self, gid: Gid) -> bool:
        """Whether the core is to have it as soon as its record is in the journal."""
        if gid == self._beginning:
            return True
        if gid in self._copying or self._tail_of(gid) is not None:
            return False
        return gid.epoch > max(self._told, self.current.epoch if self.current is not None else 0)

    def _feed(self) -> None:
        """Give the core what it has room for."""
        gid = self.current
        queue = self._pending.get(gid) if gid is not None else None
        while queue and gid is not None:
            if self._waits(gid, queue):
                return
            verdict = self._reactor.take_group(queue[0])
            if verdict == "wait":
                return
            if verdict != "taken":
                self._refuse(gid, verdict)
                return
            self.pending_bytes -= len(queue.popleft())

    def _waits(self, gid: Gid, queue: deque[Data]) -> bool:
        """Whether the core gets no more yet: the next ones are kept first (`storage.kept`).

        A follower that is behind would else wait for the disk after each of them.
        """
        if len(queue[0]) > KEEP_GROUP_BYTES_MAX:
            return False
        state = self._reactor.log_state()
        if max(len(queue), state["gseq"] - state["stable_gseq"]) < KEEP_GROUPS_MIN:
            return False
        if self._keeping:
            return True
        if state["gseq"] < self._free:
            return False
        if not state["settled"]:
            return True
        self._keeping = True
        row = list(itertools.islice(queue, KEEP_GROUPS_MAX))
        task = asyncio.get_running_loop().create_task(self._keep(gid, state["gseq"], row))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return True

    async def _keep(self, gid: Gid, before: int, row: list[Data]) -> None:
        upto = 0
        try:
            upto = await self._store.keep(self._session_of(gid), row)
        except BarcoError as error:
            log.warning("groups are written one by one: %s", error)
        finally:
            self._keeping = False
        if gid == self.current:
            self._free = max(upto, before + 1)
        self._feed()
        if upto and gid == self.current:
            self._reactor.kept(upto)

    def _refuse(self, gid: Gid, verdict: str) -> None:
        """Nothing that came after it can be taken either."""
        self._drop_pending(gid)
        state = self._reactor.log_state()
        gseq = state["gseq"]
        crc = state["header_crc"] if gseq else 0
        self._refused(gid, gseq, crc, f"group {gseq + 1} of {gid} was refused: {verdict}")

    def _drop_pending(self, gid: Gid) -> None:
        self.pending_bytes -= sum(map(len, self._pending.pop(gid, ())))

    def _copy(self, gid: Gid) -> None:
        generation = self._store.lineage.get(gid.epoch)
        if generation is not None and generation.sealed:
            # All of its history is here: a leader that was deposed had sent more than that.
            self.pending_bytes -= sum(map(len, self._pending.pop(gid, ())))
            return
        task = self._copying.get(gid)
        if task is None or task.done():
            loop = asyncio.get_running_loop()
            self._copying[gid] = loop.create_task(self._write_copies(gid))
            self._copying[gid].add_done_callback(self._done)

    async def _write_copies(self, gid: Gid) -> None:
        log_ = self._store.copy(gid.epoch, self._session_of(gid))
        queue = self._pending.setdefault(gid, deque())
        while queue:
            groups = list(queue)
            queue.clear()
            try:
                end = await log_.append(groups)
            except ValueError as error:
                self._drop_pending(gid)
                end = log_.position
                self._stable(gid, end.tail, end.header_crc)
                self._refused(gid, end.tail, end.header_crc, f"in {gid}, {error}")
                return
            except BarcoError as error:
                self._drop_pending(gid)
                self._failed(gid, str(error))
                return
            finally:
                self.pending_bytes -= sum(map(len, groups))
            self._stable(gid, end.tail, end.header_crc)

    def copied(self, gid: Gid) -> bool:
        """Whether its log is one of files, with nothing under way."""
        return gid != self.current and gid not in self._coming and self.settled(gid)

    def skip(self, gid: Gid, first: int, prev_crc: int) -> None:
        """A copied log goes on with group `first`; what is here of it goes."""
        loop = asyncio.get_running_loop()
        self._copying[gid] = loop.create_task(self._skip(gid, first, prev_crc))
        self._copying[gid].add_done_callback(self._done)

    async def _skip(self, gid: Gid, first: int, prev_crc: int) -> None:
        await self._store.skip(gid.epoch, self._session_of(gid), first, prev_crc)
        await self._write_copies(gid)

    # --- The core's upcalls -------------------------------------------------------------------

    def landed(self, gseq: int, header_crc: int, epoch: int) -> None:
        """All groups of the core up to this one are stable."""
        if (alone := self.untold()) is not None:
            self._stable(*alone)
        elif self.current is not None and self.current.epoch == epoch and gseq > self._landed:
            self._landed = gseq
            self._stable(self.current, gseq, header_crc)
        self._feed()

    def untold(self) -> tuple[Gid, int, int] | None:
        """(generation, gseq, header_crc) up to where what is led alone has become stable."""
        if self.leading is None or not self._alone:
            return None
        state = self._reactor.log_state()
        if state["stable_gseq"] <= self._landed:
            return None
        self._landed = state["stable_gseq"]
        return self.leading, self._landed, state["stable_crc"]

    def want_segment(self) -> None:
        """The core needs its next segment."""
        if not self._wanting:
            self._wanting = True
            task = asyncio.get_running_loop().create_task(self._next_segment())
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("replication failed", exc_info=error)
            self._fatal(f"replication failed: {error!r}")

    async def _next_segment(self) -> None:
        gid = self.current
        try:
            await self._add_segment()
        except (BarcoError, OSError) as error:
            self._fatal(str(error))
            return
        if gid == self.current:
            self._wanting = False
            self._feed()

    async def _add_segment(self) -> bool:
        """Gives the core its next segment; false: its generation has gone by."""
        while True:
            try:
                segment = await self._store.next_segment()
                if segment is not None:
                    self._reactor.set_disk_full(False)
                    self._reactor.add_segment(*segment)
                return segment is not None
            except DiskFullError as error:
                log.error("the disk is full: %s", error)
                self._reactor.set_disk_full(True)
                await self._expire()
                await asyncio.sleep(DISK_FULL_RETRY_SECONDS)

    async def _expire(self) -> None:
        """On a full disk nothing is deleted but what retention says, and that at once."""
        try:
            await self._store.run_retention(self._reactor.log_state()["clock_us"])
        except (BarcoError, OSError) as error:
            log.error("retention failed: %s", error)

    # --- Generations --------------------------------------------------------------------------

    def position(self, gid: Gid) -> tuple[int, int]:
        """(gseq, header_crc) of the last stable group."""
        if gid == self.current:
            state = self._reactor.log_state()
            return state["stable_gseq"], state["header_crc"] if state["stable_gseq"] else 0
        end = self._store.copy(gid.epoch, self._session_of(gid)).position
        return end.tail, end.header_crc

    def release(self, gid: Gid) -> None:
        """It has ended, or takes no more of its leader: what waits for the core to have it, and
        what still comes, goes into its files. Unless the core is getting it just now."""
        self._told = max(self._told, gid.epoch)
        if self._pending.get(gid) and gid not in (self.current, self._beginning, *self._coming):
            self._copy(gid)

    def settled(self, gid: Gid) -> bool:
        """Whether nothing that was asked for is under way."""
        if self._pending.get(gid):
            return False
        if gid == self.current:
            return not self._keeping and bool(self._reactor.log_state()["settled"])
        task = self._copying.get(gid)
        return task is None or task.done()

    def rests(self, gid: Gid) -> bool:
        """Whether the core has this generation, and all that was asked for."""
        return (
            gid == self.current
            and self._beginning is None
            and not self._keeping
            and not self._pending.get(gid)
        )

    def follow(self, generation: Generation) -> None:
        """The core is to have this generation, and take its groups from a leader.

        Not one that was shut before this was asked for, and of which something has come: that is in
        files already, which the core would want to make.
        """
        if generation.gid in self._copying:
            return
        if generation.gid != self.current and generation.gid not in self._coming:
            self._coming.append(generation.gid)
            self._do(lambda: self._follow(generation))

    def lead(self, generation: Generation, opened: Callable[[], None]) -> None:
        """The core is to lead it; `opened` is called when GEN_START may be built."""
        self._coming.append(generation.gid)
        self._do(lambda: self._lead(generation, opened))

    def abandon(self, gid: Gid) -> bool:
        """A generation that was to be led is not any more; False: it is open already."""
        if gid == self._opening:
            self._opening = None
        if gid in self._coming:
            self._coming.remove(gid)
            return True
        return False

    def seal(self, gid: Gid, tail: int) -> None:
        """All of its history is here."""
        self.sealing += 1
        self._do(lambda: self._seal(gid, tail))

    def _do(self, job: Callable[[], Awaitable[None]]) -> None:
        self._jobs.append(job)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.get_running_loop().create_task(self._work())
            self._worker.add_done_callback(self._done)

    async def _work(self) -> None:
        while self._jobs:
            try:
                await self._jobs.popleft()()
            except (BarcoError, OSError) as error:
                self._fatal(str(error))
                return

    async def _quiet(self, gid: Gid | None) -> None:
        while gid is not None and not self.settled(gid):
            await asyncio.sleep(SETTLE_SECONDS)

    async def _begin(self, generation: Generation) -> None:
        self._beginning = generation.gid
        await self._quiet(self.current)
        self._reactor.fence()
        tail = self._tail_of(self.current) if self.current is not None else None
        if tail is not None and self._reactor.log_state()["stable_gseq"] >= tail:
            # Before the core forgets where things are: readers find all of it by the catalog.
            self._reactor.replicated(tail)
            await self._store.seal(self._store.epoch, tail)
        self.current = self.leading = None
        self._alone = len(generation.members) == 1
        await self._store.begin(generation.gid.epoch, generation.session, followers=not self._alone)
        self._wanting = False
        self._free = self._landed = 0
        self.current, self._beginning = generation.gid, None
        if generation.gid in self._coming:
            self._coming.remove(generation.gid)
        for gid in [gid for gid, queue in self._pending.items() if queue]:
            if gid.epoch < generation.gid.epoch:
                self._copy(gid)

    async def _follow(self, generation: Generation) -> None:
        if generation.gid not in self._coming:
            return  # Shut before it began: what has come of it is in its files.
        if self.current is not None and self.current.epoch >= generation.gid.epoch:
            self._coming.remove(generation.gid)
            self.release(generation.gid)
            return
        await self._begin(generation)
        self._reactor.follow()
        self._feed()

    async def _lead(self, generation: Generation, opened: Callable[[], None]) -> None:
        if generation.gid not in self._coming:
            return  # Fenced before it began.
        self._opening = generation.gid
        await self._quiet(self.current)
        parents: list[tuple[int, int]] = [(p.gid.epoch, p.tail) for p in generation.parents]
        await self._store.restore_state(parents)
        if self._opening is None:
            return
        await self._begin(generation)
        self._wanting = True
        if not await self._add_segment() or self._opening is None:
            return  # Fenced meanwhile: another has it by now.
        self._wanting = False
        self.leading = generation.gid
        self._reactor.open_generation(pack_parents(parents))
        opened()

    async def _seal(self, gid: Gid, tail: int) -> None:
        await self._quiet(gid)
        await self._store.seal(gid.epoch, tail)
        self.sealing -= 1

    async def close(self) -> None:
        """Ends what is under way."""
        tasks = [*self._tasks, *self._copying.values()] + (
            [self._worker] if self._worker is not None else []
        )
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
