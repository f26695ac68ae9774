"""A job or batch that is run again after its driver died between two shards' commits: the same rows
in another order, by another number of tasks. Without keys, with few values, all of them one."""

import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="no pyarrow: pip install 'barco[spark]'")
pytest.importorskip("pyspark", reason="no pyspark: pip install 'barco[spark]'")

sys.path.insert(0, str(Path(__file__).parent))

from running import RunningBroker
from test_spark_write import options, stored

from barco.client.wire.access import Access
from barco.spark.write.commit import (
    CommitError,
    Shard,
    Staged,
    WriteOptions,
    commit,
    new_attempt,
    ring_of,
    write_path,
)
from barco.spark.write.stage import Task

ROWS = 6000
Row = tuple[bytes | None, bytes, int]

KINDS: dict[str, Callable[[int], Row]] = {
    "no keys": lambda n: (None, b'{"n":%d}' % n, 0),
    "few keys": lambda n: (b"k%d" % (n % 5) if n % 3 else None, b"%d" % n, 0),
    "few values": lambda n: (None, b"v%d" % (n % 4), n),
    "one value": lambda n: (None, b"", n),
}


def stage(given: WriteOptions, batch: int, rows: list[Row], tasks: int) -> list[Staged]:
    """As Spark would: each task has some of the rows, in batches."""
    found = []
    for partition in range(tasks):
        some = rows[partition::tasks]
        staged = Staged("job", partition, new_attempt(partition))
        parts = []
        for at in range(0, len(some), 700):
            keys, values, _ = zip(*some[at : at + 700], strict=True)
            columns: dict[str, Any] = {"value": pa.array(values, pa.binary())}
            if any(key is not None for key in keys):
                columns["key"] = pa.array(keys, pa.binary())
            parts.append(pa.record_batch(columns))
        found.append(Task(given, ring_of(given), batch, staged).write(parts))
    return found


def dies_after_one_commit(tasks: list[Staged], batch: int) -> None:
    """Prepared at all shards, committed at the first."""
    endpoints = sorted({endpoint for each in tasks for endpoint in each.rows})
    for endpoint in endpoints:
        ask(tasks, batch, endpoint, "prepared")
    ask(tasks, batch, endpoints[0], "committed")


def ask(tasks: list[Staged], batch: int, endpoint: str, state: str) -> None:
    there = [each for each in tasks if endpoint in each.rows]
    rows: dict[str, int] = {}
    for each in there:
        for index, count in each.rows[endpoint]["t"].items():
            rows[str(index)] = rows.get(str(index), 0) + count
    body = {"state": state, "attempts": [each.attempt for each in there], "rows": {"t": rows}}
    shard = Shard(Access.of(endpoint), endpoint, 60)
    answer = shard.put(write_path("job", batch), json.dumps(body).encode(), "application/json")
    shard.close()
    assert answer.status == 200, answer


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_rows_in_another_order(broker: RunningBroker, kind: str) -> None:
    rows = [KINDS[kind](n) for n in range(ROWS)]
    given = options(broker, piece_bytes=20_000)
    wanted: Counter[bytes] = Counter()
    for batch, tasks in enumerate((4, 1, 7)):
        random.Random(batch).shuffle(rows)
        dies_after_one_commit(stage(given, batch, rows, 4), batch)
        random.Random(batch + 100).shuffle(rows)
        assert commit(given, batch, stage(given, batch, rows, tasks)) == ROWS
        wanted.update(value for _, value, _ in rows)
    assert stored(broker) == wanted


def test_rows_without_keys_are_spread(broker: RunningBroker) -> None:
    rows = [KINDS["no keys"](n) for n in range(ROWS)]
    (staged,) = stage(options(broker), 0, rows, 1)
    counts = [n for topics in staged.rows.values() for n in topics["t"].values()]
    assert len(counts) == 8 and max(counts) < 2 * min(counts)


def test_other_rows_are_refused_and_it_is_said_what_is_visible(broker: RunningBroker) -> None:
    given = options(broker)
    rows = [KINDS["no keys"](n) for n in range(ROWS)]
    first = stage(given, 0, rows, 2)
    dies_after_one_commit(first, 0)
    there = stored(broker).total()
    assert 0 < there < ROWS
    with pytest.raises(CommitError, match=f"an earlier run.* {there} events.*visible"):
        commit(given, 0, stage(given, 0, rows[:-500], 2))
    assert stored(broker).total() == there
    assert commit(given, 0, stage(given, 0, rows, 3)) == ROWS, "the same rows complete it"
    assert stored(broker).total() == ROWS
    with pytest.raises(CommitError, match=f"an earlier run.* {ROWS} events.*visible"):
        commit(given, 0, stage(given, 0, rows[:-500], 2))


def test_other_rows_may_be_skipped_where_it_is_said(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    given = options(broker)
    rows = [KINDS["few keys"](n) for n in range(ROWS)]
    commit(given, 7, stage(given, 7, rows, 2))
    other = rows[:-500]
    with pytest.raises(CommitError, match=f"other rows.*{len(other)} in 8.*skipBatch=7.*writerId"):
        commit(given, 7, stage(given, 7, other, 2))
    skipping = replace(given, skip=7)
    tasks = stage(skipping, 7, other, 2)
    assert not any(each.rows for each in tasks), "nothing is staged"
    assert commit(skipping, 7, tasks) == 0
    assert f"batch 7 of writer job is skipped, as option skipBatch says: {ROWS}" in caplog.text
    assert commit(skipping, 8, stage(skipping, 8, other, 2)) == len(other), "only that one"
    assert stored(broker) == Counter(value for _, value, _ in rows + other)
    unknown = replace(given, skip=9)
    with pytest.raises(CommitError, match="nothing of batch 9 of writer job is stored"):
        commit(unknown, 9, stage(unknown, 9, other, 2))


def test_a_writer_begins_anew_when_its_topic_was_deleted(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """As loaded, deleted, killed, loaded again; and a lower batch is told."""
    given, rows = options(broker), [KINDS["few values"](n) for n in range(ROWS)]
    commit(given, 3, stage(given, 3, rows, 2))
    commit(given, 2, stage(given, 2, rows[:50], 1))
    assert "batch 2 of writer job is not stored" in caplog.text and "batch 3" in caplog.text
    assert stored(broker) == Counter(value for _, value, _ in rows)
    assert broker.request("DELETE", "/v1/topics/t").status == 204
    for pid in broker.worker_pids():
        os.kill(pid, signal.SIGKILL)
    broker.wait_ready()
    commit(given, 3, stage(given, 3, rows[:70], 1))
    assert stored(broker) == Counter(value for _, value, _ in rows[:70])
