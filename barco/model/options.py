"""What a worker is told when it is started: one frozen value, JSON on its standard input."""

import hashlib
import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from barco.errors import ConfigError
from barco.limits import BROKERS_MAX, PROCESSES_MAX
from barco.model.placement import Placement
from barco.model.ranges import (
    HeldRange,
    ProcessTable,
    first_table,
    from_plain,
    peer_of,
    to_plain,
)
from barco.model.replicas import Process, Replicas
from barco.types import Ordinal

ENGINES = ("auto", "io_uring", "epoll")
"""The ways to wait for the kernel; `auto` takes io_uring where it is allowed."""
TLS_KERNEL = ("auto", "off")
"""Who seals large answers: with `auto` the kernel where it can."""

LINE_LEVELS = ("debug", "info", "warning", "error")
"""From which level on there are lines."""

LINE_FORMATS = ("auto", "json", "text")
"""auto: text for a terminal, else JSON."""

COMPRESSIONS = ("lz4", "none")
"""How a broker stores what it packs itself; batches that clients pack stay as they are."""

TIMESTAMPS = ("plausible", "any")
"""Which times of producers a topic takes: of the last 10 years or the next day, or all."""

CHECKS = OFF, WARN, REJECT, DEAD = ("off", "warn", "reject", "dead")
"""What becomes of values that are of no schema of their topic's (docs/schemas.md)."""


DATA_FORMAT = 1
"""Of the logs in data directories. What one broker writes the others of its cluster read."""

LOG_FORMATS = (DATA_FORMAT, 3)
"""Of the logs: the oldest and the newest that can be read. From 2 on events may have headers, or no
value, from 3 on times of 1970 and before; each is written when every broker of the ring has noted
that it reads it."""

DIRECTORY_FORMATS = (1, 2)
"""Of data directories: those that can be read; the last one is written. In the first one ranges had
the numbers of processes: a version of barco that knows only that would find none of the names, and
begin anew beside all there is."""


def cluster_mark(uuid: str) -> str:
    """Tells clusters apart in answers to anybody; the uuid itself is for brokers."""
    return hashlib.sha256(b"barco mark " + uuid.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Everything a worker knows at its start. File descriptors are inherited, by number."""

    version: str
    """Of barco: a worker of another version than its supervisor refuses to run."""
    worker: int
    """The number of this process in its broker."""
    workers: int
    """Into how many ranges each broker's part of the ring was cut at format time."""
    workers_asked: int = 0
    """So many workers its configuration asks for since it was changed; 0: it asks for nothing."""
    processes: ProcessTable | None = None
    """All processes of this broker; None: those that it has when it is formatted."""
    core: int | None
    """The CPU to pin to; None leaves it to the scheduler."""
    supervisor_pid: int
    data_dir: str
    cluster_uuid: str
    """32 hexadecimal digits, as in broker.json."""
    link_key: str = field(default="", repr=False)
    """Hexadecimal: what brokers prove to one another that they know (`barco.protocol.door`)."""
    disk_uuid: str
    journals_named: bool = False
    """Every journal of this disk has said whose it is: one that does not is from elsewhere."""
    restored: bool = False
    """The data directory was restored from a backup, and this is the first start since."""
    ordinal: int
    slices_per_range: int
    replaces: str = ""
    """disk_uuid of the lost disk that this one stands in for: it asks for that one's place."""

    secret: bool = False
    """Whether that key comes from a secret; shown in /status."""

    ring_size: int = 1
    """Brokers at format time: into so many parts the ring was cut."""
    brokers: list[str] = field(default_factory=list)
    """Addresses of all brokers, by ordinal; empty for a ring of one."""
    replication_port: int = 0
    """The process of any broker with number j listens for other brokers' workers at this + j."""
    shard_port: int = 0
    """In a cluster: the shard endpoint of the process with number j is at this port + j."""

    channel_fd: int
    listeners: dict[str, list[int]]
    """Listening, non-blocking sockets by name: shard; in a cluster replication; at seat 0
    discovery, produce, consume and metrics as well."""
    bind: str
    """The address from which other brokers are called."""
    advertise: str = ""
    """The address or name of this broker that clients are told; empty: `bind`."""
    clients: dict[str, Any] = field(default_factory=dict)
    """Section [clients] of the configuration, whole: who serves them reads what it needs."""
    access: dict[str, Any] = field(default_factory=dict)
    """"required": whether a request has to show who asks; "first": [[name, SHA-256 of a token]] of
    who is known before anybody was added."""
    tls: dict[str, Any] = field(default_factory=dict, repr=False)
    """"clients": texts in PEM (certificate, key, client_ca), ticket_keys (hexadecimal),
    handshakes_per_second, kernel (whether it may seal), until (seconds since 1970); "brokers": what
    `barco.mutual.Mutual` takes.
    Who is not there speaks without TLS."""
    trace: dict[str, Any] = field(default_factory=dict)
    """Section [trace] of the configuration, whole; without an endpoint nothing is traced."""
    ports: dict[str, int]
    """The bound public ports by name, for answers."""
    shard_endpoints: dict[int, str]
    """"host:port" of the shard endpoint of every process of this broker, by its number."""

    engine: str = "auto"
    nice: int = 0
    """The priority that the supervisor has, and its workers with it; shown in /status."""
    dev: bool = True
    insecure_open: bool = False
    """Listening beyond loopback without authentication; shown in /status."""

    memory_bytes: int
    event_bytes_max: int
    request_bytes_max: int
    connections_max: int
    auto_create: bool
    retention_hours: int
    retention_bytes: int
    segment_bytes: int
    compression: str = "lz4"
    """Of topics that have no setting of their own."""
    log_level: str = "info"
    """From which level on it writes lines, until it hears of another."""
    log_format: int = DATA_FORMAT
    """The newest format of logs that may be written: every broker reads it."""
    retention_seconds: float = 60.0
    """Between two looks at what retention may delete."""
    drain_bytes_per_second: int = 64 * 2**20
    """Of history that is copied here for brokers that leave."""

    def __post_init__(self) -> None:
        assert self.worker in self.table.numbers
        assert sorted(self.shard_endpoints) == list(self.table.numbers)
        assert bool(self.brokers) == (self.ring_size > 1)
        assert len(self.cluster_uuid) == 32 and len(self.disk_uuid) == 32
        assert self.engine in ENGINES
        assert self.compression in COMPRESSIONS

    @property
    def key(self) -> bytes:
        """Of the links to other brokers."""
        return bytes.fromhex(self.link_key)

    @property
    def placement(self) -> Placement:
        """The ring."""
        return Placement(self.ring_size, self.slices_per_range)

    @property
    def replicas(self) -> Replicas:
        """Which process held which shard of the ring when the cluster was formatted."""
        return Replicas(self.placement, self.workers)

    @property
    def table(self) -> ProcessTable:
        """All processes of this broker at the start of this one."""
        return self.processes or first_table(self.replicas, self.process[0])

    @property
    def held(self) -> HeldRange:
        """The range that this process holds."""
        return self.table.at(self.worker)

    @property
    def process(self) -> Process:
        """This process. The only broker of a ring of one counts as broker 0."""
        return (Ordinal(self.ordinal if self.ring_size > 1 else 0), self.worker)

    @property
    def never_split(self) -> bool:
        """Whether this is a single broker that still has the ranges that it was formatted with:
        each is led by the process that has had it from the beginning."""
        return self.ring_size == 1 and all(held.genesis for held in self.table)

    @property
    def peer(self) -> int:
        """The number of this process in the cluster."""
        return peer_of(self.process)

    @property
    def peers(self) -> int:
        """All such numbers are below it, however the cluster grows: each broker leads a slice."""
        return PROCESSES_MAX * min(BROKERS_MAX, self.ring_size * self.slices_per_range)

    @property
    def seat(self) -> int:
        """Its place in the order of succession; 0: it is to lead."""
        return self.held.members.index(self.process[0])

    @property
    def range_index(self) -> int:
        """The ring index, at format time, of the token range in which the range begins."""
        return self.held.first // self.slices_per_range

    @property
    def slices(self) -> range:
        """The slices that this process holds, numbered within that token range."""
        first = self.held.first % self.slices_per_range
        return range(first, first + self.held.slices)

    def endpoint_at(self, host: str, number: int) -> str:
        """ "host:port" of the shard endpoint of another broker's process of that number."""
        host = f"[{host}]" if ":" in host else host
        return f"{host}:{self.shard_port + number}"

    @property
    def title(self) -> str:
        """What `ps` shows of the process: its command line holds nothing that is not public."""
        of = f" of broker {self.ordinal}" if self.ring_size > 1 else ""
        return f"worker {self.worker}/{len(self.table)}{of}"

    def to_json(self) -> str:
        """One line of JSON, which the worker reads from its standard input: it holds secrets."""
        table = None if self.processes is None else to_plain(self.processes)
        told = asdict(self) | {"processes": table}
        return json.dumps(told, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> "WorkerOptions":
        """The opposite of `to_json`; unknown and missing names are refused."""
        try:
            given: Any = json.loads(text)
        except ValueError as error:
            raise ConfigError(f"worker options are not JSON: {error}") from None
        if not isinstance(given, dict):
            raise ConfigError("worker options are not a JSON object")
        known = {field.name for field in fields(cls)}
        if unknown := sorted(given.keys() - known):
            raise ConfigError(f"unknown worker option: {', '.join(unknown)}")
        try:
            if given.get("processes") is not None:
                given["processes"] = from_plain(given["processes"])
            endpoints = given.get("shard_endpoints", {})
            given["shard_endpoints"] = {int(number): text for number, text in endpoints.items()}
            return cls(**given)
        except (TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"worker options are incomplete: {error}") from None
