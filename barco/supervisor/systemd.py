"""What systemd and a service say to each other, over a socket that it names (sd_notify(3))."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Iterable
from typing import Protocol

from barco.limits import READY_WORD_SECONDS

log = logging.getLogger("barco.supervisor")


class Tended(Protocol):
    """Somebody who is watched, and started again when that helps."""

    def hangs(self, now: float) -> bool:
        """Whether to start it again did not help, for it cannot even be ended."""


class Notifier:
    """Tells systemd how the broker is; silent where there is no systemd."""

    def __init__(self, address: str | None, watchdog_usec: str | None = None) -> None:
        self._address = address or ""
        usec = int(watchdog_usec) if watchdog_usec and watchdog_usec.isdigit() else 0
        self.watchdog_seconds: float | None = usec / 2e6 if self._address and usec else None
        """How often to send a sign of life: half of what the unit allows."""

    @classmethod
    def from_environment(cls) -> "Notifier":
        """As systemd started us; the variables are taken away, so that no child answers for us."""
        pid = os.environ.pop("WATCHDOG_PID", None)
        usec = os.environ.pop("WATCHDOG_USEC", None)
        mine = pid is None or pid == str(os.getpid())
        return cls(os.environ.pop("NOTIFY_SOCKET", None), usec if mine else None)

    def send(self, **state: str | int) -> None:
        """Send `NAME=value` lines; a manager that does not listen is no reason to fail."""
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        text = "\n".join(f"{name}={value}" for name, value in state.items())
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
            try:
                sender.sendto(text.encode(), socket.MSG_DONTWAIT, address)
            except OSError:
                pass

    async def await_ready(self, ready: Callable[[], bool]) -> None:
        """Until the broker is ready: nobody who started it may take it for one that hangs."""
        waited = 0
        while not ready():
            seconds = READY_WORD_SECONDS
            self.send(EXTEND_TIMEOUT_USEC=int(3e6 * seconds), STATUS="waits for the other brokers")
            await asyncio.sleep(seconds)
            waited += 1
            if waited == 2 and not ready():
                log.warning(
                    "not ready yet: a part of the ring has no leader, which takes two of its three"
                    " brokers, and all of them at a cluster's first start: start the others"
                )

    async def watch(self, kept: Callable[[], Iterable[Tended]]) -> None:
        """Signs of life, for as long as the loop turns and nobody hangs beyond help."""
        assert self.watchdog_seconds, "else nobody waits for them"
        loop = asyncio.get_running_loop()
        while True:
            if not any(each.hangs(loop.time()) for each in kept()):
                self.send(WATCHDOG=1)
            await asyncio.sleep(self.watchdog_seconds)
