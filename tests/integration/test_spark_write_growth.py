"""The ring grows and shrinks while a write is under way: between two batches of a task, between
stage and commit, and while Spark is not asked at all."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")

sys.path.insert(0, str(Path(__file__).parent))

from joining import JoinedCluster, barco, three, until
from test_spark_write import ROWS, batches

import barco as client
from barco.client.wire.access import Access
from barco.spark.write import stage as module
from barco.spark.write.commit import WriteOptions, commit, new_attempt, ring_of
from barco.spark.write.shares import MovedError, Staged
from barco.spark.write.stage import Task

pytestmark = pytest.mark.chaos


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[JoinedCluster]:
    yield from three(tmp_path)


def scale(cluster: JoinedCluster, brokers: int) -> None:
    """Until so many lead, and everybody says so."""
    if brokers > len(cluster.hosts):
        net, _, last = cluster.hosts[-1].rpartition(".")
        cluster.wait_ready([cluster.join(f"{net}.{int(last) + 1}")])
    done = barco("scale", "--to", brokers, "--timeout", 120, "--endpoint", cluster.endpoints[0])
    assert done.returncode == 0, done.stdout + done.stderr
    until("one route", lambda: len({str(routes(each)) for each in cluster.endpoints}) == 1)


def routes(endpoint: str) -> Any:
    with client.Admin(endpoint, timeout_s=20.0) as admin:
        return [(each["first"], each["members"]) for each in admin.topology()["routes"]]


def rows_around(first: int, between: Callable[[], None]) -> Iterator[Any]:
    """Rows of a task, half of them before something and half of them after it."""
    given = list(batches(first))
    for number, batch in enumerate(given):
        if number == len(given) // 2:
            between()
        yield batch


def values(*firsts: int) -> Counter[bytes]:
    given = [batch for first in firsts for batch in batches(first)]
    return Counter(value.as_py() for batch in given for value in batch.column("value"))


@pytest.mark.parametrize("sizes", [(3, 4), (4, 3)], ids=["grows", "shrinks"])
def test_all_rows_come_once(
    cluster: JoinedCluster, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was staged with those who had the slices is asked for by those who have them then. A
    task that has sent more than it keeps fails, for Spark to run it again."""
    before, after = sizes
    if before == 4:
        scale(cluster, before)
    hosts = cluster.endpoints[:3]  # They are of both rings.
    given = WriteOptions(access=Access.of(hosts), topic="t", timeout_s=60.0, piece_bytes=4096)
    ring = ring_of(given)

    def stage(partition: int, rows: Any, batch: int = 0) -> Staged:
        staged = Staged("job", partition, new_attempt(partition))
        return Task(given, ring, batch, staged).write(rows)

    first = stage(0, batches(0))
    second = stage(1, rows_around(ROWS, lambda: scale(cluster, after)))
    assert (first.holders != second.holders) == (after > before), "it went to the new ones"
    assert commit(given, 0, [first, second]) == 2 * ROWS
    assert commit(given, 0, [first, second]) == 2 * ROWS, "once more"
    assert Counter(each.value for each in client.read("t", hosts[1])) == values(0, ROWS)
    if after > before:
        monkeypatch.setattr(module, "SENT_BYTES_MAX", 0)
        with pytest.raises(MovedError, match="421"):
            stage(0, batches(0), batch=1)
