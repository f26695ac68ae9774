"""What is said of a configuration that was read again."""

import asyncio
from typing import Any

from barco.config import Config
from barco.errors import ConfigError
from barco.supervisor.sources.reload import Reloader


def test_a_refusal_is_one_line_and_many_signals_are_one_reload() -> None:
    told: list[dict[str, Any]] = []
    reads = []

    def read() -> Config:
        reads.append(1)
        raise ConfigError("a file\nREADY=0\nof lines")

    async def wish(listed: Any) -> str:
        raise AssertionError("nothing is wished for")

    async def play() -> None:
        reloader = Reloader(
            Config(), read=read, wish=wish, notify=lambda **state: told.append(state)
        )
        task = asyncio.create_task(reloader.run())
        for _ in range(9):
            reloader.hang_up()
        while len(told) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        task.cancel()

    asyncio.run(play())
    assert len(reads) == 1 and list(told[0]) == ["RELOADING", "MONOTONIC_USEC"]
    said = "reload refused, all of it, and nothing is changed: a file READY=0 of lines"
    assert told[1:] == [{"READY": 1, "STATUS": said}]
