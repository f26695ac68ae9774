"""Real brokers with fake workers, each in a directory of its own, none left behind."""

import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barco.supervisor.tied import start_tied

sys.path.insert(0, str(Path(__file__).parent))  # For `gossiping`.

FAKE_BROKER = Path(__file__).with_name("fake_broker.py")


def wait_until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Poll until the condition holds, and return what it gave."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)
    return value


def is_alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Fake:
    """One `barco serve` with fake workers."""

    def __init__(self, data_dir: Path, arguments: tuple[str, ...], env: dict[str, str]) -> None:
        self.data_dir = data_dir
        self.log = data_dir.parent / f"{data_dir.name}.log"
        self.ready: dict[str, Any] = {}
        environment = {k: v for k, v in os.environ.items() if not k.startswith("BARCO_")}
        with open(self.log, "ab") as stderr:
            self.process = start_tied(
                [sys.executable, "-P", str(FAKE_BROKER), "--data-dir", str(data_dir), "--json"]
                + ["--ports-from", "0", *arguments],
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment | env,
                start_new_session=True,
            )

    def wait_ready(self) -> "Fake":
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], 60)
        line = self.process.stdout.readline() if readable else b""
        assert line, f"not ready: {self.log.read_text()}"
        self.ready = json.loads(line)
        return self

    def ask(self, words: str, port: str = "produce", shard: int | None = None) -> str:
        """One line to a worker, one back: to any of them, or to one."""
        address = (self.ready["bind"], self.ready["ports"][port])
        if shard is not None:
            host, _, number = self.ready["shards"][shard].rpartition(":")
            address = (host, int(number))
        with socket.create_connection(address, timeout=30) as connection:
            connection.sendall(words.encode())
            return b"".join(iter(lambda: connection.recv(65536), b"")).decode()

    def state(self, shard: int) -> dict[str, Any]:
        return json.loads(self.ask("state", shard=shard))

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)

    def end(self) -> tuple[int, str]:
        """The exit code, and the last line it wrote."""
        code = self.process.wait(30)
        return code, self.log.read_text().splitlines()[-1]

    def messages(self) -> list[str]:
        """The messages of its log so far."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [json.loads(line)["message"] for line in lines]


def cluster_config(path: Path, ordinal: int = 0, **cluster: str) -> tuple[str, ...]:
    """Arguments for a broker of three, on addresses that nobody else has."""
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    brokers = [f"{net}.{each + 1}" for each in range(3)]
    more = "".join(f'{key} = "{value}"\n' for key, value in cluster.items())
    path.write_text(
        f"[broker]\nordinal = {ordinal}\n[cluster]\nbrokers = {json.dumps(brokers)}\n{more}"
    )
    return ("--config", str(path), "--ports-from", "9250")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Fake]]:
    """Start a broker: start(*arguments, fake="modes", limits={...}, name="data directory",
    notify="socket", programs=whether they are not forked)."""
    fakes: list[Fake] = []

    def starter(
        *arguments: str,
        fake: str = "",
        limits: dict[str, float] | None = None,
        name: str = "data",
        notify: str = "",
        programs: bool = False,
    ) -> Fake:
        env = {"BARCO_FAKE": fake, "BARCO_FAKE_LIMITS": json.dumps(limits or {})}
        env |= {"NOTIFY_SOCKET": notify} if notify else {}
        env |= {"BARCO_FAKE_PROGRAMS": "1"} if programs else {}
        fakes.append(Fake(tmp_path / name, arguments, env))
        return fakes[-1]

    yield starter
    for fake in fakes:
        if fake.process.poll() is None:
            fake.process.kill()
        fake.process.wait()
        assert fake.process.stdout is not None
        fake.process.stdout.close()
