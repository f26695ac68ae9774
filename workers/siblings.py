"""The native hand-off sockets between the workers of one broker: listening and connecting."""

import asyncio
import logging
import os
import socket
import time
from pathlib import Path

from barco._native import Reactor

RETRY_SECONDS_FIRST = 0.02
RETRY_SECONDS_SOON = 0.2
RETRY_SECONDS_MAX = 1.0
"""Between two attempts: at first, and for a sibling that has been away for `SOON_SECONDS`."""
SOON_SECONDS = 10.0
HTTP, HAND_OFF = 0, 1
"""Kinds of `Reactor.listen`."""

log = logging.getLogger("barco.worker")


def run_dir(data_dir: str) -> Path:
    """Where the Unix sockets are; made by the first who needs it, for the broker's user alone."""
    path = Path(data_dir) / "run"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def socket_path(data_dir: str, worker: int, kind: str) -> str:
    """Path of a worker's socket. A Unix address holds 107 bytes: a longer path goes by a link."""
    path = run_dir(data_dir) / f"worker-{worker}.{kind}"
    if len(os.fsencode(path)) <= 107:
        return str(path)
    # The directory's descriptor makes any path short, and stays open for the process's life.
    fd = _run_dirs.setdefault(data_dir, -1)
    if fd < 0:
        fd = _run_dirs[data_dir] = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    return f"/proc/self/fd/{fd}/{path.name}"


_run_dirs: dict[str, int] = {}


class HandOff:
    """Keeps one outgoing hand-off connection to every sibling."""

    def __init__(self, reactor: Reactor, data_dir: str, worker: int, workers: int) -> None:
        self._reactor = reactor
        self._data_dir = data_dir
        self._worker = worker
        self._workers = workers
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._listener: socket.socket | None = None
        self._closed = False

    def start(self) -> None:
        """Listens, and connects to everybody else."""
        path = socket_path(self._data_dir, self._worker, "handoff")
        Path(path).unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._listener.bind(path)
        os.chmod(path, 0o600)
        self._listener.listen(64)
        self._reactor.listen(self._listener.fileno(), HAND_OFF)
        for sibling in range(self._workers):
            if sibling != self._worker:
                self.connect(sibling)

    def connect(self, sibling: int) -> None:
        """Connects (again) in the background; until it stands, calls for it answer 503."""
        task = self._tasks.get(sibling)
        if not self._closed and (task is None or task.done()):
            self._tasks[sibling] = asyncio.create_task(self._connect(sibling))

    async def connected(self, timeout: float) -> bool:
        """Whether all connections stand, at the latest after `timeout` seconds."""
        if not self._tasks:
            return True
        _, pending = await asyncio.wait(self._tasks.values(), timeout=timeout)
        return not pending

    async def _connect(self, sibling: int) -> None:
        delay = RETRY_SECONDS_FIRST
        began = time.monotonic()
        while True:
            end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                end.connect(socket_path(self._data_dir, sibling, "handoff"))
            except OSError:
                end.close()
                await asyncio.sleep(delay)
                soon = time.monotonic() - began < SOON_SECONDS
                delay = min(2 * delay, RETRY_SECONDS_SOON if soon else RETRY_SECONDS_MAX)
                continue
            self._reactor.attach_peer(sibling, end.detach())
            return

    async def close(self) -> None:
        """Ends the attempts. The sockets are the reactor's."""
        self._closed = True
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
