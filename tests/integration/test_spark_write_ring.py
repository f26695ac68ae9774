"""Staged writes on three brokers: a leader dies before, in or after the commit, or comes back."""

import json
import os
import secrets
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

sys.path.insert(0, str(Path(__file__).parent))

from ringed import PATIENCE_S, RING, ask, key_in, leaders, load_script, until
from test_spark_write import ROWS, batches

import barco
from barco.client.wire.access import Access
from barco.client.wire.codec import token_of
from barco.errors import BarcoError
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
from barco.spark.write.rows import StageError
from barco.spark.write.stage import Task

LARGE_ROWS, LARGE_BYTES = 60, 400_000
"""In one slice, more than a few groups of the cluster's 4 MiB."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Three brokers on addresses that nobody else has."""
    script = load_script()
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    root = tmp_path_factory.mktemp("ring")
    made = script.LocalCluster(root, hosts=[f"{net}.{n + 1}" for n in range(3)], tied=True)
    made.write()
    for ordinal in range(3):
        made.start(ordinal)
    made.wait_ready()
    until(lambda: leaders(made) == [0, 1, 2], "every owner leads")
    yield made
    made.stop()
    for ordinal in range(3):
        shutil.rmtree(made.data(ordinal), ignore_errors=True)


def options(cluster: Any, topic: str) -> WriteOptions:
    return WriteOptions(access=Access.of(cluster.endpoints), topic=topic, timeout_s=PATIENCE_S)


def stage(given: WriteOptions, rows: Any, partition: int = 0, writer: str = "job") -> Staged:
    staged = Staged(writer, partition, new_attempt(partition))
    return Task(given, ring_of(given), 0, staged).write(rows)


def test_a_row_that_the_leader_refuses_is_not_taken_to_the_others(cluster: Any) -> None:
    """Only the leader knows which times a topic takes; two of three are enough to go on without."""
    with barco.Producer(cluster.endpoints) as producer:
        producer.send("early", b"now").result(PATIENCE_S)
    rows = pa.record_batch({"value": [b"old"], "timestamp": pa.array([10**15])})
    with pytest.raises(StageError, match="10 years.*column timestamp of .*b'old'"):
        stage(options(cluster, "early"), [rows], writer="early")


def large(key: str) -> Any:
    """Rows of one slice that LZ4 cannot make smaller."""
    values = [b"%d:" % n + os.urandom(LARGE_BYTES) for n in range(LARGE_ROWS)]
    rows = [pa.record_batch({"key": pa.array([key.encode()]), "value": [v]}) for v in values]
    return rows, Counter(values)


def stored(cluster: Any, topic: str) -> Counter[bytes]:
    """All of it, from whoever runs."""

    def read() -> Counter[bytes] | None:
        for ordinal in range(3):
            if cluster.pid(ordinal) is not None:
                try:
                    endpoint = cluster.endpoints[ordinal]
                    return Counter(each.value for each in barco.read(topic, endpoint))
                except BarcoError:
                    continue
        return None

    found = until(lambda: (got := read()) is not None and [got], "a read")
    return Counter(found[0])


def expected(*partitions: int) -> Counter[bytes]:
    rows = [batch for each in partitions for batch in batches(each * ROWS)]
    return Counter(value.as_py() for batch in rows for value in batch.column("value"))


def whole(cluster: Any) -> None:
    """All three run, and lead what is theirs."""
    for ordinal in range(3):
        if cluster.pid(ordinal) is None:
            cluster.start(ordinal)
    until(lambda: leaders(cluster) == [0, 1, 2], "every owner leads")


def copies(cluster: Any) -> int:
    """Files of staged writes, everywhere."""
    return sum(len(list(cluster.data(n).rglob("*.stage"))) for n in range(3))


def test_a_leader_dies_between_stage_and_commit(cluster: Any) -> None:
    given = options(cluster, "between")
    staged = [stage(given, batches(n * ROWS), n) for n in range(2)]
    assert end_of(cluster, "between") == 0
    cluster.kill(0)
    assert commit(given, 0, staged) == 2 * ROWS
    assert stored(cluster, "between") == expected(0, 1)
    # The marks are in the log: the same job again, with one broker fewer and then with all.
    assert commit(given, 0, staged) == 2 * ROWS
    assert commit(given, 0, [stage(given, batches(n * ROWS), n) for n in range(2)]) == 2 * ROWS
    whole(cluster)
    assert commit(given, 0, staged) == 2 * ROWS
    assert stored(cluster, "between") == expected(0, 1)
    with pytest.raises(CommitError, match="not the same"):
        commit(given, 0, [stage(given, batches(0), 0)])


@pytest.mark.chaos
def test_a_leader_that_was_away_while_tasks_staged(cluster: Any) -> None:
    """It gets its range back, and what it has missed from the others."""
    given = options(cluster, "away")
    first = stage(given, batches(0), 0)
    cluster.kill(0)
    second = stage(given, batches(ROWS), 1)
    whole(cluster)
    assert commit(given, 0, [first, second]) == 2 * ROWS
    assert stored(cluster, "away") == expected(0, 1)


@pytest.mark.parametrize(
    "driver", ["goes on", pytest.param("dies as well", marks=pytest.mark.chaos)]
)
def test_a_leader_dies_in_a_commit_of_several_groups(cluster: Any, driver: str) -> None:
    topic = "large-" + driver.split()[0]
    key = key_in(1, 7)
    given = options(cluster, topic)
    rows, wanted = large(key)
    staged = stage(given, rows)
    (home,) = staged.rows
    index = RING.locate(token_of(key.encode()))[1]
    assert staged.rows[home] == {topic: {index: LARGE_ROWS}}
    errors: list[BaseException] = []

    def drive() -> None:
        """As `commit`; or one request, and no other."""
        try:
            if driver == "goes on":
                commit(given, 0, [staged])
                return
            path, body = write_path("job", 0), body_of(staged, home)
            for state in (b"prepared", b"committed"):
                for endpoint in staged.holders[home] if state == b"prepared" else [home]:
                    Shard(Access.of(endpoint), endpoint, 60).once(
                        path, body.replace(b"STATE", state), JSON
                    )
        except (BarcoError, OSError) as error:
            errors.append(error)

    thread = threading.Thread(target=drive, daemon=True)
    thread.start()
    begun = until(lambda: end_of(cluster, topic), "a part of it")
    cluster.kill(1)
    thread.join(PATIENCE_S)
    assert not thread.is_alive() and (driver != "goes on" or not errors), errors
    until(lambda: stored(cluster, topic).total() >= LARGE_ROWS, "all of it")
    assert stored(cluster, topic) == wanted
    print(f"killed after {begun} of {LARGE_ROWS} events")
    whole(cluster)
    assert commit(given, 0, [staged]) == LARGE_ROWS
    assert stored(cluster, topic) == wanted


JSON = "application/json"


def body_of(staged: Staged, home: str) -> bytes:
    told = {"state": "STATE", "attempts": [staged.attempt], "rows": staged.rows[home]}
    return json.dumps(told).encode()


def end_of(cluster: Any, topic: str) -> int:
    """How many events the topic has."""
    status, _, found = ask(cluster.endpoints[0], "GET", f"/v1/topic/{topic}/slices")
    return sum(int(each["endOffset"]) for each in found["slices"]) if status == 200 else 0


def test_no_copies_are_left(cluster: Any) -> None:
    given = options(cluster, "clean")
    before = copies(cluster)
    began = time.monotonic()
    for batch in range(5):
        commit(given, 0, [stage(given, batches(batch * ROWS), 0, f"w{batch}")])
    print(f"a commit of {ROWS} rows: {(time.monotonic() - began) / 5:.2f} s")
    until(lambda: copies(cluster) <= before, "copies go when their write is over")
