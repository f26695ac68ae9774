"""What does it cost that shippers of logs speak their own protocols, against the same lines?"""

import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.cases import PATH, KiB, lines
from bench.harness import LAB, METER, SETTINGS, interleave, ratios, report
from bench.load import Load, load
from bench.servers import MINIMAL, NDJSON, TOPIC, Broker, Server, fluent_bit

BODY_BYTES = 256 * KiB
Lines = list[bytes]


def varint(value: int) -> bytes:
    """As protobuf has it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def message(number: int, content: bytes) -> bytes:
    """A field that is a message or a string."""
    return bytes([number << 3 | 2]) + varint(len(content)) + content


def bulk(events: Lines) -> bytes:
    """Elasticsearch's: documents without an id, as shippers of logs send them."""
    return b"".join(b'{"create":{}}\n' + event + b"\n" for event in events)


def hec(events: Lines) -> bytes:
    """Splunk's: a host and a source type with each."""
    head = b'{"host":"web-1","sourcetype":"flights","event":'
    return b"".join(head + event + b"}" for event in events)


def otlp(events: Lines) -> bytes:
    """OpenTelemetry's: a line as the body, and three attributes."""
    attributes = b"".join(
        message(6, message(1, name) + message(2, message(1, value)))
        for name, value in ((b"code.function", b"run"), (b"thread", b"main"), (b"zone", b"a"))
    )
    records = b"".join(
        message(2, b"\x10\x09" + message(5, message(1, event)) + attributes) for event in events
    )
    host = message(1, b"host.name") + message(2, message(1, b"web-1"))
    return message(1, message(1, message(1, host)) + message(2, message(1, b"") + records))


CASES: dict[str, tuple[Callable[[Lines], bytes], str, str]] = {
    "ndjson": (b"\n".join, PATH, NDJSON),
    "shippers-bulk": (bulk, f"/elastic/{TOPIC}/_bulk", NDJSON),
    "shippers-hec": (
        hec,
        f"/services/collector/event?index={TOPIC}",
        "Content-Type: application/json",
    ),
    "shippers-otlp": (otlp, f"/v1/logs?topic={TOPIC}", "Content-Type: application/x-protobuf"),
}


PEERS = {
    "shippers-bulk": ("elasticsearch", "/_bulk"),
    "shippers-hec": ("splunk", "/services/collector/event"),
    "shippers-otlp": ("opentelemetry", "/v1/logs"),
}
"""Fluent Bit's source of each protocol, and the path there."""


def bodies(path: Path, events: Lines, make: Callable[[Lines], bytes]) -> Path:
    """Bodies of these events, as the generator's --payload-frames wants them."""
    taken: Lines = []
    size = 0
    with path.open("wb") as file:
        for event in events:
            taken.append(event)
            size += len(event)
            if size >= BODY_BYTES:
                body = make(taken)
                file.write(struct.pack("<II", len(body), len(taken)) + body)
                taken, size = [], 0
    return path


def send(server: Server, frames: Path, path: str, kind: str) -> Load:
    """Such bodies over 16 connections."""
    return load(
        server.port,
        pids=server.pids,
        connections=16,
        path=path,
        header=[kind, MINIMAL],
        payload_frames=frames,
        **SETTINGS.window,
    )


@pytest.fixture(scope="module")
def runs(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Load]]:
    """All cases, interleaved, with the same events."""
    scratch = tmp_path_factory.mktemp("shippers")
    events = lines(scratch)
    with LAB.question(*(each for each in CASES if each != "ndjson")):
        done = interleave(
            {
                case: partial(send, broker, bodies(scratch / case, events, make), path, kind)
                for case, (make, path, kind) in CASES.items()
            }
        )
        plain = [run.bytes_per_core for run in done["ndjson"]]
        for case in CASES:
            if case == "ndjson":
                continue
            found = [run.bytes_per_core for run in done[case]]
            few, many = done["ndjson"][-1].events_per_core, done[case][-1].events_per_core
            note = (
                f"{found[-1] / 1e6:,.0f} against {plain[-1] / 1e6:,.0f} MB/s/core; "
                f"by events {many / few:.2f}"
            )
            LAB.record(case, ratios(found, plain), note=note)
        return done


def test_against_fluent_bit(broker: Broker, tmp_path: Path) -> None:
    """The same bodies, in turn; Fluent Bit keeps nothing of them, the broker has them on disk."""
    events = lines(tmp_path)
    for case, (source, there) in PEERS.items():
        make, path, kind = CASES[case]
        frames = bodies(tmp_path / case, events, make)
        row = f"{case}-peer"
        with LAB.question(row), fluent_bit(source) as peer:
            done = interleave(
                {
                    "ours": partial(send, broker, frames, path, kind),
                    "theirs": partial(send, peer, frames, there, kind),
                }
            )
            ours, theirs = ([run.bytes_per_core for run in done[each]] for each in done)
            note = f"{ours[-1] / 1e6:,.0f} against {theirs[-1] / 1e6:,.0f} MB/s/core"
            LAB.record(row, ratios(ours, theirs), note=note)


@pytest.mark.benchmark(group="shippers' protocols, server CPU an event", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_produce_shippers(benchmark: Any, runs: dict[str, list[Load]], case: str) -> None:
    """Each case in server CPU an event of about 243 bytes."""
    report(benchmark, runs[case])
