"""What a worker is told when it is started: one frozen value, one JSON argument."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from barco.errors import ConfigError

ENGINES = ("auto", "io_uring", "epoll")
"""The ways to wait for the kernel; `auto` takes io_uring where it is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """Everything a worker knows at its start. File descriptors are inherited, by number."""

    version: str
    """Of barco: a worker of another version than its supervisor refuses to run."""
    worker: int
    workers: int
    core: int | None
    """The CPU to pin to; None leaves it to the scheduler."""
    supervisor_pid: int
    data_dir: str
    cluster_uuid: str
    """32 hexadecimal digits, as in broker.json."""
    disk_uuid: str
    ordinal: int
    slices_per_range: int

    channel_fd: int
    listeners: dict[str, list[int]]
    """Listening, non-blocking sockets by name: discovery, produce, consume, metrics, shard."""
    bind: str
    """The address of all of them."""
    ports: dict[str, int]
    """The bound public ports by name, for answers."""
    shard_endpoints: list[str]
    """"host:port" of every worker's shard endpoint, by worker."""

    engine: str = "auto"
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

    def __post_init__(self) -> None:
        assert 0 <= self.worker < self.workers
        assert len(self.shard_endpoints) == self.workers
        assert len(self.cluster_uuid) == 32 and len(self.disk_uuid) == 32
        assert self.engine in ENGINES

    def to_json(self) -> str:
        """One line of JSON: the worker's only argument."""
        return json.dumps(asdict(self), separators=(",", ":"))

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
            return cls(**given)
        except TypeError as error:
            raise ConfigError(f"worker options are incomplete: {error}") from None
