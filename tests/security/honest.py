"""An honest client beside a flood: how long its writes take, and what the workers hold."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from attacked import AttackedBroker
from wire import Closed, produce

SLOW_FACTOR = 4
SLOW_SECONDS = 0.15
"""Of a worker's own processor time, in which a write is answered: below it nothing is called slow.
What is left: 0.02, or 0.1 beside thousands that Python answers; not the bar of four times quiet
(docs/findings.md).
Wall-clock time says how busy the machine is, this says what the worker did first."""


@contextmanager
def attentive() -> Iterator[None]:
    """Woken at once, where that is allowed: what a worker does while its client waits for a
    processor is not what the client waits for."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    try:
        yield
    finally:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, before)


def processor_seconds(pid: int) -> float:
    """What the process has had of a processor, up to when it was last switched or ticked: exact for
    one that sleeps between, in ticks of 4 ms for one that runs on. /proc is never better
    (clock_getcpuclockid(3): the number is made of the pid's)."""
    return time.clock_gettime(~pid << 3 | 2)


@dataclass
class Seen:
    """What an honest client met."""

    seconds: list[float] = field(default_factory=list)
    worked: list[float] = field(default_factory=list)
    """Processor seconds of the workers, from a request to its answer."""
    statuses: dict[int, int] = field(default_factory=dict)
    resident: int = 0
    closed: int = 0

    @staticmethod
    def p99(of: Sequence[float]) -> float:
        return sorted(of)[len(of) * 99 // 100]

    def check(self, quiet: "Seen") -> None:
        """Served as before, but for a factor; refused at most with "not written"."""
        assert self.closed == 0, "an honest connection was closed"
        assert set(self.statuses) <= {200, 503}, self.statuses
        assert self.statuses[200] >= len(self.worked) * 9 // 10 > 0, self.statuses
        most = max(SLOW_FACTOR * self.p99(quiet.worked), SLOW_SECONDS)
        assert self.p99(self.worked) <= most, f"{self.p99(self.worked):.3f} s of work before"


def produce_for(attacked: AttackedBroker, seconds: float, pause: float = 0.005) -> Seen:
    """One connection to each worker, one event after the other on each."""
    seen = Seen()
    wires = [attacked.shard_wire(shard) for shard in range(attacked.workers)]
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            for number, wire in enumerate(wires):
                began = time.monotonic()
                worked = [processor_seconds(pid) for pid in attacked.pids]
                try:
                    wire.send(produce("honest", b"x" * 100, f"slice={number}"))
                    answer = wire.response()
                except Closed:
                    seen.closed += 1
                    wires[number] = attacked.shard_wire(number)
                    continue
                seen.seconds.append(time.monotonic() - began)
                ended = [processor_seconds(pid) for pid in attacked.pids]
                seen.worked.append(max(b - a for a, b in zip(worked, ended, strict=True)))
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
    with attentive():
        quiet = produce_for(attacked, min(seconds, 2.0))
    with flood(attacked, name, seconds + 30, count), attentive():
        seen = produce_for(attacked, seconds)
    print(
        f"{name}: p99 {seen.p99(quiet.seconds) * 1000:.1f} ms quiet, "
        f"{seen.p99(seen.seconds) * 1000:.1f} ms beside it (a worker's own time "
        f"{seen.p99(quiet.worked) * 1000:.2f}, {seen.p99(seen.worked) * 1000:.2f}), "
        f"longest {max(seen.seconds) * 1000:.0f}, {seen.resident >> 20} MiB, {seen.statuses}"
    )
    seen.check(quiet)
    return seen
