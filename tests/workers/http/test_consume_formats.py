"""The formats of polls, and what is not taken, over the in-memory twin."""

import json
import struct

import pytest
import zstandard
from twin import Broker, run

from barco import _native


@run
async def test_ndjson() -> None:
    broker = Broker()
    broker.produce("t", 0, b'{"a":1}', b"x")
    await broker.register("c", "t")
    answer = await broker.poll("c", "application/x-ndjson; charset=utf-8")
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert [(line["offset"], line["value"]) for line in lines] == [("0", {"a": 1}), ("1", "x")]


@run
async def test_polars_consumer_message() -> None:
    broker = Broker()
    broker.produce("t1", 1, b"one", b"two")
    await broker.register("c", "t1")
    answer = await broker.poll("c", "application/vnd.polar.consumermessage")
    body = answer.body
    assert body[:14] == struct.pack(">HqBI", 1, -(2**63), 1, 1)[:14]
    count, token, index, version, length = struct.unpack_from(">HqBIB", body)
    assert (count, token, index, version, length) == (1, -(2**63), 1, 1, 2)
    assert body[16:18] == b"t1"
    start, size = struct.unpack_from(">qi", body, 18)
    payload = zstandard.ZstdDecompressor().decompress(body[30 : 30 + size])
    assert start == 0 and len(body) == 30 + size
    records = []
    while payload:
        _, length = struct.unpack_from(">qI", payload)
        records.append(payload[12 : 12 + length])
        payload = payload[12 + length :]
    assert records == [b"one", b"two"]


@run
async def test_stored_chunks_as_they_are() -> None:
    broker = Broker(workers=1)
    broker.produce("t", 0, b"1", b"2")
    broker.produce("t", 0, b"3")
    await broker.register("c", "t")
    answer = await broker.poll("c", "application/vnd.barco.chunks")
    assert answer.body == b"".join(broker.reactors[0].chunks["t", 0])
    assert [row[5] for row in _native.chunks_scan(answer.body)] == [0, 2]


@run
async def test_a_generation_is_an_item_of_its_own() -> None:
    broker = Broker(workers=1)
    broker.produce("t", 0, b"1")
    broker.kill(0)
    broker.start(0)
    broker.produce("t", 0, b"2")
    await broker.register("c", "t")
    answer = await broker.poll("c")
    shape = [(item["version"], item["startOffset"], item["values"]) for item in answer.json]
    assert shape == [(1, "0", [1]), (2, "1", [2])]


@run
async def test_an_accept_that_cannot_be_met_is_406() -> None:
    broker = Broker()
    await broker.register("c", "t")
    answer = await broker.poll("c", "text/html, image/*;q=0.5")
    assert answer.status == 406 and "application/json" in answer.json["offered"]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "consumerId=&topic=t",
        "consumerId=c",
        "consumerId=c&consumerId=d&topic=t",
        "consumerId=c&topic=..",
        "consumerId=c&topic=__offsets",
        "consumerId=c&topic=t&onNewGroup=whenever",
        "consumerId=c%0d%0aX:y&topic=t",
        "consumerId=c%zz&topic=t",
        "consumerId=c%ff&topic=t",
        "consumerId=" + "c" * 129 + "&topic=t",
        "consumerId=c&topic=t&group=" + "g" * 129,
        "consumerId=c&" + "&".join(f"topic=t{n}" for n in range(65)),
        "consumerId=c&" + "&".join(f"topic=t{n}" for n in range(300)),
    ],
)
def test_bad_registrations_are_400(query: str) -> None:
    @run
    async def scenario() -> None:
        broker = Broker()
        answer = await broker.request("PUT", "/v1/consumer/register", query)
        assert answer.status == 400, answer
        assert broker.supervisor.groups.view()["groups"] == {}

    scenario()


@pytest.mark.parametrize(
    "value", ["-1", "+1", "1.5", "1e3", "nan", "٥", "0x10", "9" * 30, "", " 1"]
)
@pytest.mark.parametrize("name", ["waitMs", "maxBytes"])
def test_bad_numbers_are_400(name: str, value: str) -> None:
    @run
    async def scenario() -> None:
        broker = Broker()
        await broker.register("c", "t")
        assert (await broker.poll("c", **{name: value})).status == 400

    scenario()


@pytest.mark.parametrize("body", [b"[]", b"{", b"\xff", b"[" * 100_000, b'{"id":1,"topics":["t"]}'])
def test_bad_bodies_are_400(body: bytes) -> None:
    @run
    async def scenario() -> None:
        broker = Broker()
        headers = {"Content-Type": "application/json"}
        answer = await broker.request("PUT", "/v1/consumer/register", headers=headers, body=body)
        assert answer.status == 400

    scenario()


@pytest.mark.parametrize("path", ["poll", "commit", "goodbye"])
def test_strangers_are_409(path: str) -> None:
    @run
    async def scenario() -> None:
        broker = Broker()
        answer = await broker.request("POST", f"/v1/consumer/{path}", {"consumerId": "nobody"})
        assert answer.status == 409
        assert answer.json["type"] == "urn:barco:problem:not-registered"

    scenario()


@run
async def test_a_worker_with_an_old_view_asks_before_it_refuses() -> None:
    broker = Broker()
    broker.supervisor.deaf = {0, 1}
    broker.produce("t", 0, b"1")
    await broker.register("c", "t")
    assert await broker.values("c") == [1]
