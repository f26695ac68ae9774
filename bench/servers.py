"""The servers that are measured: barco's real broker, and its peers, each pinned to one core."""

import contextlib
import http.client
import json
import os
import select
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

from barco.supervisor.tied import start_tied
from bench import machine
from bench.load import build
from bench.machine import BUILD, CLIENT_CORE, CORES, SERVER_CORE

READY_SECONDS = 60.0
TOPIC = "bench-{topic}"
JSON = "Content-Type: application/json"
NDJSON = "Content-Type: application/x-ndjson"
BATCH = "Content-Type: application/vnd.barco.batch"
MINIMAL = "Prefer: return=minimal"


class BrokerFailed(Exception):
    """The broker did not do what it was asked, with its own words."""


class Server(Protocol):
    """What the cases need to know of a server."""

    @property
    def port(self) -> int:
        """Where the load goes."""

    @property
    def pids(self) -> list[int]:
        """The processes whose CPU time counts."""


def scratch_root() -> Path:
    """Where logs are written: $BARCO_BENCH_DIR, or build/bench; it must be on a real disk."""
    return Path(os.environ.get("BARCO_BENCH_DIR") or BUILD)


@contextlib.contextmanager
def scratch_dir(prefix: str, root: Path | None = None) -> Iterator[Path]:
    """A fresh directory on the disk that is measured, or in `root`; removed afterwards."""
    root = root or scratch_root()
    root.mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix=f"{prefix}-", dir=root))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def broker_command() -> list[str]:
    """How to call barco: $BARCO_BENCH_BARCO, or the one of this interpreter."""
    if given := os.environ.get("BARCO_BENCH_BARCO"):
        return shlex.split(given)
    script = Path(sys.executable).with_name("barco")
    return [str(script)] if script.exists() else [sys.executable, "-P", "-m", "barco"]


class Broker:
    """`barco serve --dev --workers 1` on a data directory, its worker alone on the first core."""

    def __init__(self, data_dir: Path, workers: int = 1, **settings: object) -> None:
        """Settings are configuration keys with underscores: limits_memory_bytes=1 << 28."""
        self.data_dir = data_dir
        self.log_path = data_dir.with_name(data_dir.name + ".log")
        self._workers = workers
        self._environment = {f"BARCO_{key.upper()}": str(v) for key, v in settings.items()}
        self._process: subprocess.Popen[bytes] | None = None
        self.ready: dict[str, Any] = {}
        self.start_seconds = 0.0

    @property
    def port(self) -> int:
        """The produce listener; every listener serves the whole API."""
        return int(self.ready["ports"]["produce"])

    @property
    def pids(self) -> list[int]:
        """The workers; what the supervisor uses is next to nothing and counted by `supervisor`."""
        return [int(pid) for pid in self.ready["workers"]]

    @property
    def supervisor(self) -> int:
        """The supervisor's process id."""
        return int(self.ready["pid"])

    def start(self, seconds: float = READY_SECONDS) -> "Broker":
        """Start it and wait until it says that it is ready; start_seconds is how long it took."""
        command = [*broker_command(), "serve", "--dev", "--data-dir", str(self.data_dir)]
        command += ["--workers", str(self._workers), "--ports-from", "0", "--json"]
        begin = time.monotonic()
        with self.log_path.open("ab") as log:
            self._process = start_tied(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=os.environ | self._environment,
                start_new_session=True,
            )
        self.ready = self._await_ready(self._process, begin + seconds)
        self.start_seconds = time.monotonic() - begin
        machine.pin(self.supervisor, CLIENT_CORE)
        for index, pid in enumerate(self.pids):
            machine.pin(pid, CORES[index % len(CORES)])
        return self

    def _await_ready(self, process: subprocess.Popen[bytes], deadline: float) -> dict[str, Any]:
        assert process.stdout is not None
        text = b""
        while b"\n" not in text:
            left = deadline - time.monotonic()
            readable = select.select([process.stdout], [], [], max(left, 0))[0]
            part = os.read(process.stdout.fileno(), 65536) if readable else b""
            if not part:
                machine.kill_group(process)
                state = "stopped" if readable else "is not ready in time"
                raise BrokerFailed(f"{process.args!r} {state}:\n{self.log_tail()}")
            text += part
        ready: dict[str, Any] = json.loads(text.splitlines()[0])
        return ready

    def stop(self) -> None:
        """Drain and stop."""
        if self._process:
            machine.stop(self._process)

    def kill(self) -> None:
        """SIGKILL, supervisor and workers, as a crash would have it."""
        if self._process:
            machine.kill_group(self._process)
            if self._process.stdout:
                self._process.stdout.close()

    def log_tail(self) -> str:
        """The last words of the broker."""
        return self.log_path.read_text(errors="replace")[-2000:]

    def request(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """One request; status, headers by lower-case name, body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=90)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            data = answer.read()
            return answer.status, {k.lower(): v for k, v in answer.getheaders()}, data
        finally:
            connection.close()

    def json(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Any:
        """One request that must succeed with JSON."""
        status, _, data = self.request(method, path, body, **headers)
        if status != 200:
            raise BrokerFailed(f"{method} {path}: {status} {data[:300]!r}")
        return json.loads(data)

    def log_bytes(self) -> int:
        """Bytes of the log on disk: blocks, so that what is merely reserved does not count."""
        return sum(path.stat().st_blocks * 512 for path in machine.files(self.data_dir))


@contextlib.contextmanager
def broker(workers: int = 1, **settings: object) -> Iterator[Broker]:
    """A broker on a fresh data directory."""
    with scratch_dir("barco") as directory:
        server = Broker(directory / "data", workers, **settings)
        try:
            yield server.start()
        finally:
            server.stop()


NGINX_CONF = """\
worker_processes 1;
worker_cpu_affinity {mask};
daemon off;
error_log {directory}/error.log crit;
pid {directory}/nginx.pid;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 3600;
    client_header_buffer_size 8k;   # head and 1 KiB body come in one read, as they do in barco
    client_body_buffer_size 2m;
    client_max_body_size 32m;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        location / {{ return 204; }}
    }}
}}
"""


class Peer:
    """A server that is not ours."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, pids: list[int]) -> None:
        self.process = process
        self.port = port
        self.pids = pids


@contextlib.contextmanager
def nginx() -> Iterator[Peer]:
    """nginx that answers 204 to everything and stores nothing: the ceiling of HTTP servers."""
    program = machine.tool("nginx")
    with scratch_dir("nginx") as directory:
        port = machine.free_port()
        mask = format(1 << SERVER_CORE, "b")
        config = directory / "nginx.conf"
        config.write_text(NGINX_CONF.format(directory=directory, port=port, mask=mask))
        process = start_tied(
            [program, "-p", str(directory), "-c", str(config)],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            machine.wait_until(lambda: machine.listens(port), 10, "nginx")
            machine.wait_until(lambda: bool(machine.children(process.pid)), 10, "nginx's worker")
            yield Peer(process, port, machine.children(process.pid))
        finally:
            machine.stop(process)


@contextlib.contextmanager
def redis() -> Iterator[Peer]:
    """redis-server that syncs its append-only file before it answers."""
    program = machine.tool("redis-server")
    with scratch_dir("redis") as directory:
        port = machine.free_port()
        options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
        options += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        options += ["--auto-aof-rewrite-percentage", "0", "--daemonize", "no"]
        process = start_tied([program, *options], stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            machine.wait_until(lambda: machine.listens(port), 10, "redis-server")
            machine.pin(process.pid, SERVER_CORE)
            yield Peer(process, port, [process.pid])
        finally:
            machine.stop(process)


NATS_CONF = """\
host: 127.0.0.1
port: {port}
max_payload: 8MB
jetstream {{ store_dir: "{directory}/store", sync_interval: always }}
"""

FLUENT_BIT_CONF = """\
[SERVICE]
    flush 1
    log_level error
[INPUT]
    name {source}
    listen 127.0.0.1
    port {port}
    buffer_max_size 32M
[OUTPUT]
    name null
    match *
"""


def nats() -> contextlib.AbstractContextManager[Peer]:
    """nats-server with JetStream on disk, which syncs before it answers. $BARCO_BENCH_NATS, or
    `nats-server` on the path."""
    return _configured("nats-server", "BARCO_BENCH_NATS", NATS_CONF)


def fluent_bit(source: str) -> contextlib.AbstractContextManager[Peer]:
    """Fluent Bit with one of its own sources, whose records go nowhere: nothing is stored.
    $BARCO_BENCH_FLUENT_BIT, or `fluent-bit` on the path."""
    return _configured("fluent-bit", "BARCO_BENCH_FLUENT_BIT", FLUENT_BIT_CONF, source=source)


@contextlib.contextmanager
def _configured(name: str, variable: str, text: str, **more: str) -> Iterator[Peer]:
    """A server with a file of configuration, in which its port and directory are."""
    program = os.environ.get(variable) or machine.tool(name)
    with scratch_dir(name) as directory:
        port = machine.free_port()
        config = directory / f"{name}.conf"
        config.write_text(text.format(port=port, directory=directory, **more))
        with (directory / f"{name}.log").open("wb") as log:
            process = start_tied(
                [program, "-c", str(config)], stdout=log, stderr=log, start_new_session=True
            )
        try:
            machine.wait_until(lambda: machine.listens(port), 10, name)
            machine.pin(process.pid, SERVER_CORE)
            yield Peer(process, port, [process.pid])
        finally:
            machine.stop(process)


@contextlib.contextmanager
def sink() -> Iterator[Peer]:
    """bench/sink: reads requests of one size and answers 204; the generator's own ceiling."""
    port = machine.free_port()
    program = build(machine.ROOT / "bench" / "sink")
    process = start_tied([program, str(port), str(SERVER_CORE)], start_new_session=True)
    try:
        machine.wait_until(lambda: machine.listens(port), 10, "sink")
        yield Peer(process, port, [process.pid])
    finally:
        machine.stop(process)
