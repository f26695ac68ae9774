"""How the broker stores what it packs itself: as the topic says, else as the broker is told."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from running import RunningBroker, key_of

import barco
from barco import _native

TOKEN = "-9223372036854775808"
CHUNKS = "application/vnd.barco.chunks"
RAW, LZ4 = 0, 1
KEY_LEN, KEYS, VALUES = 2, 4, 5
NUMBERS = range(400)
BODY = b"".join(b'{"n":%d,"text":"%s"}\n' % (n, b"lorem ipsum " * 9) for n in NUMBERS)


def put(broker: RunningBroker, topic: str, compression: str) -> Any:
    body = json.dumps({"compression": compression}).encode()
    headers = {"Content-Type": "application/json"}
    answer = broker.request("PUT", f"/v1/topics/{topic}", body=body, headers=headers)
    assert answer.status in (200, 201), answer
    return answer.json


def events(broker: RunningBroker, topic: str, slice_: int, accept: str, **query: Any) -> bytes:
    path = f"/v1/topic/{topic}/slices/{TOKEN}/{slice_}/events"
    query = {"from": "earliest", "maxBytes": 16 << 20} | query
    answer = broker.request("GET", path, query, headers={"Accept": accept})
    assert answer.status == 200, answer
    return answer.body


def sections(broker: RunningBroker, topic: str, slice_: int) -> list[dict[int, int]]:
    """{section: codec} of each chunk."""
    body = events(broker, topic, slice_, CHUNKS)
    found = [_native.chunk_info(body, row[0]) for row in _native.chunks_scan(body)]
    assert all(found)
    return [{s[0]: s[1] for s in info["sections"]} for info in found if info]


def codecs(broker: RunningBroker, topic: str, slice_: int) -> list[int]:
    """Of the values of each chunk."""
    return [codec[VALUES] for codec in sections(broker, topic, slice_)]


@pytest.mark.parametrize(("setting", "codec"), [("lz4", LZ4), ("none", RAW)])
def test_a_topics_setting_goes_before_the_brokers(
    start_broker: Callable[..., RunningBroker], setting: str, codec: int
) -> None:
    broker = start_broker(storage_compression=setting)
    key = key_of(broker, "t", 5)
    assert put(broker, "packed", "lz4")["compression"] == "lz4"
    assert put(broker, "plain", "none")["compression"] == "none"
    broker.produce("other", BODY, key=key)
    topics = broker.request("GET", "/v1/topics").json["topics"]
    said = {topic["topic"]: topic["compression"] for topic in topics}
    assert said == {"other": setting, "packed": "lz4", "plain": "none"}
    for generation in (1, 2):  # A worker that starts again knows what was decided.
        for topic, wanted in (("packed", LZ4), ("plain", RAW), ("other", codec)):
            broker.produce(topic, BODY, key=key)
            count = generation + (topic == "other")
            assert codecs(broker, topic, 5) == [wanted] * count, topic
        broker.kill()
        broker.restart()
    # A change is for what comes; a topic that was deleted is as the broker says again.
    assert put(broker, "plain", "lz4")["compression"] == "lz4"
    broker.produce("plain", BODY, key=key)
    assert codecs(broker, "plain", 5) == [RAW, RAW, LZ4]
    for topic in ("packed", "plain"):
        assert broker.request("DELETE", f"/v1/topics/{topic}").status == 204
        broker.produce(topic, BODY, key=key)
        assert codecs(broker, topic, 5) == [codec]


def test_raw_chunks_are_read_like_any_other(broker: RunningBroker) -> None:
    """From memory and from disk, by everything that reads."""
    key = key_of(broker, "t", 5)
    put(broker, "plain", "none")
    values = [line for line in BODY.splitlines() if line]
    for topic in ("packed", "plain"):
        broker.produce(topic, BODY, key=key, timestamp=1_700_000_000_000_000)
    for _ in range(2):
        endpoint = f"127.0.0.1:{broker.port('discovery')}"
        assert all(codec == RAW for codec in sections(broker, "plain", 5)[0].values())
        assert {KEY_LEN, KEYS, VALUES} <= sections(broker, "plain", 5)[0].keys()
        for accept in ("application/json", "application/x-ndjson"):
            texts = [events(broker, topic, 5, accept) for topic in ("packed", "plain")]
            assert texts[0].replace(b"packed", b"plain") == texts[1]
        # One column of the chunks, as Spark's reader asks for it.
        cut = events(broker, "plain", 5, CHUNKS, columns="value")
        assert cut == _native.chunks_project(
            events(broker, "plain", 5, CHUNKS), _native.COLUMNS["value"]
        )
        found = list(barco.read("plain", endpoint))
        assert [event.value for event in found] == values
        assert {event.key for event in found} == {key.encode()}
        broker.kill()
        broker.restart()
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    with barco.Consumer("plain", group="g", endpoint=endpoint, start="earliest") as consumer:
        seen: list[bytes] = []
        while len(seen) < len(values):
            seen += [event.value for event in consumer.poll(10)]
    assert seen == values


def test_dump_looks_into_raw_chunks(broker: RunningBroker) -> None:
    put(broker, "plain", "none")
    broker.produce("plain", BODY, key=key_of(broker, "t", 5))
    assert broker.stop() == 0
    command = [sys.executable, "-P", "-m", "barco", "dump", str(broker.data_dir), "--json"]
    done = subprocess.run(
        [*command, "--verify", "--chunks", "--events", "--topic", "plain"],
        check=True,
        capture_output=True,
    )
    records = [json.loads(line) for line in done.stdout.splitlines()]
    chunks = [record for record in records if record["type"] == "chunk"]
    assert [chunk["events"] for chunk in chunks] == [len(NUMBERS)]
    assert chunks[0]["stored_bytes"] > chunks[0]["raw_bytes"] > len(BODY) - len(NUMBERS)
    assert sum(record["type"] == "event" for record in records) == len(NUMBERS)


def test_a_clients_batch_stays_as_it_was_packed(broker: RunningBroker) -> None:
    key = key_of(broker, "t", 5).encode()
    values = BODY.splitlines()
    for topic, compression in (("packed", "lz4"), ("plain", "none")):
        put(broker, topic, compression)
        for compress in (True, False):
            batch = _native.batch_encode(values, [key] * len(values), compress=compress)
            broker.produce(topic, batch, kind="application/vnd.barco.batch")
        assert codecs(broker, topic, 5) == [LZ4, RAW]
