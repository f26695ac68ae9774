"""The machine of a replica's logs: what each event does in each state, and the order of changes."""

from collections.abc import Iterable
from typing import Any

import pytest

from barco.cluster.logs import events as le
from barco.cluster.logs.logs import Logs
from barco.cluster.logs.states import At
from barco.cluster.state import effects as fx
from barco.cluster.state import events as ev
from barco.model.generation import Generation, Gid, Identity, Parent
from barco.types import Epoch, Token

A, B = Identity(0, b"a" * 16), Identity(1, b"b" * 16)


def generation(epoch: int) -> Generation:
    parents = (Parent(gid(epoch - 1), 4),)
    return Generation(gid(epoch), 1000, A, 7, (A, B), parents)


def gid(epoch: int) -> Gid:
    return Gid(Token(0), Epoch(epoch))


OLD, NOW, NEXT = gid(4), gid(5), gid(6)
EVENTS: dict[str, Any] = {
    "Follow": fx.Follow(generation(5)),
    "Lead": fx.Lead(generation(5)),
    "Drain": fx.Drain(NOW),
    "StopLeading": fx.StopLeading(NOW, "why"),
    "Seal": fx.Seal(NOW, 4),
    "Skip": fx.Skip(NOW, 3, 9),
    "Arrived": le.Arrived(NOW, b"1234"),
    "Took": le.Took(NOW, "taken"),
    "Kept": le.Kept(NOW, 3),
    "Wrote": le.Wrote(NOW, 4, 9),
    "Unwritten": le.Unwritten(NOW, "why"),
    "Skipped": le.Skipped(NOW),
}
BECOMES = """
              AWAITED   COMING    BEGINNING CORE      LEFT      FILES     WHOLE
Follow        BEGINNING COMING    BEGINNING CORE      LEFT      FILES     WHOLE
Lead          COMING    -         -         -         -         -         -
Drain         AWAITED   AWAITED   BEGINNING CORE      LEFT      FILES     WHOLE
StopLeading   AWAITED   AWAITED   BEGINNING CORE      LEFT      FILES     WHOLE
Seal          AWAITED   COMING    BEGINNING CORE      LEFT      FILES     WHOLE
Skip          FILES     -         -         -         -         -         FILES
Arrived       AWAITED   COMING    BEGINNING CORE      LEFT      FILES     WHOLE
Took          -         -         -         CORE      -         -         -
Kept          -         -         -         CORE      -         -         -
Wrote         -         -         -         -         -         FILES     -
Unwritten     -         -         -         -         -         FILES     -
Skipped       -         -         -         -         -         FILES     -
"""
"""By event and state: the state afterwards, of a log of files to which something is being written;
-: it can not be, and ends the process."""


class Run:
    """A machine with the answers that it waits for."""

    def __init__(self, tails: dict[Gid, int] | None = None) -> None:
        self.tails = tails if tails is not None else {}
        self.logs = Logs(self.tails.get)
        self.core = le.CoreState(0, 0, 0, 0, True)
        self.asked: list[Any] = []

    def step(self, *events: Any) -> list[Any]:
        """What these events ask for."""
        found = []
        for event in events:
            found += self.logs.step(event, self.core)
        self.asked += found
        return found

    def done(self, *kinds: type[Any]) -> None:
        """The next `Done` is told, and these are asked for then."""
        assert self.kinds(self.step(le.Done())) == list(kinds)

    @staticmethod
    def kinds(effects: Iterable[Any]) -> list[type[Any]]:
        return [type(each) for each in effects]


def made(at: At) -> Run:
    """A machine where NOW is in this state."""
    run = Run({OLD: 4})
    busy = le.CoreState(1, 1, 0, 0, False)
    if at is At.COMING:
        run.step(fx.Lead(generation(4)), fx.Follow(generation(5)))
    elif at is At.BEGINNING:
        run.step(fx.Follow(generation(5)))
    elif at is At.CORE:
        run.step(fx.Follow(generation(5)), le.Done(), le.Arrived(NOW, b"1234"))
        run.logs._keeping = True
    elif at is At.LEFT:
        run.step(fx.Follow(generation(5)), le.Done(), fx.Follow(generation(6)))
    elif at is At.FILES:
        run.step(fx.Drain(NOW), le.Arrived(NOW, b"1234"))
    elif at is At.WHOLE:
        run.logs.adopt(None, 0, [NOW])
    run.core = busy
    assert run.logs.at(NOW) is at
    return run


def cells() -> list[tuple[str, str, str]]:
    head, *rows = [line.split() for line in BECOMES.strip().splitlines()]
    return [(row[0], at, cell) for row in rows for at, cell in zip(head, row[1:], strict=True)]


@pytest.mark.parametrize(("event", "at", "becomes"), cells())
def test_each_event_in_each_state(event: str, at: str, becomes: str) -> None:
    run = made(At[at])
    if becomes == "-":
        with pytest.raises((AssertionError, KeyError)):
            run.step(EVENTS[event])
    else:
        run.step(EVENTS[event])
        assert run.logs.at(NOW).name == becomes


def test_the_table_has_each_state_and_each_event() -> None:
    assert {at for _, at, _ in cells()} == {at.name for at in At}
    assert {event for event, _, _ in cells()} == set(EVENTS)
    own = {each.__name__ for each in (*le.EventOfLog.__args__, *le.EffectOfReplica.__args__)}
    assert own == set(EVENTS)


def test_a_lead_from_end_to_end() -> None:
    run = Run({OLD: 4})
    run.logs.adopt(OLD, 4, [])
    run.core = le.CoreState(4, 44, 4, 44, True)
    assert run.step(fx.Lead(generation(5))) == [le.MakeState(generation(5))]
    assert run.step(le.Done()) == [le.FenceCore(), le.Show(4), le.Note(OLD, 4)]
    assert not run.logs.rests(OLD)
    assert run.step(le.Done()) == [le.Begin(generation(5))]
    assert run.logs.at(OLD) is At.LEFT
    run.core = le.CoreState(0, 0, 0, 0, True)
    run.done(le.AddSegment)
    assert run.logs.at(OLD) is At.WHOLE and run.logs.leading is None
    assert run.step(le.Done()) == [le.OpenIn(generation(5))]
    assert run.logs.leading == NOW and not run.logs.waits()


@pytest.mark.parametrize("answers", range(4))
def test_a_lead_that_is_stopped_on_the_way_is_not_opened(answers: int) -> None:
    run = Run({OLD: 4})
    run.logs.adopt(OLD, 4, [])
    run.core = le.CoreState(4, 44, 4, 44, True)
    run.step(fx.Lead(generation(5)))
    for _ in range(answers):
        run.step(le.Done())
    run.step(fx.StopLeading(NOW, "why"))
    while run.logs._changes:
        run.step(le.Done())
    assert le.OpenIn not in run.kinds(run.asked) and run.logs.leading is None
    assert run.logs.at(NOW) is (At.AWAITED if answers == 0 else At.CORE)


def test_the_core_is_not_left_before_all_of_it_is_stable() -> None:
    run = Run()
    run.logs.adopt(OLD, 2, [])
    run.core = le.CoreState(4, 44, 2, 22, False)
    assert run.step(fx.Follow(generation(5))) == [] and run.logs.waits()
    assert run.step(le.Look()) == []
    run.core = le.CoreState(4, 44, 4, 44, True)
    told = run.step(le.Landed(4, 44, 4))
    assert told[0] == le.Tell(ev.Stable(OLD, 4, 44))
    assert told[1:] == [le.FenceCore(), le.Begin(generation(5))]


def test_what_still_comes_of_a_log_that_the_core_leaves_waits_for_its_files() -> None:
    """Before the core has left it nobody knows where its files end: the group would be taken for
    the first one of an empty log, and refused."""
    run = Run()
    run.logs.adopt(OLD, 4, [])
    run.core = le.CoreState(4, 44, 4, 44, True)
    run.step(fx.Drain(OLD), fx.Follow(generation(5)), le.Heard())
    assert run.logs.at(OLD) is At.LEFT
    assert run.step(le.Arrived(OLD, b"1234")) == []
    assert run.step(le.Done())[0] == le.WriteFiles(OLD, (b"1234",))


def test_nothing_is_told_to_be_at_rest_before_the_core_was_heard() -> None:
    """`Stable` of what was in flight comes before `Drained`."""
    run = Run()
    run.logs.adopt(NOW, 0, [])
    run.core = le.CoreState(1, 11, 1, 11, True)
    assert run.step(fx.Drain(NOW)) == [le.Hear()]
    assert run.step(le.Look()) == []
    told = run.step(le.Landed(1, 11, 5))
    assert told == [le.Tell(ev.Stable(NOW, 1, 11)), le.Rests(NOW)]
    assert run.step(le.Heard()) == []


def test_the_core_is_not_left_before_it_is_told_where_that_log_ends() -> None:
    run = Run({OLD: 6})
    run.logs.adopt(OLD, 4, [])
    run.core = le.CoreState(4, 44, 4, 44, True)
    assert run.step(fx.Drain(OLD), fx.Follow(generation(5))) == [le.Hear()]
    assert run.logs.at(OLD) is At.CORE and run.logs.waits()
    told = run.step(le.Heard())
    assert told == [le.Rests(OLD), le.FenceCore(), le.Begin(generation(5))]


def test_of_a_log_that_the_core_is_leaving_it_is_not_told_where_it_ends() -> None:
    """Its files are no log of their own yet: asked then, they would end with group 0."""
    run = Run()
    run.logs.adopt(OLD, 4, [])
    run.core = le.CoreState(4, 44, 4, 44, True)
    run.step(fx.Follow(generation(5)))
    assert run.logs.at(OLD) is At.LEFT
    told = run.step(fx.Drain(OLD), le.Heard(), le.Look(), le.Landed(4, 44, 4))
    assert told == [le.Hear()]
    run.core = le.CoreState(0, 0, 0, 0, True)
    assert run.step(le.Done()) == [le.Rests(OLD), le.FollowIn()]
    assert run.logs.at(OLD) is At.FILES and run.step(le.Heard()) == []


def test_a_seal_waits_for_what_is_being_written() -> None:
    run = Run()
    run.step(fx.Drain(NOW), le.Arrived(NOW, b"12"), fx.Seal(NOW, 1))
    assert len(run.logs.sealing) == 1 and run.logs.pending_bytes == 2
    told = run.step(le.Wrote(NOW, 1, 11))
    assert le.Rests(NOW) in told and told[-1] == le.Note(NOW, 1)
    run.step(le.Done())
    assert run.logs.at(NOW) is At.WHOLE and not run.logs.sealing and run.logs.pending_bytes == 0
    assert run.step(le.Arrived(NOW, b"12")) == [] and run.logs.pending_bytes == 0
