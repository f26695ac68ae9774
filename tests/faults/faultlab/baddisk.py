"""What a ring notices of a disk that hangs or is slow: at a follower, and at a leader."""

import contextlib
import json
import os
import time
from collections.abc import Iterator

from faultlab.fusedisk import FuseDisk
from faultlab.prober import Prober
from faultlab.ring import KEYS, RANGE, SLICES, Ring
from faultlab.wire import Wire

FENCED_S = 3.0
SLOW_MS = 200
WHOLE_S = 60.0


def latencies(ring: Ring, at: int, requests: int) -> list[float]:
    """Seconds of writes to a range, one after the other, at its leader; each is answered 200."""
    wire = Wire(ring.nodes[at].port)
    found = []
    target = f"/v1/topic/latency/messages?partitionKey={KEYS[at * SLICES]}"
    try:
        for _ in range(requests):
            began = time.monotonic()
            answer = wire.call("POST", target, b"x" * 100)
            assert answer.status == 200, answer
            found.append(time.monotonic() - began)
    finally:
        wire.close()
    return found


@contextlib.contextmanager
def bad_follower(ring: Ring, disk: FuseDisk, kind: str) -> Iterator[None]:
    """The disk of a follower of range 0 is so within; entered when that is no news any more."""
    # What it keeps of the range before its own; it leads its own with a good disk.
    rules = [disk.hurt(op, f"*/{RANGE}/*", kind, ms=SLOW_MS) for op in ("write", "sync")]
    try:
        began = time.monotonic()
        while time.monotonic() < began + FENCED_S or not sum(map(disk.count, rules)):
            assert time.monotonic() < began + WHOLE_S, "the disk was not used"
            time.sleep(latencies(ring, 0, 1)[0])
        yield
    finally:
        disk.clear()


def fenced_after(ring: Ring, disk: FuseDisk, at: int) -> float:
    """Seconds without an acknowledgement when the disk of a range's leader hangs; whole after."""
    ring.wait_whole()
    prober = Prober(ring)
    try:
        assert prober.await_all(time.monotonic() + WHOLE_S)
        before = ring.epochs()
        token = str(ring.placement.token(at))
        since = time.monotonic()
        rules = [disk.hurt(op, "/*", "hang") for op in ("write", "sync")]
        while _epoch(ring, at, token) == before[token]:
            assert time.monotonic() < since + WHOLE_S, "its leader stays"
            time.sleep(0.02)
        assert prober.await_all(time.monotonic() + WHOLE_S), "not written any more"
        gaps = prober.gaps(since, time.monotonic())
        assert sum(map(disk.count, rules)) > 0
    finally:
        disk.clear()
        prober.stop()
    print(f"leader's disk hung: {', '.join(map(str, gaps))}, load {os.getloadavg()[0]:.1f}")
    ring.wait_whole()  # It takes part again, and has its range back.
    return gaps[at].seconds


def _epoch(ring: Ring, at: int, token: str) -> int:
    """As one of the others knows it."""
    wire = Wire(ring.nodes[(at + 1) % 3].port)
    try:
        shards = json.loads(wire.call("GET", "/v1/topology").body)["shards"]
    finally:
        wire.close()
    return next(int(each["version"]) for each in shards if each["token"] == token)
