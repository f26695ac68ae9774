"""The loads of the table, by name: each is one short run of the generator."""

from collections.abc import Sequence
from typing import Any

from bench.harness import SETTINGS
from bench.load import Load, load
from bench.servers import JSON, MINIMAL, NDJSON, TOPIC, Server

PATH = f"/v1/topic/{TOPIC}/messages"
EVENT_BYTES = 1024
LINE_BYTES = 243  # Mean size of an NDJSON event; sizes vary by LINE_JITTER up and down.
LINE_JITTER = 100
KiB = 1024


def single(server: Server, connections: int = 64, depth: int = 1, **options: Any) -> Load:
    """Events of 1 KiB, one a request, on keep-alive connections."""
    options = {"path": PATH, "header": [JSON, MINIMAL], "event_bytes": EVENT_BYTES} | options
    options = SETTINGS.window | options
    return load(server.port, pids=server.pids, connections=connections, depth=depth, **options)


def ndjson(server: Server, body_bytes: int, connections: int = 16, **options: Any) -> Load:
    """Bodies of many events, newline-delimited."""
    options = {"path": PATH, "header": [NDJSON, MINIMAL], "body_bytes": body_bytes} | options
    options |= {"event_bytes": LINE_BYTES, "event_jitter": LINE_JITTER}
    options = SETTINGS.window | options
    return load(server.port, pids=server.pids, connections=connections, **options)


def own_keys(server: Server, depth: int, key_base: int) -> Load:
    """Single events, every one with a key that no other has."""
    return single(server, depth=depth, path=PATH + "?partitionKey={key}", key_base=key_base)


def many_topics(server: Server, depth: int, topics: int) -> Load:
    """Single events to many topics in turn."""
    return single(server, depth=depth, topics=topics)


def create_topics(server: Server, topics: int) -> None:
    """One event to each topic, so that creating them is not measured."""
    single(server, connections=1, requests=topics, topics=topics, warmup=0)


def xadd(server: Server, connections: int = 50, depth: int = 16) -> Load:
    """The same events to redis streams."""
    return load(
        server.port,
        pids=server.pids,
        connections=connections,
        depth=depth,
        resp="XADD bench-{topic} * f",
        event_bytes=EVENT_BYTES,
        **SETTINGS.window,
    )


def fill(server: Server, payload_bytes: int, topics: int = 1) -> Load:
    """Load about so many bytes of events, in NDJSON bodies of 256 KiB."""
    bodies = max(payload_bytes // (256 * KiB), 1)
    return ndjson(server, 256 * KiB, requests=bodies, topics=topics, warmup=0)


def microseconds(runs: Sequence[Load]) -> list[float]:
    """Server CPU an event of each round."""
    return [run.cpu_per_event * 1e6 for run in runs]
