"""Rings of three real brokers, and more that join them."""

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster

SECONDS = 90.0
"""Generous: it only ends what has failed."""


def until(what: str, found: Callable[[], Any], seconds: float = SECONDS) -> Any:
    """Asks again and again; the first true answer."""
    end = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.1)
    return answer


def barco(*arguments: object) -> subprocess.CompletedProcess[str]:
    """One command, to its end."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "barco", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def epochs(cluster: LocalCluster) -> list[tuple[Any, ...]]:
    """Who leads what, in which generation."""
    shards = cluster.topology()["shards"]
    return [(each["token"], each["ordinal"], each["version"], each["up"]) for each in shards]


def undisturbed(cluster: LocalCluster, attempt: Callable[[str], None]) -> None:
    """Makes an attempt, with a topic of its own, during which no leader changes: one that has just
    begun knows nobody, and gives again what was given. On a busy machine that happens, so what
    fails then says nothing; what fails beside the same leaders is a failure."""
    for name in ("a", "b", "c", "d", "e"):
        before = epochs(cluster)
        try:
            attempt(name)
            return
        except AssertionError:
            if epochs(cluster) == before:
                raise
    raise AssertionError("leaders change all the time")


class JoinedCluster(LocalCluster):
    """Brokers are written with a list of all that there are when they come."""

    def list_new(self, host: str, **changes: Any) -> int:
        """A file for one more broker, which lists all; the others keep the list that they have."""
        ordinal = len(self.hosts)
        listed = [*self.hosts, host]
        text = self.config(0).read_text().replace(str(self.data(0)), str(self.data(ordinal)))
        text = text.replace("ordinal = 0\n", f"ordinal = {changes.pop('ordinal', ordinal)}\n")
        old = next(line for line in text.splitlines() if line.startswith("brokers = "))
        text = text.replace(old, f"brokers = {json.dumps(listed)}")
        for name, value in changes.items():
            old = next(line for line in text.splitlines() if line.startswith(f"{name} = "))
            text = text.replace(old, f"{name} = {json.dumps(value)}")
        self.config(ordinal).write_text(text)
        return ordinal

    def join(self, host: str) -> int:
        """Format one more and start it; it may be ready a little later."""
        ordinal = self.list_new(host)
        made = barco("format", "--join", "--config", self.config(ordinal))
        assert made.returncode == 0, made.stderr
        self.hosts = (*self.hosts, host)
        self.start(ordinal)
        return ordinal


def three(root: Path) -> Iterator[JoinedCluster]:
    """Of addresses of its own; they end behind it."""
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    made = JoinedCluster(root, hosts=tuple(f"{net}.{n + 1}" for n in range(3)), tied=True)
    made.write()
    for ordinal in range(3):
        made.start(ordinal)
    try:
        made.wait_ready()
        yield made
    finally:
        made.stop()


def told_what_to_do(root: Path, program: Path, more: str = "") -> Iterator[JoinedCluster]:
    """Three, and a fourth that has joined and waits, each started as this program. more: at the end
    of the first three's files, and so of what the fourth's is made from."""
    python = root / "python"
    python.write_text(f'#!/bin/sh\nshift 3\nexec {sys.executable} -P {program.resolve()} "$@"\n')
    python.chmod(0o700)
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    hosts = tuple(f"{net}.{n + 1}" for n in range(3))
    made = JoinedCluster(root, hosts=hosts, tied=True, python=str(python))
    made.write()
    for ordinal in range(3):
        with made.config(ordinal).open("a") as file:
            file.write(more)
        made.start(ordinal)
    try:
        made.wait_ready()
        made.join(f"{net}.4")
        made.wait_ready([3])
        yield made
    finally:
        made.stop()
