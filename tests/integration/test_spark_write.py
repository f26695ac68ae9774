"""What Spark's tasks and drivers do to a real broker, without Spark: staged, killed, committed."""

import hashlib
import json
import os
import random
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
from test_timestamps import chunks_of

import barco
from barco import _native
from barco.client.wire.access import Access
from barco.client.wire.batching import SliceKey
from barco.client.wire.http1 import Response
from barco.client.wire.ring import Ring
from barco.model.token import TOKEN_MIN
from barco.spark.write.commit import (
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
from barco.spark.write.rows import StageError
from barco.spark.write.stage import Task

ROWS = 4000


def options(broker: RunningBroker, **more: Any) -> WriteOptions:
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    return WriteOptions(access=Access.of(endpoint), topic="t", timeout_s=60, **more)


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
    shard = Shard(Access.of(endpoint), endpoint, 60)
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
        each.tokens = {after[before.index(name)]: token for name, token in each.tokens.items()}
    assert commit(options(broker), 0, staged) == 2 * ROWS
    check(broker, 0, 1)


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def columns_with(wrong: dict[str, Any], count: int = 50) -> "pa.RecordBatch":
    """Good rows, and one that is not."""
    rows = [{"key": b"key-%d" % n, "value": b"value-%d" % n} for n in range(count)]
    rows[count // 2] |= wrong
    if "timestamp" in wrong:
        rows = [{"timestamp": time.time_ns() // 1000} | row for row in rows]
    types = {"key": pa.binary(), "value": pa.binary(), "partition": pa.int32()}
    types["timestamp"] = pa.int64()
    types["headers"] = HEADERS
    return pa.record_batch(
        {n: pa.array([row.get(n) for row in rows], types[n]) for n in {**rows[0], **wrong}}
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"value": b"v" * (2 << 20)}, r"413.*2097158 bytes.*key b'key-25'.*\(2097152 bytes\)"),
        ({"key": b"k" * 70_000}, r"key b'kkk.*\(70000 bytes\) and value b'value-25'.*65535"),
        ({"headers": [{"key": "A b", "value": b"x"}]}, r"key b'key-25'.*at most 64 headers"),
        ({"headers": [{"key": "a", "value": b"x" * 16384}]}, r"key b'key-25'.*at most 64 headers"),
        ({"headers": [{"key": "a", "value": None}]}, r"key b'key-25'.*key or value is null"),
        ({"partition": 8}, r"key-25.*value-25.*partitions are 0 to 7"),
        ({"timestamp": 0}, r"400: .* 10 years.*in column timestamp of .*key b'key-25'"),
        ({"timestamp": -5}, r"400: .* 10 years.*in column timestamp of .*key b'key-25'"),
        (
            {"timestamp": -62135596800000001},
            r"key-25' and value b'value-25'.*timestamp, -62135596800000001,.*column timestamp",
        ),
        ({"timestamp": 2**63 - 1}, r"key b'key-25' and value b'value-25'.*column timestamp"),
        ({"timestamp": 10**15}, r"400: .* 10 years.*in column timestamp of .*key b'key-25'"),
        ({"partition": -1, "key": None}, r"without a key and value b'value-25'.*0 to 7"),
    ],
    ids=[
        "large",
        "long key",
        "name of a header",
        "long header",
        "null header",
        "no such partition",
        "time 0",
        "before 1970",
        "before the year 1",
        "latest",
        "2001",
        "negative partition",
    ],
)
def test_rows_that_cannot_be_events_are_named(
    broker: RunningBroker, wrong: dict[str, Any], said: str
) -> None:
    given = options(broker)
    task = Task(given, ring_of(given), 0, Staged("odd", 0, new_attempt(0)))
    with pytest.raises(StageError, match=said):
        task.write([columns_with(wrong)])
    assert stored(broker) == Counter()


def test_a_job_of_too_many_tasks_is_refused_by_the_first_that_is_too_many() -> None:
    """Nobody is asked: there is nobody at the endpoint."""
    nobody = Ring.build({TOKEN_MIN: 1}, {SliceKey(TOKEN_MIN, 0): "127.0.0.1:1"})
    given = WriteOptions(access=Access.of("127.0.0.1:1"), topic="t", timeout_s=1)
    rows = columns_with({})
    task = Task(given, nobody, 0, Staged("w", 10_000, new_attempt(10_000)))
    with pytest.raises(StageError, match=r"task 10000.*10,000.*coalesce\(1000\)"):
        task.write([rows])
    empty = Task(given, nobody, 0, Staged("w", 10_000, new_attempt(10_000)))
    assert empty.write([rows.slice(0, 0)]).rows == {}, "without rows it is in nobody's way"


def test_times_of_three_years_in_no_order(broker: RunningBroker) -> None:
    """As many batches as the rows would be with one time; each row keeps its own."""
    count, now = 60_000, time.time_ns() // 1000
    chance = random.Random(3)
    times = [now - chance.randrange(3 * 365 * 86_400_000_000) for _ in range(count)]
    columns = {
        "key": pa.array([b"k%d" % (n % 97) for n in range(count)]),
        "value": pa.array([b"%d" % n for n in range(count)]),
        "timestamp": pa.array(times, pa.int64()),
    }
    rows = pa.record_batch(columns)
    given = options(broker)
    staged = Task(given, ring_of(given), 0, Staged("y", 0, new_attempt(0))).write([rows])
    assert commit(given, 0, [staged]) == count
    chunks = chunks_of(broker, "t")
    assert len(chunks) <= 8, "one for each slice"
    found = {
        int(value): time_us for chunk in chunks
        for _, time_us, _, value in _native.chunk_events(chunk)
    }  # fmt: skip
    assert found == dict(enumerate(times))
    # The last of a batch is looked at as well as the first.
    late = columns | {"timestamp": pa.array([*times[:-1], now + 10**12], pa.int64())}
    task = Task(given, ring_of(given), 1, Staged("y", 0, new_attempt(0)))
    with pytest.raises(StageError, match=f"10 years.*column timestamp of .*b'{count - 1}'"):
        task.write([pa.record_batch(late)])


def test_a_partition_is_where_a_row_without_a_key_goes(broker: RunningBroker) -> None:
    given = options(broker)
    rows = pa.record_batch(
        {
            "value": pa.array([b"%d" % n for n in range(80)]),
            "partition": pa.array([n % 8 if n % 5 else None for n in range(80)], pa.int32()),
        }
    )
    staged = Task(given, ring_of(given), 0, Staged("p", 0, new_attempt(0))).write([rows])
    assert commit(given, 0, [staged]) == 80
    places = {}
    for partition in range(8):
        for value in values_of(broker, partition):
            places[int(value)] = partition
    assert len(places) == 80 and all(places[n] == n % 8 for n in range(80) if n % 5)
    # A key has a place of its own: the same one is no contradiction, another one is.
    ring = ring_of(given)
    own = ring.slices.index(ring.slice_of_key(b"key-25"))
    for partition in (own, (own + 1) % 8):
        task = Task(given, ring, 1, Staged("p", 0, new_attempt(0)))
        if partition == own:
            task.write([columns_with({"partition": partition})])
            continue
        with pytest.raises(StageError, match="key-25.*not that of its key"):
            task.write([columns_with({"partition": partition})])


def values_of(broker: RunningBroker, partition: int) -> list[bytes]:
    slices = broker.request("GET", "/v1/topic/t/slices").json["slices"]
    slices.sort(key=lambda each: (int(each["token"]), int(each["index"])))
    each = slices[partition]
    path = f"/v1/topic/t/slices/{each['token']}/{each['index']}/events"
    answer = broker.request("GET", path, headers={"Accept": "application/json"})
    found = json.loads(answer.body) if answer.status == 200 else []
    parts = found if isinstance(found, list) else [found]
    return [str(value).encode() for part in parts for value in part["values"]]


def test_many_topics_in_one_pass(broker: RunningBroker) -> None:
    given = WriteOptions(access=options(broker).access, timeout_s=60)
    names = [f"many-{n % 37}" for n in range(ROWS)]
    values = [b"%d" % n for n in range(ROWS)]
    keys = [b"k%d" % (n % 11) if n % 3 else None for n in range(ROWS)]
    rows = pa.record_batch(
        {"topic": pa.array(names), "key": pa.array(keys), "value": pa.array(values)}
    )
    batches = [rows.slice(at, 700) for at in range(0, ROWS, 700)]
    staged = Task(given, ring_of(given), 0, Staged("m", 0, new_attempt(0))).write(batches)
    assert commit(given, 0, [staged]) == ROWS
    for topic in ("many-0", "many-36"):
        wanted = Counter(v for name, v in zip(names, values, strict=True) if name == topic)
        assert stored(broker, topic) == wanted
    task = Task(given, ring_of(given), 1, Staged("m", 0, new_attempt(0)))
    with pytest.raises(StageError, match="value b'y': its topic is null"):
        task.write([pa.record_batch({"topic": pa.array(["a", None]), "value": [b"x", b"y"]})])


def test_a_task_that_stages_nothing_says_that_it_is_alive(broker: RunningBroker) -> None:
    """To every process that holds a shard, as long as it runs."""
    given = options(broker)
    ring = ring_of(given)
    first = Task(given, ring, 0, Staged("job", 0, new_attempt(0))).write(batches(0))
    asked: list[tuple[str, str, bytes]] = []

    class Telling(Shard):
        def once(self, path: str, body: bytes, kind: str) -> Response:
            answer = super().once(path, body, kind)
            asked.append((self.endpoint, answer.problem.get("state", ""), body))
            return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("barco.spark.write.alive.Shard", Telling)
        patch.setattr("barco.spark.write.alive.ALIVE_SECONDS", 0.05)

        def slow() -> "Iterator[pa.RecordBatch]":
            until = time.monotonic() + 30
            while len({endpoint for endpoint, _, _ in asked}) < 2 and time.monotonic() < until:
                time.sleep(0.01)
            yield from batches(ROWS)

        second = Task(given, ring, 0, Staged("job", 1, new_attempt(1))).write(slow())
    assert {each[0] for each in asked} == {*first.rows, *second.rows}
    assert {each[1:] for each in asked} == {("staged", b'{"state":"staged"}')}
    count = len(asked)
    assert commit(given, 0, [first, second]) == 2 * ROWS
    time.sleep(0.2)
    assert len(asked) <= count + 2, "the task has ended"
    check(broker, 0, 1)


def test_several_topics_and_times(broker: RunningBroker) -> None:
    given = WriteOptions(access=options(broker).access, timeout_s=60)
    # More than a batch's timestamps span.
    hours = [1_700_000_000_000_000 + n * 3_600_000_000 for n in range(100)]
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


def test_times_far_from_now_fail_a_task_unless_the_topic_takes_any(broker: RunningBroker) -> None:
    given = options(broker)
    rows = pa.record_batch(
        {
            "value": pa.array([b"v"] * 10),
            "timestamp": pa.array([1_700_000_000_000] * 10, pa.timestamp("us", "UTC")),
        }
    )
    task = Task(given, ring_of(given), 0, Staged("f", 0, new_attempt(0)))
    with pytest.raises(StageError, match="microseconds since 1970 are expected"):
        task.write([rows])
    with barco.Admin(f"127.0.0.1:{broker.port('discovery')}") as admin:
        admin.create_topic("t", timestamps="any")
    staged = Task(given, ring_of(given), 0, Staged("g", 0, new_attempt(1))).write([rows])
    assert commit(given, 0, [staged]) == 10
    assert stored(broker) == Counter({b"v": 10})


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
