"""What the supervisor asks of the cluster: through a process of this broker, over its channel.

Not over HTTP: there a user's token would have to be shown, and the supervisor is no user.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Protocol

from barco.errors import BarcoError, BrokerError, NotReadyError, OutcomeUnknownError, unpack_error
from barco.protocol import messages

PAUSE_SECONDS = 0.5


class LifeLike(Protocol):
    """A run of a process (`processes.Life`)."""

    ready: bool

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a frame."""


class KeeperLike(Protocol):
    """Keeps a process alive (`processes.Keeper`)."""

    @property
    def life(self) -> LifeLike | None:
        """Its run, if there is one just now."""


class Asker:
    """Questions that are under way, each at one process."""

    def __init__(self, keepers: Mapping[int, KeeperLike]) -> None:
        """keepers: of this broker's processes by number, as they come and go."""
        self._keepers = keepers
        self._waiting: dict[int, tuple[int, asyncio.Future[Any]]] = {}
        """By the question's number: whom it was put to."""
        self._last = 0

    async def ask(self, op: str, args: Mapping[str, Any], seconds: float) -> Any:
        """The answer, or the BarcoError that it is. Asked again for so long as nobody can say, and
        where a process ends meanwhile: what is asked for may be done twice."""
        failure: BarcoError = OutcomeUnknownError("The process that was asked has not answered.")
        try:
            async with asyncio.timeout(seconds):
                while True:
                    try:
                        return await self._once(op, args)
                    except BarcoError as error:
                        if error.status < 500:
                            raise
                        failure = error
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            raise failure from None

    async def _once(self, op: str, args: Mapping[str, Any]) -> Any:
        lives = ((number, keeper.life) for number, keeper in self._keepers.items())
        ready = [(number, life) for number, life in lives if life is not None and life.ready]
        if not ready:
            raise NotReadyError("No process of this broker is ready.")
        worker, life = ready[0]
        self._last += 1
        number = self._last
        life.send({"type": messages.ASK, "id": number, "op": op, "args": dict(args)})
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = worker, future
        try:
            return await future
        finally:
            del self._waiting[number]

    def answered(self, worker: int, message: Mapping[str, Any]) -> None:
        """A process says this; what nobody asked it is passed over."""
        asked, future = self._waiting.get(message.get("id", 0), (None, None))
        if future is None or asked != worker or future.done():
            return
        if message.get("ok"):
            future.set_result(message.get("result"))
            return
        error = message.get("error")
        future.set_exception(unpack_error(error) if isinstance(error, dict) else BrokerError(""))

    def gone(self, worker: int) -> None:
        """A process has ended: it answers nothing any more."""
        for asked, future in self._waiting.values():
            if asked == worker and not future.done():
                future.set_exception(NotReadyError("The process that was asked has ended."))
