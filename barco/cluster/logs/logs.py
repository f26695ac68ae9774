"""Where the groups of each generation go, and which generation the core has: a pure machine.

Events in, effects out (`log_events`); no asyncio, no files, no core. `Carrier` carries the effects
out; the simulator runs the same machine on a core and files of its own.

The core has one generation, files the others. Of each it is known where it is:

    AWAITED    nobody has said whether the core is to have it: what comes waits for that
    COMING     the core is to have it, after the changes that were asked for before
    BEGINNING  the core is getting it; there is no way back, only that it is not opened any more
    CORE       the core has it, and gets its groups as it has room
    LEFT       the core is leaving it: its files are no log of their own before that is done
    FILES      a log of files, written here
    WHOLE      all of its history is here: what still comes was never part of it, and is dropped

    AWAITED   --Follow, Lead-----------------> COMING --its turn--> BEGINNING --Done--> CORE
              --Arrived, Drain, and it can not be the core's any more--> FILES
              --Skip--> FILES                  FILES --Seal, noted--> WHOLE
    COMING    --Drain, StopLeading-----------> AWAITED
    CORE      --the next one begins----------> LEFT --Done--> FILES, or WHOLE where that was noted

`_IN` says for every state what each event does in it. Follow, Lead and Seal are changes: one at a
time, as they were asked for, each through its steps (`Step`). The core leaves a generation only
while nothing is under way in it, and if it is shut, after the replica was told where it ends.

The core may take groups without a word to this machine (`native/broker/intake.c`). So nothing is
counted here that the core counts: how it stands (`CoreState`) comes with every event.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from barco.cluster.logs import events as le
from barco.cluster.logs.states import At, Step
from barco.cluster.state import effects as fx
from barco.cluster.state import events as ev
from barco.model.generation import Generation, Gid
from barco.types import KiB

KEEP_GROUPS_MIN, KEEP_GROUPS_MAX = 16, 128
"""So many that wait are kept, and written together."""

KEEP_GROUP_BYTES_MAX = 64 * KiB
"""Of a larger one to write it twice costs more than the wait."""

_Asked = fx.Follow | fx.Lead | fx.Seal


class _Change(NamedTuple):
    what: _Asked
    gid: Gid


class Logs:
    """The logs of one replica. `step` changes them; the rest are questions."""

    def __init__(self, tail_of: Callable[[Gid], int | None]) -> None:
        """`tail_of`: where a generation ended, if the replica knows."""
        self._tail_of = tail_of
        self._at: dict[Gid, At] = {}
        self._waiting: dict[Gid, deque[Any]] = {}
        self._writing: dict[Gid, int] = {}
        """The logs of files in which something is under way, with its bytes."""
        self.pending_bytes = 0
        """Of groups that wait or are being written."""
        self.current: Gid | None = None
        """The generation that the core has."""
        self.leading: Gid | None = None
        self.alone = False
        """What is led has no followers: the core commits it by itself, and tells of no group."""
        self._noted = False
        """It is noted that the core's log is whole."""
        self._left: Gid | None = None
        self._changes: deque[_Change] = deque()
        self._step = Step.TURN
        self._opens = False
        """The lead that is the first change is still wanted."""
        self._settled_upto = 0
        """Up to this epoch it is settled whether the core is to have a generation."""
        self._draining: set[Gid] = set()
        self._landed = 0
        """What recovery found stable of the core's generation, or was told since."""
        self._taking = self._keeping = False
        self._before = self._free = 0
        """The core's last group when it began to keep; those up to `_free` it gets as they come."""
        self._effects: list[le.LogEffect] = []

    def adopt(self, current: Gid | None, landed: int, whole: Iterable[Gid]) -> None:
        """After recovery: what the core has, stable up to `landed`, and whose logs are whole."""
        assert self.current is None and not self._at, "nothing has happened yet"
        self._at = dict.fromkeys(whole, At.WHOLE)
        self.current, self._landed = current, landed
        if current is not None:
            self._noted = self.at(current) is At.WHOLE
            self._at[current] = At.CORE

    # --- Questions ----------------------------------------------------------------------------

    def at(self, gid: Gid) -> At:
        """Where this generation is."""
        return self._at.get(gid, At.AWAITED)

    @property
    def sealing(self) -> frozenset[Gid]:
        """Generations whose files are about to become part of what is read."""
        return frozenset(each.what.gid for each in self._changes if isinstance(each.what, fx.Seal))

    def copied(self, gid: Gid) -> bool:
        """Whether its log is one of files, with nothing under way."""
        return self.at(gid) in (At.AWAITED, At.FILES, At.WHOLE) and self._is_quiet(gid)

    def settled(self, gid: Gid, core: le.CoreState) -> bool:
        """Whether nothing that was asked for is under way, and where its log ends can be told."""
        own = gid != self.current or core.settled and not self._keeping
        return own and self.at(gid) is not At.LEFT and self._is_quiet(gid)

    def _is_quiet(self, gid: Gid) -> bool:
        return not self._waiting.get(gid) and gid not in self._writing

    def rests(self, gid: Gid) -> bool:
        """Whether the core has this generation, keeps it, and has all that was asked for."""
        kept = not self._changes or self.at(self._changes[0].gid) is not At.BEGINNING
        return kept and gid == self.current and not self._keeping and self._is_quiet(gid)

    def waits(self) -> bool:
        """Whether a `Look` may change something."""
        drains = self.alone and self.current in self._draining
        return drains or self._step in (Step.REST, Step.LEAVE)

    # --- Events -------------------------------------------------------------------------------

    def step(self, event: le.LogEvent, core: le.CoreState) -> list[le.LogEffect]:
        """What follows from this event; the effects are to be carried out in their order."""
        if isinstance(event, (le.Landed, le.Heard, le.Done, le.Look)):
            _OF_CORE[type(event)](self, event, core)
        else:
            gid = event.generation.gid if isinstance(event, (fx.Follow, fx.Lead)) else event.gid
            do = _IN[self.at(gid)].get(type(event))
            assert do is not None, f"{type(event).__name__} while {gid} is {self.at(gid).name}"
            do(self, event, core)
        self._go_on(core)
        assert self.current is None or self.at(self.current) is At.CORE
        assert self.leading in (None, self.current), "the core leads what it has"
        assert self._changes or self._step is Step.TURN, "a step is one of a change"
        assert self._left is None or self._step is Step.BEGIN, "it is left for the next one"
        assert self.current is not None or not self._keeping, "what is kept is for the core"
        assert self.pending_bytes >= sum(self._writing.values()), "what is written was counted"
        effects, self._effects = self._effects, []
        return effects

    def untold(self, core: le.CoreState) -> ev.Stable | None:
        """Up to where what is led alone has become stable, if that is news for the replica."""
        if self.leading is None or not self.alone or core.stable_gseq <= self._landed:
            return None
        self._landed = core.stable_gseq
        return ev.Stable(self.leading, self._landed, core.stable_crc)

    def _ask(self, *effects: le.LogEffect) -> None:
        self._effects += effects

    def _nothing(self, event: Any, core: le.CoreState) -> None:
        pass

    def _on_look(self, event: le.Look, core: le.CoreState) -> None:
        self._feed(core)
        if self.alone:  # Nobody else says that its last appends have landed.
            self._on_heard(event, core)

    # --- Groups for files -----------------------------------------------------------------------

    def _queue(self, event: le.Arrived, core: le.CoreState) -> None:
        self._waiting.setdefault(event.gid, deque()).append(event.data)
        self.pending_bytes += len(event.data)

    def _await(self, event: le.Arrived, core: le.CoreState) -> None:
        """Unless it can not be the core's any more."""
        self._queue(event, core)
        newest = max(self._settled_upto, self.current.epoch if self.current is not None else 0)
        if event.gid.epoch <= newest or self._tail_of(event.gid) is not None:
            self._write(event.gid)

    def _append(self, event: le.Arrived, core: le.CoreState) -> None:
        self._queue(event, core)
        self._write(event.gid)

    def _write(self, gid: Gid) -> None:
        """What waits goes into files, and so does whatever else comes."""
        assert gid != self.current, "what the core has is written by the core"
        self._at[gid] = At.FILES
        groups = self._waiting.pop(gid, None) if gid not in self._writing else None
        if groups:
            self._writing[gid] = sum(map(len, groups))
            self._ask(le.WriteFiles(gid, tuple(groups)))

    def _drop(self, gid: Gid) -> None:
        """Nothing that waits can be taken."""
        self.pending_bytes -= sum(map(len, self._waiting.pop(gid, ())))
        assert self.pending_bytes >= sum(self._writing.values())

    def _wrote(self, event: le.Wrote, core: le.CoreState) -> None:
        gid = event.gid
        self._ask(le.Tell(ev.Stable(gid, event.gseq, event.header_crc)))
        if event.refused:
            self._drop(gid)
            self._ask(le.Tell(ev.Refused(gid, event.gseq, event.header_crc, event.refused)))
        self._written(event, core)

    def _unwritten(self, event: le.Unwritten, core: le.CoreState) -> None:
        self._drop(event.gid)
        self._ask(le.Tell(ev.IoFailed(event.gid, event.reason)))
        self._written(event, core)

    def _written(self, event: le.Wrote | le.Unwritten | le.Skipped, core: le.CoreState) -> None:
        self.pending_bytes -= self._writing.pop(event.gid)
        assert self.pending_bytes >= 0, "what came is counted once"
        if self._waiting.get(event.gid):
            self._write(event.gid)
        self._drained(event.gid, core)

    def _skip(self, event: fx.Skip, core: le.CoreState) -> None:
        assert event.gid not in self._writing, "what is under way would be lost"
        self._at[event.gid] = At.FILES
        self._writing[event.gid] = 0
        self._ask(le.SkipTo(event.gid, event.first, event.prev_crc))

    # --- Groups for the core ----------------------------------------------------------------------

    def _offer(self, event: le.Arrived, core: le.CoreState) -> None:
        assert event.gid == self.current
        self._queue(event, core)
        self._feed(core)

    def _feed(self, core: le.CoreState) -> None:
        """Give the core what it has room for, one after the other."""
        gid = self.current
        queue = self._waiting.get(gid) if gid is not None else None
        if gid is None or not queue or self._taking or self._keeps(gid, queue, core):
            return
        self._taking = True
        self._ask(le.Take(gid, queue[0]))

    def _keeps(self, gid: Gid, queue: deque[Any], core: le.CoreState) -> bool:
        """Whether the core gets no more yet: the next ones are kept first (`storage.kept`).

        A follower that is behind would else wait for the disk after each of them.
        """
        if len(queue[0]) > KEEP_GROUP_BYTES_MAX:
            return False
        if max(len(queue), core.gseq - core.stable_gseq) < KEEP_GROUPS_MIN:
            return False
        if self._keeping:
            return True
        if core.gseq < self._free:
            return False
        if core.settled:
            self._keeping, self._before = True, core.gseq
            self._ask(le.Keep(gid, tuple(itertools.islice(queue, KEEP_GROUPS_MAX))))
        return True

    def _kept(self, event: le.Kept, core: le.CoreState) -> None:
        assert self._keeping and event.gid == self.current, "the core is not left meanwhile"
        self._keeping = False
        self._free = max(event.upto, self._before + 1)
        self._feed(core)
        if event.upto:
            self._ask(le.KeptUpTo(event.upto))

    def _took(self, event: le.Took, core: le.CoreState) -> None:
        assert self._taking and event.gid == self.current, "it is told at once"
        self._taking = False
        if event.verdict == "wait":
            return
        if event.verdict == "taken":
            self.pending_bytes -= len(self._waiting[event.gid].popleft())
            assert self.pending_bytes >= 0, "what came is counted once"
            self._feed(core)
            return
        self._drop(event.gid)  # Nothing that came after it can be taken either.
        crc = core.header_crc if core.gseq else 0
        reason = f"group {core.gseq + 1} of {event.gid} was refused: {event.verdict}"
        self._ask(le.Tell(ev.Refused(event.gid, core.gseq, crc, reason)))
        if event.gid in self._draining:
            self._ask(le.Hear())

    def _on_landed(self, event: le.Landed, core: le.CoreState) -> None:
        gid = self.current
        if (alone := self.untold(core)) is not None:
            self._ask(le.Tell(alone))
        elif gid is not None and gid.epoch == event.epoch and event.gseq > self._landed:
            self._landed = event.gseq
            self._ask(le.Tell(ev.Stable(gid, event.gseq, event.header_crc)))
        self._feed(core)
        self._on_heard(event, core)

    # --- What is shut -----------------------------------------------------------------------------

    def _shut(self, event: fx.Drain, core: le.CoreState) -> None:
        """It takes no more of its leader: what waits for the core to have it, and what is fetched,
        goes into its files. Unless the core is getting it just now."""
        gid = event.gid
        if gid == self.leading:
            self._ask(le.DrainCore())
        self._give_up(event, core)
        self._pass_by(gid)
        self._draining.add(gid)
        self._ask(le.Hear())

    def _pass_by(self, gid: Gid) -> None:
        """It can not become the core's by what comes of it any more."""
        self._settled_upto = max(self._settled_upto, gid.epoch)
        if self.at(gid) is At.AWAITED and self._waiting.get(gid):
            self._write(gid)

    def _give_up(self, event: fx.Drain | fx.StopLeading, core: le.CoreState) -> None:
        """The core is not to have it; if it is getting it just now, it is not opened."""
        if self._changes and self._changes[0].gid == event.gid:
            self._opens = False
        if self.at(event.gid) is At.COMING:
            self._at[event.gid] = At.AWAITED

    def _fence(self, event: fx.StopLeading, core: le.CoreState) -> None:
        self._give_up(event, core)
        if event.gid == self.leading:
            self._ask(le.FenceCore())

    def _on_heard(self, event: le.Heard | le.Landed | le.Look, core: le.CoreState) -> None:
        """Of the core it is known only now that it has told of all its appends."""
        for gid in sorted(self._draining):
            self._drained(gid, core)

    def _drained(self, gid: Gid, core: le.CoreState) -> None:
        if gid in self._draining and self.settled(gid, core):
            self._draining.discard(gid)
            self._ask(le.Rests(gid))

    # --- Changes ----------------------------------------------------------------------------------

    def _come(self, event: fx.Follow | fx.Lead, core: le.CoreState) -> None:
        self._at[event.generation.gid] = At.COMING
        self._changes.append(_Change(event, event.generation.gid))

    def _seal(self, event: fx.Seal, core: le.CoreState) -> None:
        self._changes.append(_Change(event, event.gid))

    def _go_on(self, core: le.CoreState) -> None:
        """As far as the changes get without waiting."""
        while self._changes:
            change = self._changes[0]
            if self._step is Step.TURN:
                self._turn(change)
            elif self._step in (Step.REST, Step.LEAVE):
                gid = change.gid if isinstance(change.what, fx.Seal) else self.current
                if gid is not None and not self.settled(gid, core):
                    return
                if gid in self._draining:
                    return  # The replica is told first where it ends: the core knows that now.
                self._rested(change.what, core)
            else:
                return

    def _turn(self, change: _Change) -> None:
        gid, self._opens = change.gid, isinstance(change.what, fx.Lead)
        if isinstance(change.what, fx.Seal):
            self._step = Step.LEAVE
        elif self.at(gid) is not At.COMING:
            self._over()  # Shut, or fenced, before its turn: what has come of it is in its files.
        elif self._opens:
            self._step = Step.REST
        elif self.current is not None and self.current.epoch >= gid.epoch:
            self._at[gid] = At.AWAITED
            self._pass_by(gid)
            self._over()
        else:
            self._at[gid], self._step = At.BEGINNING, Step.LEAVE

    def _over(self) -> None:
        self._changes.popleft()
        self._step = Step.TURN

    def _rested(self, what: _Asked, core: le.CoreState) -> None:
        if isinstance(what, fx.Seal):
            self._step = Step.NOTE
            self._ask(le.Note(what.gid, what.tail))
        elif self._step is Step.REST:
            self._step = Step.STATE
            self._ask(le.MakeState(what.generation))
        else:
            self._leave(what.generation, core)

    def _leave(self, generation: Generation, core: le.CoreState) -> None:
        assert self.at(generation.gid) is At.BEGINNING, "there is no way back"
        self._ask(le.FenceCore())
        tail = self._tail_of(self.current) if self.current is not None else None
        if self.current is None or tail is None or core.stable_gseq < tail:
            self._begin(generation)
            return
        # Before the core forgets where things are: readers find all of it by the catalog.
        self._step = Step.NOTE
        self._ask(le.Show(tail), le.Note(self.current, tail))

    def _begin(self, generation: Generation) -> None:
        assert self._left is None and self.at(generation.gid) is At.BEGINNING
        if self.current is not None:
            self._at[self.current] = At.LEFT
        self._left, self.current, self.leading = self.current, None, None
        self.alone = len(generation.members) == 1
        self._step = Step.BEGIN
        self._ask(le.Begin(generation))

    def _on_done(self, event: le.Done, core: le.CoreState) -> None:
        change = self._changes[0]
        if self._step is Step.STATE:
            self._has_state(change)
        elif self._step is Step.NOTE:
            self._is_noted(change)
        elif self._step is Step.BEGIN:
            self._has_begun(change.what, change.gid, core)
        else:
            assert self._step is Step.SEGMENT and isinstance(change.what, fx.Lead), self._step
            if event.ok and self._opens:  # Else it was fenced meanwhile: another has it by now.
                assert change.gid == self.current, "the core leads what it has"
                self.leading = change.gid
                self._ask(le.OpenIn(change.what.generation))
            self._over()

    def _has_state(self, change: _Change) -> None:
        assert isinstance(change.what, fx.Lead), "who follows takes the state with the groups"
        if self.at(change.gid) is At.COMING:
            self._at[change.gid], self._step = At.BEGINNING, Step.LEAVE
        else:
            self._over()  # Given up meanwhile.

    def _is_noted(self, change: _Change) -> None:
        if not isinstance(change.what, fx.Seal):
            self._noted = True
            self._begin(change.what.generation)
            return
        if change.gid == self.current:
            self._noted = True
        else:
            self._at[change.gid] = At.WHOLE
            self._drop(change.gid)
        self._over()

    def _has_begun(self, what: fx.Follow | fx.Lead | fx.Seal, gid: Gid, core: le.CoreState) -> None:
        assert self.current is None and self.at(gid) is At.BEGINNING
        left = self._left
        if left is not None:
            self._at[left] = At.WHOLE if self._noted else At.FILES
        self._left, self._noted = None, False
        self._free = self._landed = 0
        self.current, self._at[gid] = gid, At.CORE
        for other in [each for each, queue in self._waiting.items() if queue]:
            if self.at(other) is At.WHOLE:
                self._drop(other)
            elif other.epoch < gid.epoch and self.at(other) in (At.AWAITED, At.FILES):
                self._write(other)
        if left is not None:
            self._drained(left, core)
        if isinstance(what, fx.Lead):
            self._step = Step.SEGMENT
            self._ask(le.AddSegment())
        else:
            self._over()
            self._ask(le.FollowIn())
            self._feed(core)


_Table = dict[type[Any], Callable[[Logs, Any, le.CoreState], None]]
_OF_CORE: _Table = {
    le.Landed: Logs._on_landed,
    le.Heard: Logs._on_heard,
    le.Done: Logs._on_done,
    le.Look: Logs._on_look,
}
_ANY: _Table = {fx.Drain: Logs._shut, fx.StopLeading: Logs._fence, fx.Seal: Logs._seal}
_KNOWN: _Table = _ANY | {fx.Follow: Logs._nothing}
_WRITTEN: _Table = {
    le.Wrote: Logs._wrote,
    le.Unwritten: Logs._unwritten,
    le.Skipped: Logs._written,
    fx.Skip: Logs._skip,
}
_IN: dict[At, _Table] = {
    At.AWAITED: _ANY
    | {le.Arrived: Logs._await, fx.Follow: Logs._come, fx.Lead: Logs._come, fx.Skip: Logs._skip},
    At.COMING: _KNOWN | {le.Arrived: Logs._queue},
    At.BEGINNING: _KNOWN | {le.Arrived: Logs._queue},
    At.CORE: {**_KNOWN, le.Arrived: Logs._offer, le.Took: Logs._took, le.Kept: Logs._kept},
    At.LEFT: _KNOWN | {le.Arrived: Logs._queue},
    At.FILES: _KNOWN | _WRITTEN | {le.Arrived: Logs._append},
    At.WHOLE: _KNOWN | _WRITTEN | {le.Arrived: Logs._nothing},
}
"""What is missing here can not be: the replica asks for no such thing, and the carrier has nothing
of it under way."""
