"""An honest client beside a flood: how long its writes take, and what the workers hold."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from attacked import AttackedBroker
from wire import Closed, produce

SLOW_FACTOR = 4
SLOW_SECONDS = 0.25
"""What a quiet broker on a busy machine may take at worst: below it nothing is called slow."""


@dataclass
class Seen:
    """What an honest client met."""

    seconds: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    resident: int = 0

    def p99(self) -> float:
        return sorted(self.seconds)[len(self.seconds) * 99 // 100]

    def check(self, quiet: "Seen") -> None:
        """Served as before, but for a factor; refused at most with "not written"."""
        assert set(self.statuses) <= {200, 503}, self.statuses
        assert self.statuses[200] > 20, self.statuses
        most = max(SLOW_FACTOR * quiet.p99(), SLOW_SECONDS)
        assert self.p99() <= most, f"p99 {self.p99():.3f} s, quiet {quiet.p99():.3f} s"


def produce_for(attacked: AttackedBroker, seconds: float, pause: float = 0.005) -> Seen:
    """One connection to each worker, one event after the other on each."""
    seen = Seen()
    wires = [attacked.shard_wire(shard) for shard in range(attacked.workers)]
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            for number, wire in enumerate(wires):
                began = time.monotonic()
                try:
                    wire.send(produce("honest", b"x" * 100, f"slice={number}"))
                    answer = wire.response()
                except Closed:
                    wires[number] = attacked.shard_wire(number)
                    continue
                seen.seconds.append(time.monotonic() - began)
                seen.statuses[answer.status] = seen.statuses.get(answer.status, 0) + 1
                if answer.status == 503:
                    assert answer.headers["barco-outcome"] == "not-written", answer
            seen.resident = max(seen.resident, *attacked.resident())
            attacked.check_memory()
            time.sleep(pause)
    finally:
        for wire in wires:
            wire.sock.close()
    return seen


@contextmanager
def flood(
    attacked: AttackedBroker, name: str, seconds: float, count: int, ports: Sequence[int] = ()
) -> Iterator[None]:
    """While it is under way: one process for each port."""
    script = Path(__file__).with_name("flooders.py")
    running = [
        subprocess.Popen(
            [sys.executable, str(script), name, str(port), str(seconds), str(count)],
            stdout=subprocess.PIPE,
        )
        for port in ports or [attacked.port()]
    ]
    try:
        for one in running:
            assert one.stdout is not None and one.stdout.readline() == b"under way\n"
        yield
    finally:
        for one in running:
            one.terminate()
            one.wait()
            if one.stdout is not None:
                one.stdout.close()


def beside(attacked: AttackedBroker, name: str, seconds: float, count: int) -> Seen:
    """An honest client before and beside a flood of so many; what it saw beside it."""
    quiet = produce_for(attacked, min(seconds, 2.0))
    with flood(attacked, name, seconds + 30, count):
        seen = produce_for(attacked, seconds)
    print(
        f"{name}: p99 {quiet.p99() * 1000:.1f} ms quiet, {seen.p99() * 1000:.1f} ms beside it, "
        f"longest {max(seen.seconds) * 1000:.0f}, {seen.resident >> 20} MiB, {seen.statuses}"
    )
    seen.check(quiet)
    return seen
