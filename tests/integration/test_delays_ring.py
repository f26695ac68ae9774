"""Delayed events in a ring of three real brokers, through kills of those who lead."""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import barco
from barco.errors import BarcoError

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster
from joining import three

SECONDS = 120.0
"""Generous: it only ends what has failed."""

EVENTS = 240
LATE_MS = 9_000
"""When the last of them is due: behind both kills."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
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
