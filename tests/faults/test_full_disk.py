"""A single broker whose disk becomes full: each request is answered, and it says what is wrong."""

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faultlab.broker import Broker, range_paths
from faultlab.fusedisk import FuseDisk
from faultlab.fuseload import await_that
from faultlab.fuseload import fill as to_spares
from faultlab.wire import Answer, call

pytestmark = pytest.mark.timeout(300)

MIB = 1 << 20
ROOM = {
    "BARCO_STORAGE_SEGMENT_BYTES": str(8 * MIB),
    "BARCO_LIMITS_REQUEST_BYTES_MAX": str(4 * MIB),
    "BARCO_LIMITS_MEMORY_BYTES": str(64 * MIB),
}
LINE = b'"' + b"x" * 1021 + b'"\n'
LARGE = LINE * 3584
"""A body of 3.5 MiB: more than is kept free of a segment that is the last one."""
ANSWERED_S = 20.0
"""Twenty times what it takes, where others use the machine; a client without its own limit would
wait for ever."""


@pytest.fixture
def broker(root: Path, fuse_disk: FuseDisk) -> Iterator[Broker]:
    broker = Broker(fuse_disk.path / "data", workers=1, logs=root)
    broker.env |= ROOM
    # As it comes: compressed, an event would take nothing of the room that it asks for.
    broker.env["BARCO_STORAGE_COMPRESSION"] = "none"
    try:
        broker.start()
        to_spares(broker.port, range_paths(broker.data_dir), [""])
        yield broker
    finally:
        fuse_disk.clear()
        broker.close()


def produce(broker: Broker, body: bytes) -> Answer:
    kind = {"Content-Type": "application/x-ndjson"}
    return call(broker.port, "POST", "/v1/topic/t/messages", body, kind, ANSWERED_S)


def fill(broker: Broker, disk: FuseDisk, body: bytes) -> Answer:
    """Until something else than 200 is answered, with no room for another segment: that."""
    rule = disk.hurt("write", "*/range-*/*.tmp", "enospc")
    began = time.monotonic()
    for number in itertools.count():
        answer = produce(broker, body)
        if answer.status != 200:
            assert disk.count(rule) > 0, answer
            return answer
        assert number < 1000 and time.monotonic() < began + 60, "it is never full"
    raise AssertionError


def told(broker: Broker, target: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(call(broker.port, "GET", target, timeout=30).body)
    return found


def starts_in_vain(broker: Broker) -> None:
    """It says what it waits for, to who looks and to who asks for something."""
    found: dict[str, object] = {}

    def says() -> bool:
        try:
            found.update(told(broker, "/ready"))
        except OSError:  # It does not listen yet.
            return False
        return bool(found.get("diskFull"))

    await_that("a broker that starts on a full disk says so", says)
    assert found["ready"] is False and "the disk is full" in str(found["reason"]), found
    assert "the disk is full" in str(told(broker, "/status")["reason"])
    assert produce(broker, LINE * 64).status == 507
    refused = call(broker.port, "GET", "/v1/topics", timeout=ANSWERED_S)
    assert refused.status == 503 and b"the disk is full" in refused.body, refused


@pytest.mark.parametrize("body", [LINE * 64, LARGE], ids=["64 KiB", "3.5 MiB"])
def test_each_request_of_a_full_disk_is_answered(
    broker: Broker, fuse_disk: FuseDisk, body: bytes
) -> None:
    """507 and certainly not written, the first one too; said where people look; it stops at once,
    and goes on when there is room."""
    assert "diskFull" not in told(broker, "/ready")
    answer = fill(broker, fuse_disk, body)
    assert answer.status == 507 and b"urn:barco:problem:disk-full" in answer.body, answer
    assert answer.headers["barco-outcome"] == "not-written"
    await_that("small ones neither", lambda: produce(broker, LARGE).status == 507)
    kind, level = {"Content-Type": "application/json"}, b'{"compatibility": "FULL"}'
    while produce(broker, LINE * 64).status == 200:
        pass
    refused = call(broker.port, "PUT", "/registry/config", level, kind, 30)
    assert refused.status == 503 and b"disk is full" in refused.body, refused
    ready, health, status = (told(broker, each) for each in ("/ready", "/v1/health", "/status"))
    assert ready == {"ready": True, "diskFull": True}
    assert "disk is full" in str(health["headline"]) and "full disk" in str(health["wrong"])
    assert status["inSync"] is False and "full disk" in str(status["degraded"])
    assert b"barco_disk_full 1" in call(broker.port, "GET", "/metrics").body
    began = time.monotonic()
    assert broker.stop() == 0
    assert time.monotonic() < began + 8, "what waits for room is refused, not waited for"
    # A start begins a generation, which needs a segment; the journal keeps its own room.
    fuse_disk.clear()
    for name in ("first", "spare"):
        fuse_disk.hurt("write", f"*/range-*/{name}.tmp", "enospc")
    broker.begin()
    starts_in_vain(broker)
    assert broker.stop() == 0, "a stop does not wait for room"
    broker.begin()
    fuse_disk.clear()
    broker.await_ready()
    await_that("it does not go on", lambda: produce(broker, body).status == 200)
    assert told(broker, "/ready?insync") == {"ready": True, "inSync": True}
