"""What does a producer gain that packs and compresses its batches itself? (No bar in the table.)"""

import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bench.cases import LINE_BYTES, LINE_JITTER, PATH, KiB, ndjson
from bench.harness import METER, SETTINGS, interleave, report
from bench.load import Load, build, load, median
from bench.servers import BATCH, MINIMAL, Broker

BATCH_EVENTS = 256 * KiB // LINE_BYTES
CASES = ("NDJSON, 256 KiB", "batches, no keys", "batches, own keys")


def _events(directory: Path) -> list[bytes]:
    """The events of the NDJSON cases, one by one."""
    pool = directory / "pool"
    command = [str(build()), "--pool-mib", "16", "--body-bytes", str(64 * KiB)]
    command += ["--event-bytes", str(LINE_BYTES), "--event-jitter", str(LINE_JITTER)]
    subprocess.run([*command, "--pool-out", str(pool)], check=True)
    return pool.read_bytes().splitlines()


def _frames(path: Path, events: list[bytes], own_keys: bool) -> Path:
    """Batches of the events, compressed, as the generator's --payload-frames wants them."""
    native = pytest.importorskip("barco._native")
    with path.open("wb") as file:
        for at in range(0, len(events), BATCH_EVENTS):
            values = events[at : at + BATCH_EVENTS]
            keys = [b"%012d" % (at + i) for i in range(len(values))] if own_keys else None
            batch = native.batch_encode(values, keys)
            file.write(struct.pack("<II", len(batch), len(values)) + batch)
    return path


@pytest.fixture(scope="module")
def runs(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Load]]:
    """All cases, interleaved."""
    directory = tmp_path_factory.mktemp("batches")
    events = _events(directory)
    plain = _frames(directory / "plain", events, own_keys=False)
    keyed = _frames(directory / "keyed", events, own_keys=True)

    def batches(frames: Path) -> Load:
        return load(
            broker.port,
            pids=broker.pids,
            connections=16,
            path=PATH,
            header=[BATCH, MINIMAL],
            payload_frames=frames,
            **SETTINGS.window,
        )

    return interleave(
        {
            CASES[0]: lambda: ndjson(broker, 256 * KiB),
            CASES[1]: lambda: batches(plain),
            CASES[2]: lambda: batches(keyed),
        }
    )


@pytest.mark.benchmark(group="batches of 1,079 events, server CPU an event", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_produce_batch(benchmark: Any, runs: dict[str, list[Load]], case: str) -> None:
    """Each case in server CPU an event of about 243 bytes."""
    raw = median([run.events_per_core for run in runs[case]]) * LINE_BYTES / 1e6
    benchmark.extra_info["event_mb_per_core_second"] = round(raw)
    report(benchmark, runs[case])
