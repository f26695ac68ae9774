"""When the process of a range that this broker has left is needed no more."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barco.cluster.ring.cut import Cut
from barco.errors import PeerError
from barco.model.generation import Generation, Gid, Identity
from barco.model.ranges import peer_of
from barco.types import Ordinal
from barco.workers.operations.leaving.left import Left
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.files.records import Lodged

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))
import builder

CUT = Cut(3, 8)
TOKEN, NEXT, END = (int(CUT.token(at)) for at in (0, 4, 8))
ME = 2


class Lab:
    """Broker 2 has left the range of slices 0 to 7; 0, 3, 1 and 3, 1, 2 have what followed."""

    of: Mapping[int, tuple[int, ...]] = {TOKEN: (0, 3, 1), NEXT: (3, 1, 2)}

    def __init__(self, root: Path) -> None:
        self.lineage = Lineage.load(root)
        for epoch in (2, 3):
            self.lineage.opened(epoch, builder.SESSION, [(epoch - 1, 9)])
            self.lineage.sealed(epoch, 9, 0, 100)
        self.aimless, self.aside = True, 0
        self.knows = {(ordinal, token) for token in self.of for ordinal in range(4)}
        self.asked: list[dict[int, Any]] = []
        self.staged: dict[str, int] = {}
        store: Any = SimpleNamespace(
            lineage=self.lineage,
            health=lambda: {"setAside": self.aside},
            run_retention=self._run,
            moved_to=lambda epoch: None,
        )
        service: Any = SimpleNamespace(
            ranges=self,
            voices=SimpleNamespace(of=lambda told: frozenset(told) - {9}),
            staging=SimpleNamespace(writes=self.staged),
        )
        held = SimpleNamespace(token=TOKEN, first=0, numbers=range(8))
        options: Any = SimpleNamespace(held=held, peer=peer_of((Ordinal(ME), 0)), process=(ME, 0))
        self.machine: Any = SimpleNamespace(aimless=lambda: self.aimless)
        history: Any = SimpleNamespace(look_for_gone=self._look_for_gone)
        driver: Any = self
        siblings: Any = self
        self.left = Left(options, store, driver, history, service, siblings)
        self.own: list[int] = []

    # --- As a driver, as ranges, as siblings ------------------------------------------------------

    def record(self, gid: Gid) -> Generation | None:
        at = (0, 1, ME) if gid.epoch < 4 else (0, 3, 1)
        members = tuple(Identity(Ordinal(each), bytes([each]) * 16) for each in at)
        return Generation(gid, END, members[0], 7, members, ())

    def slice_at(self, token: int) -> int:
        return {TOKEN: 0, NEXT: 4, END: 8}[token]

    def of_slice(self, number: int) -> int:
        return TOKEN if number < 4 else NEXT

    def members(self, token: int) -> tuple[int, ...]:
        return self.of[token]

    def processes_of_token(self, token: int) -> list[tuple[int, int]]:
        return []

    def holders(self, token: int) -> list[tuple[Ordinal, int]]:
        return [(Ordinal(each), 1 if token == NEXT else 0) for each in self.of[token]]

    async def broadcast(self, op: str, args: Mapping[int, Any], timeout: float) -> dict[int, Any]:
        assert op == "history" and all(each["what"] == "gone" for each in args.values())
        self.asked.append(dict(args))
        found: dict[int, Any] = {}
        for token in self.of:
            for process in self.holders(token):
                if (peer := peer_of(process)) in args:
                    knows = (int(process[0]), token) in self.knows
                    found[peer] = {"gone": True} if knows else PeerError("away")
        return found

    async def _look_for_gone(self, note: Any, own: Any) -> None:
        self.own = [each.gid.epoch for each in own]

    async def _run(self, now_us: int, *, left: bool) -> int:
        return int(left)

    def spent(self) -> bool:
        asyncio.run(self.left.look())
        return self.left.idle()["spent"]

    def expire(self, *epochs: int) -> None:
        for epoch in epochs or (2, 3):
            self.lineage.expired(epoch)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path)


def test_it_is_spent_when_nothing_is_left_and_those_that_go_on_know(lab: Lab) -> None:
    assert not lab.spent() and lab.own == [3, 2], "of both it asks whether others have removed them"
    lab.expire(2)
    assert not lab.spent() and lab.own == [3] and not lab.asked
    lab.expire(3)
    assert lab.spent() and lab.own == []
    me = peer_of((Ordinal(ME), 0))
    assert lab.asked and not any(me in each for each in lab.asked), "its own word does not count"
    assert asyncio.run(lab.left.retain(1)) == 1
    lab.aimless = False
    assert not lab.left.idle()["spent"], "it is a member again, before it has looked again"
    assert not lab.spent() and asyncio.run(lab.left.retain(1)) == 0


@pytest.mark.parametrize("unknown", [{(0, TOKEN), (1, TOKEN)}, {(3, NEXT), (1, NEXT)}])
def test_each_range_that_its_slices_are_in_has_to_know(lab: Lab, unknown: set[Any]) -> None:
    lab.expire()
    lab.knows -= unknown
    assert not lab.spent(), "one member alone knows it"
    lab.knows.add(min(unknown))
    assert lab.spent()


def test_what_somebody_may_ask_for_keeps_it(lab: Lab) -> None:
    lab.expire()
    lab.staged["w"] = 1
    assert not lab.spent()
    lab.staged.clear()
    lab.aside = 1
    assert not lab.spent(), "an operator is to look at it"
    lab.aside = 0
    lab.lineage.lodged(4, 7, Lodged((0, 3, 1), ()))
    assert not lab.spent(), "a copy that has begun"
    lab.lineage.sealed(4, 5, 0, 100)
    lab.lineage.expired(4)
    assert lab.spent()
    lab.lineage.described(5, 7, [(4, 5)])
    assert lab.spent(), "how it goes on without this broker is a record"
    assert not lab.lineage.blank and not lab.left.idle()["blank"]


def test_who_never_had_anything_is_not_spent_but_blank(lab: Lab, tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    lab.left._store.lineage = Lineage.load(tmp_path / "new")
    assert not lab.spent() and lab.left.idle() == {"blank": True, "spent": False}
    lab.left._driver.machine = None  # type: ignore[misc]
    assert lab.left.idle() == {"blank": False, "spent": False}
