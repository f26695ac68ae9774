"""Whose word on a route counts."""

import random
from collections.abc import Callable

import pytest

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.heard import HeardRoutes
from barco.cluster.ring.routes import RangeRoute, route_of
from barco.model.generation import Generation, Gid, Identity, genesis
from barco.types import Epoch, Ordinal, Token

CUT = Cut(3, 8)
LAST = 2**63 - 1


def route(first: int, slices: int, epoch: int, *members: int, handed: bool = False) -> RangeRoute:
    return RangeRoute(first, slices, CUT.token(first), epoch, members[0], members, handed)


WHOLE = route(0, 8, 5, 0, 1, 2)
LEFT, RIGHT = route(0, 4, 6, 0, 3, 1), route(4, 4, 6, 3, 1, 2)
LATER = route(4, 4, 7, 1, 3, 2)
LIE = route(1, 23, LAST, 9)


def heard(ordinal: int, *present: int) -> HeardRoutes:
    """A broker with processes for the ranges that begin at these slices."""
    tokens = {int(CUT.token(first)) for first in present}
    return HeardRoutes(CUT, ordinal, lambda token: token in tokens)


def at(table: HeardRoutes) -> list[RangeRoute | None]:
    return [table.routes.at(number) for number in range(8)]


def test_a_member_that_is_there_knows_better_than_any_word_from_elsewhere() -> None:
    here = heard(2, 0)
    assert here.learn(WHOLE) and not here.learn(WHOLE)
    for news in (LEFT, RIGHT, LIE, LIE._replace(handed=True)):
        assert not here.hear([news])
    assert at(here) == [WHOLE] * 8 and here.routes.at(9) is None
    assert "epoch 9223372036854775807" in here.faults()[-1]
    # Then it learns in its own journal that its range was split, and is no member of the left part:
    # of that the later word counts again, whoever said it, and whenever.
    here = heard(2, 0, 4)
    here.learn(WHOLE)
    assert not here.hear([LIE])
    assert here.learn(LEFT) and here.learn(RIGHT)
    assert at(here) == [LEFT] * 4 + [RIGHT] * 4


def test_the_word_of_a_process_counts_before_and_after_a_lie() -> None:
    """It was away, or has only now been asked."""
    here = heard(2, 0)
    assert here.hear([LIE, WHOLE]) and here.routes.at(1) == LIE
    assert here.learn(WHOLE) and at(here) == [WHOLE] * 8
    assert here.is_home(3) and here.at_home() == [WHOLE]


def test_what_a_broker_is_no_member_of_it_learns_from_others() -> None:
    """Its process was of the range that was split, and its last word is on the child."""
    here = heard(0, 0)
    assert here.learn(LEFT) and here.learn(RIGHT)
    assert here.hear([LATER]) and at(here) == [LEFT] * 4 + [LATER] * 4
    assert not here.learn(RIGHT) and at(here)[4:] == [LATER] * 4, "a late old one"
    assert here.at_home() == [LEFT], "it is not passed on as this broker's own word"


def test_a_process_that_is_left_with_history_vouches_for_nothing() -> None:
    """It holds the log of what was split, and its broker is no member of the part of that name."""
    here = heard(2, 0)
    assert here.learn(LEFT)
    later = LEFT._replace(epoch=7, leader=3)
    assert here.hear([later]) and at(here)[:4] == [later] * 4


def test_what_was_handed_over_goes_on_elsewhere() -> None:
    here = heard(1, 4)
    assert here.learn(RIGHT) and here.learn(RIGHT._replace(handed=True))
    joined = route(0, 8, 8, 0, 3, 1)
    assert here.hear([joined]) and at(here) == [joined] * 8


@pytest.mark.parametrize("handed", [True, False])
def test_what_came_too_early_to_be_believed_counts_once_it_is(handed: bool) -> None:
    """What has become of a range may be told by others before this broker's own process knows that
    it has ended; they do not say it again."""
    here = heard(1, 4)
    joined = route(0, 8, 8, 0, 3, 1)
    assert here.learn(RIGHT) and not here.hear([joined]) and at(here)[4:] == [RIGHT] * 4
    end = RIGHT._replace(handed=True) if handed else route(4, 4, 7, 3, 0, 2)
    assert here.learn(end)
    assert at(here) == [joined] * 8
    assert not here.look_again()


def test_who_vouches_changes_as_processes_come_and_go() -> None:
    present: set[int] = set()
    here = HeardRoutes(CUT, 2, lambda token: token in present)
    here.learn(WHOLE)
    assert here.hear([LEFT, RIGHT]) and not here.look_again()
    present.add(WHOLE.token)
    assert here.look_again() and at(here) == [WHOLE] * 8
    present.clear()
    assert here.look_again() and at(here) == [LEFT] * 4 + [RIGHT] * 4
    assert not here.look_again()


def test_hints_stand_only_where_nothing_was_heard() -> None:
    """Also one of an epoch that never was: it is not held against any word."""
    here = heard(2, 0)
    hint = route(0, 4, LAST, 0, 3, 1)
    assert here.recall([hint, LIE._replace(first=8, slices=8, token=CUT.token(8))])
    assert at(here) == [hint] * 4 + [None] * 4
    assert here.hear([RIGHT]) and at(here) == [hint] * 4 + [RIGHT] * 4
    assert here.hear([LEFT]) and at(here) == [LEFT] * 4 + [RIGHT] * 4
    assert not here.recall([hint]) and at(here)[0] == LEFT
    assert here.learn(route(8, 8, 1, 1, 2, 0)) and here.routes.at(15) == route(8, 8, 1, 1, 2, 0)


def test_two_routes_of_one_epoch_are_a_fault() -> None:
    other = WHOLE._replace(leader=1)
    far = heard(5)
    assert far.hear([WHOLE, other])
    assert "led by broker 1, and by broker 0" in " ".join(far.faults())
    near = heard(2, 0)
    near.learn(WHOLE)
    assert not near.hear([other]) and at(near) == [WHOLE] * 8
    assert "others say that slices 0 to 7 are led by broker 1 in epoch 5" in near.faults()[-1]


@pytest.mark.parametrize("order", [random.Random(1).shuffle, list.reverse, lambda each: None])
def test_the_order_of_news_makes_no_difference(order: Callable[[list[RangeRoute]], None]) -> None:
    news = [WHOLE, LEFT, RIGHT, LATER, route(8, 8, 2, 1, 2, 0)]
    order(news)
    here = heard(3, 0, 4)
    for each in news:
        here.hear([each])
    assert at(here) == [LEFT] * 4 + [LATER] * 4


def test_the_route_of_a_generation() -> None:
    end = int(CUT.token(8))
    first = genesis(int(CUT.token(0)), end, (0, 1, 2))
    assert route_of(CUT, first) == route(0, 8, 1, 0, 1, 2)
    members = tuple(Identity(Ordinal(each), b"%016d" % each) for each in (3, 1, 2))
    last = Generation(Gid(Token(CUT.token(20)), Epoch(9)), 2**63, members[1], 7, members, ())
    assert route_of(CUT, last, handed=True) == RangeRoute(
        20, 4, CUT.token(20), 9, 1, (3, 1, 2), True
    )
