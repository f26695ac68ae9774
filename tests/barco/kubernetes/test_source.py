"""Replicas as a wish."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from barco.errors import ConflictError
from barco.kubernetes import source
from barco.kubernetes.pods import StatefulSet
from barco.kubernetes.source import ReplicaCount


def test_the_latest_counts_until_it_is_taken(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(source, "BACKOFF_SECONDS_MAX", 0.01)
    caplog.set_level(logging.INFO, "barco.kubernetes")
    wishes: list[int] = []
    refusals = [ConflictError("the last target is not reached")] * 3

    async def wish(listed: Sequence[str]) -> str:
        assert not any(listed)
        wishes.append(len(listed))
        if refusals and len(listed) == 6:
            raise refusals.pop()
        return "the target is version 7"

    async def play() -> None:
        changes: asyncio.Queue[StatefulSet] = asyncio.Queue()
        task = asyncio.create_task(ReplicaCount(wish).run(changes))
        for count in (3, 4, 5):  # At once.
            changes.put_nowait(StatefulSet(replicas=count, service="peers"))
        await asyncio.sleep(0.05)
        assert wishes == [5]
        changes.put_nowait(StatefulSet(replicas=6, service="peers"))
        while refusals:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        assert wishes == [5, 6, 6, 6, 6]
        changes.put_nowait(StatefulSet(replicas=3, service="peers"))
        await asyncio.sleep(0.05)
        assert wishes == [5, 6, 6, 6, 6]
        task.cancel()

    asyncio.run(play())
    said = [record.getMessage() for record in caplog.records]
    assert said[0] == "spec.replicas = 5: the target is version 7"
    assert said[1].startswith("spec.replicas = 6, not yet: the last target")
    assert said[-1].startswith("spec.replicas says 3 brokers, and 6 before: that takes nobody out")
