"""Three brokers: is a consumer that asks one broker served as well as one that asks each?

Six consumers of one group take all of a topic: each through one broker, or each at all three
(`scope=broker`, as the library does). Counted is CPU of all processes of all brokers. And on a ring
that has nothing else to do: how long from a produce until a consumer that waits has the event?
"""

import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench import taking
from bench.harness import LAB, METER, SETTINGS, ratios
from bench.ring import PRODUCE_PORT, SIZE, Ring, ring
from bench.taking import Taken, Tally, take
from bench.test_longpoll import Socket

TOPIC, IDLE_TOPIC = "bench-ring-polls", "bench-ring-idle"
CONSUMERS = 6
EVENTS = int(os.environ.get("BARCO_BENCH_QUEUE_EVENTS") or 60_000)
MAX_BYTES = 256 * 1024
PERIOD_SECONDS = 0.02
NAMES = itertools.count()
CASES = ("at each broker", "through one")


def _pids(brokers: Ring) -> list[int]:
    return [pid for ordinal in brokers.alive for pid in brokers.pids(ordinal)]


def _run(brokers: Ring, *, through_one: bool) -> Taken:
    group, tally = f"g{next(NAMES)}", Tally(EVENTS)
    places = [(host, PRODUCE_PORT) for host in brokers.hosts]
    consumers = [f"{group}-{number}" for number in range(CONSUMERS)]
    for number, name in enumerate(consumers):
        taking.register(places[number % SIZE], TOPIC, group, name)
    _settle(places, group)
    asked, scripts = [], []
    for number, name in enumerate(consumers):
        for at in [places[number % SIZE]] if through_one else places:
            scope = "" if through_one else "&scope=broker"
            asked.append(at)
            scripts.append(taking.polls(name, tally, MAX_BYTES, scope=scope))
    found = take(asked, scripts, taking.http_whole, _pids(brokers), tally)
    for number, name in enumerate(consumers):
        path = f"/v1/consumer/goodbye?consumerId={name}"
        taking.once(places[number % SIZE], taking.http("POST", path), 200)
    taking.once(places[0], taking.http("DELETE", f"/v1/groups/{group}"), 204)
    return found


def _settle(places: list[tuple[str, int]], group: str) -> None:
    """Until every broker has heard of all of them."""
    until = time.monotonic() + 10
    for at in places:
        while True:
            answer = taking.once(at, taking.http("GET", f"/v1/groups/{group}"), 200)
            if len(json.loads(answer.partition(b"\r\n\r\n")[2])["members"]) == CONSUMERS:
                break
            if time.monotonic() > until:
                raise taking.Wrong("not every broker has heard of all consumers")
            time.sleep(0.05)


class Waiter(threading.Thread):
    """Always in a poll of one broker; notes when each event came."""

    def __init__(self, host: str, consumer: str, scope: str, came: list[float]) -> None:
        super().__init__(daemon=True)
        self._link = Socket(PRODUCE_PORT, host)
        self._path = f"/v1/consumer/poll?consumerId={consumer}&waitMs=2000{scope}"
        self._came = came
        self.ended = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Until it is told to end."""
        try:
            request = taking.http("POST", self._path, Accept="application/x-ndjson")
            while not self.ended.is_set():
                status, body, now = self._link.call(request)
                assert status in (200, 204), (status, body[:300])
                for line in body.splitlines():
                    self._came.append(now - json.loads(line)["value"]["sent"])
        except (OSError, ValueError, LookupError, AssertionError) as error:
            self.failure = error


def _idle(brokers: Ring, *, through_one: bool) -> list[float]:
    """Seconds from a produce until the consumer had the event."""
    consumer, came = f"idle{next(NAMES)}", list[float]()
    hosts = list(brokers.hosts)
    at = (hosts[0], PRODUCE_PORT)
    taking.register(at, IDLE_TOPIC, consumer, consumer)
    time.sleep(1)
    if through_one:
        waiters = [Waiter(hosts[0], consumer, "", came)]
    else:
        waiters = [Waiter(host, consumer, "&scope=broker", came) for host in hosts]
    for waiter in waiters:
        waiter.start()
    links = [Socket(PRODUCE_PORT, host) for host in hosts]
    count = SETTINGS.latency_samples
    warm = min(20, count // 10)
    for number in range(count + warm):
        if number == warm:
            time.sleep(0.5)
            came.clear()
        time.sleep(PERIOD_SECONDS)
        body = json.dumps({"sent": time.monotonic(), "filler": "x" * 160}).encode()
        path = f"/v1/topic/{IDLE_TOPIC}/messages?partitionKey={number}"
        status, said, _ = links[number % SIZE].call(
            taking.http("POST", path, body, Content_Type="application/json")
        )
        assert status == 200, said
    until = time.monotonic() + 10
    while len(came) < count and time.monotonic() < until:
        time.sleep(0.05)
    for waiter in waiters:
        waiter.ended.set()
        waiter.join(10)
        assert waiter.failure is None, waiter.failure
    if len(came) != count:
        raise taking.Wrong(f"{len(came)} of {count} events came")
    path = f"/v1/consumer/goodbye?consumerId={consumer}"
    taking.once(at, taking.http("POST", path), 200)
    for link in links:
        link.close()
    return sorted(came)


def _at(ordered: list[float], share: float) -> float:
    return ordered[int(len(ordered) * share)] * 1e3


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, list[Taken]]]:
    """Both in turn, and then the latencies."""
    with LAB.question("ring-polls", "ring-poll-p50", "ring-poll-p99"), ring() as brokers:
        taking.fill([(host, PRODUCE_PORT) for host in brokers.hosts], TOPIC, EVENTS)
        done: dict[str, list[Taken]] = {name: [] for name in CASES}
        for number in range(SETTINGS.rounds):
            for turn in (0, 1):
                one = (number + turn) % 2 == 1
                done[CASES[one]].append(_run(brokers, through_one=one))
        each, one = ([run.per_core for run in done[name]] for name in CASES)
        note = f"{done[CASES[1]][-1].words()} against {done[CASES[0]][-1].words()}"
        LAB.record("ring-polls", ratios(one, each), note=note)
        taking.fill([(brokers.hosts[0], PRODUCE_PORT)], IDLE_TOPIC + "-warm", taking.BATCH)
        direct, hop = _idle(brokers, through_one=False), _idle(brokers, through_one=True)
        note = f"{len(direct)} events, 50 a second; through one broker {_at(hop, 0.5):.2f} ms"
        LAB.record("ring-poll-p50", [_at(direct, 0.5)], note=note)
        note = f"through one broker {_at(hop, 0.99):.2f} ms"
        LAB.record("ring-poll-p99", [_at(direct, 0.99)], note=note)
        yield done


@pytest.mark.benchmark(group="polls of a ring, CPU of all an event", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_ring_polls(benchmark: Any, runs: dict[str, list[Taken]], case: str) -> None:
    """Each way in CPU of all processes an event."""
    METER.replay(benchmark, [1 / run.per_core for run in runs[case]])
