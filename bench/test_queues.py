"""A queue's leases and acknowledgements: against polls, and against the queues of Redis and NATS.

One server on one core, eight connections that take batches of 100 events of 1 KiB until none is
left. Every acknowledgement is durable before it is answered; each event has to come once.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from bench import servers, taking, taking_peers
from bench.harness import LAB, METER, SETTINGS, ratios
from bench.machine import Missing
from bench.servers import Broker, Peer
from bench.taking import BATCH, Taken, Tally, take

TOPIC = "bench-queue"
CONNECTIONS = 8
EVENTS = int(os.environ.get("BARCO_BENCH_QUEUE_EVENTS") or 60_000)
NATS_EVENTS = EVENTS // 10
"""It syncs after each message and each acknowledgement, and takes its time."""
SINGLES = 4_000
NAMES = itertools.count()
CASES = ("polls", "leases and acks", "redis", "nats")


def _many(address: tuple[str, int]) -> list[tuple[str, int]]:
    return [address] * CONNECTIONS


def _polls(broker: Broker) -> Taken:
    """An ordinary group: a chunk, which has a batch, for each answer."""
    group, at, tally = f"g{next(NAMES)}", ("127.0.0.1", broker.port), Tally(EVENTS)
    consumers = [f"{group}-{number}" for number in range(CONNECTIONS)]
    for name in consumers:
        taking.register(at, TOPIC, group, name)
    scripts = [taking.polls(name, tally, 1) for name in consumers]
    found = take(_many(at), scripts, taking.http_whole, broker.pids, tally)
    for name in consumers:
        taking.once(at, taking.http("POST", f"/v1/consumer/goodbye?consumerId={name}"), 200)
    taking.once(at, taking.http("DELETE", f"/v1/groups/{group}"), 204)
    return found


def _leases(broker: Broker) -> Taken:
    group, at, tally = f"q{next(NAMES)}", ("127.0.0.1", broker.port), Tally(EVENTS)
    taking.make_queue(at, TOPIC, group)
    scripts = [taking.leases(TOPIC, group, tally, BATCH) for _ in range(CONNECTIONS)]
    found = take(_many(at), scripts, taking.http_whole, broker.pids, tally)
    taking.once(at, taking.http("DELETE", f"/v1/groups/{group}"), 204)
    return found


def _singles(broker: Broker) -> tuple[Taken, Taken]:
    """Leases of one event, and then an acknowledgement of each."""
    group, at, tally = f"s{next(NAMES)}", ("127.0.0.1", broker.port), Tally(SINGLES)
    taking.make_queue(at, TOPIC, group)
    scripts = [taking.leases(TOPIC, group, tally, 1, acks=False) for _ in range(CONNECTIONS)]
    leased = take(_many(at), scripts, taking.http_whole, broker.pids, tally)
    done = Tally(SINGLES)
    scripts = [
        taking.acknowledge(TOPIC, group, tally.names[number::CONNECTIONS], done)
        for number in range(CONNECTIONS)
    ]
    acked = take(_many(at), scripts, taking.http_whole, broker.pids, done)
    taking.once(at, taking.http("DELETE", f"/v1/groups/{group}"), 204)
    return leased, acked


def _redis(peer: Peer) -> Taken:
    group, tally = f"g{next(NAMES)}", Tally(EVENTS)
    taking_peers.redis_ask(peer.port, "XGROUP", "CREATE", TOPIC, group, "0")
    scripts = [taking_peers.redis_takes(TOPIC, group, f"c{n}", tally) for n in range(CONNECTIONS)]
    at = _many(("127.0.0.1", peer.port))
    found = take(at, scripts, taking_peers.resp_whole, peer.pids, tally)
    taking_peers.redis_ask(peer.port, "XGROUP", "DESTROY", TOPIC, group)
    return found


def _nats(peer: Peer) -> Taken:
    """What is acknowledged is gone there: a stream anew for each round."""
    stream, tally = f"w{next(NAMES)}", Tally(NATS_EVENTS)
    taking_peers.nats_fill(peer.port, stream, NATS_EVENTS)
    scripts = [taking_peers.nats_takes(stream, f"c{n}", tally) for n in range(CONNECTIONS)]
    at = _many(("127.0.0.1", peer.port))
    found = take(at, scripts, taking_peers.nats_whole, peer.pids, tally)
    taking_peers.nats_drop(peer.port, stream)
    return found


def _peers(stack: ExitStack) -> dict[str, Callable[[], Taken]]:
    """Those that are installed."""
    found: dict[str, Callable[[], Taken]] = {}
    for case, row, start, run in (
        (CASES[2], "queue-redis", servers.redis, _redis),
        (CASES[3], "queue-nats", servers.nats, _nats),
    ):
        try:
            peer = stack.enter_context(start())
        except Missing as error:
            LAB.missing(row, str(error))
            continue
        if run is _redis:
            taking_peers.redis_fill(peer.port, TOPIC, EVENTS)
        found[case] = partial(run, peer)
    return found


@pytest.fixture(scope="module")
def runs(broker: Broker) -> Iterator[dict[str, list[Taken]]]:
    """All in turn, in an order that rotates."""
    with LAB.question("queue", "queue-single"), ExitStack() as stack:
        taking.fill([("127.0.0.1", broker.port)], TOPIC, EVENTS)
        cases = {CASES[0]: partial(_polls, broker), CASES[1]: partial(_leases, broker)}
        cases |= _peers(stack)
        names = list(cases)
        done: dict[str, list[Taken]] = {name: [] for name in names}
        singles: list[tuple[Taken, Taken]] = []
        for number in range(SETTINGS.rounds):
            at = number % len(names)
            for name in names[at:] + names[:at]:
                done[name].append(cases[name]())
            singles.append(_singles(broker))
        _record(done, singles)
        yield done


def _record(done: dict[str, list[Taken]], singles: list[tuple[Taken, Taken]]) -> None:
    ours = [run.per_core for run in done[CASES[1]]]
    rows = {"queue": CASES[0], "queue-redis": CASES[2], "queue-nats": CASES[3]}
    for row, case in rows.items():
        if case in done:
            theirs = [run.per_core for run in done[case]]
            note = f"{done[CASES[1]][-1].words()} against {done[case][-1].words()}"
            LAB.record(row, ratios(ours, theirs), note=note)
    costs = [[1e6 * run.cpu / run.events for run in both] for both in singles]
    note = f"an ack of one event {costs[-1][1]:.1f} µs more"
    LAB.record("queue-single", [cost[0] for cost in costs], note=note)


@pytest.mark.benchmark(group="queues, server CPU an event", timer=METER.read)
@pytest.mark.parametrize("case", CASES)
def test_queues(benchmark: Any, runs: dict[str, list[Taken]], case: str) -> None:
    """Each in its CPU an event."""
    if case not in runs:
        pytest.skip(f"{case} is not installed")
    METER.replay(benchmark, [1 / run.per_core for run in runs[case]])
