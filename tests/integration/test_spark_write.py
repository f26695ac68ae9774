"""What Spark's tasks and drivers do to a real broker, without Spark: staged, killed, committed."""

import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="no pyarrow: pip install 'barco[spark]'")
pytest.importorskip("pyspark", reason="no pyspark: pip install 'barco[spark]'")

sys.path.insert(0, str(Path(__file__).parent))

from running import RunningBroker

import barco
from barco.spark.commit import (
    CommitError,
    Shard,
    Staged,
    WriteOptions,
    abort,
    commit,
    new_attempt,
    ring_of,
    write_path,
)
from barco.spark.stage import StageError, Task

ROWS = 4000


def options(broker: RunningBroker, **more: Any) -> WriteOptions:
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    return WriteOptions(endpoints=(endpoint,), topic="t", timeout_s=60, **more)


def batches(first: int, count: int = ROWS, size: int = 500) -> "Iterator[pa.RecordBatch]":
    for start in range(first, first + count, size):
        numbers = range(start, min(start + size, first + count))
        keys = [b"key-%d" % (n % 97) for n in numbers]
        values = [b'{"id":%d,"text":"%s"}' % (n, b"." * (n % 300)) for n in numbers]
        yield pa.record_batch({"key": pa.array(keys), "value": pa.array(values)})


def stage(options: WriteOptions, partition: int, batch: int = 0, writer: str = "job") -> Staged:
    """One try of a task; every partition has rows of its own."""
    staged = Staged(writer, partition, new_attempt(partition))
    return Task(options, ring_of(options), batch, staged).write(batches(partition * ROWS))


def stored(broker: RunningBroker, topic: str = "t") -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    with barco.Consumer(
        topic, group=f"g{time.monotonic()}", endpoint=endpoint, start="earliest"
    ) as c:
        while events := c.poll(2.0):
            found.update(event.value for event in events)
    return found


def expected(*partitions: int) -> Counter[bytes]:
    return Counter(
        value.as_py()
        for partition in partitions
        for batch in batches(partition * ROWS)
        for value in batch.column("value")
    )


def checksum(found: Counter[bytes]) -> str:
    return hashlib.sha256(b"".join(sorted(found.elements()))).hexdigest()


def check(broker: RunningBroker, *partitions: int) -> None:
    found, wanted = stored(broker), expected(*partitions)
    assert found.total() == wanted.total() and checksum(found) == checksum(wanted)


class Killer(threading.Thread):
    """Kills workers of the broker in turn, until it is ended; then all of them are there again."""

    def __init__(self, broker: RunningBroker, times: int, pause: float) -> None:
        super().__init__(daemon=True)
        self.broker, self.times, self.pause = broker, times, pause
        self.kills = 0
        self.start()

    def run(self) -> None:
        for number in range(self.times):
            time.sleep(self.pause)
            pids = self.broker.worker_pids()
            os.kill(pids[number % len(pids)], signal.SIGKILL)
            self.kills += 1
            self.broker.wait_ready()

    def end(self) -> None:
        self.join(120)
        assert self.kills == self.times
        self.broker.wait_ready()


def test_attempts_that_lost_are_never_seen(broker: RunningBroker) -> None:
    given = options(broker)
    lost = [stage(given, 0), stage(given, 1)]
    won = [stage(given, 1), stage(given, 0)]
    assert stored(broker) == Counter()
    assert commit(given, 0, won) == 2 * ROWS
    check(broker, 0, 1)
    assert commit(given, 0, won) == 2 * ROWS, "again, the same answer"
    assert commit(given, 0, [stage(given, 0), stage(given, 1)]) == 2 * ROWS, "the job again"
    check(broker, 0, 1)
    with pytest.raises(CommitError, match="not 2000|not 4000|is not the same|events"):
        commit(given, 0, lost[:1])
    check(broker, 0, 1)


def test_batches_that_are_not_compressed(broker: RunningBroker) -> None:
    given = options(broker, acceleration=0)
    assert commit(given, 0, [stage(given, 0)]) == ROWS
    check(broker, 0)


def test_nothing_is_left_of_what_is_given_up(broker: RunningBroker) -> None:
    given = options(broker)
    staged = stage(given, 0)
    abort(given, "job", 0)
    with pytest.raises(CommitError, match="nothing of it is visible"):
        commit(given, 0, [staged])
    assert stored(broker) == Counter()
    metrics = broker.request("GET", "/metrics", listener="metrics").body.decode()
    assert "\nbarco_staged_writes 0\n" in metrics and "\nbarco_staged_bytes 0\n" in metrics


def test_killed_workers_while_tasks_stage(broker: RunningBroker) -> None:
    given = options(broker, piece_bytes=20_000)
    killer = Killer(broker, 3, 0.3)
    staged = []
    try:
        while killer.is_alive() or len(staged) < 4:
            if len(staged) >= 40:
                break
            staged.append(stage(given, len(staged)))
    finally:
        killer.end()
    assert commit(given, 0, staged) == len(staged) * ROWS
    check(broker, *range(len(staged)))


@pytest.mark.parametrize("at", [(0, 1, 2), (3, 4)])
def test_killed_at_every_step_of_a_commit(
    start_broker: Callable[..., RunningBroker], at: tuple[int, ...]
) -> None:
    """SIGKILL of both workers before and after each request of a driver, who then goes on.

    In two lives of a broker: five deaths in half a minute would be a crash loop.
    """
    broker = start_broker()
    for batch, fatal in enumerate(at):
        given = options(broker)
        staged = [stage(given, 2 * batch, batch), stage(given, 2 * batch + 1, batch)]
        shares = {endpoint for each in staged for endpoint in each.rows}
        for step in range(2 * len(shares) + 1):
            if step == fatal:
                for pid in broker.worker_pids():
                    os.kill(pid, signal.SIGKILL)
            _step(staged, batch, sorted(shares), step)
        assert commit(given, batch, staged) == 2 * ROWS
        check(broker, *range(2 * batch + 2))


def _step(staged: list[Staged], batch: int, endpoints: list[str], step: int) -> None:
    """The first requests of a driver that dies then: prepare everywhere, commit somewhere."""
    if step >= 2 * len(endpoints) - 1:
        return
    state = "prepared" if step < len(endpoints) else "committed"
    endpoint = endpoints[step % len(endpoints)]
    rows: dict[str, dict[int, int]] = {}
    for each in staged:
        for topic, slices in each.rows[endpoint].items():
            for index, count in slices.items():
                into = rows.setdefault(topic, {})
                into[index] = into.get(index, 0) + count
    body = {"state": state, "attempts": [each.attempt for each in staged], "rows": rows}
    shard = Shard(endpoint, 60)
    answer = shard.put(write_path("job", batch), json.dumps(body).encode(), "application/json")
    shard.close()
    assert answer.status == 200, answer


def test_the_whole_broker_is_killed_between_the_steps(
    start_broker: Callable[..., RunningBroker],
) -> None:
    broker = start_broker()
    given = options(broker)
    staged = [stage(given, 0), stage(given, 1)]
    before = [f"127.0.0.1:{broker.port(shard=n)}" for n in range(2)]
    _step(staged, 0, before, 0)
    _step(staged, 0, before, 1)
    broker.kill()
    broker.restart()
    # It has other ports now: what tasks reported still names the old ones.
    after = [f"127.0.0.1:{broker.port(shard=n)}" for n in range(2)]
    for each in staged:
        each.rows = {after[before.index(name)]: rows for name, rows in each.rows.items()}
    assert commit(options(broker), 0, staged) == 2 * ROWS
    check(broker, 0, 1)


def test_rows_that_cannot_be_events(broker: RunningBroker) -> None:
    given = options(broker)
    ring = ring_of(given)
    for rows in (
        {"value": pa.array([b"x" * (2 << 20)])},
        {"value": pa.array([b"x"]), "key": pa.array([b"k" * 70_000])},
        {"value": pa.array([None], pa.binary())},
    ):
        task = Task(given, ring, 0, Staged("odd", 0, new_attempt(0)))
        with pytest.raises(StageError):
            task.write([pa.record_batch(rows)])
    assert stored(broker) == Counter()


def test_several_topics_and_times(broker: RunningBroker) -> None:
    given = WriteOptions(endpoints=options(broker).endpoints, timeout_s=60)
    hours = [n * 3_600_000_000 + 1 for n in range(100)]  # More than a batch's timestamps span.
    rows = pa.record_batch(
        {
            "topic": pa.array(["a", "b"] * 50),
            "value": pa.array([b"%d" % n for n in range(100)]),
            "timestamp": pa.array(hours, pa.timestamp("us", "UTC")),
        }
    )
    staged = Task(given, ring_of(given), 7, Staged("w", 0, new_attempt(0))).write([rows])
    assert commit(given, 7, [staged]) == 100
    assert stored(broker, "a") == Counter(b"%d" % n for n in range(0, 100, 2))
    assert stored(broker, "b") == Counter(b"%d" % n for n in range(1, 100, 2))


@pytest.mark.chaos
def test_ten_kills_in_each_of_both_phases(start_broker: Callable[..., RunningBroker]) -> None:
    broker = start_broker()
    given = options(broker, piece_bytes=5_000)
    # Slower than a crash loop.
    killer, batch = Killer(broker, 10, 8.0), 0
    while killer.is_alive() and batch < 2_000:
        commit(given, batch, [stage(given, batch, batch)])
        batch += 1
    killer.end()
    check(broker, *range(batch))
