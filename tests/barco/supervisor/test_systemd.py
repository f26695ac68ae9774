"""The notification protocol, with a socket that plays systemd."""

import asyncio
import socket
from pathlib import Path

import pytest

from barco.supervisor.systemd import Notifier


def test_without_systemd_it_is_silent() -> None:
    notifier = Notifier(None, "1000000")
    notifier.send(READY=1)
    assert notifier.watchdog_seconds is None


@pytest.mark.parametrize("abstract", [False, True])
def test_datagrams(tmp_path: Path, abstract: bool) -> None:
    address = f"@barco-test-{tmp_path.name}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + address[1:] if abstract else address)
        notifier = Notifier(address, "3000000")
        notifier.send(READY=1, STATUS="2 workers ready")
        assert manager.recv(1000) == b"READY=1\nSTATUS=2 workers ready"
    assert notifier.watchdog_seconds == 1.5
    notifier.send(STOPPING=1)  # Nobody listens any more: not our problem.


def test_the_environment_is_used_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/notify")
    monkeypatch.setenv("WATCHDOG_USEC", "2000000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    notifier = Notifier.from_environment()
    assert notifier.watchdog_seconds is None  # It is meant for another process.
    assert Notifier.from_environment().watchdog_seconds is None


def test_signs_of_life_end_when_somebody_hangs_beyond_help(tmp_path: Path) -> None:
    class Worker:
        stuck = False

        def hangs(self, now: float) -> bool:
            return self.stuck

    async def watched(manager: socket.socket) -> list[bool]:
        told = []
        notifier, worker = Notifier(str(tmp_path / "notify"), "20000"), Worker()
        watching = asyncio.create_task(notifier.watch(lambda: [Worker(), worker]))
        for worker.stuck in (False, True, False):
            await asyncio.sleep(0.05)  # What was sent in between is of both.
            while _heard(manager):
                pass
            await asyncio.sleep(0.2)
            told.append(_heard(manager))
        watching.cancel()
        return told

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.setblocking(False)
        assert asyncio.run(watched(manager)) == [True, False, True]


def _heard(manager: socket.socket) -> bool:
    try:
        return manager.recv(1000) == b"WATCHDOG=1"
    except BlockingIOError:
        return False
