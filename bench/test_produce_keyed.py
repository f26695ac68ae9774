"""What does it cost that every line of a large NDJSON body brings a key of its own?"""

import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bench.cases import PATH, KiB, lines
from bench.harness import LAB, METER, SETTINGS, interleave, ratios, report
from bench.load import Load, load
from bench.servers import MINIMAL, NDJSON, Broker

EVENTS = "Content-Type: application/vnd.barco.events+x-ndjson"
BODY_BYTES = 256 * KiB
CASES = ("no key", "a key a line", "keyField")

Lines = list[bytes]


def _keyed(number: int, line: bytes) -> bytes:
    return b'{"key":"%012d","value":%b}' % (number, line)


def _field(number: int, line: bytes) -> bytes:
    """The line as it is, with one member more at its front."""
    return b'{"k":"%012d",%b' % (number, line[1:])


def bodies(path: Path, events: Lines, make: Callable[[int, bytes], bytes]) -> Path:
    """Bodies of these events, as the generator's --payload-frames wants them."""
    made: Lines = []
    size = 0
    with path.open("wb") as file:
        for number, line in enumerate(events):
            made.append(make(number, line))
            size += len(made[-1]) + 1
            if size >= BODY_BYTES:
                body = b"\n".join(made)
                file.write(struct.pack("<II", len(body), len(made)) + body)
                made, size = [], 0
    return path


def send(broker: Broker, frames: Path, kind: str, query: str = "") -> Load:
    """Such bodies over 16 connections."""
    return load(
        broker.port,
        pids=broker.pids,
        connections=16,
        path=PATH + query,
        header=[kind, MINIMAL],
        payload_frames=frames,
        **SETTINGS.window,
    )


@pytest.fixture(scope="module")
def runs(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Load]]:
    """All cases, interleaved, with the same events."""
    scratch = tmp_path_factory.mktemp("keyed")
    events = lines(scratch)
    assert all(line.startswith(b"{") and line.endswith(b"}") for line in events)
    plain = bodies(scratch / "plain", events, lambda _, line: line)
    keyed = bodies(scratch / "keyed", events, _keyed)
    field = bodies(scratch / "field", events, _field)
    with LAB.question("keyed-lines", "keyed-field"):
        done = interleave(
            {
                CASES[0]: partial(send, broker, plain, NDJSON),
                CASES[1]: partial(send, broker, keyed, EVENTS),
                CASES[2]: partial(send, broker, field, NDJSON, "?keyField=k"),
            }
        )
        without = [run.bytes_per_core for run in done[CASES[0]]]
        for row, case in (("keyed-lines", CASES[1]), ("keyed-field", CASES[2])):
            with_keys = [run.bytes_per_core for run in done[case]]
            few, many = done[CASES[0]][-1].events_per_core, done[case][-1].events_per_core
            note = (
                f"{with_keys[-1] / 1e6:,.0f} against {without[-1] / 1e6:,.0f} MB/s/core; "
                f"by events {many / few:.2f}"
            )
            LAB.record(row, ratios(with_keys, without), note=note)
        return done


@pytest.mark.benchmark(group="NDJSON with keys, server CPU an event", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_produce_keyed(benchmark: Any, runs: dict[str, list[Load]], case: str) -> None:
    """Each case in server CPU an event of about 243 bytes."""
    report(benchmark, runs[case])
