"""What whoever drives a replica and its logs decides, besides what the two machines do. Pure.

`workers/replication/driver.py` runs it on a core, files and links; the simulator runs the same on
those of its own.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from barco.cluster.logs import events as le
from barco.cluster.logs.logs import Logs
from barco.cluster.replica.follower import Steady
from barco.cluster.replica.replica import Replica
from barco.cluster.state.effects import Commit, Follow, Lead, Serve, StopLeading
from barco.cluster.state.events import Built, Event
from barco.model.generation import Generation, Gid, GroupHead
from barco.protocol.append_frame import Append
from barco.protocol.replication import Expired, Message

RECENT_GROUPS_MAX = 4096
"""Of those that were built here: where they lie in the arena is kept in mind."""

STARTING, LEADER, FOLLOWER, FENCED = "starting", "leader", "follower", "fenced"
"""What a process is to its range."""


class Course:
    """In which order a replica is told what happens: one thing after the other, and before them
    what the core has done by itself, for it decides on what is, not on what was."""

    __slots__ = ("_events", "busy", "over", "steps")

    def __init__(self) -> None:
        self.busy = False
        """It is being told something."""
        self.over = False
        self.steps = 0
        self._events: deque[tuple[Event, Any]] = deque()

    def tell(
        self,
        event: Event,
        beside: Any,
        news: Callable[[], Iterable[Event]],
        step: Callable[[Event, Any], None],
    ) -> bool:
        """Tell it this, with what came `beside` it, and all that follows from it. False: it is
        being told something, and will be told this after that; or nothing any more.

        `news`: of the core, to be told first. `step`: tells the machine, and carries out.
        """
        if self.over:
            return False
        self._events.append((event, beside))
        if self.busy:
            return False
        self.busy = True
        try:
            self._run(news, step)
        finally:
            self.busy = False
        return not self.over

    def _run(self, news: Callable[[], Iterable[Event]], step: Callable[[Event, Any], None]) -> None:
        for each in news():
            if not self.over:
                step(each, None)
        while self._events:
            assert not self.over, "nothing waits for what is over"
            event, beside = self._events.popleft()
            self.steps += 1
            step(event, beside)

    def end(self) -> None:
        """Nothing is told any more, whatever waits."""
        self.over = True
        self._events.clear()


class Role:
    """What this process is to its range; what of it may be shown, and what the core may do alone.

    `current`, wherever it is given: the generation that the core has, before anything is done about
    this.
    """

    __slots__ = ("_recent", "generation", "name", "restored", "unshown")

    def __init__(self) -> None:
        self.name = STARTING
        self.generation: Generation | None = None
        """The newest that is led or followed."""
        self.unshown: tuple[Gid, int] | None = None
        """Not readable before this group is committed: the first one of a generation brings the
        state, without it the ends of the slices are not known."""
        self.restored: tuple[Gid, int] | None = None
        """After a start, for as long as the core has what it had: what recovery restored goes up to
        this group, and may be more than was ever committed."""
        self._recent: OrderedDict[int, Any] = OrderedDict()
        """gseq of the groups that this process built, to where they lie."""

    # --- What happens -------------------------------------------------------------------------

    def adopt(self, current: Gid, tail: int, ended: int | None) -> None:
        """After recovery, which has restored the core's generation up to `tail`. `ended`: where it
        ended, if that is known."""
        assert self.name == STARTING and tail >= 0
        if ended is None:
            self.restored = (current, tail)

    def leads(self, generation: Generation) -> None:
        """It is to be opened here."""
        self.generation = generation
        self._recent.clear()

    def opened(self, generation: Generation) -> bool:
        """The core leads it. Whether that is news for all others: it is still wanted."""
        if self.generation != generation:
            return False
        assert self.name != LEADER, "a generation is opened once"
        self.name, self.unshown, self.restored = LEADER, None, None
        return True

    def follows(self, generation: Generation, current: Gid | None) -> None:
        """Another leads it."""
        self.generation, self.name = generation, FOLLOWER
        if generation.gid != current:
            self.unshown = (generation.gid, 1)

    def stops(self, gid: Gid) -> bool:
        """It is not led here any more. Whether that is news for all others."""
        if self.generation is None or self.generation.gid != gid:
            return False
        self.name = FENCED
        return True

    def carries(
        self,
        effect: le.EffectOfReplica,
        current: Gid | None,
        tell: Callable[[le.LogEvent], None],
    ) -> bool:
        """What the replica asks of its logs, and what this process is by it: what is to come before
        they are told (`tell`), what has gone after it. Whether that is an end of leading here."""
        if isinstance(effect, Lead):
            self.leads(effect.generation)
        elif isinstance(effect, Follow):
            self.follows(effect.generation, current)
        tell(effect)
        return isinstance(effect, StopLeading) and self.stops(effect.gid)

    def commits(self, effect: Commit, current: Gid | None) -> bool:
        """Whether it is the core that shows these groups."""
        assert effect.gseq > 0, "groups are numbered from 1"
        if _reaches(effect, self.unshown):
            self.unshown = None
        if _reaches(effect, self.restored):
            self.restored = None
        return effect.gid == current

    def built(self, head: GroupHead, at: Any, current: Gid | None) -> Built | None:
        """The core has built its next group, which lies there. What the replica is told."""
        if current is None:
            return None
        assert head.gseq > 0 and head.bytes > 0, "groups are numbered from 1, and have headers"
        self._recent[head.gseq] = at
        while len(self._recent) > RECENT_GROUPS_MAX:
            self._recent.popitem(last=False)
        return Built(current, head)

    # --- Questions ----------------------------------------------------------------------------

    def where(self, message: Append, current: Gid | None) -> Any | None:
        """Where the group lies that this message is of. None: it is not sent any more, whoever
        lacks it asks for it."""
        return self._recent.get(message.head.gseq) if message.gid == current else None

    def hears(self, message: Message, logs: Logs) -> bool:
        """False: it is not for now, and will be asked for again: what is said of a log that the
        core still has."""
        return not isinstance(message, Expired) or logs.copied(message.gid)

    def _hides(self, current: Gid | None) -> bool:
        """Whether something may be there that is not committed, or not yet what it needs."""
        more = self.restored is not None and self.restored[0] == current
        return more or self.unshown is not None

    def busy(self, logs: Logs) -> bool:
        """Whether the log is behind the machine."""
        return bool(logs.sealing) or self._hides(logs.current)

    def readable(self, replica: Replica, logs: Logs) -> bool:
        """Whether all of the history is here, and nothing shown that may not become it."""
        if self._hides(logs.current) or self.generation is None:
            return False  # An empty disk knows of no history before somebody has told it.
        if self.name in (LEADER, FENCED):
            return True
        return not replica.catching_up() and not logs.sealing

    def whole(self, replica: Replica, logs: Logs) -> bool:
        """Whether no generation that has ended lacks groups here, or is not to be found yet; also
        of a leader, and of who has only history."""
        return not (replica.catching_up() or logs.sealing)

    def unread(self, replica: Replica, logs: Logs) -> frozenset[Gid]:
        """Generations that have ended and of which not all can be read here yet: the core's is read
        as it grows, a copy only once it is sealed."""
        lacking, arrived = replica.lacking(), replica.arrived()
        assert not lacking & arrived, "of what lacks groups not all have come"
        return lacking | ((arrived | logs.sealing) - {logs.current})

    def steady(self, replica: Replica, logs: Logs) -> Steady | None:
        """Whether the core may go on by itself with the generation that is followed, and from
        where: to be asked after each step. It runs between steps only, so it holds until then."""
        gid = logs.current
        if self.name != FOLLOWER or gid is None or self._hides(gid):
            return None
        if logs.leading is not None:  # Its successor was shut before the core could have it.
            assert gid == logs.leading, "the core leads what it has"
            return None
        return replica.steady(gid) if logs.rests(gid) else None


def expired(asked: Serve, first: int, prev_crc: int, tail: int | None) -> Expired | None:
    """Who asks for groups of which the `first` one here comes later need not wait for those before:
    they are too old. Of a generation that has not ended, with this `tail`, nothing is."""
    assert 0 < asked.first <= asked.last and first > 0, "groups are numbered from 1"
    gone = tail is not None and asked.first < first <= tail + 1
    return Expired(asked.gid, first, prev_crc) if gone else None


def _reaches(effect: Commit, group: tuple[Gid, int] | None) -> bool:
    return group is not None and effect.gid == group[0] and effect.gseq >= group[1]


def carried(
    logs: Logs,
    event: le.LogEvent,
    core: Callable[[], le.CoreState],
    take: Callable[[le.Take], str],
) -> Iterator[le.LogEffect]:
    """What the machine of the logs asks for after this event, each to be carried out before the
    next; what the core says to a group is told at once, and what follows comes first."""
    seen = core()
    effects = deque(logs.step(event, seen))
    while effects:
        effect = effects.popleft()
        if isinstance(effect, le.Take):
            took, seen = le.Took(effect.gid, take(effect)), core()
            effects.extendleft(reversed(logs.step(took, seen)))
        else:
            yield effect
    if logs.waits():
        yield from _awaits(seen, core())


def _awaits(seen: le.CoreState, now: le.CoreState) -> Iterator[le.LogEffect]:
    """A fail-over waits until the core's last appends have landed, of which not each is told. All
    else that may be waited for is an event of its own."""
    if not now.settled:
        yield le.AwaitCore()
    elif not seen.settled:  # What was just asked for has settled it.
        yield le.LookAgain()
