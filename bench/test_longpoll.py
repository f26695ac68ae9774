"""How long from a produce call until a consumer that waits in a long poll has the event?"""

import http.client
import json
import os
import threading
import time
from typing import Any

import pytest

from bench.harness import LAB, METER, SETTINGS
from bench.machine import CLIENT_CORE
from bench.servers import Broker

TOPIC = "bench-latency"
PERIOD_SECONDS = 0.02
WAIT_MS = 2000


class Waiter(threading.Thread):
    """A consumer of a group that is always in a poll, and notes when each event came."""

    def __init__(self, port: int, count: int) -> None:
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.count = count
        self.seconds: list[float] = []
        self.failure: BaseException | None = None

    def call(self, method: str, path: str) -> tuple[int, bytes]:
        """One request on this consumer's connection."""
        headers = {"Accept": "application/x-ndjson"}
        self.connection.request(method, path, headers=headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def register(self) -> None:
        """Become the group's only consumer."""
        path = f"/v1/consumer/register?consumerId=bench&group=bench&topic={TOPIC}"
        status, body = self.call("PUT", path + "&onNewGroup=startFromEarliest")
        assert status == 200, body

    def run(self) -> None:
        """Poll until all events have come."""
        try:
            os.sched_setaffinity(0, {CLIENT_CORE})
            while len(self.seconds) < self.count:
                status, body = self.call(
                    "POST", f"/v1/consumer/poll?consumerId=bench&waitMs={WAIT_MS}"
                )
                now = time.monotonic()
                assert status in (200, 204), (status, body[:300])
                for line in body.splitlines():
                    self.seconds.append(now - json.loads(line)["value"]["sent"])
        except (OSError, ValueError, LookupError, AssertionError) as error:
            self.failure = error


def produce_one(connection: http.client.HTTPConnection) -> float:
    """Post an event that carries its time; seconds until it was acknowledged."""
    sent = time.monotonic()
    body = json.dumps({"sent": sent, "filler": "x" * 160})
    path = f"/v1/topic/{TOPIC}/messages?partitionKey=one"
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    assert answer.status == 200, text
    return time.monotonic() - sent


@pytest.fixture(scope="module")
def latencies(broker: Broker) -> dict[str, list[float]]:
    """Seconds until acknowledged, and until the waiting consumer had it, of every event."""
    with LAB.question("longpoll-p50", "longpoll-p99"):
        producer = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=30)
        count = SETTINGS.latency_samples
        warm = min(20, count // 10)
        waiter = Waiter(broker.port, count)
        produce_one(producer)  # Creates the topic.
        waiter.register()
        waiter.start()
        acknowledged = []
        for _ in range(count - 1):
            time.sleep(PERIOD_SECONDS)
            acknowledged.append(produce_one(producer))
            assert waiter.failure is None, waiter.failure
        waiter.join(30)
        assert waiter.failure is None, waiter.failure
        assert len(waiter.seconds) == count, f"{len(waiter.seconds)} of {count} events came"
        found = {"acknowledged": acknowledged[warm:], "delivered": waiter.seconds[1 + warm :]}
        ordered = sorted(found["delivered"])
        p50, p99 = (ordered[int(len(ordered) * share)] * 1e3 for share in (0.5, 0.99))
        note = f"{len(ordered)} events, 50 a second"
        LAB.record("longpoll-p50", [p50], note=note, milliseconds=[s * 1e3 for s in ordered])
        LAB.record("longpoll-p99", [p99], note=f"max {ordered[-1] * 1e3:.2f} ms")
        return found


@pytest.mark.benchmark(group="latency on an idle machine, wall time", timer=METER.read)
@pytest.mark.parametrize("until", ("acknowledged", "delivered"))
def test_longpoll(benchmark: Any, latencies: dict[str, list[float]], until: str) -> None:
    """Wall time of each event from the produce call on."""
    METER.replay(benchmark, latencies[until])
