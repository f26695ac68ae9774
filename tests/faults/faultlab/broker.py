"""A real broker: supervisor and workers in a process group of their own, to be hurt."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from reference.families import workers_of

from barco.model.placement import Placement
from barco.supervisor.tied import start_tied
from faultlab.wire import Address, call

SMALL = {
    "BARCO_STORAGE_SEGMENT_BYTES": str(2 << 20),
    "BARCO_LIMITS_REQUEST_BYTES_MAX": str(1 << 19),
    "BARCO_LIMITS_EVENT_BYTES_MAX": str(1 << 16),
}
"""Small segments, so that files are made, sealed and indexed all the time."""

READY_S = 60.0


class StartError(Exception):
    """The broker ended instead of becoming ready."""

    def __init__(self, status: int, log: str) -> None:
        super().__init__(f"exit status {status}: {log[-1500:]}")
        self.status, self.log = status, log


class Broker:
    """One data directory, and the processes that run on it now."""

    host = "127.0.0.1"
    placement = Placement(1, 8)

    def __init__(self, data_dir: Path, *, workers: int = 2, logs: Path | None = None) -> None:
        self.data_dir = data_dir
        self._workers = workers
        self._base = free_base(workers)
        self._logs = logs or data_dir.parent
        self._starts = 0
        self.options: list[str] = []
        """Further ones of the command line."""
        self.env: dict[str, str] = {}
        """Further variables of the environment."""
        self.python = sys.executable
        """Of which version of barco the next start is."""
        self._process: subprocess.Popen[bytes] | None = None
        self.ready: dict[str, Any] = {}
        self.log_path = self._logs / "broker.log"

    @property
    def port(self) -> Address:
        """Discovery; any worker may answer."""
        return self.host, self._base

    @property
    def ports(self) -> list[Address]:
        """Where a producer may go: two shared listeners, and each worker's own."""
        shards = [self._base + 50 + worker for worker in range(self._workers)]
        return [(self.host, port) for port in (self._base, self._base + 1, *shards)]

    @property
    def log_paths(self) -> list[Path]:
        """One for each start."""
        return sorted(self._logs.glob("broker-*.log"))

    @property
    def pids(self) -> list[int]:
        """Of the workers, now."""
        assert self._process is not None
        return workers_of(self._process.pid)

    @property
    def log(self) -> str:
        """What the present start has said on stderr."""
        return self.log_path.read_text("utf-8", "replace") if self.log_path.exists() else ""

    def start(self) -> float:
        """Returns when it is ready; how many seconds that took. StartError when it ends."""
        began = time.monotonic()
        self.begin()
        self.await_ready()
        return time.monotonic() - began

    def begin(self) -> None:
        """Does not wait until it is ready."""
        self._starts += 1
        self.log_path = self._logs / f"broker-{self._starts:03d}.log"
        with self.log_path.open("wb") as log:
            self._process = start_tied(
                [self.python, "-P", "-m", "barco", *self.command(), *self.options],
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                env=self.environment,
            )

    @property
    def environment(self) -> dict[str, str]:
        """Of each command that concerns it."""
        return os.environ | SMALL | self.env

    def command(self) -> list[str]:
        """What comes after `barco`."""
        command = ["serve", "--dev", "--json", "--data-dir", str(self.data_dir)]
        return [*command, "--workers", str(self._workers), "--ports-from", str(self._base)]

    def await_ready(self) -> None:
        """After `begin`. StartError when it ends."""
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait(READY_S)
            raise StartError(status, self.log)
        self.ready = json.loads(line)

    def wait_ready(self, limit_s: float = 30.0) -> None:
        """Until every worker serves (check C11): one of them may just have been killed."""
        until = time.monotonic() + limit_s
        while not all(self._serves(port) for port in self.ports[2:]):
            assert time.monotonic() < until, "a worker does not come back"
            time.sleep(0.05)

    def _serves(self, address: Address) -> bool:
        try:
            answer = call(address, "GET", "/v1/groups")  # Every worker is asked for it.
            return answer.status == 200 and call(address, "GET", "/status").status == 200
        except (OSError, EOFError):
            return False

    def restart(self) -> float:
        """Starts again; a worker of the last life may still hold the lock for a moment."""
        for _ in range(50):
            try:
                return self.start()
            except StartError as error:
                if "in use" not in error.log:
                    raise
                time.sleep(0.05)
        raise AssertionError("the directory stays in use")

    def kill(self) -> None:
        """SIGKILL to every process at once."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def kill_worker(self) -> None:
        """SIGKILL to the worker that has lived longest; the supervisor lives."""
        os.kill(self.pids[0], signal.SIGKILL)

    def pause(self, seconds: float, *, whole: bool) -> None:
        """SIGSTOP and, later, SIGCONT: to one worker, or to the whole group."""
        assert self._process is not None
        group = self._process.pid
        pid = random.choice(self.pids)
        os.killpg(group, signal.SIGSTOP) if whole else os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        if whole:
            os.killpg(group, signal.SIGCONT)
            return
        with contextlib.suppress(ProcessLookupError):  # Killed for its silence.
            os.kill(pid, signal.SIGCONT)

    def stop(self) -> int:
        """SIGTERM; its exit status."""
        assert self._process is not None
        self._process.terminate()
        try:
            status = self._process.wait(40)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        assert self._process.stdout is not None
        self._process.stdout.close()
        return status

    def close(self) -> None:
        """Whatever still runs ends."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def wait_end(self, seconds: float) -> int:
        """Its exit status, when it ends on its own."""
        assert self._process is not None
        return self._process.wait(seconds)


def range_paths(data_dir: Path) -> list[Path]:
    """The directories of the ranges of a broker that was started."""
    return sorted(data_dir.glob("range-*"))


def free_base(workers: int) -> int:
    """A number from which on all ports of a broker are free, below those the kernel gives out."""
    for _ in range(200):
        base = random.randrange(12_000, 19_000)  # Others look elsewhere: see tests/conftest.py.
        wanted = [*range(base, base + 8), *range(base + 50, base + 50 + workers)]
        try:
            for port in wanted:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base
    raise AssertionError("no free ports")
