"""Tests that are coroutines."""

import asyncio
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any


def run(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """An async test as one that pytest calls, with what it asks for."""

    def called(**given: Any) -> None:
        # It ends what hangs; a slow machine takes 25 s for some.
        asyncio.run(asyncio.wait_for(test(**given), 120))

    called.__dict__["__signature__"] = inspect.signature(test)
    return functools.update_wrapper(called, test, ("__name__", "__doc__"), ())
