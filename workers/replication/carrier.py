"""The asyncio half of a replica's logs: does what `Logs` asks for, on the core and the files.

What takes time is a task, which tells the machine when it is done; an error that nobody expects
ends the process.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from barco._native import Reactor
from barco.cluster.logs import events as le
from barco.cluster.logs.driving import carried
from barco.cluster.logs.logs import Logs
from barco.cluster.state import events as ev
from barco.cluster.state.kin import Share
from barco.errors import BarcoError, DiskFullError, NotReadyError
from barco.model.generation import Generation, Gid
from barco.types import Epoch, Token
from barco.workers.storage.stores.recovery import pack_parents
from barco.workers.storage.stores.replicas import ReplicaStore

DISK_FULL_RETRY_SECONDS = 2.0

log = logging.getLogger("barco.replication")


class Carrier:
    """Runs the machine of one replica's logs."""

    def __init__(
        self,
        reactor: Reactor,
        store: ReplicaStore,
        *,
        tell: Callable[[ev.Stable | ev.Refused | ev.IoFailed | ev.Drained], None],
        opened: Callable[[Generation], None],
        fatal: Callable[[str], None],
        guarded: Callable[..., None],
        eased: Callable[[], None],
        tail_of: Callable[[Gid], int | None],
        session_of: Callable[[Gid], int | None],
        shares: Callable[[Generation], list[Share]],
    ) -> None:
        """`tell`: the replica, of any generation. `opened`: GEN_START may be built. `guarded(call,
        *args)`: for what the loop calls. `eased`: fewer bytes are pending. `tail_of`: where one
        ended, if that is known; `session_of`: whose groups it has. `shares`: of those with a
        group that a generation continues, what comes of them."""
        self.machine = Logs(tail_of)
        self._reactor = reactor
        self._store = store
        self._tell = tell
        self._on_opened = opened
        self._fatal = fatal
        self._guarded = guarded
        self._eased = eased
        self._session_of = session_of
        self._shares = shares
        self.slices_of: Callable[[int, int], range] | None = None
        """The slices from a token to before another, within their token range; None: the core keeps
        those that it has."""
        self.begun: Callable[[range], None] = lambda slices: None
        """Called when the core has begun a generation, and has these slices with it."""
        self._wanting = False
        """The core waits for its next segment."""
        self._tasks: set[asyncio.Task[None]] = set()

    def adopt(self, token: Token, *, alone: bool = False) -> None:
        """After recovery: the core may hold a generation already. `alone`: there is no other
        member, so nothing more of it will come."""
        current: Gid | None = None
        if epoch := self._store.epoch:
            current = Gid(token, Epoch(epoch))
            generation = self._store.lineage.get(epoch)
            if generation is not None and not generation.sealed and not alone:
                self._reactor.follow()
        known = self._store.lineage.generations()
        whole = [Gid(token, Epoch(each.epoch)) for each in known if each.sealed]
        self.machine.adopt(current, self._state().stable_gseq, whole)

    # --- Questions ----------------------------------------------------------------------------

    @property
    def current(self) -> Gid | None:
        """The generation that the core has."""
        return self.machine.current

    @property
    def pending_bytes(self) -> int:
        """Of groups that came and still wait to be written."""
        return self.machine.pending_bytes

    @property
    def idle(self) -> bool:
        """Whether the core has what came for its generation, and all of it is stable."""
        gid = self.machine.current
        return not self.pending_bytes and (gid is None or self.machine.settled(gid, self._state()))

    def untold(self) -> ev.Stable | None:
        """Up to where what is led alone has become stable, if that is news."""
        return self.machine.untold(self._state()) if self.machine.alone else None

    def position(self, gid: Gid) -> tuple[int, int]:
        """(gseq, header_crc) of the last stable group.

        Whose log the core has, the store says: the machine may have asked for the next generation
        already, and before that has begun nobody has looked where the files of this one end.
        """
        if gid.epoch == self._store.epoch:
            state = self._reactor.log_state()
            return state["stable_gseq"], state["header_crc"] if state["stable_gseq"] else 0
        end = self._store.copy(gid.epoch, self._session_of(gid)).position
        return end.tail, end.header_crc

    def _state(self) -> le.CoreState:
        state = self._reactor.log_state()
        assert 0 <= state["stable_gseq"] <= state["gseq"]
        assert not state["settled"] or state["stable_gseq"] == state["gseq"], "nothing is under way"
        return le.CoreState(
            state["gseq"],
            state["header_crc"],
            state["stable_gseq"],
            state["stable_crc"],
            bool(state["settled"]),
        )

    # --- Events -------------------------------------------------------------------------------

    def step(self, event: le.LogEvent) -> None:
        """Tell the machine, and do what it asks for."""
        pending = self.pending_bytes
        for effect in carried(self.machine, event, self._state, self._take):
            _DO[type(effect)](self, effect)
        assert self.pending_bytes >= 0, "a group is counted until it is written or dropped"
        if self.pending_bytes < pending:
            self._eased()

    def _take(self, effect: le.Take) -> str:
        verdict: str = self._reactor.take_group(effect.data)
        return verdict

    def settled(self) -> None:
        """By the core, which was asked to tell."""
        self.step(le.Look())

    def want_segment(self) -> None:
        """The core needs its next segment."""
        if not self._wanting:
            self._wanting = True
            self._begin_task(self._next_segment())

    def _begin_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if isinstance(error, (BarcoError, OSError)):
            self._fatal(str(error))
            return
        log.error("replication failed", exc_info=error)
        self._fatal(f"replication failed: {error!r}")

    # --- The core -----------------------------------------------------------------------------

    def _kept_up_to(self, effect: le.KeptUpTo) -> None:
        assert 0 < effect.gseq, "groups are numbered from 1"
        self._reactor.kept(effect.gseq)

    def _drain_core(self, effect: le.DrainCore) -> None:
        self._reactor.drain_generation()

    def _fence_core(self, effect: le.FenceCore) -> None:
        self._reactor.fence()

    def _show(self, effect: le.Show) -> None:
        assert self.current is not None, "what the core has is shown"
        self._reactor.replicated(effect.gseq)

    def _follow(self, effect: le.FollowIn) -> None:
        self._reactor.follow()

    def _open(self, effect: le.OpenIn) -> None:
        self._reactor.open_generation(pack_parents(_parents(effect.generation)))
        self._on_opened(effect.generation)

    def _hear(self, effect: le.Hear) -> None:
        asyncio.get_running_loop().call_soon(self._guarded, self.step, le.Heard())

    def _await(self, effect: le.AwaitCore) -> None:
        assert self.machine.waits(), "nobody else is to be told"
        self._reactor.tell_settled()

    def _look_again(self, effect: le.LookAgain) -> None:
        asyncio.get_running_loop().call_soon(self._guarded, self.step, le.Look())

    def _rests(self, effect: le.Rests) -> None:
        self._tell(ev.Drained(effect.gid, *self.position(effect.gid)))

    def _tells(self, effect: le.Tell) -> None:
        self._tell(effect.event)

    async def _next_segment(self) -> None:
        gid = self.current
        await self._add_segment()
        if gid == self.current:
            self._wanting = False
            self.step(le.Look())

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

    # --- What takes time ----------------------------------------------------------------------

    async def _keep(self, effect: le.Keep) -> None:
        assert effect.gid == self.current, "the core is to have them next"
        assert effect.groups
        upto = 0
        try:
            upto = await self._store.keep(self._session_of(effect.gid), list(effect.groups))
        except BarcoError as error:
            log.warning("groups are written one by one: %s", error)
        assert upto >= 0 and effect.gid == self.current, "it is not left meanwhile"
        self.step(le.Kept(effect.gid, upto))

    async def _write(self, effect: le.WriteFiles) -> None:
        gid = effect.gid
        assert gid != self.current, "what the core has is written by the core"
        assert effect.groups
        log_ = self._store.copy(gid.epoch, self._session_of(gid))
        refused = ""
        try:
            await log_.append(list(effect.groups))
        except ValueError as error:
            refused = f"in {gid}, {error}"
        except BarcoError as error:
            self.step(le.Unwritten(gid, str(error)))
            return
        assert log_.position.tail >= 0 and gid != self.current
        self.step(le.Wrote(gid, log_.position.tail, log_.position.header_crc, refused))

    async def _skip(self, effect: le.SkipTo) -> None:
        gid = effect.gid
        assert gid != self.current, "what the core has is whole from its first group"
        assert effect.first > 1, "something was removed before it"
        await self._store.skip(gid.epoch, self._session_of(gid), effect.first, effect.prev_crc)
        self.step(le.Skipped(gid))

    async def _make_state(self, effect: le.MakeState) -> None:
        generation = effect.generation
        self._store.expect(generation.gid.epoch)
        if self.current is None:  # The state is asked for, if there is any, and of these slices.
            self._set_slices(generation)
        shares, of = self._shares(generation), self.slices_of
        slices = [of(share.token, share.end) for share in shares] if of is not None else []
        await self._store.restore_state([share.parent for share in shares], slices)
        if of is not None:
            self._check_state(generation.gid, of(generation.gid.token, generation.end))
        self.step(le.Done())

    def _check_state(self, gid: Gid, slices: range) -> None:
        """A slice of which nothing is known would begin again with its first event."""
        assert slices, "a range has a slice"
        first, count = self._reactor.shard_slices()
        if not set(slices) <= set(range(first, first + count)) and self._reactor.streams():
            raise NotReadyError(
                f"{gid} has slices {slices.start} to {slices[-1]}, and the state of its parents is"
                f" of {first} to {first + count - 1}."
            )

    def _set_slices(self, generation: Generation) -> None:
        if self.slices_of is not None:
            slices = self.slices_of(generation.gid.token, generation.end)
            self._reactor.set_slices(slices.start, slices[-1])
            self.begun(slices)

    async def _note(self, effect: le.Note) -> None:
        assert effect.tail >= 0
        await self._store.seal(effect.gid.epoch, effect.tail)
        self.step(le.Done())

    async def _begin(self, effect: le.Begin) -> None:
        generation = effect.generation
        assert self.current is None, "what it had is left"
        alone = len(generation.members) == 1
        await self._store.begin(generation.gid.epoch, generation.session, followers=not alone)
        assert self._store.epoch == generation.gid.epoch, "the core has it now"
        self._set_slices(generation)  # In the same turn of the loop: nobody sees it without.
        self._wanting = False
        self.step(le.Done())

    async def _first_segment(self, effect: le.AddSegment) -> None:
        assert self.current is not None and self.machine.leading is None, "it has begun, no more"
        self._wanting = True
        ok = await self._add_segment()
        self._wanting = False
        self.step(le.Done(ok))

    async def close(self) -> None:
        """Ends what is under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _parents(generation: Generation) -> list[tuple[int, int]]:
    return [(each.gid.epoch, each.tail) for each in generation.parents]


def _task(
    work: Callable[[Carrier, Any], Coroutine[Any, Any, None]],
) -> Callable[[Carrier, Any], None]:
    return lambda carrier, effect: carrier._begin_task(work(carrier, effect))


_DO: dict[type[Any], Callable[[Carrier, Any], None]] = {
    le.KeptUpTo: Carrier._kept_up_to,
    le.DrainCore: Carrier._drain_core,
    le.FenceCore: Carrier._fence_core,
    le.Show: Carrier._show,
    le.FollowIn: Carrier._follow,
    le.OpenIn: Carrier._open,
    le.Hear: Carrier._hear,
    le.AwaitCore: Carrier._await,
    le.LookAgain: Carrier._look_again,
    le.Rests: Carrier._rests,
    le.Tell: Carrier._tells,
    le.Keep: _task(Carrier._keep),
    le.WriteFiles: _task(Carrier._write),
    le.SkipTo: _task(Carrier._skip),
    le.MakeState: _task(Carrier._make_state),
    le.Note: _task(Carrier._note),
    le.Begin: _task(Carrier._begin),
    le.AddSegment: _task(Carrier._first_segment),
}
