"""The sections of the configuration and their keys, each with its default and what it is for."""

from dataclasses import dataclass, field
from typing import Any

from barco import limits

PORT_NAMES = (
    "discovery",
    "produce",
    "consume",
    "metrics",
    "gossip",
    "replication",
    "shard",
)
"""In the order of their numbers. 9254 stays free: PolarStreams' binary frames belong there."""

PER_PROCESS = ("replication", "shard")
"""The first of a row of ports, one for each process of a broker."""


def _key(default: Any, doc: str) -> Any:
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True)
class BrokerSection:
    """[broker]: this process and this machine."""

    ordinal: int = _key(
        -1, "this broker's number in the cluster; -1: taken from a host name that ends in -N, or 0"
    )
    bind: str = _key(
        "127.0.0.1", "address of the listeners, and source of outgoing inter-broker sockets"
    )
    advertise: str = _key(
        "", "address or host name that clients are told; empty: bind, or cluster.brokers' entry"
    )
    data_dir: str = _key(
        "", "where the log is; empty: $STATE_DIRECTORY, $XDG_STATE_HOME/barco or ./barco-data"
    )
    workers: int = _key(
        0,
        "ranges that this broker leads, each by a process; 0: as it is, one for each core at first",
    )
    engine: str = _key(
        "auto", "how a worker waits for the kernel: auto, io_uring or epoll (the fallback)"
    )
    nice: int = _key(
        0, "priority of the broker's processes, -20 (first) to 19, as nice(1) has it; 0: as started"
    )


@dataclass(frozen=True, slots=True)
class ClusterSection:
    """[cluster]: the same on every broker."""

    brokers: tuple[str, ...] = _key((), "addresses of all brokers, by ordinal; empty: this one")
    uuid: str = _key(
        "", "32 hexadecimal digits, the same on every broker; empty: derived from the addresses"
    )
    secret_file: str = _key(
        "",
        "file with the brokers' secret, mode 0600, or credential:NAME; needed unless all are here",
    )
    ca: str = _key(
        "", "file with the CA of brokers' certificates, in PEM; with it brokers speak TLS"
    )
    certificate: str = _key(
        "", "file with this broker's certificate for the others, in PEM (barco certs)"
    )
    key: str = _key("", "file with its key, in PEM, of mode 0600 or 0640, or credential:NAME")
    tls_required: bool = _key(
        True, "with cluster.ca: whether brokers without are refused; false on all: to go over"
    )
    slices_per_range: int = _key(
        limits.SLICES_PER_RANGE,
        "slices of a token range, a power of two, fixed when the data directory is formatted",
    )


@dataclass(frozen=True, slots=True)
class PortsSection:
    """[ports]: one number for each listener; 0 takes a free one."""

    discovery: int = _key(9250, "discovery and administration")
    produce: int = _key(9251, "produce")
    consume: int = _key(9252, "consume")
    metrics: int = _key(9253, "metrics")
    gossip: int = _key(9255, "gossip between supervisors")
    replication: int = _key(9256, "replication, worker i at + i")
    shard: int = _key(9300, "shard endpoint, worker i at + i")


@dataclass(frozen=True, slots=True)
class ClientsSection:
    """[clients]: how a worker's ports for clients take them. Workers are handed all of it."""

    hosts: tuple[str, ...] = _key(
        (), "names by which clients may call the broker, and web pages' origins that may; *: any"
    )


@dataclass(frozen=True, slots=True)
class AccessSection:
    """[access]: who may do what (docs/access.md)."""

    required: bool = _key(False, "whether each request has to show the token of a user")
    certificates: bool = _key(
        False, "whether a client without a token is the user whom its certificate names (CN)"
    )


@dataclass(frozen=True, slots=True)
class TlsSection:
    """[tls]: of the ports for clients, which speak nothing else once there is a certificate."""

    certificate: str = _key("", "file with the certificate, then its chain, in PEM; empty: no TLS")
    key: str = _key("", "file with its key, in PEM without passphrase, of mode 0600 or 0640")
    client_ca: str = _key("", "file with the CAs of clients, who then need a certificate; in PEM")
    handshakes_per_second: int = _key(limits.TLS_HANDSHAKES_PER_SECOND, "of each worker, at most")
    kernel: str = _key(
        "off", "auto: the kernel seals large answers where it can; off: it never does"
    )


@dataclass(frozen=True, slots=True)
class TopicsSection:
    """[topics]: what a topic has that nobody configured."""

    auto_create: bool = _key(True, "whether a topic is created by its first event")
    retention_hours: int = _key(limits.RETENTION_HOURS, "age at which events are dropped; 0: never")
    retention_bytes: int = _key(
        limits.RETENTION_BYTES, "size of a shard's log at which its oldest segments go; 0: never"
    )


@dataclass(frozen=True, slots=True)
class LimitsSection:
    """[limits]: sizes that protect the broker from its clients."""

    event_bytes_max: int = _key(limits.EVENT_BYTES_MAX, "largest event; over it 413")
    request_bytes_max: int = _key(limits.REQUEST_BYTES_MAX, "largest request body; over it 413")
    memory_bytes: int = _key(limits.MEMORY_BYTES, "budget of each worker; over it 503 and waiting")


@dataclass(frozen=True, slots=True)
class StorageSection:
    """[storage]: the files of the log."""

    segment_bytes: int = _key(
        limits.SEGMENT_BYTES, "size of one file of the log, preallocated; a multiple of 4096"
    )
    compression: str = _key(
        "lz4", "of what the broker packs itself: lz4 or none; a topic's own setting goes first"
    )


@dataclass(frozen=True, slots=True)
class LogSection:
    """[log]: the lines that the broker's processes write to their standard error."""

    level: str = _key("info", "from which level on: debug, info, warning or error")
    format: str = _key("auto", "json, text, or auto: text for a terminal, else json")


@dataclass(frozen=True, slots=True)
class TraceSection:
    """[trace]: spans for OpenTelemetry. Workers are handed all of it."""

    endpoint: str = _key(
        "", "where spans go by OTLP over HTTP, such as http://127.0.0.1:4318/v1/traces; empty: off"
    )
    one_in: int = _key(
        0, "of so many requests that say nothing of a trace one is traced; 0: none of them"
    )


@dataclass(frozen=True, slots=True)
class DrainSection:
    """[drain]: copies that a broker takes of the history of brokers that leave."""

    bytes_per_second: int = _key(
        limits.DRAIN_BYTES_PER_SECOND, "of each of its processes, copied and then read again"
    )
