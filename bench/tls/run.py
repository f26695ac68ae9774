"""What TLS costs a worker: CPU of the server for the same work with and without it, in turns.

`python bench/tls/run.py` in a network namespace of its own; needs Go and openssl. By CPU time, so
that a busy machine does not count as TLS; still, what else runs spoils caches.
"""

import argparse
import contextlib
import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
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


NGINX = """\
worker_processes 1;
daemon off;
error_log {path}/error crit;
pid {path}/pid;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    client_body_temp_path {path}/body;
    proxy_temp_path {path}/proxy;
    fastcgi_temp_path {path}/fastcgi;
    uwsgi_temp_path {path}/uwsgi;
    scgi_temp_path {path}/scgi;
    ssl_session_cache off;
    ssl_session_tickets on;
    ssl_protocols TLSv1.2 TLSv1.3;
    ssl_ecdh_curve X25519:prime256v1:secp384r1;
    ssl_certificate {own.certificate};
    ssl_certificate_key {own.key};
    server {{
        listen 127.0.0.1:{port} ssl backlog=4096;
        location / {{ return 403; }}
    }}
}}
"""


@contextlib.contextmanager
def nginx(path: Path, ca: Files) -> Iterator[tuple[int, int]]:
    """One that answers 403 to everything: its worker's process, and its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path.mkdir()
    (path / "conf").write_text(NGINX.format(path=path, port=port, own=issued(path, ca, "own")))
    process = subprocess.Popen(["nginx", "-p", path, "-c", path / "conf"])
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        while not (found := children.read_text().split()):
            time.sleep(0.05)
        yield int(found[0]), port
    finally:
        process.terminate()
        process.wait()


def handshakes(load: Load, args: argparse.Namespace) -> None:
    """Of this broker and of nginx, in turns. What is asked then is refused, by both in C."""
    if shutil.which("nginx") is None or load.ca is None:
        print("handshakes: no nginx here to be compared with")
        return
    refused = ("-target", "/", "-bytes", 0, "-host", "elsewhere.example", "-status", 403)
    kinds = {"alone": ("-bare",), "with a request": refused}
    kinds["resumed, with a request"] = (*refused, "-resumed")
    with tempfile.TemporaryDirectory() as name, nginx(Path(name) / "nginx", load.ca) as peer:
        servers = ((load.pid, load.broker.port("produce")), peer)
        for what, more in kinds.items():
            costs: list[list[float]] = [[], []]
            for turn in range(args.rounds):
                for each in (0, 1) if turn % 2 else (1, 0):
                    pid, port = servers[each]
                    command = [str(load.program), "-address", f"127.0.0.1:{port}", "-ca"]
                    command += [str(load.ca.certificate), "-handshakes", "-connections", "8"]
                    command += ["-seconds", str(args.seconds), *map(str, more)]
                    before = cpu_s(pid)
                    done = subprocess.run(command, capture_output=True, text=True, check=True)
                    requests, _, failed = map(int, done.stdout.split())
                    assert failed == 0, "each is answered in the same way"
                    costs[each].append((cpu_s(pid) - before) / requests)
            ratios = [theirs / ours for ours, theirs in zip(*costs, strict=True)]
            ours, theirs = (1 / statistics.median(each) for each in costs)
            print(
                f"handshakes {what}: {statistics.median(ratios):.2f} ({min(ratios):.2f}-"
                f"{max(ratios):.2f}) x nginx, bar 0.9; {ours:.0f} and {theirs:.0f} a second and"
                " core",
                flush=True,
            )


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
    handshakes(both[1], args)
    for load in both if args.idle else ():
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
