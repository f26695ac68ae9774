"""Who is asked about a range while its leader changes."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from barco.errors import BarcoError, NotReadyError, PeerError
from barco.workers.http.base import waiting
from barco.workers.http.base.context import Context

from ...operations.test_growth import FIRSTS, Lab

TOKEN, DEAD, HERE, THIRD = 7, 1, 0, 2


def test_each_holder_is_asked_once_though_the_leader_changes_meanwhile() -> None:
    """The one that died was asked again, and the one that had the answer never."""
    orders = iter([[DEAD, HERE, THIRD], [HERE, DEAD, THIRD], [THIRD, HERE, DEAD]])
    asked = []

    async def broadcast(
        op: str, args: Mapping[int, Any], timeout: float
    ) -> dict[int, str | BarcoError]:
        asked.extend(args)
        return {each: "it" if each == THIRD else PeerError("no answer") for each in args}

    context: Any = SimpleNamespace(
        ranges=SimpleNamespace(all=[SimpleNamespace(token=TOKEN)], seats=3),
        holders=lambda token: next(orders),
        siblings=SimpleNamespace(broadcast=broadcast),
    )
    assert asyncio.run(Context.look_all(context, "topics", {})) == {TOKEN: "it"}
    assert asked == [DEAD, HERE, THIRD]


class Ring:
    """One range; who is known to lead it at each look, and who answers what."""

    def __init__(self, leaders: list[int | None], told: dict[int, Any]) -> None:
        self.asked: list[int] = []
        self._leaders, self._told = iter(leaders), told
        self.ranges = SimpleNamespace(all=[SimpleNamespace(token=TOKEN)], seats=3)
        self.leaders = SimpleNamespace(peer=lambda token: next(self._leaders))
        self.siblings = SimpleNamespace(broadcast=self._broadcast)

    async def _broadcast(
        self, op: str, args: Mapping[int, Any], timeout: float = 5.0
    ) -> dict[int, Any]:
        self.asked.extend(args)
        return {each: self._told[each] for each in args}

    async def ask_all(self, op: str, args: Mapping[str, Any]) -> dict[int, Any]:
        return {TOKEN: "whoever holds it"}

    def ask(self) -> dict[int, Any]:
        context: Any = self
        return asyncio.run(Context.ask_leaders(context, "topics", {}))


GONE = NotReadyError("It is restarting.")


@pytest.mark.parametrize("first", [None, DEAD])
def test_who_leads_next_is_waited_for(monkeypatch: pytest.MonkeyPatch, first: int | None) -> None:
    """Who follows may be behind what a client was told: it is not asked how far a slice goes."""
    monkeypatch.setattr(waiting, "_PAUSE_S", 0.0)
    ring = Ring([first, first, THIRD], {DEAD: GONE, THIRD: "it", HERE: "less"})
    assert ring.ask() == {TOKEN: "it"}
    assert HERE not in ring.asked


@pytest.mark.parametrize(
    ("error", "until"), [(GONE, 3), (BarcoError("no"), 1)], ids=["passes", "does not pass"]
)
def test_whoever_holds_it_tells_where_nobody_leads_for_longer(
    monkeypatch: pytest.MonkeyPatch, error: BarcoError, until: int
) -> None:
    looks = iter(range(until))

    async def again(wait: waiting.LeaderWait) -> bool:
        return next(looks, until) < until - 1

    monkeypatch.setattr(waiting.LeaderWait, "again", again)
    ring = Ring([DEAD] * until, {DEAD: error})
    assert ring.ask() == {TOKEN: "whoever holds it"}
    assert ring.asked == [DEAD] * until


def test_what_a_process_held_once_is_not_held() -> None:
    """Broker 0's process has slices 0 to 7: it holds them until a move or a join has taken them."""
    lab = Lab(0)
    context = Context(lab.service, siblings=lab, supervisor=SimpleNamespace())
    route = FIRSTS[0]
    assert [context.is_held(number) for number in (0, 7, 8)] == [True, True, False]
    moved = route._replace(epoch=route.epoch + 1, leader=1, members=(1, 2, 3))
    lab.service.leaders.learn(moved)
    assert not context.is_held(0), "others hold the range"
    lab = Lab(1)
    context = Context(lab.service, siblings=lab, supervisor=SimpleNamespace())
    handed = FIRSTS[1]._replace(handed=True)
    lab.service.leaders.learn(handed)
    lab.service.leaders.learn(route._replace(slices=16, epoch=route.epoch + 1))
    assert not context.is_held(8), "the left neighbour has taken it in"
