"""How long from a produce call until a consumer that waits in a long poll has the event?"""

import json
import mmap
import os
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bench.harness import LAB, METER, SETTINGS
from bench.machine import CLIENT_CORE
from bench.servers import Broker

TOPIC = "bench-latency"
PERIOD_SECONDS = 0.02
WAIT_MS = 2000
PAGE_BYTES = 4096
ZEROED_BYTES = 4 << 20
_LENGTH = re.compile(rb"\r\nContent-Length: ([0-9]+)", re.IGNORECASE)


class Socket:
    """A keep-alive connection with as little of Python around each request as will do: http.client
    takes a fifth of what is measured here for itself."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection((host, port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, request: bytes) -> tuple[int, bytes, float]:
        """Status and body of the answer, and when the last of it came."""
        self._socket.sendall(request)
        answer = self._socket.recv(1 << 16)
        came = time.monotonic()
        head, _, body = answer.partition(b"\r\n\r\n")
        length = int(_LENGTH.findall(head)[0]) if b" 204 " not in head[:16] else 0
        while len(body) < length:
            body += self._socket.recv(1 << 16)
            came = time.monotonic()
        return int(head[9:12]), body, came

    def close(self) -> None:
        """End it."""
        self._socket.close()


class Waiter(threading.Thread):
    """A consumer of a group that is always in a poll, and notes when each event came."""

    def __init__(self, port: int, count: int) -> None:
        super().__init__(daemon=True)
        self.connection = Socket(port)
        self.count = count
        self.seconds: list[float] = []
        self.failure: BaseException | None = None

    def call(self, method: str, path: str) -> tuple[int, bytes, float]:
        """One request on this consumer's connection."""
        lines = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/x-ndjson\r\n\r\n"
        )
        return self.connection.call(lines.encode())

    def register(self) -> None:
        """Become the group's only consumer."""
        path = f"/v1/consumer/register?consumerId=bench&group=bench&topic={TOPIC}"
        status, body, _ = self.call("PUT", path + "&onNewGroup=startFromEarliest")
        assert status == 200, body

    def run(self) -> None:
        """Poll until all events have come."""
        try:
            os.sched_setaffinity(0, {CLIENT_CORE})
            while len(self.seconds) < self.count:
                status, body, now = self.call(
                    "POST", f"/v1/consumer/poll?consumerId=bench&waitMs={WAIT_MS}"
                )
                assert status in (200, 204), (status, body[:300])
                for line in body.splitlines():
                    self.seconds.append(now - json.loads(line)["value"]["sent"])
        except (OSError, ValueError, LookupError, AssertionError) as error:
            self.failure = error


class Disk:
    """Single writes of 4 KiB, durable, as the log makes one for each of these events."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0
        path.write_bytes(bytes(ZEROED_BYTES))
        self._file = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
        os.fsync(self._file)
        self._page = mmap.mmap(-1, PAGE_BYTES)  # Aligned, as O_DIRECT wants it.
        self._page[:] = b"x" * PAGE_BYTES

    def write(self) -> float:
        """Seconds of one write."""
        began = time.monotonic()
        os.pwrite(self._file, self._page, self._at)
        self._at = (self._at + PAGE_BYTES) % ZEROED_BYTES
        return time.monotonic() - began

    def close(self) -> None:
        """Remove the file."""
        os.close(self._file)
        self._path.unlink()


def produce_one(connection: Socket) -> float:
    """Post an event that carries its time; seconds until it was acknowledged."""
    head = (
        f"POST /v1/topic/{TOPIC}/messages?partitionKey=one HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: application/json\r\nContent-Length: "
    )
    sent = time.monotonic()
    body = json.dumps({"sent": sent, "filler": "x" * 160})
    status, text, came = connection.call(f"{head}{len(body)}\r\n\r\n{body}".encode())
    assert status == 200, text
    return came - sent


@pytest.fixture(scope="module")
def latencies(broker: Broker) -> dict[str, list[float]]:
    """Seconds until acknowledged, and until the waiting consumer had it, of every event."""
    with LAB.question("longpoll-p50", "longpoll-p99"):
        os.sched_setaffinity(0, {CLIENT_CORE})
        producer, disk = Socket(broker.port), Disk(broker.data_dir.with_name("bare-writes"))
        count = SETTINGS.latency_samples
        warm = min(20, count // 10)
        waiter = Waiter(broker.port, count)
        produce_one(producer)  # Creates the topic.
        waiter.register()
        waiter.start()
        acknowledged = []
        writes = []
        for _ in range(count - 1):
            time.sleep(PERIOD_SECONDS / 2)
            writes.append(disk.write())  # The consumer has its event, and waits again.
            time.sleep(PERIOD_SECONDS / 2)
            acknowledged.append(produce_one(producer))
            assert waiter.failure is None, waiter.failure
        disk.close()
        waiter.join(30)
        assert waiter.failure is None, waiter.failure
        assert len(waiter.seconds) == count, f"{len(waiter.seconds)} of {count} events came"
        found = {"acknowledged": acknowledged[warm:], "delivered": waiter.seconds[1 + warm :]}
        ordered = sorted(found["delivered"])
        p50, p99 = (ordered[int(len(ordered) * share)] * 1e3 for share in (0.5, 0.99))
        bare = sorted(writes[warm:])[len(writes[warm:]) // 2] * 1e3
        acked = sorted(found["acknowledged"])[len(ordered) // 2] * 1e3
        note = f"{len(ordered)} events, 50 a second; acknowledged after {acked:.2f} ms, "
        note += f"a bare durable write of 4 KiB {bare:.2f} ms"
        LAB.record("longpoll-p50", [p50], note=note, milliseconds=[s * 1e3 for s in ordered])
        LAB.record("longpoll-p99", [p99], note=f"max {ordered[-1] * 1e3:.2f} ms")
        return found


@pytest.mark.benchmark(group="latency on an idle machine, wall time", timer=METER.read)
@pytest.mark.parametrize("until", ("acknowledged", "delivered"))
def test_longpoll(benchmark: Any, latencies: dict[str, list[float]], until: str) -> None:
    """Wall time of each event from the produce call on."""
    METER.replay(benchmark, latencies[until])
