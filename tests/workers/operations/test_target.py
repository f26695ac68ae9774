"""Whose word on the target counts: the keeper's, if another has it in its log."""

import asyncio
import dataclasses
from typing import Any

import pytest
from memory_spool import MemorySpool

from barco.cluster.ring.growing import held_range
from barco.cluster.ring.routes import RangeRoute
from barco.cluster.ring.target import Target, TargetBroker
from barco.errors import NotReadyError, ProtocolError
from barco.model.ranges import ProcessTable, process_of
from barco.workers.operations.service import ShardService

from ..twin import MemoryReactor
from .test_growth import CUT, DISKS, Lab

FALSE_ROUTE = RangeRoute(0, 8, CUT.token(0), 2**40, 2, (2, 7, 8))
"""Broker 2 leads slice 0, it says."""


def wanted(version: int, *ordinals: int) -> Target:
    brokers = tuple(TargetBroker(ordinal=each, workers=1) for each in ordinals)
    return Target(version, CUT, brokers)


TRUE, LIE = wanted(3, 0, 1, 2, 3), wanted(2**62, *range(6))


def joined() -> ShardService:
    """Of broker 3, with a process for slices 4 to 7."""
    table = ProcessTable((held_range(CUT, 4, 4, (3, 1, 2)),))
    options = dataclasses.replace(
        Lab(0).options,
        ordinal=3,
        disk_uuid=DISKS[3].hex(),
        processes=table,
        shard_endpoints={0: ""},
    )
    return ShardService(
        options,
        reactor=MemoryReactor(),
        reader=None,  # type: ignore[arg-type]
        supervisor=None,  # type: ignore[arg-type]
        spool=MemorySpool(),
        **dict.fromkeys(("now_us", "wall_us"), lambda: 0),
    )


class Asked:
    """Broker 3, which holds nothing of slice 0, and what others say."""

    def __init__(self, *routes: RangeRoute) -> None:
        self.service = joined()
        self.desk = self.service.target
        self.service.leaders.hear(list(routes), [])
        self.says: dict[int, Target | None] = {}
        self.late = 0
        self.asked: list[int] = []

    async def call(self, worker: int, op: str, args: Any, timeout: float = 5.0) -> bytes:
        ordinal = process_of(worker)[0]
        self.asked.append(ordinal)
        said = self.says.get(ordinal)
        if said is None:
            raise NotReadyError("It has nothing.")
        if op == "target_seen" and self.late:
            self.late -= 1
            return wanted(2, 0, 1, 2).packed()
        return said.packed()

    def ask(self) -> Target:
        return asyncio.run(self.desk.ask(self))  # type: ignore[arg-type]


def told(service: ShardService, ordinal: int) -> None:
    service.ranges.tell(ordinal, [(0, CUT.token(0), 77)], disk_uuid=bytes([ordinal]).hex() * 16)


LED = RangeRoute(0, 8, CUT.token(0), 2, 0, (0, 1, 2))


def test_the_keeper_and_one_whose_log_has_it() -> None:
    asked = Asked(LED)
    asked.says = {0: TRUE, 1: TRUE}
    asked.late = 2  # Its log is a moment behind.
    assert asked.ask() == TRUE
    asked.desk.heard = TRUE
    asked.says = {0: TRUE}
    assert asked.ask() == TRUE, "what was believed before needs nobody else"


@pytest.mark.parametrize("others", [{0: TRUE, 1: TRUE}, {}, {7: LIE, 8: LIE}])
def test_who_is_keeper_by_a_false_route_is_not_believed(others: dict[int, Target]) -> None:
    """Nor where it comes again as brokers of whom nobody else has told."""
    asked = Asked(FALSE_ROUTE)
    for ordinal in (7, 8):
        told(asked.service, ordinal)
    asked.says = {2: LIE, **others}
    with pytest.raises(NotReadyError, match="Nobody else who holds slice 0"):
        asked.ask()
    assert asked.desk.heard.version == 0 and asked.asked[0] == 2


def test_what_is_no_target_confirms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(LED)
    asked.says = {0: TRUE, 1: TRUE}

    async def call(worker: int, op: str, args: Any, timeout: float = 5.0) -> bytes:
        return b"\xc1" if op == "target_seen" else TRUE.packed()

    monkeypatch.setattr(asked, "call", call)
    with pytest.raises(NotReadyError):
        asked.ask()
    asked.says = {0: TRUE}
    with pytest.raises((NotReadyError, ProtocolError)):
        asked.ask()


def test_a_process_of_slice_0_tells_what_its_log_has() -> None:
    async def seen(service: ShardService) -> bytes:
        found: bytes = await service.target.operations()["target_seen"]({})
        return found

    service = Lab(0).service
    assert asyncio.run(seen(service)) == service.target.heard.packed()
    with pytest.raises(NotReadyError, match="does not hold slice 0"):
        asyncio.run(seen(joined()))
