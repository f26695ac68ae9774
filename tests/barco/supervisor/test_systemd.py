"""The notification protocol, with a socket that plays systemd."""

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
