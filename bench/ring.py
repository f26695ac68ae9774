"""Three brokers on addresses of their own, all on this machine, and a load on all of them."""

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from barco import Admin
from barco.errors import BarcoError
from barco.supervisor.tied import start_tied
from bench import machine
from bench.cases import EVENT_BYTES, LINE_BYTES, LINE_JITTER, PATH
from bench.harness import SETTINGS
from bench.load import LoadFailed, load
from bench.servers import JSON, MINIMAL, NDJSON, BrokerFailed, broker_command, scratch_dir

SIZE = 3
PRODUCE_PORT = 9251
SLICES = 8
READY_SECONDS = 90.0
SETTLE_SECONDS = 1.0
POOL_MIB = 8
"""Of different events for each generator: more than a compressor looks back, and quickly made."""

CONFIG = """\
[broker]
ordinal = {ordinal}
data_dir = "{data}"
workers = 1
[cluster]
brokers = {brokers}
uuid = "{uuid}"
slices_per_range = {slices}
[limits]
memory_bytes = 134217728
"""


class Members(Protocol):
    """Three processes or groups of them that make one service."""

    hosts: Sequence[str]

    @property
    def alive(self) -> list[int]:
        """Ordinals of those that run."""

    def pids(self, ordinal: int) -> list[int]:
        """All processes of one of them."""


@dataclass(frozen=True, slots=True)
class Work:
    """What was acknowledged, and what it cost all members together."""

    events: int
    value_bytes: int
    seconds: float
    cpu: dict[int, float]
    """Seconds by process id."""

    @property
    def per_core(self) -> float:
        """Events a second of CPU."""
        return self.events / max(sum(self.cpu.values()), 1e-9)

    @property
    def per_second(self) -> float:
        """Events a second of wall time."""
        return self.events / max(self.seconds, 1e-9)

    def words(self) -> str:
        """Both in a few words."""
        cost = sum(self.cpu.values()) / max(self.events, 1) * 1e6
        return f"{cost:.1f} µs/event, {self.per_second:,.0f} events/s"


@dataclass(frozen=True, slots=True)
class Target:
    """Where one generator sends its requests."""

    host: str
    port: int
    paths: Sequence[str]


def anywhere(members: Members) -> list[Target]:
    """Every member that runs, whoever leads a key's range."""
    path = PATH + "?partitionKey={key}"
    return [Target(members.hosts[ordinal], PRODUCE_PORT, [path]) for ordinal in members.alive]


def work(
    members: Members, targets: Sequence[Target], connections: int = 64, **options: Any
) -> Work:
    """Load all targets with a generator each, all at once.

    Counted is everything from before the first request until after the last answer: a clock for
    each generator would leave out what one member does while another's is not looking.
    """
    pids = [pid for ordinal in members.alive for pid in members.pids(ordinal)]
    seconds = SETTINGS.seconds + SETTINGS.warmup

    def one(number: int, target: Target) -> Any:
        share = connections // len(targets) + (number < connections % len(targets))
        given: dict[str, Any] = {"path": target.paths, "connections": share, "seed": number + 1}
        given |= {"key_base": random.randrange(1 << 40), "pool_mib": POOL_MIB, "core": -1}
        return load(target.port, host=target.host, seconds=seconds, **(given | options))

    before = {pid: machine.cpu_seconds(pid) for pid in pids}
    with ThreadPoolExecutor(len(targets)) as threads:
        runs = list(threads.map(one, range(len(targets)), targets))
    cpu = {pid: machine.cpu_seconds(pid) - spent for pid, spent in before.items()}
    return Work(
        sum(run.events for run in runs),
        sum(int(run.figures["bytes"]) for run in runs),
        max(run.seconds for run in runs),
        cpu,
    )


SINGLE: dict[str, Any] = {"header": [JSON, MINIMAL], "event_bytes": EVENT_BYTES}
"""Events of 1 KiB, one a request."""


def bodies(size_bytes: int) -> dict[str, Any]:
    """Bodies of many events."""
    lines = {"event_bytes": LINE_BYTES, "event_jitter": LINE_JITTER}
    return {"header": [NDJSON, MINIMAL], "body_bytes": size_bytes, **lines}


def keyed(members: Members, connections: int = 64) -> Work:
    """Events of 1 KiB, one a request, each with a key of its own, to any member."""
    return work(members, anywhere(members), connections, **SINGLE)


def serve(hosts: Sequence[str]) -> bool:
    """Whether all of them take events for keys all over the ring."""
    options: dict[str, Any] = {"path": PATH + "?partitionKey={key}", "header": [JSON, MINIMAL]}
    options |= {"requests": 64, "connections": 4, "pool_mib": 1, "event_bytes": 128, "core": -1}
    try:
        for host in hosts:
            load(PRODUCE_PORT, host=host, **options)
    except LoadFailed:
        return False
    return True


class Ring:
    """Three brokers of barco, one worker of three processes each."""

    def __init__(self, root: Path, *, mutual: bool = False) -> None:
        """mutual: they speak TLS among themselves, with what `barco certs` makes."""
        net = f"127.{random.randrange(60, 250)}.{random.randrange(250)}"
        self.root = root
        self.hosts: Sequence[str] = [f"{net}.{number + 1}" for number in range(SIZE)]
        self.ready: list[dict[str, Any]] = [{} for _ in range(SIZE)]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * SIZE
        uuid = f"{random.getrandbits(128):032x}"
        for ordinal in range(SIZE):
            text = CONFIG.format(
                ordinal=ordinal,
                data=root / f"data-{ordinal}",
                brokers=json.dumps(list(self.hosts)),
                uuid=uuid,
                slices=SLICES,
            )
            self._path(ordinal, "toml").write_text(text)
        if mutual:
            self._certify()

    def _certify(self) -> None:
        made = self.root / "certs"
        command = [*broker_command(), "certs", "init", "--dir", str(made), "--config"]
        subprocess.run([*command, self._path(0, "toml")], check=True, capture_output=True)
        for ordinal in range(SIZE):
            own, file = made / f"broker-{ordinal}", self._path(ordinal, "toml")
            names = f'ca = "{made}/ca.crt"\ncertificate = "{own}.crt"\nkey = "{own}.key"\n'
            file.write_text(file.read_text().replace("[limits]", f"{names}[limits]"))

    def _path(self, ordinal: int, suffix: str) -> Path:
        return self.root / f"b{ordinal}.{suffix}"

    @property
    def alive(self) -> list[int]:
        """Ordinals of the brokers that run."""
        return [o for o, process in enumerate(self._processes) if process is not None]

    def pids(self, ordinal: int) -> list[int]:
        """The supervisor and its workers."""
        ready = self.ready[ordinal]
        return [int(ready["pid"]), *map(int, ready["workers"])]

    def leaders(self) -> list[int]:
        """The process of each broker that leads its own range, when all are well."""
        return [int(self.ready[ordinal]["workers"][0]) for ordinal in self.alive]

    def followers(self) -> list[int]:
        """The processes that follow, when all are well."""
        found = (pid for ordinal in self.alive for pid in self.ready[ordinal]["workers"][1:])
        return [int(pid) for pid in found]

    def start(self, ordinals: Sequence[int] = tuple(range(SIZE))) -> None:
        """Start brokers, at once, and wait until all that run take events for every range."""
        for ordinal in ordinals:
            command = [*broker_command(), "serve", "--json"]
            with self._path(ordinal, "log").open("ab") as log:
                self._processes[ordinal] = start_tied(
                    [*command, "--config", str(self._path(ordinal, "toml"))],
                    stdout=subprocess.PIPE,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
        deadline = time.monotonic() + READY_SECONDS
        for ordinal in ordinals:
            self.ready[ordinal] = self._await_ready(ordinal, deadline)
        self.await_leaders(deadline, own=len(self.alive) == SIZE)

    def _await_ready(self, ordinal: int, deadline: float) -> dict[str, Any]:
        process = self._processes[ordinal]
        assert process is not None and process.stdout is not None
        text = b""
        while b"\n" not in text:
            left = max(deadline - time.monotonic(), 0)
            if not select.select([process.stdout], [], [], left)[0]:
                raise BrokerFailed(f"broker {ordinal} is not ready in time:\n{self.said(ordinal)}")
            part = os.read(process.stdout.fileno(), 65536)
            if not part:
                raise BrokerFailed(f"broker {ordinal} stopped:\n{self.said(ordinal)}")
            text += part
        ready: dict[str, Any] = json.loads(text.splitlines()[0])
        return ready

    def said(self, ordinal: int) -> str:
        """The last words of a broker."""
        return self._path(ordinal, "log").read_text(errors="replace")[-1000:]

    def shards(self) -> list[dict[str, Any]]:
        """The ranges of the ring, as a broker that runs sees them: leader, version and so on."""
        with Admin([f"{self.hosts[o]}:9250" for o in self.alive], timeout_s=5.0) as admin:
            return list(admin.topology()["shards"])

    def await_leaders(self, deadline: float, own: bool) -> None:
        """Until every range has a leader that takes events: its `own` broker, or any that runs."""
        while True:
            with contextlib.suppress(BarcoError, OSError):
                leaders = [shard["ordinal"] for shard in self.shards()]
                wanted = range(SIZE) if own else self.alive
                as_wished = leaders == list(wanted) if own else set(leaders) <= set(wanted)
                if as_wished and serve([self.hosts[ordinal] for ordinal in self.alive]):
                    return
            if time.monotonic() > deadline:
                raise BrokerFailed("the ring does not serve all ranges in time")
            time.sleep(0.1)

    def at_leaders(self) -> list[Target]:
        """The processes that lead, each asked for all slices of its own range: no hop, and those
        that follow do nothing else."""
        found = []
        for shard in self.shards():
            host, _, port = shard["endpoint"].rpartition(":")
            path = f"{PATH}?token={shard['token']}&slice="
            found.append(Target(host, int(port), [f"{path}{n}" for n in range(SLICES)]))
        return found

    def kill(self, ordinal: int) -> None:
        """SIGKILL to all of one broker; returns when the others have all ranges."""
        process = self._processes[ordinal]
        assert process is not None
        self._processes[ordinal] = None
        machine.kill_group(process)
        assert process.stdout is not None
        process.stdout.close()
        self.await_leaders(time.monotonic() + READY_SECONDS, own=False)
        time.sleep(SETTLE_SECONDS)

    def stop(self) -> None:
        """Ends what runs."""
        for process in self._processes:
            if process is not None:
                machine.kill_group(process)
                assert process.stdout is not None
                process.stdout.close()
        self._processes = [None] * SIZE


@contextlib.contextmanager
def ring(*, mutual: bool = False) -> Iterator[Ring]:
    """A ring on fresh data directories, on the disk that is measured."""
    with scratch_dir("ring-tls" if mutual else "ring") as directory:
        brokers = Ring(directory, mutual=mutual)
        try:
            brokers.start()
            keyed(brokers)  # Topics, connections and memory are there.
            yield brokers
        finally:
            brokers.stop()


# --- PolarStreams -------------------------------------------------------------------------------

MEMORY_DIR = Path("/dev/shm")


class Polars:
    """Three brokers of PolarStreams on 127.0.0.1 to .3, which is how they find each other."""

    hosts: Sequence[str] = tuple(f"127.0.0.{number + 1}" for number in range(SIZE))

    def __init__(self, program: str, root: Path) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        for ordinal in range(SIZE):
            home = root / f"polar-{ordinal}"
            home.mkdir()
            own = {
                "POLAR_HOME": str(home),
                "POLAR_ORDINAL": str(ordinal),
                "POLAR_BROKER_NAMES": ",".join(self.hosts),
                "POLAR_LISTEN_ON_ALL": "false",
                "POLAR_SHUTDOWN_DELAY_SECS": "0",
            }
            with (root / f"polar-{ordinal}.log").open("ab") as log:
                self._processes.append(
                    start_tied(
                        [program],
                        env=os.environ | own,
                        stdout=log,
                        stderr=log,
                        stdin=subprocess.DEVNULL,
                        start_new_session=True,
                    )
                )

    @property
    def alive(self) -> list[int]:
        """All."""
        return list(range(SIZE))

    def pids(self, ordinal: int) -> list[int]:
        """One process each."""
        return [self._processes[ordinal].pid]

    def stop(self) -> None:
        """Ends them."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def polar_program() -> str:
    """$BARCO_BENCH_POLAR, or `polar` on the path."""
    try:
        return os.environ.get("BARCO_BENCH_POLAR") or machine.tool("polar")
    except machine.Missing:
        raise machine.Missing(
            "PolarStreams is not installed (github.com/polarstreams/polar, v0.7.0):"
            " put `polar` on the PATH or its path into BARCO_BENCH_POLAR"
        ) from None


@contextlib.contextmanager
def polars() -> Iterator[Polars]:
    """PolarStreams with its data in memory: a file system that costs it as little as can be."""
    program = polar_program()
    with scratch_dir("polar", MEMORY_DIR) as directory:
        peers = Polars(program, directory)
        try:
            machine.wait_until(lambda: serve(peers.hosts), READY_SECONDS, "three polars")
            keyed(peers)
            yield peers
        finally:
            peers.stop()


def interleave_work(cases: dict[str, Callable[[], Work]], rounds: int) -> dict[str, list[Work]]:
    """Each case once a round, in turning order."""
    names = list(cases)
    runs: dict[str, list[Work]] = {name: [] for name in names}
    for number in range(rounds):
        at = number % len(names)
        for name in names[at:] + names[:at]:
            runs[name].append(cases[name]())
    return runs
