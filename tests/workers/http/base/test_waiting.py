"""How long a change waits for a range's next leader."""

import asyncio
import time

import pytest

from barco import limits
from barco.workers.http.base.waiting import LeaderWait


def test_it_looks_again_after_a_pause_and_not_after_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "LEADER_WAIT_SECONDS", 0.25)

    async def tries() -> tuple[int, float, float]:
        wait, count = LeaderWait(), 1
        began = time.monotonic()
        while await wait.again():
            count += 1
        ended = time.monotonic()
        assert not await wait.again()
        return count, ended - began, time.monotonic() - ended

    count, taken, late = asyncio.run(tries())
    assert 2 <= count <= 4, "a tenth of a second between two"
    assert taken >= 0.25 and late < 0.09, "none that has no try behind it"
