"""`barco polar`: PolarStreams' protocol in front of one broker and of three."""

import json
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from joining import undisturbed
from polar import Consumer, Door, Item, Producer, frame, produce_body
from replicas import until
from running import RunningBroker
from test_any_broker import LocalCluster, cluster  # noqa: F401 - a fixture.

READY, ERROR, PRODUCE, PRODUCED, HEARTBEAT = 2, 3, 4, 5, 6
SECONDS = 90.0


@pytest.fixture
def door(broker: RunningBroker) -> Iterator[Door]:
    with Door(f"127.0.0.1:{broker.port('discovery')}") as found:
        yield found
    assert found.code == 0


def drained(consumers: list[Consumer], wanted: int) -> list[Item]:
    """What they poll by turns, until so many values have come and nothing else does."""
    found: list[Item] = []
    deadline, quiet = time.monotonic() + SECONDS, 0
    while quiet < 3 or sum(len(item.values) for item in found) < wanted:
        assert time.monotonic() < deadline, f"of {wanted}: {found}"
        got = [item for each in consumers for item in each.poll()]
        quiet = 0 if got else quiet + 1
        found += got
        if not got:
            time.sleep(0.05)
    return found


def values(items: list[Item]) -> list[bytes]:
    return [value for item in items for value in item.values]


def stored(broker: RunningBroker, topic: str) -> list[tuple[str | None, object]]:
    found = []
    for index in range(8):
        path = f"/v1/topic/{topic}/slices/{-(2**63)}/{index}/events"
        answer = broker.request("GET", path, headers={"Accept": "application/x-ndjson"})
        lines = [json.loads(line) for line in answer.body.splitlines()]
        found += [(line["key"], line["value"]) for line in lines]
    return found


def test_discovery_names_all_three_ports(door: Door, broker: RunningBroker) -> None:
    told = door.brokers()
    assert told == {
        "length": 1,
        "names": ["127.0.0.1"],
        "producerPort": broker.port("produce"),
        "producerBinaryPort": door.ports["binary"],
        "consumerPort": door.ports["consumer"],
    }


def test_frames_are_stored_in_their_order_and_answered(door: Door, broker: RunningBroker) -> None:
    client = Producer("127.0.0.1", door.ports["binary"]).begin()
    now = time.time_ns() // 1000
    sent = [
        frame(
            PRODUCE, n, produce_body("t", f"k{n % 3}", b'{"n":%d}' % (2 * n), b"%d" % (2 * n + 1))
        )
        for n in range(200)
    ]
    client.send(*sent, frame(HEARTBEAT, 900))
    answers = [client.answer() for _ in range(201)]
    assert Counter(answers) == Counter(
        [(READY, 900, b""), *((PRODUCED, n, b"") for n in range(200))]
    )
    client.send(frame(PRODUCE, 7, produce_body("timed", "", b"1", timestamp=now), flags=1))
    assert client.answer() == (PRODUCED, 7, b"")
    client.close()
    by_key = defaultdict(list)
    for key, value in stored(broker, "t"):
        by_key[key].append(value["n"] if isinstance(value, dict) else value)
    assert set(by_key) == {"k0", "k1", "k2"}
    for number, got in ((int(key[1]), found) for key, found in by_key.items() if key):
        assert got == [m for n in range(number, 200, 3) for m in (2 * n, 2 * n + 1)]
    line = broker.request("GET", "/v1/topics/timed").json
    assert max(each["lastTimestamp"] for each in line["slices"]) == now


def test_what_no_broker_takes_is_an_error_and_the_connection_lives(door: Door) -> None:
    client = Producer("127.0.0.1", door.ports["binary"]).begin()
    for number, (body, words) in enumerate(
        [
            (produce_body("../../escape", "", b"1"), b"topic name"),
            (produce_body("__offsets", "", b"1"), b"by the broker only"),
            (produce_body("t", "", b"x" * (1 << 20) + b"x"), b"event_bytes_max"),
        ]
    ):
        client.send(frame(PRODUCE, number, body))
        what, stream, told = client.answer() or (0, 0, b"")
        assert (what, stream, told[:1]) == (ERROR, number, b"\0") and words in told, told
    client.send(frame(PRODUCE, 9, produce_body("t", "", b"1")))
    assert client.answer() == (PRODUCED, 9, b"")
    client.close()


@pytest.mark.parametrize(
    "spoilt",
    [
        frame(PRODUCE, 1, produce_body("t", "", b"1"), crc=5),
        b"\x02" + frame(HEARTBEAT, 1)[1:],
        frame(PRODUCE, 1)[:5] + b"\xff\xff\xff\xff" + b"\0\0\0\0",
        frame(PRODUCE, 1, produce_body("t", "", b"12345")[:-1]),
        frame(PRODUCE, 1, produce_body("t", "")),
        frame(PRODUCE, 1, b"\xff1"),
        frame(PRODUCE, 1, b"1", flags=1),
    ],
    ids=["crc", "version", "length", "short", "no event", "key", "timestamp"],
)
def test_what_is_no_frame_ends_the_connection(door: Door, spoilt: bytes) -> None:
    client = Producer("127.0.0.1", door.ports["binary"]).begin()
    client.send(spoilt)
    what, _, _ = client.answer() or (0, 0, b"")
    assert what == ERROR and client.answer() is None
    client.close()
    again = Producer("127.0.0.1", door.ports["binary"])
    again.send(frame(PRODUCE, 1, produce_body("t", "", b"1")))
    what, _, words = again.answer() or (0, 0, b"")
    assert what == ERROR and b"STARTUP" in words, "a connection begins with it"
    again.close()


def test_a_new_group_reads_what_is_there_a_chunk_at_a_time(
    door: Door, broker: RunningBroker
) -> None:
    for number in range(20):
        broker.produce("t", b"%d" % number, key="k", kind="application/json")
    client = Consumer("127.0.0.1", door.ports["consumer"])
    assert client.ask("POST", "/v1/consumer/poll")[0] == 409, "nobody knows who it is"
    assert client.register("ann", "g", "t") == (200, b"OK")
    assert client.register("ann", "g", "t") == (200, b"Already registered")
    assert client.register("ann", "g", "t", "u")[0] == 400
    polled = [client.poll() for _ in range(5)]
    assert all(len(items) == 1 for items in polled), polled
    assert polled[0][0].start == 0 and polled[1][0].start == len(polled[0][0].values)
    items = [item for each in polled for item in each] + drained([client], 0)
    assert values(items) == [b"%d" % n for n in range(20)]
    assert {(item.topic, item.token) for item in items} == {("t", -(2**63))}
    assert client.commit() == 204
    assert broker.request("GET", "/v1/groups/g").json["lag"] == 0
    client.close()


def test_a_poll_for_json(door: Door, broker: RunningBroker) -> None:
    broker.produce("t", b'{"a":1}\n{"a":2}\n', key="k")
    client = Consumer("127.0.0.1", door.ports["consumer"])
    assert client.register("ann", "g", "t", onNewGroup=1)[0] == 200
    status, told, body = client.ask("POST", "/v1/consumer/poll", accept="application/json")
    assert (status, told["content-type"]) == (200, "application/json")
    (part,) = json.loads(body)
    assert part["values"] == [{"a": 1}, {"a": 2}] and part["startOffset"] == "0"
    client.close()


def test_the_same_id_takes_over_from_the_last_commit(door: Door, broker: RunningBroker) -> None:
    for number in range(6):
        broker.produce("t", b"%d" % number, key="k", kind="application/json")
    first = Consumer("127.0.0.1", door.ports["consumer"])
    assert first.register("ann", "g", "t")[0] == 200
    done = values(first.poll())
    assert first.commit() == 204
    lost = values(first.poll())
    assert done + lost == [b"%d" % n for n in range(len(done + lost))] and done and lost
    second = Consumer("127.0.0.1", door.ports["consumer"])
    assert second.register("ann", "g", "t")[0] == 200
    got = values(drained([second], 6 - len(done)))
    assert got == [b"%d" % n for n in range(len(done), 6)], "what was not committed comes again"
    assert first.ask("POST", "/v1/consumer/poll")[0] == 409, "somebody else is that now"
    first.close()
    second.close()


def test_a_connection_that_ends_gives_its_slices_to_others(
    door: Door, broker: RunningBroker
) -> None:

    def members() -> list[str]:
        found = broker.request("GET", "/v1/groups/g").json["members"]
        return [member["consumerId"] for member in found]

    for number in range(40):
        broker.produce("t", b"%d" % number, key=str(number), kind="application/json")
    ann, bob = (Consumer("127.0.0.1", door.ports["consumer"]) for _ in range(2))
    assert ann.register("ann", "g", "t")[0] == bob.register("bob", "g", "t")[0] == 200
    got = Counter(values(ann.poll()))
    ann.close()
    until("ann has gone, long before her session ends", lambda: members() == ["bob"], 25.0)
    rest = Counter(values(drained([bob], 40 - sum(got.values()))))
    assert set(got + rest) == {b"%d" % n for n in range(40)}
    assert members() == ["bob"]
    status, _, words = bob.ask("POST", "/v1/consumer/goodbye")
    assert (status, words) == (200, b"OK")
    assert members() == []
    assert broker.request("GET", "/v1/groups/g").json["lag"] == 0
    bob.close()


def test_on_three_brokers(cluster: LocalCluster, tmp_path: Path) -> None:  # noqa: F811
    hosts = [endpoint.rpartition(":")[0] for endpoint in cluster.endpoints]
    doors: list[Door] = []
    try:
        for endpoint, host in zip(cluster.endpoints, hosts, strict=True):
            doors.append(Door(endpoint, host))
        assert doors[0].brokers()["names"] == hosts and doors[0].ports["discovery"]
        ends = list(zip(hosts, doors, strict=True))
        undisturbed(cluster, lambda topic: through_all(ends, topic))
    finally:
        for door in doors:
            with door:
                pass


def through_all(ends: list[tuple[str, Door]], topic: str) -> None:
    """What all take is there once, at all of them together, and not again behind a commit."""
    sent = Counter[bytes]()
    for number, (host, door) in enumerate(ends):
        client = Producer(host, door.ports["binary"]).begin()
        for n in range(30):
            some = [b"%d" % (1000 * number + 2 * n + each) for each in range(2)]
            client.send(frame(PRODUCE, n, produce_body(topic, f"k{n}", *some)))
            sent.update(some)
        answers = [client.answer() for _ in range(30)]
        assert Counter(answers) == Counter((PRODUCED, n, b"") for n in range(30))
        client.close()
    name, group = f"ann-{topic}", f"g-{topic}"
    mine = [Consumer(host, door.ports["consumer"]) for host, door in ends]
    assert [each.register(name, group, topic)[0] for each in mine] == [200] * 3
    assert Counter(values(drained(mine, sum(sent.values())))) == sent, "each of them once"
    assert [each.commit() for each in mine] == [204] * 3
    # The same id again, on other connections: from the last commit on.
    others = [Consumer(host, door.ports["consumer"]) for host, door in ends]
    assert [each.register(name, group, topic)[0] for each in others] == [200] * 3
    assert drained(others, 0) == []
    client = Producer(ends[2][0], ends[2][1].ports["binary"]).begin()
    client.send(*(frame(PRODUCE, n, produce_body(topic, f"k{n}", b"x%d" % n)) for n in range(20)))
    assert {client.answer() for _ in range(20)} == {(PRODUCED, n, b"") for n in range(20)}
    assert sorted(values(drained(others, 20))) == sorted(b"x%d" % n for n in range(20))
    for each in (*mine, *others):
        each.close()
    client.close()


def test_an_address_that_others_reach_is_refused() -> None:
    command = [sys.executable, "-P", "-m", "barco", "polar", "--bind", "0.0.0.0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 78 and "--insecure-allow-open" in done.stderr
