"""Three brokers on addresses of their own, which are hurt one by one or all at once."""

import contextlib
import json
import os
import random
import signal
import sys
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

from barco.model.placement import Placement
from barco.model.ranges import directory_of
from barco.model.token import TOKEN_MIN, token_of
from barco.supervisor.tied import start_tied
from faultlab.broker import Broker
from faultlab.mount import Mount
from faultlab.wire import Address, call

SIZE = 3
SLICES = 4
RANGE = directory_of(TOKEN_MIN)
"""The directory of the range that broker 0 leads, the same at all three."""
PUBLIC_PORT, SHARD_PORT = 9250, 9300
CONFIG = """\
[broker]
ordinal = {ordinal}
workers = 1
[cluster]
brokers = {brokers}
uuid = "{uuid}"
slices_per_range = {slices}
[limits]
memory_bytes = 33554432
"""


class Node(Broker):
    """One of the three."""

    placement = Placement(SIZE, SLICES)

    def __init__(self, root: Path, ordinal: int, hosts: Sequence[str], data_dir: Path) -> None:
        root.mkdir(parents=True, exist_ok=True)
        super().__init__(data_dir, workers=1, logs=root)
        self.ordinal, self.host = ordinal, hosts[ordinal]
        self.config = root / "barco.toml"
        uuid = f"{random.Random(hosts[0]).getrandbits(128):032x}"
        self.config.write_text(
            CONFIG.format(
                ordinal=ordinal, brokers=json.dumps(list(hosts)), uuid=uuid, slices=SLICES
            )
        )
        self.env = {"BARCO_BROKER_DATA_DIR": str(data_dir)}

    @property
    def port(self) -> Address:
        return self.host, PUBLIC_PORT

    @property
    def ports(self) -> list[Address]:
        return [(self.host, PUBLIC_PORT), (self.host, PUBLIC_PORT + 1), (self.host, SHARD_PORT)]

    def command(self) -> list[str]:
        return ["serve", "--json", "--config", str(self.config)]

    @property
    def runs(self) -> bool:
        """Whether its processes are there (they may stand still)."""
        return self._process is not None and self._process.poll() is None

    def signal(self, number: int) -> None:
        """To the supervisor and all workers."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def lacking(node: Node) -> list[str]:
    """Why a broker is not in sync, in its own words; nothing: it is."""
    try:
        answer = call(node.port, "GET", "/ready?insync", timeout=5)
    except (OSError, EOFError) as error:
        return [f"{node.host}: {error}"]
    if answer.status == 200:
        return []
    return [f"{node.host}: {json.loads(answer.body)['reason']}"]


class Ring:
    """All three, as a load and a checker see one broker."""

    placement = Node.placement

    def __init__(self, root: Path, *, disks: Sequence[Mount] = ()) -> None:
        """`root`: of a ring that was there before, or empty."""
        net = f"127.{random.randrange(60, 250)}.{random.randrange(250)}"
        hosts = [f"{net}.{number + 1}" for number in range(SIZE)]
        if (before := root / "b0" / "barco.toml").exists():
            hosts = tomllib.loads(before.read_text())["cluster"]["brokers"]
        self.disks = list(disks)
        self.nodes = []
        for ordinal in range(SIZE):
            place = self.disks[ordinal].path if disks else root
            data_dir = place / f"data-{ordinal}"
            self.nodes.append(Node(root / f"b{ordinal}", ordinal, hosts, data_dir))

    @property
    def hosts(self) -> list[str]:
        """Addresses by ordinal."""
        return [node.host for node in self.nodes]

    @property
    def port(self) -> Address:
        """Of a broker that runs."""
        return next(node.port for node in self.nodes if node.runs)

    @property
    def ports(self) -> list[Address]:
        """Everywhere; brokers that are down refuse, and a client goes elsewhere."""
        return [address for node in self.nodes for address in node.ports]

    @property
    def log_paths(self) -> list[Path]:
        """Of every start of every broker."""
        return [path for node in self.nodes for path in node.log_paths]

    def start(self) -> float:
        """All at once; returns when all are ready."""
        began = time.monotonic()
        for node in self.nodes:
            node.begin()
        for node in self.nodes:
            node.await_ready()
        self.wait_ready()
        return time.monotonic() - began

    def restart(self) -> float:
        """After `kill`."""
        return self.start()

    def kill(self) -> None:
        """SIGKILL to everything, as nearly at one moment as one process can."""
        for node in self.nodes:
            if node.runs:
                node.signal(signal.SIGKILL)
        for node in self.nodes:
            if node.runs:
                node.kill()

    def wait_ready(self, limit_s: float = 60.0) -> None:
        """Until every broker takes events for every slice of the ring (check C11)."""
        until = time.monotonic() + limit_s
        for node in self.nodes:
            waiting = set(range(self.placement.size * self.placement.slices_per_range))
            while waiting:
                waiting = {place for place in waiting if not self._serves(node, place)}
                assert not waiting or time.monotonic() < until, (
                    f"broker {node.ordinal} does not serve {sorted(waiting)}"
                )
                time.sleep(0.05 if waiting else 0)

    def lacking(self) -> list[str]:
        """Why not every range is led by its owner with two followers that are up to date."""
        return [text for node in self.nodes for text in lacking(node)]

    def wait_whole(self, limit_s: float = 60.0) -> None:
        """Until nothing is lacking."""
        until = time.monotonic() + limit_s
        while missing := self.lacking():
            assert time.monotonic() < until, f"the ring does not become whole: {missing}"
            time.sleep(0.1)

    def _serves(self, node: Node, place: int) -> bool:
        target = f"/v1/topic/probe/messages?partitionKey={KEYS[place]}"
        try:
            answer = call(node.port, "POST", target, b"x", timeout=5)
            return answer.status == 200 and call(node.port, "GET", "/status").status == 200
        except (OSError, EOFError):
            return False

    def epochs(self) -> dict[str, int]:
        """The generation of each range that is open now, by the token."""
        answer = call(self.port, "GET", "/v1/topology")
        assert answer.status == 200, answer
        shards = json.loads(answer.body)["shards"]
        return {shard["token"]: int(shard["version"]) for shard in shards}

    @contextlib.contextmanager
    def busy(self, cores: int) -> Iterator[None]:
        """Somebody else uses all of so many cores."""
        idlers = [start_tied([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
        try:
            yield
        finally:
            for idler in idlers:
                idler.kill()
                idler.wait()

    def close(self) -> None:
        """Whatever still runs ends."""
        for node in self.nodes:
            node.close()


def _keys() -> list[str]:
    found: dict[int, str] = {}
    ring, number = Ring.placement, 0
    while len(found) < ring.size * ring.slices_per_range:
        key = f"k{number}"
        at, index = ring.locate(token_of(key.encode()))
        found.setdefault(at * ring.slices_per_range + index, key)
        number += 1
    return [found[place] for place in sorted(found)]


KEYS = _keys()
"""A partition key for each slice of the ring."""
