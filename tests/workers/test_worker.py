"""The last words of a worker."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barco.errors import BarcoError
from barco.workers.storage.files.errors import DiskError
from barco.workers.worker import Worker


def words_of(error: Exception) -> list[str]:
    """What is told of background work that ends so."""
    said: list[str] = []

    async def main() -> None:
        async def work() -> None:
            raise error

        worker: Any = SimpleNamespace(_background=set(), _fatal=said.append)
        task = asyncio.create_task(work())
        await asyncio.wait([task])
        Worker._spawned(worker, task)

    asyncio.run(main())
    return said


def test_a_disk_that_fails_is_told_in_words(caplog: pytest.LogCaptureFixture) -> None:
    assert issubclass(DiskError, BarcoError)
    text = "cannot open spare.ready: Input/output error (EIO)"
    assert words_of(DiskError(text)) == [text]
    assert not caplog.records


def test_a_mistake_of_ours_leaves_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    assert words_of(KeyError("slice")) == ["background work failed: KeyError('slice')"]
    assert caplog.records[0].exc_info is not None
