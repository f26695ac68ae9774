"""Delayed events in a ring of three real brokers: through kills of those who lead, and a growth."""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import barco
from barco.errors import BarcoError

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster
from joining import JoinedCluster, three
from joining import barco as command

SECONDS = 120.0
"""Generous: it only ends what has failed."""

EVENTS = 240
LATE_MS = 9_000
"""When the last of them is due: behind both kills."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[JoinedCluster]:
    yield from three(tmp_path)


def send(endpoint: str, number: int, fields: dict[str, str]) -> tuple[int, Any]:
    """One produce, to whichever broker; its status and JSON."""
    url = f"http://{endpoint}/v1/topic/t/messages?partitionKey=key-{number % 31}"
    asked = urllib.request.Request(url, b"%d" % number, fields, method="POST")
    try:
        with urllib.request.urlopen(asked, timeout=SECONDS) as answer:
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def insist(endpoints: list[str], number: int, due_ms: int) -> None:
    """Again at the next broker until it is stored, as one event."""
    fields = {"Barco-Deliver-At": str(due_ms), "Idempotency-Key": f"event-{number}"}
    until = time.monotonic() + SECONDS
    for turn in range(10_000):
        assert time.monotonic() < until, number
        try:
            status, told = send(endpoints[(number + turn) % 3], number, fields)
        except OSError:
            continue
        assert status < 400 or status >= 500, told
        if status in (202, 204):
            return
        time.sleep(0.05)


def read(endpoints: list[str]) -> list[tuple[int, int]]:
    """(value, timestamp) of all that the topic has."""
    return [(int(each.value or b""), each.timestamp_us) for each in barco.read("t", endpoints)]


def look(endpoints: list[str], dues: dict[int, int]) -> list[tuple[int, int]]:
    """The same, or nothing now; and none of it before it is due."""
    try:
        found = read(endpoints)
    except BarcoError as error:
        assert error.retryable or error.status == 404, error
        return []
    now_ms = time.time_ns() // 1_000_000
    assert all(dues[value] <= now_ms for value, _ in found), "none is early"
    return found


def test_each_is_there_once_and_none_early(cluster: LocalCluster) -> None:
    """Two brokers are killed, one after the other: before, and while, events are due."""
    endpoints = list(cluster.endpoints)
    start_ms = time.time_ns() // 1_000_000
    dues = {
        number: start_ms + 1_500 + number * (LATE_MS - 1_500) // EVENTS for number in range(EVENTS)
    }
    for number, due_ms in dues.items():
        insist(endpoints, number, due_ms)
        if number == EVENTS // 2:
            cluster.kill(0)
    cluster.start(0)
    cluster.wait_ready()
    cluster.kill(1)
    while time.time_ns() // 1_000_000 < start_ms + LATE_MS:
        look(endpoints, dues)
        time.sleep(0.05)
    until = time.monotonic() + SECONDS
    found: list[tuple[int, int]] = []
    while len({value for value, _ in found}) < EVENTS:
        assert time.monotonic() < until, sorted(set(dues) - {value for value, _ in found})
        found = look(endpoints, dues)
        time.sleep(0.1)
    assert sorted(value for value, _ in found) == sorted(dues), "each once"
    assert all(time_us == dues[value] * 1000 for value, time_us in found)


GROWTH_MS = 40_000
"""When the last are due: mostly behind the growth, so that who leads since delivers them."""


def grow(cluster: JoinedCluster) -> None:
    """To four, as an operator does."""
    net, _, last = cluster.hosts[-1].rpartition(".")
    fourth = cluster.join(f"{net}.{int(last) + 1}")
    cluster.wait_ready([fourth])
    grown = command("scale", "--to", 4, "--timeout", 180, "--endpoint", cluster.endpoints[1])
    assert grown.returncode == 0, grown.stdout + grown.stderr


@pytest.mark.chaos  # A ring that grows, for 55 s.
def test_what_waits_moves_with_its_slice(cluster: JoinedCluster) -> None:
    """Three become four: what is due before, meanwhile and behind it is there once, in its order,
    and what was cancelled before is not; what waits can be cancelled where it is now."""
    endpoints = list(cluster.endpoints)
    start_ms = time.time_ns() // 1_000_000
    dues = {n: start_ms + 2_000 + n * (GROWTH_MS - 2_000) // EVENTS for n in range(EVENTS)}
    hour = datetime.now(UTC) + timedelta(hours=1)
    soon = datetime.fromtimestamp((start_ms + GROWTH_MS) / 1000, UTC)
    with barco.Producer(endpoints) as producer, barco.Admin(endpoints) as admin:
        sent = [
            producer.send(
                "t", b"%d" % n, f"key-{n % 31}", deliver_at=datetime.fromtimestamp(due / 1000, UTC)
            )
            for n, due in dues.items()
        ]
        never = [producer.send("t", b"-1", f"key-{n}", deliver_at=soon) for n in range(31)]
        later = [producer.send("t", b"-2", f"key-{n}", deliver_at=hour) for n in range(31)]
        assert all(each.result(SECONDS).delayed for each in sent)
        for each in never:
            admin.cancel_delayed("t", str(each.result(SECONDS).delayed))
        grow(cluster)
        for each in later:
            admin.cancel_delayed("t", str(each.result(SECONDS).delayed))
    until = time.monotonic() + SECONDS
    found: list[tuple[int, int]] = []
    while len({value for value, _ in found}) < EVENTS or time.time() < soon.timestamp() + 0.5:
        assert time.monotonic() < until, sorted(set(dues) - {value for value, _ in found})
        found = look(list(cluster.endpoints), dues)
        time.sleep(0.2)
    assert sorted(value for value, _ in found) == sorted(dues), "each once"
    for key in range(31):  # Of one slice: by when they are due.
        of_key = [value for value, _ in found if value % 31 == key]
        assert of_key == sorted(of_key), f"key-{key} is out of order"
