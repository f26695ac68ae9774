"""Free memory is given back near the budget, and not all the time."""

from barco.types import MiB
from barco.workers.process.footprint import Footprint, give_back, resident_bytes


def test_gives_back_near_the_budget() -> None:
    sizes = iter([100, 190, 200, 200, 255, 257, 100, 190, 255, 300])
    trims: list[int] = []
    footprint = Footprint(
        256 * MiB, resident=lambda: next(sizes) * MiB, trim=lambda: trims.append(1)
    )
    told = []
    for _ in range(10):
        footprint.check()
        told.append(len(trims))
    assert told == [0, 0, 0, 1, 1, 2, 2, 2, 2, 3]


def test_this_process() -> None:
    assert 1 * MiB < resident_bytes() < 4096 * MiB
    give_back()
