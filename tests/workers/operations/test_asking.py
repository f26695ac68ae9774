"""A broker whose configuration was changed has its entry of the target changed."""

import asyncio
import dataclasses
from typing import Any

import pytest

from barco.cluster.ring.routes import RangeRoute
from barco.cluster.ring.target import Target, TargetBroker
from barco.errors import BarcoError, ConflictError, NoLeaderError, RequestError
from barco.model.options import cluster_mark
from barco.workers.operations.asking import WorkersAsked

from .test_growth import CUT, Lab


class Keeper:
    """Who keeps the target, as siblings."""

    def __init__(self, *workers: int) -> None:
        brokers = (TargetBroker(ordinal=n, workers=count) for n, count in enumerate(workers))
        self.target = Target(3, CUT, tuple(brokers))
        self.refuses: list[BarcoError | None] = []
        self.changes: list[Any] = []

    async def call(self, worker: int, op: str, args: Any, timeout: float = 5.0) -> bytes:
        if op in ("target", "target_seen"):
            return self.target.packed()
        assert op == "target_change"
        refusal = self.refuses.pop(0) if self.refuses else None
        if refusal is not None:
            raise refusal
        self.changes.append(args)
        return b""


class Asker:
    """Broker 1 of three, in its process of a number."""

    def __init__(self, keeper: Keeper, asked: int = 2, number: int = 0) -> None:
        lab = Lab(1)
        options = dataclasses.replace(lab.options, workers_asked=asked, worker=number)
        self.granted = 0
        self.asked = WorkersAsked(options, lab.service, keeper, self._grant)
        lab.service.leaders.hear(
            [RangeRoute(8, 8, CUT.token(8), 2, 1, (1, 2, 0))],
        )

    def _grant(self) -> None:
        self.granted += 1

    def look(self) -> bool:
        return asyncio.run(self.asked.look())


def test_its_own_entry_and_no_other() -> None:
    keeper = Keeper(1, 1, 4)
    asker = Asker(keeper)
    assert asker.look() and asker.granted == 1
    (args,) = keeper.changes
    assert args["seen"] == 3 and args["cluster"] == cluster_mark(asker.asked._options.cluster_uuid)
    assert args["brokers"] == [[0, 1, "", ""], [1, 2, "", ""], [2, 4, "", ""]]


def test_what_is_so_is_not_asked_for() -> None:
    keeper = Keeper(1, 2, 1)
    asker = Asker(keeper)
    assert asker.look() and asker.granted == 1 and not keeper.changes


def test_one_process_speaks() -> None:
    keeper = Keeper(1, 1, 1)
    asker = Asker(keeper, number=1)
    assert not asker.look() and not asker.granted and not keeper.changes


def test_who_is_not_of_the_target_waits() -> None:
    keeper = Keeper(1, 1, 1)
    keeper.target = Target(3, CUT, keeper.target.brokers[:1] + keeper.target.brokers[2:])
    asker = Asker(keeper)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asker.asked._service.target, "ask", _answer(keeper.target))
        assert not asker.look() and not asker.granted and not keeper.changes


def _answer(target: Target) -> Any:
    async def ask(siblings: Any) -> Target:
        return target

    return ask


def test_a_refusal_is_said_once_and_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    keeper = Keeper(1, 1, 1)
    keeper.refuses = [
        NoLeaderError("Nobody."),
        ConflictError("the last target is not reached"),
        ConflictError("the last target is not reached"),
        RequestError("too many"),
    ]
    asker = Asker(keeper)
    for _ in range(4):
        assert not asker.look() and not asker.granted
    assert caplog.text.count("the last target is not reached") == 1
    assert caplog.text.count("too many") == 1 and "Nobody" not in caplog.text
    assert "barco scale --workers 2 --broker 1" in caplog.text
    assert asker.look() and asker.granted == 1 and len(keeper.changes) == 1
