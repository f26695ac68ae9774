"""Brokers whose wall clocks are wrong, each in its own way: no promise depends on one."""

import os
import sys
import time
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
from replicas import Member, Shard, chunk_events, same_everywhere, until

from barco.types import MiB

sys.path.append(str(Path(__file__).parents[1] / "faults"))
from faultlab import clocks
from faultlab.clocks import DAY, HOUR, MINUTE, WrongClock

pytestmark = pytest.mark.skipif(bool(clocks.why_not()), reason=clocks.why_not())

PRODUCER = "0" * 31 + "a"
STORED = (200, 204)
"""204: it was stored before, and nobody had said so in time."""


class Wrong(Shard):
    """Three members, each with a clock of its own."""

    def __init__(self, root: Path, *seconds: float, **limits: Any) -> None:
        super().__init__(root, **limits)
        self.clocks = [WrongClock(root / "clocks", str(number)) for number in range(3)]
        for member, clock, ahead in zip(self.members, self.clocks, seconds, strict=True):
            clock.set(ahead)
            member.environment = clock.environment

    def put(self, value: str, sequence: int, **query: int) -> int | None:
        """One event of the producer, to whoever leads."""
        more = "".join(f"&{name}={number}" for name, number in query.items())
        headers = {"Producer-Id": PRODUCER, "Producer-Epoch": "0", "Producer-Seq": str(sequence)}

        def stored() -> int | None:
            for member in self.members:
                if member.process is None or member.process.poll() is not None:
                    continue
                path = f"/v1/topic/t/messages?slice=0{more}"
                answer = member.request("POST", path, value.encode(), timeout=20.0, **headers)
                if answer is not None and answer.status in (200, 204, 400, 409):
                    return answer.status
            return None

        found = until(f"an answer for {value}", stored)
        assert isinstance(found, int)
        return found


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for path in tmp_path.glob("broker-*/log"):  # Shown when the test fails.
        print(f"--- {path}\n{path.read_text()[-3000:]}")


def timestamps(member: Member) -> list[int]:
    """Of all events of slice 0, as the broker gave them."""
    found: list[int] = []
    offset: Any = "earliest"
    while True:
        args = {"topic": "t", "slice": 0, "from": offset, "budget": MiB, "stored": True}
        extent = member.call("read", **args)["extent"]
        if extent is None:
            return found
        _, _, start, offset, _, chunks, *_ = extent
        for at, timestamp, _, _ in chain.from_iterable(map(chunk_events, chunks)):
            if start <= at < offset:
                found.append(timestamp)


def test_retries_are_stored_once_whatever_the_next_leaders_clock_says(root: Path) -> None:
    """Promise D5: the first leader is right, the next is 21 minutes ahead, then a month, ..."""
    shard = Wrong(root, 0.0, 21 * MINUTE, -HOUR)
    try:
        shard.start()
        numbers = 0
        for ahead in (21 * MINUTE, 30 * DAY, -3650 * DAY):
            leader = shard.leader()
            for _ in range(3):
                assert shard.put(str(numbers), numbers) in STORED
                numbers += 1
            for number, clock in enumerate(shard.clocks):
                if shard.members[number] is not leader:
                    clock.set(ahead)  # While it runs: the next leader's clock jumps.
            leader.kill()
            others = [member for member in shard.members if member is not leader]
            shard.leader(others)
            for retry in range(max(0, numbers - 3), numbers):
                assert shard.put(str(retry), retry) == 204, "a duplicate"
            leader.start()
            shard.leader([leader])  # It leads its own range again.
            assert shard.put(str(numbers - 1), numbers - 1) == 204
        assert same_everywhere(shard) == [str(number) for number in range(numbers)]
        for member in shard.members:
            given = timestamps(member)
            assert len(given) == numbers
            assert all(one <= other for one, other in pairwise(given)), given
    finally:
        shard.end()


def test_retention_goes_on_although_a_clock_has_gone_back(root: Path) -> None:
    """Two hours go by while all wall clocks show a time ten years ago."""
    shard = Wrong(
        root, 0.0, 0.0, 0.0, retention_hours=1, retention_seconds=0.1, segment_bytes=4 * MiB,
        event_bytes_max=MiB, request_bytes_max=MiB,
    )  # fmt: skip
    try:
        shard.start()
        for sequence in range(12):
            assert shard.put(f"{sequence:06d}" + os.urandom(450_000).hex(), sequence) in STORED
        for clock in shard.clocks:
            clock.set(-3650 * DAY, gone=2 * HOUR)
        # The leader itself ends its generation, so that retention can go on.
        expired = "storage_expired_segments"
        until("it goes", lambda: all(m.stats.get(expired) for m in shard.members))
        assert shard.put("new", 12) in STORED
        assert same_everywhere(shard)[-1] == "new"
    finally:
        shard.end()


def test_retention_takes_nothing_because_a_clock_jumps(root: Path) -> None:
    """Promise D2. Sealed segments of several generations, an hour to keep them."""
    shard = Wrong(
        root, 0.0, 0.0, 0.0, retention_hours=1, retention_seconds=0.1, segment_bytes=4 * MiB,
        event_bytes_max=MiB, request_bytes_max=MiB,
    )  # fmt: skip
    try:
        shard.start()
        sequence = 0
        for _ in range(2):
            leader = shard.leader()
            for _ in range(12):
                assert shard.put(f"{sequence:06d}" + os.urandom(450_000).hex(), sequence) in STORED
                sequence += 1
            leader.kill()
            leader.start()
        for clock, ahead in zip(shard.clocks, (30 * DAY, 2 * HOUR, -3650 * DAY), strict=True):
            clock.set(ahead)
        leader = shard.leader()
        assert shard.put(f"{sequence:06d}", sequence) in STORED  # With the wrong clock.
        sequence += 1
        leader.kill()
        leader.start()  # And begun with it.
        shard.leader([leader])
        until("sealed segments", lambda: leader.stats.get("storage_sealed_segments", 0) >= 4)
        time.sleep(1.0)  # Ten rounds of retention.
        wanted = [f"{number:06d}" for number in range(sequence)]
        found = [value[:6] for value in same_everywhere(shard)]
        assert found == wanted
        for member in shard.members:
            assert member.stats["storage_expired_segments"] == 0
    finally:
        shard.end()
