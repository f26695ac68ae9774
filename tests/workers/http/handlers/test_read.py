"""Stateless reads over the in-memory twin."""

import asyncio
import json
import random
from typing import Any

import pytest
from twin import Answer, Broker, run

from barco import _native
from barco.protocol.cursor import Cursor
from barco.workers.http.base.messages import NDJSON
from barco.workers.http.handlers.read import COLUMNS

TOKEN = "-9223372036854775808"


async def events(broker: Broker, slice: int = 0, accept: str = "", **query: Any) -> Answer:
    if "from_" in query:
        query["from"] = query.pop("from_")
    headers = {"Accept": accept} if accept else {}
    path = f"/v1/topic/t/slices/{TOKEN}/{slice}/events"
    return await broker.request("GET", path, query, headers=headers)


def values(answer: Answer) -> list[Any]:
    assert answer.status == 200, answer
    return [value for item in answer.json for value in item["values"]]


@run
async def test_reading_on_by_cursor() -> None:
    broker = Broker()
    for n in range(10):
        broker.produce("t", 7, b'"%d%s"' % (n, b"x" * 500))
    got, cursor = [], "earliest"
    while True:
        answer = await events(broker, 7, from_=cursor, maxBytes=1200)
        cursor = answer.headers["barco-next-cursor"]
        assert answer.headers["barco-high-watermark"] == str(Cursor(1, 10))
        if answer.status == 204:
            break
        got += values(answer)
    assert [value[0] for value in got] == list("0123456789")
    assert cursor == str(Cursor(1, 10))


@run
async def test_from_and_to() -> None:
    broker = Broker()
    broker.produce("t", 0, b"0", b"1", b"2")
    broker.produce("t", 0, b"3", b"4")
    assert values(await events(broker)) == [0, 1, 2, 3, 4]
    answer = await events(broker, from_=str(Cursor(1, 1)), to=str(Cursor(1, 4)))
    assert values(answer) == [1, 2, 3]
    assert answer.headers["barco-next-cursor"] == str(Cursor(1, 4))
    assert answer.json[0]["startOffset"] == "1"
    assert values(await events(broker, from_=str(Cursor(1, 1)), to=str(Cursor(1, 2)))) == [1]
    assert (await events(broker, from_=str(Cursor(1, 2)), to=str(Cursor(1, 2)))).status == 204
    assert (await events(broker, to="earliest")).status == 204
    assert (await events(broker, from_="latest")).status == 204
    assert values(await events(broker, to="latest")) == [0, 1, 2, 3, 4]


@run
async def test_by_timestamp() -> None:
    broker = Broker()
    broker.produce("t", 0, b"0", b"1", b"2")
    broker.produce("t", 0, b"3")
    [(_, stamp, _, _), *_] = _native.chunk_events(broker.reactors[0].chunks["t", 0][0])
    assert values(await events(broker, from_=f"timestamp:{stamp + 1}")) == [1, 2, 3]
    assert values(await events(broker, from_=f"timestamp:{stamp + 3}")) == [3]
    assert values(await events(broker, from_="timestamp:0")) == [0, 1, 2, 3]
    assert (await events(broker, from_=f"timestamp:{2**62}")).status == 204
    answer = await events(broker, from_="timestamp:0", to=f"timestamp:{stamp + 1}")
    assert values(answer) == [0]


@run
async def test_a_long_poll_of_a_slice() -> None:
    broker = Broker()
    broker.produce("t", 7, b"0")
    for place in ("latest", str(Cursor(1, 1))):
        task = asyncio.create_task(events(broker, 7, from_=place, waitMs=60_000))
        await broker.settle()
        assert not task.done()
        broker.produce("t", 7, b"1")
        assert values(await asyncio.wait_for(task, 20)) == [1]
        broker = Broker()
        broker.produce("t", 7, b"0")
    answer = await events(broker, 7, from_="latest", waitMs=30)
    assert answer.status == 204 and answer.headers["barco-next-cursor"] == str(Cursor(1, 1))


@run
async def test_ndjson_has_offsets_and_keys() -> None:
    broker = Broker()
    broker.reactors[0].produce("t", 0, [b"1", b"2"], [b"k", None])
    answer = await events(broker, accept="application/x-ndjson")
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert [(x["offset"], x["key"], x["value"]) for x in lines] == [("0", "k", 1), ("1", None, 2)]


@run
async def test_stored_chunks_say_where_to_begin() -> None:
    broker = Broker()
    broker.produce("t", 0, b"0", b"1")
    answer = await events(broker, accept="application/vnd.barco.chunks", from_=str(Cursor(1, 1)))
    assert answer.body == broker.reactors[0].chunks["t", 0][0]
    assert answer.headers["barco-start"] == "t/0@1"


@run
async def test_some_columns_of_stored_chunks() -> None:
    broker = Broker()
    broker.reactors[0].produce("t", 0, [b"0" * 400, b"1" * 400], [b"k", None])
    whole = broker.reactors[0].chunks["t", 0][0]
    accept = "application/vnd.barco.chunks"
    for asked, told in (("key", "key,offset"), ("timestamp,value", "value,timestamp,offset"),
                        ("offset", "offset")):  # fmt: skip
        answer = await events(broker, accept=accept, columns=asked)
        assert answer.headers["barco-columns"] == told
        bits = sum(COLUMNS[name] for name in asked.split(","))
        assert answer.body == _native.chunks_project(whole, bits)
        assert answer.headers["barco-next-cursor"] == str(Cursor(1, 2))
    answer = await events(broker, accept=accept)
    assert answer.body == whole and "barco-columns" not in answer.headers
    assert (await events(broker, columns="key")).status == 400
    for wrong in ("keys", "", "key,", "key;value"):
        assert (await events(broker, accept=accept, columns=wrong)).status == 400


@run
async def test_stored_chunks_end_with_the_one_that_reaches_the_end() -> None:
    broker = Broker()
    for n in range(6):
        broker.reactors[0].produce("t", 0, [b"%d" % n * 400, b"%d" % n * 300], [b"k", None])
    chunks = broker.reactors[0].chunks["t", 0]
    accept = "application/vnd.barco.chunks"
    for floor in (0, 12):  # All from memory, all from the disk.
        broker.reactors[0].memory_floor["t", 0] = floor
        for to, count in ((5, 3), (6, 3), (7, 4), (99, 6)):
            place = {"from_": str(Cursor(1, 1)), "to": str(Cursor(1, to))}
            answer = await events(broker, accept=accept, **place)
            assert answer.body == b"".join(chunks[:count])
            assert answer.headers["barco-next-cursor"] == str(Cursor(1, min(to, 12)))
            answer = await events(broker, accept=accept, columns="key", **place)
            assert answer.body == _native.chunks_project(chunks[:count], COLUMNS["key"])
            assert answer.headers["barco-next-cursor"] == str(Cursor(1, min(to, 12)))
            assert answer.headers["barco-start"] == "t/0@1"


@run
async def test_a_small_rest_of_a_budget_is_not_filled_from_the_disk() -> None:
    broker = Broker()
    for n in range(20):
        broker.reactors[0].produce("t", 0, [b"%d" % (n % 10) * 400], [b"k"])
    size = len(broker.reactors[0].chunks["t", 0][0])
    broker.reactors[0].memory_floor["t", 0] = 20
    for rest, reads in ((size // 2, 1), (size * 3 // 4, 2)):  # A ninth, and more than an eighth.
        before = broker.logs[0].reads
        budget = {"accept": "application/vnd.barco.chunks", "maxBytes": 4 * size + rest}
        assert (await events(broker, **budget)).headers["barco-next-cursor"] == str(Cursor(1, 4))
        assert broker.logs[0].reads - before == reads


def test_an_answer_that_takes_much_reading_is_given_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a chunk little is left where only offsets are asked for."""

    @run
    async def told() -> None:
        broker = Broker()
        for n in range(20):
            broker.reactors[0].produce("t", 0, [random.randbytes(2000)], [b"k"])
        size = len(broker.reactors[0].chunks["t", 0][0])
        broker.reactors[0].memory_floor["t", 0] = 20
        asked = {"accept": "application/vnd.barco.chunks", "columns": "offset"}
        for seconds, end in ((0.0, 4), (60.0, 20)):
            monkeypatch.setattr("barco.workers.shard.reads.READ_SECONDS", seconds)
            answer = await events(broker, **asked, maxBytes=4 * size)
            assert answer.headers["barco-next-cursor"] == str(Cursor(1, end))

    told()


@run
async def test_plans_of_whole_slices() -> None:
    broker = Broker()
    broker.produce("t", 0, b"0", b"1")
    broker.produce("t", 7, b"2")

    async def splits(*args: Any) -> tuple[int, list[tuple[int, int]]]:
        return 700, [(1, 300)]

    for service in broker.services:
        assert service is not None
        service.splits = splits

    async def slices(**query: Any) -> Any:
        answer = await broker.request("GET", "/v1/topic/t/slices", query)
        return answer.json["slices"] if answer.status == 200 else answer.status

    plain = await slices()
    assert "bytes" not in plain[0] and "at" not in plain[0]
    found = await slices(splitBytes=100, at="timestamp:1")
    assert found[0]["bytes"] == 700 and found[0]["splits"] == [{"offset": "1", "bytes": 300}]
    assert (found[0]["atOffset"], found[7]["atOffset"]) == ("0", "0")
    assert found[0]["at"] == str(Cursor(1, 0)) and "bytes" not in found[3]
    assert (await slices(at=f"timestamp:{2**60}"))[0]["atOffset"] == "2"
    for wrong in ({"splitBytes": "x"}, {"at": "earliest"}, {"at": "timestamp:x"}):
        assert await slices(**wrong) == 400


@run
async def test_what_retention_removed_is_410() -> None:
    broker = Broker()
    broker.produce("t", 0, b"0")
    broker.produce("t", 0, b"1")
    broker.reactors[0].starts["t", 0] = 1
    answer = await events(broker, from_=str(Cursor(1, 0)))
    assert answer.status == 410
    assert values(await events(broker, from_=answer.json["earliest"])) == [1]
    assert values(await events(broker)) == [1]


@run
async def test_what_retention_removed_from_disk_is_410_too() -> None:
    broker = Broker()
    for n in range(3):
        broker.produce("t", 0, str(n).encode())
    broker.reactors[0].memory_floor["t", 0] = 2
    broker.logs[0].kept["t", 0] = 1
    answer = await events(broker, from_=str(Cursor(1, 0)))
    assert answer.status == 410 and answer.json["earliest"] == str(Cursor(0, 1))
    assert values(await events(broker)) == [1, 2]
    slices = (await broker.request("GET", "/v1/topic/t/slices")).json["slices"]
    assert slices[0]["start"] == str(Cursor(0, 1))


@run
async def test_a_topic_is_found_wherever_it_has_events() -> None:
    broker = Broker()
    assert (await events(broker)).status == 404
    broker.produce("t", 7, b"0")
    assert (await events(broker, 0)).status == 204
    assert (await events(broker, 6)).status == 204


@run
async def test_an_owner_that_is_down_is_503() -> None:
    broker = Broker()
    broker.produce("t", 7, b"0")
    broker.kill(1)
    answer = await events(broker, 7)
    assert answer.status == 503 and answer.headers["retry-after"] == "1"
    assert (await events(broker, 0)).status == 503  # Whether the topic exists is not known.


@run
async def test_head_is_what_get_is() -> None:
    broker = Broker()
    broker.produce("t", 0, b"0")
    answer = await broker.request("HEAD", f"/v1/topic/t/slices/{TOKEN}/0/events")
    assert answer.status == 200 and answer.headers["barco-next-cursor"] == str(Cursor(1, 1))


@pytest.mark.parametrize(
    "place",
    ["", "x", "now", "0", "00000001-000000000000000g", "00000001-00000000000000001", "timestamp:",
     "timestamp:--1", "timestamp:1e9", "timestamp:nan", "timestamp:" + "9" * 30,
     "00000001-8000000000000000", "00000001-0000000000000009", "00000001_0000000000000000"],
)  # fmt: skip
def test_bad_places_are_400(place: str) -> None:
    @run
    async def scenario() -> None:
        broker = Broker()
        broker.produce("t", 0, b"0")
        answer = await events(broker, from_=place)
        assert answer.status == (200 if place == "" else 400), answer

    scenario()


@pytest.mark.parametrize(
    "path",
    [f"t/slices/{TOKEN}/8/events", f"t/slices/{TOKEN}/-1/events", f"t/slices/{TOKEN}/x/events",
     "t/slices/0/0/events", f"t/slices/{TOKEN}/٣/events", f"t/slices/{TOKEN}/{'9' * 99}/events",
     f"t/slices/{TOKEN}//events", f"t//slices/{TOKEN}/0/events"],
)  # fmt: skip
def test_slices_that_are_none_are_404(path: str) -> None:
    @run
    async def scenario() -> None:
        broker = Broker()
        broker.produce("t", 0, b"0")
        assert (await broker.request("GET", f"/v1/topic/{path}")).status in (400, 404)

    scenario()


def test_cursors_sort_as_text() -> None:
    places = [Cursor(1, 0), Cursor(1, 255), Cursor(2, 3), Cursor(2, 2**62), Cursor(300, 0)]
    assert sorted(str(place) for place in places) == [str(place) for place in places]
    assert [Cursor.parse(str(place)) for place in places] == places


@run
async def test_slices_of_a_topic() -> None:
    broker = Broker()
    assert (await broker.request("GET", "/v1/topic/t/slices")).status == 404
    broker.produce("t", 5, b"0", b"1")
    slices = (await broker.request("GET", "/v1/topic/t/slices")).json["slices"]
    assert [s["index"] for s in slices] == list(range(8))
    assert slices[5]["endpoint"] == "127.0.0.1:9301" and slices[0]["endpoint"] == "127.0.0.1:9300"
    assert slices[5]["end"] == str(Cursor(1, 2)) and slices[5]["start"] == str(Cursor(0, 0))
    assert values(await events(broker, 5, from_=slices[5]["start"])) == [0, 1]


@run
async def test_only_events_that_are_meant() -> None:
    """An answer looks at as much as it may hold, whether that is meant or not, and says where to
    go on."""
    broker = Broker()
    for n in range(200):
        broker.produce("t", 0, b'{"n":%d,"pad":"%s"}' % (n, b"x" * 100))
    got, cursor, answers = [], "earliest", 0
    while True:
        answer = await events(
            *(broker, 0, NDJSON), from_=cursor, maxBytes=4000, where=["$.n>=150", "$.n<153"]
        )
        cursor = answer.headers["barco-next-cursor"]
        if answer.status == 204:
            break
        answers += 1
        got += [json.loads(line)["value"]["n"] for line in answer.body.splitlines()]
    assert (got, cursor) == ([150, 151, 152], str(Cursor(1, 200)))
    assert answers > 10, "bounded by what is looked at, not by what is meant"
    answer = await events(broker, 0, NDJSON, where="$.n=3", to=str(Cursor(1, 3)))
    assert (answer.status, answer.body) == (200, b"")
    assert answer.headers["barco-next-cursor"] == str(Cursor(1, 3))
    for accept, where in ((NDJSON, "$[n]"), ("application/json", "key=a"), (NDJSON, "path=a")):
        assert (await events(broker, 0, accept, where=where)).status == 400
