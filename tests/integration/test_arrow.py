"""Arrow's IPC streams as answers: pyarrow, and whoever is installed besides, read a topic."""

import io
import os
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from running import RunningBroker

pa = pytest.importorskip("pyarrow", reason="no pyarrow: pip install 'barco[spark]'")

import barco
from barco._native import batch_encode
from barco.client.wire.batching import SliceKey
from barco.client.wire.ring import single_endpoint_ring
from barco.model.token import TOKEN_MIN

KIND = "application/vnd.apache.arrow.stream"


def endpoint(broker: RunningBroker) -> str:
    return f"127.0.0.1:{broker.port('discovery')}"


def table(body: bytes) -> Any:
    with pa.ipc.open_stream(io.BytesIO(body)) as reader:
        found = reader.read_all()
    found.validate(full=True)
    return found


def fill(broker: RunningBroker) -> dict[tuple[int, int], tuple[bytes | None, bytes, int]]:
    """Events of many kinds, by slice and offset."""
    with barco.Producer(endpoint(broker), batch_bytes=20_000) as producer:
        for n in range(4000):
            key = None if n % 3 == 0 else b"k%d" % (n % 13)
            producer.send("t", os.urandom(n % 50) + b"%d" % n, key)
        for n in range(10):  # Large ones, and some of one event a chunk.
            producer.send("t", b"%d" % n * 100_000, f"large-{n}").result(60)
    return {
        (e.slice, e.offset): (e.key, e.value, e.timestamp_us)
        for e in barco.read("t", endpoint(broker))
    }


def rows(found: Any) -> dict[tuple[int, int], tuple[bytes | None, bytes, int]]:
    names = ("slice", "offset", "key", "value")
    columns = [found.column(name).to_pylist() for name in names]
    columns.append(found.column("timestamp").cast(pa.int64()).to_pylist())
    return {(s, o): (k, v, t) for s, o, k, v, t in zip(*columns, strict=True)}


def read_all(broker: RunningBroker, most: int) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for index in range(8):
        cursor = "earliest"
        while True:
            path = f"/v1/topic/t/slices/{-(2**63)}/{index}/events"
            query = {"from": cursor, "maxBytes": most}
            answer = broker.request("GET", path, query, headers={"Accept": KIND})
            cursor = answer.headers["barco-next-cursor"]
            if answer.status == 204:
                break
            assert answer.status == 200 and answer.headers["content-type"] == KIND
            some = table(answer.body)
            assert set(some.column("topic").to_pylist()) == {"t"}
            assert not rows(some).keys() & found.keys()
            found |= rows(some)
    return found


@pytest.mark.parametrize("most", [1, 30_000, 16 << 20])
def test_reads_have_every_event_once_in_pieces_of_any_size(
    broker: RunningBroker, most: int
) -> None:
    expected = fill(broker)
    assert read_all(broker, most) == expected


def test_a_part_of_a_slice(broker: RunningBroker) -> None:
    """From and to the middle of chunks, with and without keys."""
    expected = {at: each for at, each in fill(broker).items() if at[0] == 3}
    path = f"/v1/topic/t/slices/{-(2**63)}/3/events"
    for first, last in ((0, 1), (7, 8), (1, 100), (13, 77), (64, 129)):
        query = {"from": f"00000001-{first:016x}", "to": f"00000001-{last:016x}"}
        answer = broker.request("GET", path, query, headers={"Accept": KIND})
        found = table(answer.body)
        wanted = {at: each for at, each in expected.items() if first <= at[1] < last}
        assert rows(found) == wanted and len(wanted) == last - first
        assert found.column("key").null_count == sum(k is None for k, _, _ in wanted.values())


def test_chunks_of_events_with_and_without_keys(broker: RunningBroker) -> None:
    """The library sends those apart; a batch may have both, and a reader begin anywhere in it."""
    at = SliceKey(TOKEN_MIN, 3)
    ring = single_endpoint_ring("")
    key = next(k for k in (b"k%d" % n for n in range(99)) if ring.slice_of_key(k) == at)
    keys = [key if n % 3 else None for n in range(100)]
    body = batch_encode([b"%d" % n for n in range(100)], keys)
    kind = {"Content-Type": "application/vnd.barco.batch"}
    path = "/v1/topic/m/messages"
    answer = broker.request("POST", path, {"slice": 3}, body=body, headers=kind)
    assert answer.status == 200, answer
    path = f"/v1/topic/m/slices/{TOKEN_MIN}/3/events"
    for first, last in ((0, 100), (1, 2), (5, 14), (8, 16), (17, 99)):
        query = {"from": f"00000001-{first:016x}", "to": f"00000001-{last:016x}"}
        found = table(broker.request("GET", path, query, headers={"Accept": KIND}).body)
        assert found.column("key").to_pylist() == keys[first:last]
        assert found.column("value").to_pylist() == [b"%d" % n for n in range(first, last)]
        assert found.column("key").null_count == keys[first:last].count(None)


def test_polls_of_several_topics(broker: RunningBroker) -> None:
    expected = fill(broker)
    with barco.Producer(endpoint(broker)) as producer:
        producer.send_many("u", [b"%d" % n for n in range(100)]).result(60)
    assert broker.register("c", "t", "u", onNewGroup="startFromEarliest").status == 200
    found, others = {}, 0
    while len(found) < len(expected) or others < 100:
        answer = broker.poll("c", accept=KIND, waitMs=10_000)
        assert answer.status == 200, answer
        some = table(answer.body)
        mine = some.filter(pa.compute.equal(some.column("topic"), "t"))
        others += len(some) - len(mine)
        found |= rows(mine)
    assert found == expected and others == 100


def test_other_programs_read_it_from_its_address(broker: RunningBroker) -> None:
    expected = fill(broker)
    url = f"http://{endpoint(broker)}/v1/topic/t/slices/{-(2**63)}/3/events?maxBytes=16777216"
    request = urllib.request.Request(url, headers={"Accept": KIND})
    with urllib.request.urlopen(request, timeout=60) as answer:
        body = answer.read()
    count = sum(at[0] == 3 for at in expected)
    polars = pytest.importorskip("polars", reason="no polars: pip install 'barco[test]'")
    frame = polars.read_ipc_stream(io.BytesIO(body))
    assert len(frame) == count
    assert set(frame["value"]) == {v for at, (_, v, _) in expected.items() if at[0] == 3}
    duckdb = pytest.importorskip("duckdb", reason="no duckdb: pip install 'barco[test]'")
    events = table(body)
    asked = duckdb.sql('select count(*), max("offset"), count(key) from events').fetchall()
    keyed = sum(k is not None for at, (k, _, _) in expected.items() if at[0] == 3)
    assert asked == [(count, count - 1, keyed)] and len(events) == count


def test_the_example_of_the_page(broker: RunningBroker) -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    with barco.Producer(endpoint(broker)) as producer:
        keys = [b"%d" % n for n in range(10_000)]
        producer.send_many("flights", keys, keys).result(60)
    named: dict[str, Any] = {}
    exec(program.replace("127.0.0.1:9250", endpoint(broker)), named)  # noqa: S102
    assert len(named["events"]) == int(named["after"].rpartition("-")[2], 16) > 0
