"""What an honest client sees beside a flood, and what a worker does meanwhile: a script, no test.

`python tests/security/measure.py [NAME[:COUNT] ...]` with the interpreter of the installation to be
measured; floods are those of `flooders.py`. Prints a line for each. `--engine`, `--seconds`.
With `--core N` the broker has one worker, on that core alone; floods and client have the others:
what they take of a core is then nothing that the broker could give. Take the core that the disk
interrupts (/proc/interrupts): there an append ends. `--access` for a broker that asks who it is:
then also floods of who is refused, and of a user whose quota is GREEDY_REQUESTS a second at each
worker.
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
from flooders import GREEDY
from honest import Seen, attentive, flood, processor_seconds
from wire import Closed, Wire, produce

import barco
from barco.model.access import hash_of
from barco.supervisor.files.first_users import NAME, add

FLOODS = ["gets:2000", "gets:200", "refusals:2000", "resets:35000", "long_reads:2000"]
OF_USERS = ["unauthorized:64", "wrong_tokens:64", "unauthorized:2000", "greedy:64", "greedy:1000"]
ROOT, HONEST = "barco_root", "barco_honest"
GREEDY_REQUESTS = 1_000


@dataclass
class Honest:
    """One connection to each worker, one event after the other on each, as fast as they answer."""

    broker: AttackedBroker
    headers: tuple[str, ...] = ()
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
                    wire.send(produce("honest", b"x" * 100, f"slice={4 * number}", self.headers))
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
    parser.add_argument("floods", nargs="*")
    parser.add_argument("--access", action="store_true")
    parser.add_argument("--engine", default="io_uring")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--core", type=int)
    given = parser.parse_args()
    floods = given.floods or (OF_USERS if given.access else FLOODS)
    headers = (f"Authorization: Bearer {HONEST}",) if given.access else ()
    cores, workers = os.sched_getaffinity(0), 2
    with tempfile.TemporaryDirectory() as directory:
        if given.core is not None:
            os.sched_setaffinity(0, {given.core})
            cores, workers = cores - {given.core}, 1
        data = Path(directory) / "data"
        broker = started(data, given.engine, access=given.access, workers=workers)
        os.sched_setaffinity(0, cores)
        try:
            Honest(broker, headers).run(1.0)
            print(f"quiet            {Honest(broker, headers).run(given.seconds / 2)}", flush=True)
            for each in floods:
                name, _, count = each.partition(":")
                cpu = sum(processor_seconds(pid) for pid in broker.pids)
                with flood(broker, name, given.seconds + 60, int(count or 1000)):
                    honest = Honest(broker, headers).run(given.seconds)
                cpu = sum(processor_seconds(pid) for pid in broker.pids) - cpu
                print(f"{each:16} {honest}, workers {cpu:.1f} s", flush=True)
                time.sleep(2.0)
            print(f"quiet again      {Honest(broker, headers).run(given.seconds / 2)}", flush=True)
        finally:
            broker.end()


def started(data_dir: Path, engine: str, *, access: bool, workers: int) -> AttackedBroker:
    """With access an honest user, and a greedy one with a quota."""
    settings = {"access_required": True} if access else {}
    if access:
        data_dir.mkdir(mode=0o700)
        add(data_dir / NAME, "root", hash_of(ROOT).hex())
    broker = AttackedBroker(data_dir, engine=engine, workers=workers, **settings)
    broker.begin()
    if access:
        with barco.Admin(f"127.0.0.1:{broker.port('discovery')}", token=ROOT) as root:
            grants = ["produce:*"]
            root.set_user("honest", token=HONEST, grants=grants)
            bound = {"requests_per_second": GREEDY_REQUESTS}
            root.set_user("greedy", token=GREEDY, grants=grants, **bound)
    return broker


if __name__ == "__main__":
    main()
