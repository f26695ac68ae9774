"""Nothing outlives the process that started it; a thread that started it may end."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from barco.supervisor.tied import start_tied

from .conftest import is_alive, wait_until

STARTER = """
import sys, threading
from barco.supervisor.tied import start_tied
started = []
def start():
    started.append(start_tied([sys.executable, "-c", "import time; time.sleep(300)"]))
thread = threading.Thread(target=start)
thread.start()
thread.join()
print(started[0].pid, flush=True)
sys.stdin.read()
"""


def test_a_child_dies_with_whoever_started_it() -> None:
    for number in (signal.SIGKILL, signal.SIGTERM):
        with subprocess.Popen(
            [sys.executable, "-c", STARTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as starter:
            assert starter.stdout is not None
            child = int(starter.stdout.readline())
            assert is_alive(child), "the thread that asked for it has ended, and that is all"
            starter.send_signal(number)
            starter.wait(60)
            wait_until(lambda child=child: not is_alive(child))


def test_what_it_gives_is_a_process_like_any_other() -> None:
    with start_tied(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as cat:
        assert cat.communicate("hello", timeout=60)[0] == "hello"
    assert cat.returncode == 0


def test_python_keeps_what_it_has_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    command = [
        sys.executable,
        "-c",
        "import os, sys; print(sys.dont_write_bytecode, os.getenv('A'))",
    ]
    for more, said in ({}, "False None\n"), ({"env": {"A": "b"}}, "False b\n"):
        with start_tied(command, stdout=subprocess.PIPE, text=True, **more) as process:
            assert process.communicate(timeout=60)[0] == said


def test_a_thread_that_ends_takes_nothing_with_it() -> None:
    found: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=lambda: found.append(start_tied(["sleep", "300"])))
    thread.start()
    thread.join()
    assert Path(f"/proc/{found[0].pid}").exists() and found[0].poll() is None
    os.kill(found[0].pid, signal.SIGKILL)
    assert found[0].wait(60) == -signal.SIGKILL
