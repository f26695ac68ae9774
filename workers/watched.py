"""Tasks that must not end unseen: asyncio only logs what they raise, perhaps much later."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger("barco.worker")


def told(what: str, error: BaseException, fatal: Callable[[str], None]) -> None:
    """One log line with the traceback, then the end of the process (rule I12: what was promised
    is stable, or nobody is there any more who could be believed)."""
    log.error("%s: this is a bug", what, exc_info=error)
    fatal(f"{what}, this is a bug: {error!r}")


def watched(
    coroutine: Coroutine[Any, Any, None], what: str, fatal: Callable[[str], None]
) -> asyncio.Task[None]:
    """Starts it as a task; whatever it raises ends the process."""
    task = asyncio.get_running_loop().create_task(coroutine)

    def ended(done: asyncio.Task[None]) -> None:
        if not done.cancelled() and (error := done.exception()) is not None:
            told(what, error, fatal)

    task.add_done_callback(ended)
    return task
