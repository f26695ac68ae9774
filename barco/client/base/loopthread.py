"""A private event loop in a thread: how the synchronous faces run the asynchronous core."""

import asyncio
import concurrent.futures
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from barco.client.base import forks
from barco.client.base.errors import ClosedError

T = TypeVar("T")


class Closing(ABC):
    """A synchronous client that a `with` statement closes."""

    @abstractmethod
    def close(self) -> None:
        """Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class LoopThread:
    """Owned by one synchronous client. The thread is a daemon: `close` ends it properly."""

    def __init__(self, name: str) -> None:
        self._born = forks.count
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        """Until `close`; what is left is ended here as well, since whoever closes may be in a loop
        of its own (a notebook's cell is), and a thread runs one at a time."""
        self._loop.run_forever()
        pending = asyncio.all_tasks(self._loop)
        for task in pending:
            task.cancel()
        if pending:
            self._loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    @property
    def closed(self) -> bool:
        """True after `close`, and in a forked child, which has nothing to close."""
        return self._born != forks.count or self._loop.is_closed()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Runs it there, waits here; TimeoutError after so long. ForkedError in a child."""
        if self.closed:
            coroutine.close()
            forks.check(self._born)
            raise ClosedError("the client is closed")
        if threading.get_ident() == self._thread.ident:
            coroutine.close()
            raise RuntimeError("a callback of the client cannot wait for the client")
        future = self.start(coroutine)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()  # Time-out or KeyboardInterrupt: leave nothing running behind.
            raise

    def start(self, coroutine: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        """Runs the coroutine there, and does not wait."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def close(self) -> None:
        """Stops the loop and joins the thread. Idempotent."""
        if self.closed:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
