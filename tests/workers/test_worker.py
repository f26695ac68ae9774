"""The last words of a worker."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barco.errors import BarcoError
from barco.protocol import messages
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


def test_ready_is_said_when_nothing_more_keeps_the_loop() -> None:
    """Clients wait for a range that is made of who was just ready."""
    done: list[str] = []
    worker: Any = SimpleNamespace(
        _collector=SimpleNamespace(take_over=lambda: done.append("collected")),
        _supervision=SimpleNamespace(send=lambda message: done.append(message["type"])),
        _readiness=SimpleNamespace(writable=lambda: True),
        _reactor=SimpleNamespace(engine="epoll", engine_reason=""),
        _replica=SimpleNamespace(epoch=1, recovered_groups=0, recovery_seconds=0.0),
        _session=7,
    )
    Worker._say_ready(worker)
    assert done == ["collected", messages.READY]
