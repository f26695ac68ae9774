"""What a driver decides: in which order a replica hears, what its process is, what it shows."""

from typing import Any

import pytest
from msgspec.structs import replace

from barco.cluster.logs import events as le
from barco.cluster.logs.driving import (
    FENCED,
    FOLLOWER,
    LEADER,
    RECENT_GROUPS_MAX,
    STARTING,
    Course,
    Role,
    carried,
    expired,
)
from barco.cluster.logs.logs import KEEP_GROUPS_MIN, Logs
from barco.cluster.state import effects as fx
from barco.cluster.state import events as ev
from barco.model.generation import Generation, Gid, GroupHead, Identity, Parent
from barco.protocol.append_frame import Append
from barco.protocol.replication import Expired
from barco.types import Epoch, Token

A, B = Identity(0, b"a" * 16), Identity(1, b"b" * 16)


def gid(epoch: int) -> Gid:
    return Gid(Token(0), Epoch(epoch))


def generation(epoch: int, leader: Identity = A) -> Generation:
    return Generation(gid(epoch), 1000, leader, 7, (A, B), (Parent(gid(epoch - 1), 4),))


OLD, NOW, NEXT = gid(4), gid(5), gid(6)
RESTING = le.CoreState(4, 9, 4, 9, True)


class Machine:
    """Says of itself what a test wants to hear."""

    def __init__(self, *, catching_up: bool = False) -> None:
        self.behind = catching_up

    def catching_up(self) -> bool:
        return self.behind

    def steady(self, gid: Gid) -> Gid:
        return gid


def logs(current: Gid | None = NOW) -> Logs:
    made = Logs(lambda gid: None)
    made.adopt(current, 4, [OLD])
    return made


def readable(role: Role, machine: Logs | None = None, **how: Any) -> bool:
    return role.readable(Machine(**how), machine or logs())  # type: ignore[arg-type]


def steady(role: Role, machine: Logs) -> Any:
    return role.steady(Machine(), machine)  # type: ignore[arg-type]


# --- In which order -------------------------------------------------------------------------------


class Heard:
    """What was told, and what comes of it."""

    def __init__(self, **follows: list[int]) -> None:
        self.course, self.told = Course(), list[Any]()
        self.follows = follows
        self.waiting = [ev.LinkLost(0)]
        self.answers = list[bool]()

    def news(self) -> list[ev.LinkLost]:
        found, self.waiting = self.waiting, []
        return found

    def step(self, event: Any, beside: Any) -> None:
        self.told.append((event.ordinal, beside))
        for ordinal in self.follows.get(f"of_{event.ordinal}", []):
            if ordinal < 0:
                self.course.end()
            else:
                self.answers.append(self.tell(ordinal))

    def tell(self, ordinal: int) -> bool:
        return self.course.tell(ev.LinkLost(ordinal), f"{ordinal}", self.news, self.step)


def test_the_news_of_the_core_come_first_and_all_else_in_its_order() -> None:
    heard = Heard(of_1=[2, 3], of_2=[4])
    assert heard.tell(1)
    assert heard.told == [(0, None), (1, "1"), (2, "2"), (3, "3"), (4, "4")]
    assert heard.answers == [False, False, False], "they were told later, by the first call"
    assert heard.course.steps == 4 and not heard.course.busy
    assert heard.tell(5) and heard.told[-1] == (5, "5")


@pytest.mark.parametrize("ends", [0, 1])
def test_nothing_is_told_to_what_is_over(ends: int) -> None:
    heard = Heard(**{f"of_{ends}": [2, -1]})
    heard.waiting *= 2
    assert not heard.tell(1)
    assert heard.told == [(0, None), (0, None), (1, "1")][: 1 if ends == 0 else 3]
    assert not heard.tell(3) and heard.told[-1][0] == ends


def test_an_exception_leaves_it_as_it_was() -> None:
    course = Course()
    with pytest.raises(ZeroDivisionError):
        course.tell(ev.Tick(), None, list, lambda event, beside: print(1 // 0))
    assert not course.busy


def test_what_the_core_says_to_a_group_is_told_before_all_else() -> None:
    """And what follows from it is done before what was asked for with it."""
    machine, done = logs(), list[Any]()
    machine.step(fx.Follow(generation(5)), RESTING)
    verdicts = iter(["taken", "damaged"])

    def take(effect: le.Take) -> str:
        done.append(effect.data)
        return next(verdicts)

    for each in (b"1", b"22"):
        done += carried(machine, le.Arrived(NOW, each), lambda: RESTING, take)
    assert done[:2] == [b"1", b"22"] and machine.pending_bytes == 0
    assert isinstance(done[2].event, ev.Refused) and done[2].event.reason.endswith("damaged")


def test_the_core_gets_all_that_waits_before_what_was_asked_for_later() -> None:
    machine, done = logs(), list[Any]()
    verdicts = iter(["wait"] * KEEP_GROUPS_MIN)

    def take(effect: le.Take) -> str:
        done.append(effect.data)
        return next(verdicts)

    for each in range(KEEP_GROUPS_MIN):
        done += carried(machine, le.Arrived(NOW, bytes([each])), lambda: RESTING, take)
    assert isinstance(done[-1], le.Keep)
    done.clear()
    verdicts = iter(["taken", "wait"])
    for effect in carried(machine, le.Kept(NOW, 6), lambda: RESTING, take):
        done.append(effect)
    assert done == [b"\0", b"\1", le.KeptUpTo(6)]


# --- What it is -----------------------------------------------------------------------------------


def test_a_leader_is_one_when_the_core_has_opened_what_is_still_wanted() -> None:
    role = Role()
    assert (role.name, role.generation) == (STARTING, None)
    role.leads(generation(5))
    assert role.name == STARTING and role.generation == generation(5)
    role.follows(generation(6, B), NOW)
    assert not role.opened(generation(5)), "another has the next one"
    assert (role.name, role.generation) == (FOLLOWER, generation(6, B))
    role.leads(generation(6))
    assert role.opened(generation(6)) and role.name == LEADER


def test_who_is_stopped_leads_no_more() -> None:
    role = Role()
    assert not role.stops(NOW)
    role.leads(generation(5))
    assert role.opened(generation(5))
    assert not role.stops(OLD) and role.name == LEADER, "that is long over"
    assert role.stops(NOW) and role.name == FENCED


def test_what_is_to_come_is_told_before_and_what_has_gone_after_the_logs() -> None:
    """The logs may open at once what they are told of, and open nothing of what is over."""
    role, told = Role(), list[Any]()

    def tell(event: Any) -> None:
        told.append((type(event).__name__, role.name, role.generation, role.unshown))

    assert not role.carries(fx.Lead(generation(5)), OLD, tell)
    assert role.opened(generation(5))
    assert not role.carries(fx.StopLeading(OLD, "long over"), NOW, tell)
    assert not role.carries(fx.Drain(NOW), NOW, tell)
    assert role.carries(fx.StopLeading(NOW, "fenced"), NOW, tell)
    assert role.name == FENCED
    assert not role.carries(fx.Follow(generation(6, B)), NOW, tell)
    assert told == [
        ("Lead", STARTING, generation(5), None),
        ("StopLeading", LEADER, generation(5), None),
        ("Drain", LEADER, generation(5), None),
        ("StopLeading", LEADER, generation(5), None),
        ("Follow", FOLLOWER, generation(6, B), (NEXT, 1)),
    ]


# --- What it shows --------------------------------------------------------------------------------


def test_an_empty_disk_is_not_readable() -> None:
    assert not readable(Role(), logs(None))


@pytest.mark.parametrize("upto", [3, 4])
def test_what_was_restored_is_shown_when_it_is_committed(upto: int) -> None:
    role, machine = Role(), logs()
    role.adopt(NOW, 4, None)
    role.follows(generation(5, B), NOW)
    assert not readable(role) and steady(role, machine) is None and role.busy(machine)
    assert role.commits(fx.Commit(NOW, upto), NOW)
    done = upto == 4
    assert (readable(role), steady(role, machine) == NOW, not role.busy(machine)) == (done,) * 3


def test_what_was_restored_is_hidden_whatever_was_followed_before() -> None:
    """A process that has lost votes, and with them the newest record, follows older ones first."""
    role = Role()
    role.adopt(NOW, 4, None)
    role.follows(generation(4, B), NOW)
    assert not role.commits(fx.Commit(OLD, 9), NOW) and not readable(role)
    role.follows(generation(5, B), NOW)
    assert not readable(role)
    role.follows(generation(6, B), NOW)
    assert role.commits(fx.Commit(NEXT, 1), NEXT) and not readable(role)
    assert readable(role, logs(NEXT)), "the core has left it: where it ended is known by now"


def test_what_has_ended_is_shown_at_once() -> None:
    role = Role()
    role.adopt(OLD, 4, 4)
    role.follows(generation(4, B), OLD)
    assert readable(role)


def test_a_new_generation_is_shown_when_its_first_group_is_committed() -> None:
    role = Role()
    role.follows(generation(6, B), NOW)
    assert not role.commits(fx.Commit(OLD, 9), NOW) and not readable(role)
    assert not role.commits(fx.Commit(NEXT, 1), NOW), "the core has another one"
    assert not readable(role), "the state that it brings is in files, and not in the core"
    role.follows(generation(5, B), NOW)
    assert readable(role), "what the core has came with its own"
    role.follows(generation(6, B), NOW)
    assert role.commits(fx.Commit(NEXT, 2), NEXT) and readable(role, logs(NEXT))


def test_who_leads_or_led_shows_all_and_who_follows_what_is_whole() -> None:
    role, sealing = Role(), logs()
    sealing.step(fx.Seal(NOW, 4), RESTING)
    role.leads(generation(5))
    assert role.opened(generation(5)) and readable(role, catching_up=True)
    assert role.stops(NOW) and readable(role, sealing, catching_up=True)
    role.follows(generation(5, B), NOW)
    assert readable(role)
    assert not readable(role, catching_up=True) and not readable(role, sealing)
    assert role.busy(sealing) and not role.busy(logs())


def test_who_is_stopped_before_it_has_opened_shows_what_a_follower_may() -> None:
    """It never led: what it lacks is not known to it by itself (walk 219006677)."""
    role, sealing = Role(), logs()
    sealing.step(fx.Seal(NOW, 4), RESTING)
    role.follows(generation(5, B), NOW)
    role.leads(generation(6))
    assert role.stops(NEXT) and role.name == FENCED
    assert not readable(role, sealing) and not readable(role, catching_up=True)
    assert readable(role)
    role.leads(generation(7))
    assert role.opened(generation(7)) and readable(role, sealing, catching_up=True)


def test_only_a_follower_lets_the_core_go_on_and_only_where_nothing_waits() -> None:
    role = Role()
    assert steady(role, logs()) is None
    role.follows(generation(5, B), NOW)
    assert steady(role, logs()) == NOW and steady(role, logs(None)) is None
    changing = logs()
    changing.step(fx.Follow(generation(6, B)), RESTING._replace(settled=False))
    assert steady(role, changing) is None, "the core is leaving it"
    role.leads(generation(6))
    assert role.opened(generation(6)) and steady(role, logs(NEXT)) is None
    assert role.stops(NEXT) and steady(role, logs(NEXT)) is None


# --- Groups ---------------------------------------------------------------------------------------


def test_a_group_is_sent_from_where_it_lies_in_the_generation_that_the_core_has() -> None:
    role = Role()
    role.leads(generation(5))
    head = GroupHead(1, 0, 11, 4096)
    assert role.built(head, "here", None) is None
    assert role.built(head, "here", NOW) == ev.Built(NOW, head)
    message = Append(NOW, 7, head, 0)
    assert role.where(message, NOW) == "here"
    assert role.where(replace(message, head=head._replace(gseq=2)), NOW) is None
    assert role.where(message, NEXT) is None, "what lies there is another one's"
    role.leads(generation(6))
    assert role.where(replace(message, gid=NEXT), NEXT) is None, "nor is it the next one's"


def test_so_many_are_kept_in_mind() -> None:
    role = Role()
    for gseq in range(1, RECENT_GROUPS_MAX + 2):
        role.built(GroupHead(gseq, 0, gseq, 4096), gseq, NOW)
    first, second = (Append(NOW, 7, GroupHead(g, 0, g, 4096), 0) for g in (1, 2))
    assert role.where(first, NOW) is None and role.where(second, NOW) == 2


def test_what_is_said_of_a_log_that_the_core_has_is_for_later() -> None:
    role, machine = Role(), logs()
    assert not role.hears(Expired(NOW, 3, 0), machine)
    assert role.hears(Expired(OLD, 3, 0), machine)
    assert role.hears(Append(NOW, 7, GroupHead(1, 0, 1, 4096), 0), machine)


@pytest.mark.parametrize(
    ("first", "tail", "told"), [(3, 9, False), (4, 9, True), (10, 9, True), (11, 9, False)]
)
def test_who_asks_for_what_is_too_old_is_told_where_it_begins(
    first: int, tail: int, told: bool
) -> None:
    asked = fx.Serve(1, OLD, 3, 8)
    assert expired(asked, first, 7, tail) == (Expired(OLD, first, 7) if told else None)
    assert expired(asked, first, 7, None) is None, "nothing goes of what is open"


# --- When to look again ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seen", "now", "asked"),
    [(False, False, [le.AwaitCore]), (False, True, [le.LookAgain]), (True, True, [])],
)
def test_who_waits_for_the_core_asks_it_or_looks_again(
    seen: bool, now: bool, asked: list[type[Any]]
) -> None:
    """Not settled: it says when it is. Settled by what was just asked for: nobody else would say.
    Seen settled: it waits for what is an event of its own."""
    machine, states = logs(), iter([seen, now])

    def core() -> le.CoreState:
        return RESTING._replace(settled=next(states))

    machine.waits = lambda: True  # type: ignore[method-assign]
    done = map(type, carried(machine, fx.Follow(generation(6, B)), core, str))
    assert [each for each in done if each in (le.AwaitCore, le.LookAgain)] == asked
