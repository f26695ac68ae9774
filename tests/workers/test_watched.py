"""A task that nobody waits for ends the process when it fails."""

import asyncio
import logging

import pytest

from barco.workers.watched import watched


@pytest.mark.parametrize("error", [ValueError("bug"), OSError(5, "disk"), None])
def test_only_a_failure_is_told(error: Exception | None, caplog: pytest.LogCaptureFixture) -> None:
    fatal: list[str] = []

    async def work() -> None:
        await asyncio.sleep(0)
        if error is not None:
            raise error

    async def main() -> None:
        task = watched(work(), "this work", fatal.append)
        await asyncio.wait([task])
        other = watched(asyncio.sleep(60), "that work", fatal.append)
        other.cancel()
        await asyncio.wait([other])
        await asyncio.sleep(0)

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    if error is None:
        assert not fatal and not caplog.records
    else:
        assert fatal == [f"this work, this is a bug: {error!r}"]
        assert [bool(record.exc_info) for record in caplog.records] == [True]
