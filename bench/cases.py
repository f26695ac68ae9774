"""The loads of the table, by name: each is one short run of the generator."""

import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barco._native import batch_encode
from bench.harness import SETTINGS
from bench.load import Load, build, load
from bench.servers import BATCH, JSON, MINIMAL, NDJSON, TOPIC, Server

PATH = f"/v1/topic/{TOPIC}/messages"
EVENT_BYTES = 1024
LINE_BYTES = 243  # Mean size of an NDJSON event; sizes vary by LINE_JITTER up and down.
LINE_JITTER = 100
KiB = 1024
BATCH_EVENTS = 256 * KiB // LINE_BYTES


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


def lines(directory: Path) -> list[bytes]:
    """The events of the NDJSON cases, one by one."""
    pool = directory / "pool"
    command = [str(build()), "--pool-mib", "16", "--body-bytes", str(64 * KiB)]
    command += ["--event-bytes", str(LINE_BYTES), "--event-jitter", str(LINE_JITTER)]
    subprocess.run([*command, "--pool-out", str(pool)], check=True)
    return pool.read_bytes().splitlines()


def batch_frames(path: Path, events: list[bytes], own_keys: bool) -> Path:
    """Batches of the events, compressed, as the generator's --payload-frames wants them."""
    with path.open("wb") as file:
        for at in range(0, len(events), BATCH_EVENTS):
            values = events[at : at + BATCH_EVENTS]
            keys = [b"%012d" % (at + i) for i in range(len(values))] if own_keys else None
            batch = batch_encode(values, keys)
            file.write(struct.pack("<II", len(batch), len(values)) + batch)
    return path


def batches(server: Server, frames: Path) -> Load:
    """What `batch_frames` made, over 16 connections."""
    return load(
        server.port,
        pids=server.pids,
        connections=16,
        path=PATH,
        header=[BATCH, MINIMAL],
        payload_frames=frames,
        **SETTINGS.window,
    )
