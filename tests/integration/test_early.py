"""Times of 1970 and before, where a topic takes any: by each way in, and by each way out."""

import io
import json
import struct
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hearing import Listening, until
from running import RunningBroker
from test_checked import checked
from test_http_contract import BATCH, NDJSON, PROBLEM, events, numbered, send
from test_timestamps import chunks_of, set_times

import barco
from barco import _native
from barco.errors import RequestError

KEYED = "application/vnd.barco.events+x-ndjson"
MANY = "application/cloudevents-batch+json"
YEAR_ONE = -62135596800000000
EARLY = (YEAR_ONE, -2208988800000000, -86400000001, -1, 0, 1)


@pytest.fixture
def any_time(broker: RunningBroker) -> RunningBroker:
    """With a topic `t` that takes any."""
    set_times(broker, "t", "any")
    return broker


def fill(broker: RunningBroker, topic: str = "t") -> dict[str, int]:
    """One of each way in for each time; what is to be there, by value."""
    wanted: dict[str, int] = {}

    def said(way: str, stamp: int) -> bytes:
        wanted[f"{way} {stamp}"] = stamp
        return json.dumps(f"{way} {stamp}").encode()

    for stamp in EARLY:
        ways: list[tuple[str, dict[str, Any]]] = [
            ("event", {}),
            ("keyed event", {"partitionKey": "k"}),
            ("headed", {"headers": {"Barco-Header-a": "b"}}),
            ("producer", {"headers": numbered(f"p{stamp}", 0, 0), "partitionKey": "q"}),
        ]
        for way, more in ways:
            answer = send(broker, topic, said(way, stamp), timestamp=stamp, **more)
            assert answer.status == 200, answer
        lines = b"\n".join((said("line", stamp), said("other line", stamp)))
        assert send(broker, topic, lines, NDJSON, timestamp=stamp).status == 200
        untimed = _native.batch_encode([said("untimed", stamp)], None)
        assert send(broker, topic, untimed, BATCH, timestamp=stamp).status == 200
        alone = _native.batch_encode([said("alone", stamp)], None, {"timestamp": [stamp]})
        assert send(broker, topic, alone, BATCH).status == 200
        line = b'{"key":"k","value":%s,"timestamp":%d}' % (said("keyed alone", stamp), stamp)
        assert send(broker, topic, line, KEYED).status == 200
        compressed = b'{"value":%s}' % said("with a query", stamp)
        assert send(broker, topic, compressed, KEYED, timestamp=stamp).status == 200
    for count in (len(EARLY), 600):  # In chunks of one, and in those that are cut.
        stamps = [EARLY[n % len(EARLY)] for n in range(count)]
        values = [said(f"batch {count} {n}", stamp) for n, stamp in enumerate(stamps)]
        keys = [b"%d" % n for n in range(count)]
        body = _native.batch_encode(values, keys, {"timestamp": stamps})
        assert send(broker, topic, body, BATCH).status == 200
        lines = b"\n".join(
            b'{"key":"%d","value":%s,"timestamp":%d}'
            % (n, said(f"keyed {count} {n}", stamp), stamp)
            for n, stamp in enumerate(stamps)
        )
        assert send(broker, topic, lines, KEYED).status == 200
    pair = b"\n".join(
        b'{"key":"k","value":%s,"timestamp":%d}' % (said("first of 1970", stamp), stamp)
        for stamp in (0, 5)
    )
    assert send(broker, topic, pair, KEYED).status == 200
    return wanted


def test_each_way_in_and_each_way_out(any_time: RunningBroker) -> None:
    broker = any_time
    wanted = fill(broker)
    # Lines, stored chunks, the library, Arrow, a group's poll, a stream.
    assert {each["value"]: each["timestamp"] for each in events(broker, "t")} == wanted
    chunks = [each for chunk in chunks_of(broker, "t") for each in _native.chunk_events(chunk)]
    assert {json.loads(value or b""): stamp for _, stamp, _, value, *_ in chunks} == wanted
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    read = {json.loads(each.value): each.timestamp_us for each in barco.read("t", endpoint)}
    assert read == wanted
    assert arrow(broker) == wanted
    assert broker.register("c", "t", onNewGroup="startFromEarliest").status == 200
    found: dict[str, int] = {}
    for _ in range(60):
        if len(found) < len(wanted):
            found |= of_lines(broker.poll("c", accept=NDJSON, waitMs=1000, maxBytes=16 << 20).body)
    assert found == wanted
    heard = Listening("127.0.0.1", broker.port(), "/v1/topic/t/events?from=earliest")
    try:
        until(lambda: len(heard.heard) >= len(wanted))
        assert {each.value: each.line["timestamp"] for each in heard.heard} == wanted
    finally:
        heard.close()
    # All of it once more, from the files.
    broker.kill()
    broker.restart()
    assert {each["value"]: each["timestamp"] for each in events(broker, "t")} == wanted


def arrow(broker: RunningBroker) -> dict[str, int]:
    pa = pytest.importorskip("pyarrow", reason="no pyarrow: pip install 'barco[spark]'")
    found: dict[str, int] = {}
    for each in broker.request("GET", "/v1/topic/t/slices").json["slices"]:
        path = f"/v1/topic/t/slices/{each['token']}/{each['index']}/events"
        accept = {"Accept": "application/vnd.apache.arrow.stream"}
        answer = broker.request("GET", f"{path}?maxBytes=16777216", headers=accept)
        if answer.status == 204:
            continue
        with pa.ipc.open_stream(io.BytesIO(answer.body)) as reader:
            table = reader.read_all()
        table.validate(full=True)
        assert table.column("timestamp").type == pa.timestamp("us", "UTC")
        stamps = table.column("timestamp").cast(pa.int64()).to_pylist()
        found |= zip(map(json.loads, table.column("value").to_pylist()), stamps, strict=True)
    return found


def of_lines(body: bytes) -> dict[str, int]:
    lines = map(json.loads, body.splitlines())
    return {line["value"]: line["timestamp"] for line in lines}


def test_seeks(any_time: RunningBroker) -> None:
    """By time, from before 1970, everywhere where a place is said."""
    broker = any_time
    stamps = [YEAR_ONE, -3_000_000, -2_000_000, -1, 0, 5_000_000]
    for stamp in stamps:
        assert send(broker, "t", b"%d" % stamp, slice=0, token=TOKEN, timestamp=stamp).status == 200
    path = f"/v1/topic/t/slices/{TOKEN}/0/events"
    froms = {
        f"timestamp:{YEAR_ONE}": 0, "timestamp:-3000001": 1, "timestamp:-2500000": 2,
        "timestamp:-1": 3, "timestamp:0": 4, "timestamp:1": 5, "timestamp:5000001": 6,
        "0001-01-01T00:00:00Z": 0, "1969-12-31T23:59:57Z": 1, "1969-12-31T23:59:59.999999Z": 3,
        "1970-01-01T01:00:00+01:00": 4, "timestamp:-9223372036854775807": 0,
    }  # fmt: skip
    for place, first in froms.items():
        answer = broker.request("GET", path, {"from": place}, headers={"Accept": NDJSON})
        values = [json.loads(line)["value"] for line in answer.body.splitlines()]
        assert values == stamps[first:], place
    for wrong in ("timestamp:", "timestamp:-", "timestamp:--1", "timestamp:-0x1", "timestamp:+1",
                  f"timestamp:-{2**63}", "timestamp:1e3"):  # fmt: skip
        assert broker.request("GET", path, {"from": wrong}).status == 400, wrong
    told = broker.request("GET", "/v1/topic/t/slices", {"at": "timestamp:-2500000"})
    assert next(each for each in told.json["slices"] if each["endOffset"] == "6")["at"]
    last = broker.request("GET", "/v1/topics/t").json["slices"]
    assert max(each["lastTimestamp"] for each in last) == 5_000_000
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    assert broker.register("c", "t", onNewGroup="startFromLatest").status == 200
    assert broker.poll("c").status == 204
    with barco.Admin(endpoint) as admin:
        admin.seek("g", "t", "timestamp:-2500000")
    assert broker.drain("c", 4) == stamps[2:]
    moment = datetime(1969, 12, 31, 23, 59, 58, tzinfo=UTC)
    read = [int(each.value) for each in barco.read("t", endpoint, start=moment_us(moment))]
    assert read == stamps[2:]
    for word in ("1969-12-31T23:59:58Z", "timestamp:-2000000"):
        done = subprocess.run(
            [*(sys.executable, "-P", "-m", "barco", "consume", "t", "--from", word),
             *("--endpoint", endpoint, "--json")],
            check=True, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert [line["timestamp"] for line in lines] == stamps[2:], word


TOKEN = -(2**63)


def moment_us(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000


def test_what_is_refused(broker: RunningBroker) -> None:
    """A topic that takes times near now, and times that there are not."""
    for stamp in (-1, 0, YEAR_ONE):
        line = b'{"value":1,"timestamp":%d}' % stamp
        batch = _native.batch_encode([b"1"], None, {"timestamp": [stamp]})
        given: list[tuple[str, bytes, dict[str, Any]]] = [
            ("", b"1", {"timestamp": stamp}),
            (NDJSON, b"1\n2", {"timestamp": stamp}),
            (KEYED, line, {}),
            (BATCH, batch, {}),
        ]
        for kind, body, more in given:
            answer = send(broker, "near", body, kind, **more)
            assert (answer.status, answer.headers["content-type"]) == (400, PROBLEM), answer
            assert answer.json["type"].endswith(":implausible-timestamp")
            # What times of 0 count from is the microsecond before.
            wanted = -1 if stamp == 0 and kind == BATCH else stamp
            assert f"{wanted} is not within" in answer.json["detail"], answer.json
    set_times(broker, "any", "any")
    for text in (str(YEAR_ONE - 1), "-", "--1", "-1.5", f"-{2**63}", f"-{2**64}", "+1", "1e3",
                 str(2**63), "-0x1"):  # fmt: skip
        answer = send(broker, "any", b"1", timestamp=text)
        assert answer.json["type"].endswith(":invalid-timestamp"), text
        answer = send(broker, "any", b'{"value":1,"timestamp":%s}' % text.encode(), KEYED)
        assert answer.json["type"].endswith(":malformed-line"), text
    with pytest.raises(ValueError, match="year 1"):
        _native.batch_encode([b"1"], None, {"timestamp": [YEAR_ONE - 1]})
    forged = bytearray(_native.batch_encode([b"1"], None, {"timestamp": [5]}))
    forged[16:24] = struct.pack("<q", YEAR_ONE - 1)
    assert send(broker, "any", bytes(forged), BATCH).json["type"].endswith(":malformed-batch")
    for delay in ("1969-12-31T23:59:59Z", "-1"):
        refused = send(broker, "any", b"1", headers={"Barco-Deliver-At": delay})
        assert refused.json["type"].endswith(":invalid-delay")
    assert events(broker, "any") == []


def test_the_library(any_time: RunningBroker) -> None:
    endpoint = f"127.0.0.1:{any_time.port('discovery')}"
    with barco.Producer(endpoint) as producer:
        for n, stamp in enumerate(EARLY):
            producer.send("t", b"%d" % n, f"k{n}", timestamp_us=stamp).result(30)
        values = [b"%d" % (n + 10) for n in range(len(EARLY))]
        producer.send_many("t", values, timestamps_us=list(EARLY)).result(30)
        with pytest.raises(ValueError, match="year 1"):
            producer.send("t", b"1", timestamp_us=YEAR_ONE - 1)
        with pytest.raises(RequestError, match="is not within"):
            producer.send("near", b"1", timestamp_us=-5).result(30)
    found = {int(each.value): each.timestamp_us for each in barco.read("t", endpoint)}
    assert found == {n + more: stamp for n, stamp in enumerate(EARLY) for more in (0, 10)}


def test_dead_letters_and_checked_topics_keep_the_time(broker: RunningBroker) -> None:
    """What is made of stored events anew: 0 is a time there, too."""
    checked(broker, "c", "dead")
    for topic in ("c", "c.dead"):
        set_times(broker, topic, "any")
    line = b'{"value":{"km":"x"},"timestamp":%d}\n{"value":{"km":2},"timestamp":%d}'
    event = {"id": "1", "source": "/s", "specversion": "1.0", "type": "t"}
    for stamp, text in ((0, "1970-01-01T00:00:00Z"), (-5, "1969-12-31T23:59:59.999995Z")):
        assert send(broker, "c", line % (stamp, stamp), KEYED).status == 200
        both = [{**event, "time": text, "data": {"km": km}} for km in ("x", 2)]
        # As a batch, all of it goes there.
        assert send(broker, "c", json.dumps(both).encode(), MANY).status == 200
    for topic in ("c", "c.dead"):
        assert sorted(each["timestamp"] for each in events(broker, topic)) == [-5, -5, 0, 0]


def test_an_export(any_time: RunningBroker, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="no pyarrow: pip install 'barco[export]'")
    import pyarrow.parquet as pq

    wanted = sorted(EARLY)
    for stamp in EARLY:
        assert send(any_time, "t", b"1", timestamp=stamp).status == 200
    endpoint = f"127.0.0.1:{any_time.port('discovery')}"
    words = ("export", "t", "--to", str(tmp_path / "out"), "--endpoint", endpoint)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "barco", *words],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    table = pq.read_table(tmp_path / "out")
    assert sorted(each.value for each in table.column("timestamp").combine_chunks()) == wanted
