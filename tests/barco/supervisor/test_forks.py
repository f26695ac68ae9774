"""Workers that are forked: they have what programs have, and nothing of where they come from."""

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reference.families import workers_of

from barco.errors import OperatorError
from barco.supervisor.children import forks, starts
from barco.supervisor.children.forks import COMM

from .conftest import Fake, is_alive, wait_until

Start = Callable[..., Fake]

OWN_OF_A_STATE = 2
"""Descriptors that the fake worker has open while it looks: the connection, and /proc/self/fd."""


def server_of(broker: Fake) -> int:
    """The process id of the fork server."""
    pid = broker.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (found,) = [int(each) for each in children if int(each) not in workers_of(pid)]
    return found


@pytest.mark.parametrize("programs", [False, True], ids=["forked", "programs"])
def test_a_worker_has_its_descriptors_and_no_other(start: Start, *, programs: bool) -> None:
    broker = start("--workers", "2", programs=programs).wait_ready()
    lock = broker.data_dir / "lock"
    for number in range(2):
        state = broker.state(number)
        opened = {int(fd): what for fd, what in state["open"].items()}
        others = set(opened) - {0, 1, 2} - set(state["given"])
        locks = {fd for fd in others if opened[fd] == str(lock)}
        assert len(locks) == 1, "who writes to the directory holds its lock"
        assert len(others) == 1 + OWN_OF_A_STATE, opened
        assert state["ignored"] == [1, 2, 15] and state["umask"] == 0o077
    assert broker.stop() == 0


def test_a_worker_is_a_child_of_the_supervisor_and_has_a_title(start: Start) -> None:
    broker = start("--workers", "4").wait_ready()
    assert workers_of(broker.process.pid) == sorted(broker.ready["workers"])
    for number, pid in enumerate(broker.ready["workers"]):
        assert broker.state(number)["pid"] == pid, "who asked for it got it"
        told = Path(f"/proc/{pid}/cmdline").read_bytes().strip(b"\0")
        assert told == f"barco worker {number}/4".encode()
    assert Path(f"/proc/{server_of(broker)}/comm").read_text().strip() == COMM
    server = server_of(broker)
    os.killpg(broker.process.pid, signal.SIGINT)
    assert broker.process.wait(60) == 0
    assert not is_alive(server) and broker.messages().count("worker stopped") == 4


def test_without_the_fork_server_workers_are_programs(start: Start) -> None:
    broker = start("--workers", "2").wait_ready()
    os.kill(server_of(broker), signal.SIGKILL)
    for turn in range(2):
        victim = broker.state(1)["pid"]
        os.kill(victim, signal.SIGKILL)
        state = wait_until(lambda: broker.state(1))
        assert state["worker"] == 1 and state["pid"] != victim, turn
    said = [text for text in broker.messages() if text.startswith("the fork server has ended")]
    assert len(said) == 1
    assert broker.state(0)["pid"] == broker.ready["workers"][0]
    assert broker.stop() == 0


def test_a_fork_server_that_stands_still_holds_a_start_and_no_more(start: Start) -> None:
    broker = start("--workers", "2").wait_ready()
    server = server_of(broker)
    os.kill(server, signal.SIGSTOP)
    os.kill(broker.ready["workers"][1], signal.SIGKILL)
    assert broker.state(0)["worker"] == 0
    os.kill(server, signal.SIGCONT)
    assert broker.state(1)["worker"] == 1
    os.kill(server, signal.SIGSTOP)  # Nor does it hold an end.
    assert broker.stop() == 0
    assert not is_alive(server)


def test_who_does_not_answer_is_ended_and_what_it_forked_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here it is a process that reads what it is asked, and says nothing."""
    monkeypatch.setattr(forks, "ANSWER_SECONDS_MAX", 0.2)

    async def run() -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs, subprocess.Popen(["sleep", "600"]) as silent:  # noqa: ASYNC220
            server = forks.ForkServer(silent.pid, ours)
            with open("/dev/null", "rb") as words:  # noqa: ASYNC230
                asked = [server.fork("worker", [(0, 0)], words) for _ in range(2)]
                first, second = await asyncio.gather(*asked, return_exceptions=True)
            assert str(first) == "the fork server does not answer"
            assert str(second) == "the fork server has ended"
            assert not is_alive(silent.pid)
            silent.returncode = 0  # It was waited for already.

    asyncio.run(run())


def test_it_ends_with_a_supervisor_that_is_killed(start: Start) -> None:
    broker = start("--workers", "1", fake="deaf").wait_ready()
    family = [server_of(broker), *broker.ready["workers"]]
    broker.process.kill()
    wait_until(lambda: not any(is_alive(pid) for pid in family))


def test_who_has_no_standard_streams_has_workers_all_the_same(tmp_path: Path) -> None:
    """As a program of a daemon that closes all it has."""
    fake = Path(__file__).with_name("fake_broker.py")
    command = [sys.executable, "-P", str(fake), "--data-dir", str(tmp_path / "data")]
    script = 'exec 0<&-; exec "$@" --ports-from 0 --workers 1 --json'
    with subprocess.Popen(["bash", "-c", script, "-", *command], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert b'"ready"' in process.stdout.readline()
        process.terminate()
        assert process.wait(60) == 0


def test_what_the_kernel_refuses_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = os.fork, []

    def second_fails() -> int:
        calls.append(1)
        if len(calls) == 2:
            raise OSError(errno.ENOMEM, "no")
        return real()

    monkeypatch.setattr(os, "fork", second_fails)
    with pytest.raises(OSError, match="cannot fork") as refused:
        forks._orphan()
    assert refused.value.errno == errno.ENOMEM and len(calls) == 1, "it was the one between"


class Told:
    """As much of a worker's options as a start looks at."""

    worker, title = 0, "worker 0/1"

    def to_json(self) -> str:
        return "{}"


class Refusing:
    """A fork server on a machine that is full."""

    async def fork(self, *told: Any) -> None:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def test_a_machine_without_room_is_said_with_what_to_raise() -> None:
    starter = starts.Starter(("true",), 0, Refusing())  # type: ignore[arg-type]
    open_before = os.listdir("/proc/self/fd")
    with pytest.raises(OperatorError, match="cannot start worker 0: Resource .* TasksMax"):
        asyncio.run(starter.start(Told(), []))  # type: ignore[arg-type]
    assert os.listdir("/proc/self/fd") == open_before
