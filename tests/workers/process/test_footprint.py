"""Free memory is given back near the budget, and not all the time."""

import os
from types import SimpleNamespace
from typing import Any

import pytest

from barco.types import MiB
from barco.workers.process import footprint as module
from barco.workers.process.footprint import Footprint, count_in, give_back, resident_bytes


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


def test_the_size_is_read_where_no_descriptor_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood that came before the first look ended the worker."""
    os.close(module._statm())
    module._statm.cache_clear()
    service: Any = SimpleNamespace(more_stats=dict)
    count_in(service)

    def none_left(*_: object) -> int:
        raise OSError(24, "too many open files")

    monkeypatch.setattr(os, "open", none_left)
    assert resident_bytes() > 0
