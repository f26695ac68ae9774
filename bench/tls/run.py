"""What TLS costs a worker: CPU of the server for the same work with and without it, in turns.

`python bench/tls/run.py` in a network namespace of its own; needs Go and openssl. By CPU time, so
that a busy machine does not count as TLS; still, what else runs spoils caches.
"""

import argparse
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "integration")]

from reference.certificates import Files, authority, issued
from running import RunningBroker

TICKS = os.sysconf("SC_CLK_TCK")
CHUNKS = "application/vnd.barco.chunks"
BARS = {"single 1 KiB": 0.75, "NDJSON 256 KiB": 0.7, "stored chunks": 0.5}


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used, in user and in kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory(pid: int) -> int:
    """Bytes that are the process's own: resident, and neither shared nor of a file."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * int(text.split("Private_Dirty:")[1].split()[0])


class Load:
    """A broker, and how it is loaded."""

    def __init__(self, program: Path, path: Path, engine: str, ca: Files | None) -> None:
        self.program, self.ca = program, ca
        sealed = {}
        if ca is not None:
            own = issued(path, ca, "own")
            sealed = {"tls_certificate": str(own.certificate), "tls_key": str(own.key)}
            sealed["tls_handshakes_per_second"] = "100000"
        self.broker = RunningBroker(path / "data", workers=1, engine=engine, **sealed)
        self.broker.start()
        self.pid = self.broker.ready["workers"][0]

    def command(self, *more: object) -> list[str]:
        where = ["-address", f"127.0.0.1:{self.broker.port('produce')}"]
        where += ["-ca", str(self.ca.certificate)] if self.ca is not None else []
        return [str(self.program), *where, *map(str, more)]

    def run(self, *more: object) -> tuple[float, int, int]:
        """(CPU seconds of the worker, requests, bytes of their answers)."""
        before = cpu_s(self.pid)
        done = subprocess.run(self.command(*more), capture_output=True, text=True, check=True)
        used = cpu_s(self.pid) - before
        requests, received, failed = map(int, done.stdout.split())
        assert failed == 0, "each is answered with 200"
        return used, requests, received


def slice_of(load: Load) -> str:
    """The way to read a slice that has events, from the start."""
    if load.ca is None:
        link = http.client.HTTPConnection("127.0.0.1", load.broker.port())
    else:
        import ssl

        context = ssl.create_default_context(cafile=load.ca.certificate)
        link = http.client.HTTPSConnection("127.0.0.1", load.broker.port(), context=context)
    link.request("GET", "/v1/topic/bulk/slices")
    slices = json.loads(link.getresponse().read())["slices"]
    found = max(slices, key=lambda each: int(each["endOffset"]))
    return f"/v1/topic/bulk/slices/{found['token']}/{found['index']}/events?maxBytes=1048576"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--engine", default="io_uring")
    parser.add_argument("--idle", type=int, default=10_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        program = path / "load"
        source = str(ROOT / "bench" / "tls" / "load.go")
        subprocess.run(["go", "build", "-o", program, source], check=True)
        for each in ("plain", "tls"):
            (path / each).mkdir()
        both = [
            Load(program, path / "plain", args.engine, None),
            Load(program, path / "tls", args.engine, authority(path)),
        ]
        try:
            measure(both, args)
        finally:
            for load in both:
                load.broker.end()
    return 0


def measure(both: list[Load], args: argparse.Namespace) -> None:
    """A line for each question."""
    bulk = ("-target", "/v1/topic/bulk/messages", "-type", "application/x-ndjson")
    seconds = ("-seconds", args.seconds)
    kinds = {
        "single 1 KiB": (*seconds,),
        "NDJSON 256 KiB": (*seconds, *bulk, "-bytes", 256 << 10, "-connections", 8),
    }
    for load in both:
        load.run("-seconds", 0.5, *bulk, "-bytes", 256 << 10, "-connections", 4)
    for what in (*kinds, "stored chunks"):
        ratios, spent = [], []
        for _ in range(args.rounds):
            costs = []
            for load in both:
                how = kinds.get(what)
                if how is None:
                    read = ("-target", slice_of(load), "-accept", CHUNKS, "-bytes", 0)
                    how = (*seconds, *read, "-connections", 4)
                used, requests, received = load.run(*how)
                costs.append(used / (received if what not in kinds else requests))
            ratios.append(costs[0] / costs[1])
            spent.append(costs)
        low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
        plain, tls = (1e6 * statistics.median(each) for each in zip(*spent, strict=True))
        of = (
            f"{plain:.1f} and {tls:.1f} us"
            if what in kinds
            else f"{1e3 * plain:.3f} and {1e3 * tls:.3f} ns/B"
        )
        print(
            f"{what:16} {middle:.2f} ({low:.2f}-{high:.2f}) x plain, bar {BARS[what]}; {of}",
            flush=True,
        )
    sealed = both[1]
    for what, more in (("full", ()), ("resumed", ("-resumed",))):
        how = ("-handshakes", "-target", "/ready", "-bytes", 0, "-connections", 8)
        used, requests, _ = sealed.run(*seconds, *how, *more)
        print(f"{what:8} handshakes, with a request each: {requests / used:.0f} a second and core")
    for load in both:
        before = memory(load.pid)
        idle = subprocess.Popen(
            load.command("-idle", "-connections", args.idle),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert idle.stdout is not None and idle.stdin is not None
        assert idle.stdout.readline() == "ready\n"
        each = (memory(load.pid) - before) / args.idle / 1024
        print(
            f"{'TLS' if load.ca else 'plain'}: {each:.1f} KiB for each of {args.idle} idle",
            flush=True,
        )
        idle.stdin.close()
        idle.wait()


if __name__ == "__main__":
    sys.exit(main())
