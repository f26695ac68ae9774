"""How the ring gets as the target has it: each leader takes the next step of its own range.

Nobody directs this, and nothing is kept of it: whoever leads a range computes the same plan from
the same routes. Who dies is followed by its next in line, which goes on.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from barco.cluster.ring.depots import COPIES_MIN
from barco.cluster.ring.plan import Planner, RingStep, StepKind
from barco.cluster.ring.routes import RangeRoute
from barco.cluster.ring.target import Target
from barco.cluster.state import events as ev
from barco.errors import BarcoError
from barco.model.generation import Generation, Gid, Identity
from barco.model.options import WorkerOptions
from barco.model.ranges import end_of_slice
from barco.types import Epoch, Ordinal, Token
from barco.workers.operations.service import ShardService
from barco.workers.seams import SiblingsLike

LOOK_SECONDS = 1.0
"""At the latest: who is ready, and who has joined, changes without a word to this process."""

AGAIN_SECONDS = 5.0
"""Before the same step of the same generation is asked of the machine once more."""

READY_SECONDS = 5.0
"""A step that could be taken waits so long for the rest of its members whose brokers are up: who
is just being started takes the processor from those that its slices wait for."""

log = logging.getLogger("barco.worker")


class StepTaker(Protocol):
    """What is asked of a driver (`barco.workers.replication.driver`)."""

    @property
    def leading(self) -> bool:
        """Whether this process leads the open generation of its range."""

    @property
    def generation(self) -> Generation | None:
        """The newest one that is known here."""

    def status(self) -> dict[str, Any]:
        """How replication is: `writable`, and of a leader its `followers`."""

    def post(self, event: ev.Event) -> None:
        """Tell the machine."""


class Growth:
    """The steps of one process's range."""

    def __init__(
        self,
        options: WorkerOptions,
        service: ShardService,
        driver: StepTaker,
        siblings: SiblingsLike,
        refusal: Callable[[int, int], Awaitable[str]],
        hush: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """refusal: why the range here can not be taken in by one, by that one's leader and token;
        empty: it can (`handovers`). hush: what comes waits, and what came is answered
        (`ReplicaHost.hush`)."""
        self._options = options
        self._service = service
        self._desk = service.target
        self._ranges = service.ranges
        self._driver = driver
        self._siblings = siblings
        self._kicked = asyncio.Event()
        self._posted: tuple[Gid, float] | None = None
        self._possible: tuple[Gid, float] | None = None
        """Of which generation a step was first possible, and since when."""
        self._refusal, self._refused = refusal, ""
        self._hush = hush
        self._me = int(options.process[0])

    def kick(self) -> None:
        """Look now: what it looks at has changed."""
        self._kicked.set()

    async def run(self) -> None:
        """Look again and again; ends when it is cancelled."""
        while True:
            self._kicked.clear()
            with contextlib.suppress(BarcoError):  # Who keeps the target is away: another time.
                await self.look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._kicked.wait()

    async def look(self) -> RingStep | None:
        """Take a step if there is one; what was begun. A BarcoError: the target can not be had."""
        if not self._desk.is_asked_for and self.step(self._desk.heard) is None:
            return None
        # Before anything is decided its keeper is asked: gossip may be late, or made up.
        target = await self._desk.look(self._siblings)
        if (step := self.step(target)) is None or (event := self._event(step)) is None:
            return None
        if step.kind is StepKind.HAND_OVER and not await self._fits(step.ends[0]):
            return None
        if step != self.step(target):
            return None  # News came while that was asked.
        now = asyncio.get_running_loop().time()
        gid = Gid(Token(step.ends[0].token), Epoch(step.ends[0].epoch))
        if self._awaits(step, gid, now):
            return None
        before = self._posted
        if before is not None and before[0] == gid and now - before[1] < AGAIN_SECONDS:
            return None
        shut = asyncio.get_running_loop().time()
        if self._hush is not None:
            await self._hush()
            if step != self.step(target):
                return None
        self._posted = (gid, now)
        shut = asyncio.get_running_loop().time() - shut
        log.info("a step to target %d: %s, shut for %.3f s", target.version, step, shut)
        self._driver.post(event)
        return step

    def step(self, target: Target) -> RingStep | None:
        """What this process does next for a target, if it may begin that now."""
        generation, table = self._driver.generation, self._ranges.routes
        if target.version == 0 or generation is None or not self._driver.leading:
            return None
        token, me = self._options.held.token, self._me
        own = next((route for route in table.led_by(me) if route.token == token), None)
        if own is None or own.epoch != generation.gid.epoch or not table.is_covering:
            return None  # News of one of the two are on their way.
        wanted = target.wanted(self._desk.joined(target, table))
        planner = Planner(table, wanted, self._ranges.ready)
        leader = self._service.leaders.leader
        waiting = [each.first for each in table.led_by(me) if leader(each.token) is None]
        due = planner.due(me, waiting)
        found = next((step for step in due if step.ends[0].token == token), None)
        return found if found is not None and self._spares(found) else None

    def _spares(self, step: RingStep) -> bool:
        """Whether two whole copies of what is open stay at members of what comes."""
        status = self._driver.status()
        if not status.get("writable", True):
            return False
        if step.kind is StepKind.HAND_OVER:
            return True  # It is decided by two who have all of it, and they keep it.
        if step.kind is StepKind.JOIN:
            return False  # The machine does it by itself, as soon as it is taught (`handovers`).
        whole = {each["ordinal"] for each in status.get("followers", ()) if each.get("synced")}
        staying = {member for route in step.opens for member in route.members}
        copies = min(COPIES_MIN, len(step.ends[0].members))  # A single broker's have one.
        return len((whole | {self._me}) & staying) >= copies

    def _awaits(self, step: RingStep, gid: Gid, now: float) -> bool:
        """Whether members are about to be ready that the step could do without."""
        if step.kind is StepKind.JOIN:
            return False  # What was handed over waits.
        if self._possible is None or self._possible[0] != gid:
            self._possible = (gid, now)
        coming = self._ranges.is_coming
        late = any(coming(each, child.token) for child in step.opens for each in child.members)
        return late and now - self._possible[1] < READY_SECONDS

    async def _fits(self, own: RangeRoute) -> bool:
        """Whether the left neighbour can take this range in. A BarcoError: nobody could say."""
        left = self._ranges.routes.at(own.first - 1)
        assert left is not None and left.end == own.first, "the plan has looked"
        why = await self._refusal(left.leader, left.token)
        if why and why != self._refused:
            log.error("slices %d to %d can not be joined: %s", left.first, own.end - 1, why)
        self._refused = why
        return not why

    # --- For the machine ---------------------------------------------------------------------

    def _event(self, step: RingStep) -> ev.Event | None:
        """None: somebody who is named has not said which disk and which session it has."""
        generation = self._driver.generation
        assert generation is not None and generation.gid.token == step.ends[0].token
        if step.kind is StepKind.HAND_OVER:
            return ev.HandOver(generation.gid)
        children = [self._child(route, generation) for route in step.opens]
        made = [child for child in children if child is not None]
        if len(made) < len(children):
            return None
        if step.kind is StepKind.SPLIT:
            return ev.Split(generation.gid, (made[0], made[1]))
        return ev.Move(generation.gid, made[0])

    def _child(self, route: RangeRoute, parent: Generation) -> Generation | None:
        """As it shall be, but for what the decision fills in. What a range takes in is not in it:
        that comes with what was handed to it."""
        known = {int(member.ordinal): member for member in parent.members if member.disk_uuid}
        members = [
            known.get(each) or Identity(Ordinal(each), self._ranges.disk_of(each))
            for each in route.members
        ]
        session = self._ranges.session_of(route.leader, route.token)
        if session == 0 or not all(member.disk_uuid for member in members):
            return None
        end = min(end_of_slice(self._options.placement, route.end - 1), parent.end)
        leader = members[route.members.index(route.leader)]
        gid = Gid(Token(route.token), Epoch(route.epoch))
        return Generation(gid, end, leader, session, tuple(members), ())
