"""A pipeline as a program of its own, to be killed: ENDPOINTS SOURCE SINK NAME [STEP COUNT].

Each event comes out as it was, with its key. With STEP it kills itself at the COUNTth time that it
is about to take that step: stage, prepare, decide, commit; or "decided": behind it.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import barco
from barco.client.wire.staged import StagedWrites


def die() -> None:
    """As the kernel, or a machine, has it."""
    os.kill(os.getpid(), signal.SIGKILL)


def dies_at(step: str, count: int) -> None:
    """Has this process die there."""
    name = "decide" if step == "decided" else step
    before: Callable[..., Awaitable[Any]] = getattr(StagedWrites, name)
    left = count

    async def called(self: StagedWrites, *args: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0 and step != "decided":
            die()
        result = await before(self, *args)
        if left == 0:
            die()
        return result

    setattr(StagedWrites, name, called)


def main() -> None:
    """Runs until it is killed, or to the end of the topic with COUNT 0."""
    endpoints, source, sink, name, *rest = sys.argv[1:]
    step, count = (rest[0], int(rest[1])) if rest else ("", 0)
    if step:
        dies_at(step, count)
    pipeline = barco.Pipeline(source, sink, name, endpoints.split(","), batch_bytes=100)
    print("runs", flush=True)
    pipeline.run(lambda event: barco.Output(event.value, event.key))


if __name__ == "__main__":
    main()
