"""What an honest client sees beside a flood, and what a worker does meanwhile: a script, no test.

`python tests/security/measure.py [NAME[:COUNT] ...]` with the interpreter of the installation to be
measured; floods are those of `flooders.py`. Prints a line for each. `--engine`, `--seconds`.
With `--core N` the broker has one worker, on that core alone; floods and client have the others:
what they take of a core is then nothing that the broker could give. Take the core that the disk
interrupts (/proc/interrupts): there an append ends.
"""

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]

from attacked import AttackedBroker
from honest import Seen, attentive, flood, processor_seconds
from wire import Closed, Wire, produce

FLOODS = ["gets:2000", "gets:200", "refusals:2000", "resets:35000", "long_reads:2000"]


@dataclass
class Honest:
    """One connection to each worker, one event after the other on each, as fast as they answer."""

    broker: AttackedBroker
    seconds: list[float] = field(default_factory=list)
    worked: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    closed: int = 0
    resident: int = 0

    def run(self, seconds: float) -> "Honest":
        with attentive():
            return self._run(seconds)

    def _run(self, seconds: float) -> "Honest":
        wires = [self.broker.shard_wire(shard) for shard in range(self.broker.workers)]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for number, wire in enumerate(wires):
                pid = self.broker.pids[number]
                before, began = processor_seconds(pid), time.monotonic()
                try:
                    wire.send(produce("honest", b"x" * 100, f"slice={4 * number}"))
                    status = wire.response().status
                except (Closed, OSError):
                    self.closed += 1
                    wires[number] = self.again(number)
                    continue
                self.seconds.append(time.monotonic() - began)
                self.worked.append(processor_seconds(pid) - before)
                self.statuses[status] = self.statuses.get(status, 0) + 1
            self.resident = max(self.resident, *self.broker.resident())
            time.sleep(0.005)
        for wire in wires:
            wire.sock.close()
        return self

    def again(self, number: int) -> Wire:
        while True:
            try:
                return self.broker.shard_wire(number)
            except OSError:
                time.sleep(0.01)

    def __str__(self) -> str:
        wall, work = sorted(self.seconds), sorted(self.worked)
        return (
            f"p50 {wall[len(wall) // 2] * 1e3:5.2f} p99 {Seen.p99(wall) * 1e3:7.2f} max"
            f" {wall[-1] * 1e3:7.1f} ms, of the worker's own p50 {work[len(work) // 2] * 1e3:5.2f}"
            f" p99 {Seen.p99(work) * 1e3:6.2f}; {self.statuses} closed {self.closed},"
            f" {self.resident >> 20} MiB"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("floods", nargs="*", default=FLOODS)
    parser.add_argument("--engine", default="io_uring")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--core", type=int)
    given = parser.parse_args()
    cores, workers = os.sched_getaffinity(0), 2
    with tempfile.TemporaryDirectory() as directory:
        if given.core is not None:
            os.sched_setaffinity(0, {given.core})
            cores, workers = cores - {given.core}, 1
        broker = AttackedBroker(Path(directory) / "data", engine=given.engine, workers=workers)
        broker.begin()
        os.sched_setaffinity(0, cores)
        try:
            Honest(broker).run(1.0)
            print(f"quiet            {Honest(broker).run(given.seconds / 2)}", flush=True)
            for each in given.floods:
                name, _, count = each.partition(":")
                cpu = sum(processor_seconds(pid) for pid in broker.pids)
                with flood(broker, name, given.seconds + 60, int(count or 1000)):
                    honest = Honest(broker).run(given.seconds)
                cpu = sum(processor_seconds(pid) for pid in broker.pids) - cpu
                print(f"{each:16} {honest}, workers {cpu:.1f} s", flush=True)
                time.sleep(2.0)
            print(f"quiet again      {Honest(broker).run(given.seconds / 2)}", flush=True)
        finally:
            broker.end()


if __name__ == "__main__":
    main()
