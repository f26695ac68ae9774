"""When a worker says that all can be written, and whom it waits for before it goes."""

import asyncio
from types import SimpleNamespace
from typing import Any

from barco.errors import NotReadyError
from barco.workers.operations.readiness import Readiness


class Gate:
    def __init__(self, **status: Any) -> None:
        self.said = status

    def status(self) -> dict[str, Any]:
        return self.said


class Ranges:
    """Of one range, and its members; None: there is none of that name any more."""

    def __init__(self, members: tuple[int, ...] | None) -> None:
        self._members = members

    def known(self, token: int) -> bool:
        assert token == 1
        return self._members is not None

    def members(self, token: int) -> tuple[int, ...]:
        return self._members or ()


def service(
    gate: Gate,
    *,
    epoch: int = 3,
    unreached: list[int] | None = None,
    genesis: bool = True,
    members: tuple[int, ...] | None = (0, 1, 2),
    heard: bool = True,
) -> Any:
    return SimpleNamespace(
        epoch=epoch,
        gate=gate,
        unreached=lambda: unreached or [],
        leaders=SimpleNamespace(peer=lambda shard: 4),
        ranges=Ranges(members),
        access=SimpleNamespace(is_heard=heard),
        options=SimpleNamespace(
            ordinal=0, process=(0, 3), held=SimpleNamespace(token=1, genesis=genesis)
        ),
    )


def test_writable_is_led_committing_and_reached() -> None:
    assert Readiness(service(Gate())).writable(), "a single broker"
    assert Readiness(service(Gate(writable=True))).writable()
    assert not Readiness(service(Gate(writable=False))).writable()
    assert not Readiness(service(Gate(writable=True), epoch=0)).writable()
    assert not Readiness(service(Gate(writable=True), unreached=[2])).writable()
    assert not Readiness(service(Gate(writable=True), heard=False)).writable()


def test_nobody_waits_for_a_process_whose_range_is_none_yet() -> None:
    """As soon as it has a generation it is like any other."""
    gate = Gate(writable=False)
    assert Readiness(service(gate, epoch=0, genesis=False)).writable()
    assert not Readiness(service(gate, epoch=0, genesis=False, unreached=[2])).writable()
    assert not Readiness(service(gate, epoch=5, genesis=False)).writable()


def test_nobody_waits_for_a_process_that_has_only_history() -> None:
    """Its range has gone on to others, or is a part of another one: it leads and follows nothing,
    also after a start, when it has just recovered what it has."""
    gate = Gate(writable=False)
    for members in ((1, 3, 2), None):
        assert Readiness(service(gate, members=members)).writable()
        assert not Readiness(service(gate, members=members, unreached=[2])).writable()


def test_it_is_told_once_it_is_so() -> None:
    async def main() -> None:
        gate, told = Gate(writable=False), []
        task = asyncio.create_task(Readiness(service(gate)).announce(lambda: told.append(1)))
        await asyncio.sleep(0.05)
        assert not told
        gate.said["writable"] = True
        await task
        assert told == [1]

    asyncio.run(main())


class Siblings:
    """The leader of the shard, which says how its followers are."""

    def __init__(self, *answers: list[tuple[int, str, bool]]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def call(self, worker: int, op: str, args: Any, timeout: float) -> Any:
        assert (worker, op) == (4, "standing")
        self.asked += 1
        if not self.answers:
            raise NotReadyError("It has gone.")
        answer = self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        names = ("ordinal", "state", "synced")
        return {"replication": {"followers": [dict(zip(names, e, strict=True)) for e in answer]}}


def waits(siblings: Siblings, seconds: float = 60.0) -> int:
    """How often the leader was asked before this one goes."""
    asyncio.run(Readiness(service(Gate())).await_others(siblings, seconds))
    return siblings.asked


def test_a_stop_waits_for_the_other_copy_to_catch_up() -> None:
    own = (0, "live", True)
    behind, live = (2, "behind", False), (2, "live", True)
    assert waits(Siblings([own, behind], [own, (2, "live", False)], [own, live])) == 3
    assert waits(Siblings([own, live])) == 1


def test_a_stop_does_not_wait_for_who_is_away_nor_for_ever() -> None:
    assert waits(Siblings([(0, "behind", False), (2, "down", False)])) == 1
    assert waits(Siblings([(2, "fenced", False)])) == 1
    assert waits(Siblings()) == 1, "its leader has gone"
    assert 1 <= waits(Siblings([(2, "behind", False)]), 0.25) <= 3
