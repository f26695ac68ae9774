"""Group consumption against real brokers: nothing lost, nothing skipped, order kept."""

import base64
import os
import random
import signal
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from running import RunningBroker, key_of


def lines(*values: object) -> bytes:
    return "".join(f"{value}\n" for value in values).encode()


def test_two_consumers_get_everything_once_and_in_order(broker: RunningBroker) -> None:
    keys = [f"key-{n}" for n in range(40)]
    for round_ in range(10):
        for number, key in enumerate(keys):
            broker.produce(
                "t", lines(number * 1000 + round_ * 2, number * 1000 + round_ * 2 + 1), key=key
            )
    assert broker.register("a", "t").body == b"OK"
    assert broker.register("b", "t").body == b"OK"
    got: dict[str, list[int]] = {"a": [], "b": []}
    end = time.monotonic() + 20
    while sum(map(len, got.values())) < 800 and time.monotonic() < end:
        for name in got:
            got[name] += broker.values(name)
    assert got["a"] and got["b"]
    by_key = defaultdict(list)
    for values in got.values():
        for value in values:
            by_key[value // 1000].append(value % 1000)
    assert by_key == {number: list(range(20)) for number in range(40)}
    assert broker.values("a") == broker.values("b") == []


def test_committed_positions_survive_kill_9_and_uncommitted_events_come_again(
    broker: RunningBroker,
) -> None:
    broker.produce("t", lines(*range(10)), key="x")
    broker.register("c", "t")
    assert broker.values("c") == list(range(10))
    assert broker.commit("c").status == 204
    broker.produce("t", lines(*range(10, 20)), key="x")
    assert broker.values("c") == list(range(10, 20))
    broker.kill()
    broker.restart()
    assert broker.poll("c").status == 409  # Registrations are not kept.
    assert broker.register("c", "t").body == b"OK"
    assert broker.values("c") == list(range(10, 20))
    assert broker.goodbye("c").body == b"OK"
    assert broker.stop() == 0
    broker.restart()
    broker.register("c", "t")
    assert broker.values("c") == []


def test_a_poll_commits_the_one_before(broker: RunningBroker) -> None:
    broker.produce("t", lines(1), key="x")
    broker.register("c", "t")
    assert broker.values("c") == [1]
    assert broker.values("c", waitMs=200) == []
    broker.kill()
    broker.restart()
    broker.register("c", "t")
    assert broker.values("c") == []


def test_start_from_latest_does_not_skip_over_a_restart(broker: RunningBroker) -> None:
    broker.produce("t", lines(1), key="x")
    broker.register("c", "t", onNewGroup="startFromLatest")
    broker.produce("t", lines(2), key="x")
    broker.produce("u", lines(3), key="x")
    broker.kill()
    broker.restart()
    broker.register("c", "t", onNewGroup="startFromLatest")
    assert broker.values("c") == [2]


@pytest.mark.parametrize("slice_", range(0, 8, 3))
def test_a_long_poll_wakes_up_wherever_the_event_lands(broker: RunningBroker, slice_: int) -> None:
    key = key_of(broker, "t", slice_)
    broker.register("c", "t")
    with ThreadPoolExecutor(1) as pool:
        for number in range(5):
            waiting = pool.submit(broker.values, "c", waitMs=28_000)
            time.sleep(0.1)
            began = time.monotonic()
            broker.produce("t", lines(number), key=key)
            assert waiting.result(60) == [number]
            assert time.monotonic() - began < 24, "less than the wait: the event has ended it"


def test_a_long_poll_ends_in_time(broker: RunningBroker) -> None:
    broker.register("c", "t")
    began = time.monotonic()
    answer = broker.poll("c", waitMs=300)
    assert answer.status == 204 and answer.headers["retry-after"] == "1"
    assert 0.25 < time.monotonic() - began < 20


def test_clients_that_go_away_lose_nothing(broker: RunningBroker) -> None:
    broker.register("c", "t")
    expected = []
    got: list[int] = []
    for number in range(30):
        with socket.create_connection(("127.0.0.1", broker.port())) as gone:
            gone.sendall(
                b"POST /v1/consumer/poll?consumerId=c&waitMs=20000&delivery= HTTP/1.1\r\n"
                b"Host: localhost\r\nContent-Length: 0\r\n\r\n"
            )
            time.sleep(0.01)
            if number % 2:
                # The event and the end of the connection cross each other.
                broker.produce("t", lines(number), key=str(number))
                expected.append(number)
        if number % 3 == 0:
            time.sleep(0.01)
    delivery = ""
    end = time.monotonic() + 60
    while len(set(got)) < len(expected) and time.monotonic() < end:
        answer = broker.poll("c", waitMs=200, delivery=delivery)
        delivery = answer.headers.get("barco-delivery", delivery)
        if answer.status == 200:
            got += [value for item in answer.json for value in item["values"]]
    assert sorted(set(got)) == expected


def aborted(broker: RunningBroker) -> int:
    """Requests whose clients went away before their answers, as the broker has noticed so far."""
    lines = broker.request("GET", "/metrics").body.decode().splitlines()
    found = [line for line in lines if line.startswith("barco_aborted_requests_total")]
    return sum(int(line.split()[1]) for line in found)


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.parametrize("engine", ["io_uring", "epoll"])
def test_a_client_that_went_away_is_handed_nothing(
    start_broker: Callable[..., RunningBroker], engine: str
) -> None:
    broker = start_broker(engine=engine)
    broker.register("c", "t")
    poll = b"POST /v1/consumer/poll?consumerId=c&waitMs=20000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for number in range(10):
        with socket.create_connection(("127.0.0.1", broker.port())) as gone:
            gone.sendall(poll)
            time.sleep(0.05)
        wait_until(lambda number=number: aborted(broker) > number)
        # Without naming deliveries: what the dead client was given would be lost.
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(broker.values, "c", waitMs=5000)
            time.sleep(0.05)
            broker.produce("t", lines(number), key=str(number))
            assert waiting.result(30) == [number]


def test_the_dead_keep_their_slices_for_as_long_as_they_said(broker: RunningBroker) -> None:
    for number in range(8):
        broker.produce("t", lines(number), key=key_of(broker, "t", number))
    broker.register("dead", "t", sessionMs=5_000)
    broker.register("lives", "t", sessionMs=5_000)
    assert len(broker.values("dead")) == len(broker.values("lives")) == 4
    began, got = time.monotonic(), []
    while len(got) < 4 and time.monotonic() < began + 60:
        # One that waits is alive, for however long.
        answer = broker.poll("lives", waitMs=30_000)
        assert answer.status == 200, answer
        got += [value for item in answer.json for value in item["values"]]
    assert len(got) == 4 and time.monotonic() - began > 3


@pytest.mark.parametrize("engine", ["io_uring", "epoll"])
def test_an_answer_that_breaks_in_its_middle_comes_again(
    start_broker: Callable[..., RunningBroker], engine: str
) -> None:
    """Also to a client that names no deliveries; what it read to its end does not."""
    broker = start_broker(engine=engine)
    broker.register("c", "t")
    size, count = 400_000, 30  # More than the buffers of both sockets hold.
    for number in range(count):
        noise = base64.b64encode(random.Random(number).randbytes(size * 3 // 4))
        broker.produce("t", b'"%02d%s"' % (number, noise), key="k")
    for kind in ("application/json", "application/x-ndjson", "application/vnd.barco.chunks"):
        with socket.create_connection(("127.0.0.1", broker.port())) as broken:
            broken.sendall(
                b"POST /v1/consumer/poll?consumerId=c&maxBytes=16000000 HTTP/1.1\r\n"
                b"Host: localhost\r\nAccept: %s\r\n\r\n" % kind.encode()
            )
            assert broken.recv(1000).startswith(b"HTTP/1.1 200 OK")
    got = broker.values("c", maxBytes=16_000_000)
    assert [value[:2] for value in got] == [f"{number:02d}" for number in range(count)]
    assert broker.values("c") == []


def test_a_client_that_closes_its_side_gets_its_answers(broker: RunningBroker) -> None:
    broker.produce("t", lines(1))
    broker.register("c", "t")
    with socket.create_connection(("127.0.0.1", broker.port())) as half:
        half.sendall(
            b"GET /v1/topics/t HTTP/1.1\r\nHost: localhost\r\n\r\n"
            b"POST /v1/consumer/poll?consumerId=c HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        half.shutdown(socket.SHUT_WR)
        half.settimeout(5)
        received = b""
        while data := half.recv(65_536):
            received += data
    assert received.count(b"HTTP/1.1 200 OK") == 2 and b'"values":[1]' in received


def test_a_worker_that_dies_delays_its_slices_and_loses_nothing(broker: RunningBroker) -> None:
    for slice_ in range(8):
        broker.produce("t", lines(slice_), key=key_of(broker, "t", slice_))
    broker.register("c", "t")
    got = set(broker.values("c"))
    assert got == set(range(8))
    for pid in broker.worker_pids():
        os.kill(pid, signal.SIGKILL)
        broker.wait_ready()
        got = set()
        end = time.monotonic() + 10
        while len(got) < 4 and time.monotonic() < end:
            answer = broker.poll("c", waitMs=200)
            assert answer.status in (200, 204, 409, 503), answer
            if answer.status == 409:
                broker.register("c", "t")
            elif answer.status == 200:
                got |= {value for item in answer.json for value in item["values"]}
        # What its predecessor had handed out and not committed is handed out again; and so is
        # what the other one had, if it was the dead one that wrote the answer.
        assert got in ({0, 1, 2, 3}, {4, 5, 6, 7}, set(range(8)), set())
    group = broker.request("GET", "/v1/groups/g").json
    assert {place["endOffset"] for place in group["positions"]} == {"1"}


def test_while_one_produces_and_workers_die_everything_arrives(broker: RunningBroker) -> None:
    broker.register("c", "t")
    stop = threading.Event()
    acknowledged: list[int] = []

    def produce() -> None:
        number = 0
        while not stop.is_set():
            answer = None
            try:
                answer = broker.request(
                    "POST", "/v1/topic/t/messages", {"partitionKey": str(number % 50)},
                    body=str(number).encode(), listener="produce", timeout=20,
                )  # fmt: skip
            except OSError:
                pass
            if answer is not None and answer.status == 200:
                acknowledged.append(number)
            number += 1

    producer = threading.Thread(target=produce)
    producer.start()
    got: set[int] = set()
    try:
        for round_ in range(4):
            end = time.monotonic() + 1.5
            if round_:
                os.kill(broker.worker_pids()[round_ % 2], signal.SIGKILL)
            while time.monotonic() < end:
                got |= set(_try_values(broker, "c"))
    finally:
        stop.set()
        producer.join()
    end = time.monotonic() + 120
    while not set(acknowledged) <= got and time.monotonic() < end:
        got |= set(_try_values(broker, "c"))
    assert set(acknowledged) <= got and len(acknowledged) > 10  # Few on a busy machine.


def _try_values(broker: RunningBroker, consumer: str) -> list[int]:
    try:
        answer = broker.poll(consumer, waitMs=100)
    except OSError:
        return []
    if answer.status == 409:
        broker.register(consumer, "t")
    if answer.status != 200:
        return []
    return [value for item in answer.json for value in item["values"]]


def test_a_leaver_hands_over_at_once(broker: RunningBroker) -> None:
    broker.register("a", "t")
    broker.register("b", "t")
    for slice_ in range(8):
        broker.produce("t", lines(slice_), key=key_of(broker, "t", slice_))
    first = broker.values("a")
    assert len(first) == 4
    assert broker.goodbye("a").status == 200
    assert sorted(first + broker.drain("b", 4)) == list(range(8))


def test_any_listener_and_any_worker_takes_any_consumer(broker: RunningBroker) -> None:
    assert broker.register("c", "t").status == 200
    for number, where in enumerate(
        [{"listener": name} for name in broker.ready["ports"]] + [{"shard": 0}, {"shard": 1}]
    ):
        broker.produce("t", lines(number))
        answer = broker.request(
            "POST", "/v1/consumer/poll", {"consumerId": "c", "waitMs": 5000}, **where
        )
        assert answer.status == 200 and answer.json[0]["values"] == [number]


def test_a_stop_does_not_wait_for_long_polls(broker: RunningBroker) -> None:
    broker.register("c", "t")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.poll, "c", waitMs=60_000)
        time.sleep(0.3)
        began = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - began < 30
        assert waiting.result(30).status in (204, 503)


def test_what_has_left_memory_is_read_from_disk(
    start_broker: Callable[..., RunningBroker],
) -> None:
    broker = start_broker(
        workers=1,
        limits_memory_bytes=32 << 20,
        limits_request_bytes_max=1 << 20,
        limits_event_bytes_max=1 << 20,
    )
    for number in range(60):
        body = f"{number:04d}".encode() + os.urandom(400_000)
        broker.produce("t", body, key="x", kind="application/octet-stream")
    broker.register("c", "t")
    seen: list[int] = []
    end = time.monotonic() + 30
    from barco import _native

    while len(seen) < 60 and time.monotonic() < end:
        answer = broker.poll("c", accept="application/vnd.barco.chunks", waitMs=500)
        assert answer.status in (200, 204)
        for at, *_ in _native.chunks_scan(answer.body):
            seen += [int(value[:4]) for _, _, _, value in _native.chunk_events(answer.body, at)]
    assert seen == list(range(60))


def test_the_epoll_engine_serves_the_same(start_broker: Callable[..., RunningBroker]) -> None:
    broker = start_broker(engine="epoll")
    assert broker.request("GET", "/status").json["engine"] == "epoll"
    broker.register("c", "t")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(broker.values, "c", waitMs=20_000)
        time.sleep(0.1)
        broker.produce("t", lines(1), key="x")
        assert waiting.result(30) == [1]
    assert broker.commit("c").status == 204
