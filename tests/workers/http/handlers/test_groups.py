"""Groups seen and moved from outside, over the in-memory twin."""

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from twin import Answer, Broker, run

from barco import _native
from barco.protocol.cursor import Cursor


async def seek(broker: Broker, to: Any, topic: str = "t") -> Answer:
    body = json.dumps({"topic": topic, "to": to}).encode()
    return await broker.request("PUT", "/v1/groups/g/positions", body=body)


@run
async def test_members_positions_and_lag() -> None:
    broker = Broker()
    assert (await broker.request("GET", "/v1/groups/g")).status == 404
    broker.produce("t", 0, b"1", b"2")
    broker.produce("t", 7, b"3")
    await broker.register("c", "t")
    await broker.values("c")
    await broker.commit("c")
    broker.produce("t", 7, b"4")
    group = (await broker.request("GET", "/v1/groups/g")).json
    assert [member["consumerId"] for member in group["members"]] == ["c"]
    assert group["members"][0]["slices"] == {"t": list(range(8))}
    assert group["lag"] == 1
    by_slice = {place["rangeIndex"]: place for place in group["positions"]}
    assert (by_slice[7]["offset"], by_slice[7]["endOffset"], by_slice[7]["lag"]) == ("1", "2", 1)
    assert by_slice[0]["consumerId"] == "c"
    assert (await broker.request("GET", "/v1/groups")).json == {
        "groups": [{"group": "g", "members": 1}]
    }


@run
async def test_seek_to_either_end_and_back() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    broker.produce("t", 7, b"2")
    await broker.register("c", "t")
    assert sorted(await broker.values("c")) == [1, 2]
    await broker.commit("c")
    answer = await seek(broker, "earliest")
    assert answer.status == 200 and all(p["offset"] == "0" for p in answer.json["positions"])
    assert sorted(await broker.values("c")) == [1, 2]
    await seek(broker, "latest")
    assert await broker.values("c") == []


@run
async def test_a_seek_is_durable_and_wins_over_what_was_delivered_before() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1", b"2")
    await broker.register("c", "t")
    assert await broker.values("c") == [1, 2]
    assert (await seek(broker, {"slices": {"0": str(Cursor(1, 1))}})).status == 200
    broker.kill(0)
    broker.start(0)
    assert await broker.values("c") == [2]


@run
async def test_seek_to_a_timestamp() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1", b"2", b"3")
    [_, (_, stamp, _, _), _] = _native.chunk_events(broker.reactors[0].chunks["t", 0][0])
    await broker.register("c", "t", start="startFromLatest")
    assert (await seek(broker, f"timestamp:{stamp}")).status == 200
    assert await broker.values("c") == [2, 3]


@run
async def test_a_seek_wakes_a_waiting_consumer() -> None:
    import asyncio

    broker = Broker()
    broker.produce("t", 0, b"1")
    await broker.register("c", "t", start="startFromLatest")
    task = asyncio.create_task(broker.values("c", waitMs=60_000))
    await broker.settle()
    await seek(broker, "earliest")
    assert await asyncio.wait_for(task, 20) == [1]


@run
async def test_a_group_can_be_prepared_before_anybody_joins() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    await seek(broker, "latest")
    await broker.register("c", "t", start="startFromEarliest")
    assert await broker.values("c") == []


@run
async def test_a_seek_beyond_the_end_is_the_end() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    await broker.register("c", "t")
    await seek(broker, {"slices": {"0": str(Cursor(9, 99))}})
    broker.produce("t", 0, b"2")
    assert await broker.values("c") == [2]


@run
async def test_delete_a_group() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    await broker.register("c", "t")
    assert (await broker.request("DELETE", "/v1/groups/g")).status == 409
    await broker.values("c")
    await broker.goodbye("c")
    assert (await broker.request("DELETE", "/v1/groups/g")).status == 204
    assert (await broker.request("GET", "/v1/groups/g")).status == 404
    broker.kill(0)
    broker.start(0)
    await broker.register("c", "t")
    assert await broker.values("c") == [1]


@pytest.mark.parametrize(
    "to",
    [None, 1, "", "sometime", "00000001-0000000000000000", {}, {"slices": {}}, {"slices": []},
     {"slices": {"8": "00000001-0000000000000000"}}, {"slices": {"0": 5}}, {"slices": {"0": "x"}},
     {"slices": {"0": "00000001-0000000000000000"}, "more": 1}, "timestamp:x"],
)  # fmt: skip
def test_bad_targets_are_400(to: Any) -> None:
    @run
    async def scenario() -> None:
        broker = Broker()
        assert (await seek(broker, to)).status == 400

    scenario()


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"topic":"t"}', b'{"topic":1,"to":"latest"}']
)
def test_bad_bodies_are_400(body: bytes) -> None:
    @run
    async def scenario() -> None:
        broker = Broker()
        answer = await broker.request("PUT", "/v1/groups/g/positions", body=body)
        assert answer.status == 400

    scenario()


@run
async def test_a_consumer_says_how_long_it_may_be_silent() -> None:
    broker = Broker()
    query = {"consumerId": "c", "group": "g", "topic": "t"}
    for wrong in ("4999", "600001", "x", "-1"):
        path = "/v1/consumer/register"
        assert (await broker.request("PUT", path, query | {"sessionMs": wrong})).status == 400
    assert (await broker.request("PUT", path, query | {"sessionMs": "600000"})).status == 200
    for body, status in (({"sessionMs": 5000}, 200), ({"sessionMs": "5000"}, 400)):
        whole = {"id": "d", "group": "g", "topics": ["t"]} | body
        headers = {"Content-Type": "application/json"}
        raw = json.dumps(whole).encode()
        answer = await broker.request("POST", path, headers=headers, body=raw)
        assert answer.status == status
    group = (await broker.request("GET", "/v1/groups/g")).json
    assert [each["sessionMs"] for each in group["members"]] == [600_000, 5_000]


@run
async def test_a_seek_in_a_topic_that_is_not_there_is_refused_and_begins_no_group() -> None:
    broker = Broker()
    broker.produce("orders", 0, b"1")
    for to in ("earliest", "latest", "2026-01-31T12:00:00Z", {"slices": {"0": str(Cursor(1, 0))}}):
        answer = await seek(broker, to, "oders")
        assert (answer.status, answer.json["detail"]) == (404, "There is no topic oders.")
    assert (await broker.request("GET", "/v1/groups")).json == {"groups": []}


@run
async def test_a_seek_to_a_time_as_people_write_it() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1", b"2", b"3")
    clock = broker.reactors[0].clock_us
    for micros, offset in ((clock - 1, "0"), (clock, "0"), (clock + 1, "1"), (clock + 2, "2")):
        moment = datetime.fromtimestamp(micros // 1_000_000, timezone(timedelta(hours=2)))
        text = moment.replace(microsecond=micros % 1_000_000).isoformat()
        answer = await seek(broker, text)
        assert answer.status == 200, answer.json
        assert next(p for p in answer.json["positions"] if p["rangeIndex"] == 0)["offset"] == offset
    assert (await seek(broker, "1912-06-23T00:00:00Z")).status == 200


@pytest.mark.parametrize(
    "to",
    [
        "2026-01-31T12:00:00",
        "2026-01-31",
        "2026-13-31T12:00:00Z",
        "2026-01-31T99",
        "2026-01-31T" + "0" * 9_999,
        "2026-01-31T12:00:00." + "0" * 19 + "Z and more",
    ],
)
def test_what_is_no_time(to: str) -> None:
    @run
    async def main() -> None:
        broker = Broker()
        broker.produce("t", 0, b"1")
        assert (await seek(broker, to)).status == 400

    main()
