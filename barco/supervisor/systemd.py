"""The notification protocol of systemd (sd_notify(3)): datagrams to a socket that it names."""

import asyncio
import os
import socket


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

    async def watch(self, seconds: float) -> None:
        """Signs of life, for as long as the loop turns."""
        while True:
            self.send(WATCHDOG=1)
            await asyncio.sleep(seconds)
