"""Server-sent events of one broker: every event once, in order, and on from any id."""

import json
import random
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from hearing import Listening, until
from running import RunningBroker, key_of

TOKEN = "-9223372036854775808"
SLICE = f"/v1/topic/t/slices/{TOKEN}/5/events"
WHOLE = "/v1/topic/t/events"
JSON, BYTES = "application/json", "application/octet-stream"


@pytest.fixture
def listen(broker: RunningBroker) -> Iterator[Callable[..., Listening]]:
    opened: list[Listening] = []

    def begin(path: str, last: str | None = None, **more: Any) -> Listening:
        opened.append(Listening("127.0.0.1", broker.port(), path, last, **more))
        return opened[-1]

    yield begin
    for each in opened:
        each.close()


def fill(broker: RunningBroker, first: int, count: int, slice_: int = 5) -> None:
    body = b"".join(b"%d\n" % number for number in range(first, first + count))
    broker.produce("t", body, key=key_of(broker, "t", slice_))


def test_what_comes_is_heard_and_an_id_leads_on(
    broker: RunningBroker, listen: Callable[..., Listening]
) -> None:
    fill(broker, 0, 3)
    both = [listen(SLICE), listen(SLICE)]
    fill(broker, 3, 40)
    for each in both:
        assert each.values(40) == list(range(3, 43))
    ids = [each.id for each in both[0].heard]
    assert ids == sorted(set(ids)) and ids == [each.id for each in both[1].heard]
    assert all(re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{16}", each) for each in ids)
    line = both[0].heard[0].line
    assert (line["topic"], line["rangeIndex"], line["offset"]) == ("t", 5, "3")
    # On from each of them: exactly what came behind it.
    for at in (0, 17, 39):
        assert listen(SLICE, ids[at]).values(39 - at) == list(range(4 + at, 43))
    assert listen(f"{SLICE}?from=earliest").values(43) == list(range(43))
    assert listen(f"{SLICE}?from={ids[38]}").values(1) == [42]
    fill(broker, 43, 1)
    assert both[0].values(41)[-1] == 43


def test_a_topic_is_heard_as_a_whole_and_its_ids_are_of_all_slices(
    broker: RunningBroker, listen: Callable[..., Listening]
) -> None:
    fill(broker, 0, 1, 0)
    heard = listen(WHOLE)
    for number in range(1, 25):
        fill(broker, number, 1, number % 8)
    assert sorted(heard.values(24)) == list(range(1, 25))
    assert re.fullmatch(r"0\.\d+\.4(-[1-7]\.\d+\.3){7}", heard.heard[-1].id)
    for at in (0, 7, 22):
        again = listen(WHOLE, heard.heard[at].id)
        before = {each.value for each in heard.heard[: at + 1]}
        assert {*again.values(23 - at)} == {*range(1, 25)} - before
    assert sorted(listen(f"{WHOLE}?from=earliest").values(25)) == list(range(25))


@pytest.mark.parametrize("path", [SLICE, WHOLE])
@pytest.mark.parametrize("before", [0, 3])
def test_who_is_cut_off_before_an_event_came_misses_none(
    broker: RunningBroker, listen: Callable[..., Listening], path: str, before: int
) -> None:
    """Where it begins comes first, as an id without data."""
    assert broker.request("PUT", "/v1/topics/t", headers={"Content-Type": JSON}).status == 201
    if before:
        fill(broker, 0, before)
    quiet = listen(path)
    until(lambda: quiet.begins)
    quiet.close()
    assert not quiet.heard
    fill(broker, before, 2)
    again = listen(path, quiet.begins)
    assert again.values(2) == [before, before + 1]


def test_those_far_behind_catch_up_without_a_gap(
    broker: RunningBroker, listen: Callable[..., Listening]
) -> None:
    """More than a feed keeps, from before it and while it goes on."""
    text = "x" * 1000
    count = 0
    body = b"".join(b'{"n":%d,"text":"%s"}\n' % (n, text.encode()) for n in range(1000))
    key = key_of(broker, "t", 5)
    broker.produce("t", body, key=key)
    live = listen(SLICE)
    late = listen(f"{SLICE}?from=earliest")
    for count in range(20):
        broker.produce("t", b'{"n":%d}\n' % (1000 + count), key=key)
    assert [each["n"] for each in late.values(1020)] == list(range(1020))
    assert [each["n"] for each in live.values(20)] == list(range(1000, 1020))
    assert count == 19


@pytest.mark.parametrize("path", [SLICE, WHOLE])
def test_who_does_not_read_misses_nothing_when_he_does(
    broker: RunningBroker, listen: Callable[..., Listening], path: str
) -> None:
    """Its feed goes on without it, further than it keeps text: it is read for alone, then joins.

    The kernel keeps next to nothing for it, so that the feed really has to drop it.
    """
    fill(broker, 0, 1)
    key, text = key_of(broker, "t", 5), "y" * 900
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 10)
        slow.settimeout(30)
        slow.connect(("127.0.0.1", broker.port()))
        slow.sendall(
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        found = slow.recv(4096)
        assert found.startswith(b"HTTP/1.1 200"), found
        live = listen(path)

        def read_to(last: int) -> None:
            nonlocal found
            while b'{"n":%d}}\n\n' % last not in found[-4096:]:
                piece = slow.recv(1 << 20)
                assert piece, "it was closed"
                found += piece

        for first in range(0, 4000, 500):
            lines = (f'{{"n":{n},"t":"{text}"}}\n' for n in range(first, first + 500))
            broker.produce("t", "".join(lines).encode(), key=key)
        live.values(4000)  # The feed is far beyond what it keeps.
        for last in (4000, 4001):  # In its own time, and when it hears the feed again.
            broker.produce("t", b'{"n":%d}\n' % last, key=key)
            read_to(last)
    data = [line[6:] for line in found.split(b"\n") if line.startswith(b"data: ")]
    assert [json.loads(line)["value"]["n"] for line in data] == list(range(4002))


def test_who_hangs_up_while_he_catches_up_leaves_the_worker_free(
    start_broker: Callable[..., RunningBroker],
) -> None:
    """It was read for again and again, and its worker heard of nothing else until it was killed."""
    broker = start_broker(workers=1)
    for slice_ in range(8):
        fill(broker, 0, 500, slice_)
    pids = broker.worker_pids()
    asked = f"GET {WHOLE}?from=earliest HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", broker.port())) as gone:
            gone.sendall(asked)
    with closing(Listening("127.0.0.1", broker.port(), f"{WHOLE}?from=earliest")) as heard:
        heard.values(4000)

    def listeners() -> bool:
        return b"\nbarco_listeners 0\n" in broker.request("GET", "/metrics").body

    until(listeners)
    assert broker.worker_pids() == pids


@pytest.mark.parametrize(
    ("path", "last", "status"),
    [
        (SLICE, "no-cursor", 400),
        (SLICE, "00000001-00000000000fffff", 400),
        (SLICE, "x" * 8000, 400),
        (WHOLE, "5.1.99999999999999999999", 400),
        (WHOLE, "9.1.1", 400),
        (WHOLE, "5.1.1-5.1.1", 400),
        (WHOLE, "5.1.1-4.1.1", 400),
        (WHOLE, "5.1.999999", 400),
        (WHOLE, "5.1.1-" * 1000, 400),
        ("/v1/topic/none/events", None, 404),
        (f"{SLICE}?waitMs=5", None, 400),
        (f"{WHOLE}?until=5", None, 400),
    ],
)
def test_what_is_no_place_is_refused(
    broker: RunningBroker,
    listen: Callable[..., Listening],
    path: str,
    last: str | None,
    status: int,
) -> None:
    fill(broker, 0, 2)
    refused = listen(path, last)
    assert (refused.status, json.loads(refused.body)["status"]) == (status, status), refused.body


def test_it_is_a_path_like_others(broker: RunningBroker) -> None:
    fill(broker, 0, 1)
    accept = {"Accept": "text/event-stream"}
    head = broker.request("HEAD", WHOLE, headers=accept)
    assert (head.status, head.body, head.headers["content-type"]) == (200, b"", accept["Accept"])
    assert broker.request("OPTIONS", WHOLE).headers["allow"] == "GET, HEAD, OPTIONS"
    assert broker.request("PUT", WHOLE).status == 405
    assert broker.request("GET", WHOLE, headers={"Accept": "text/csv"}).status == 406
    assert broker.request("GET", SLICE).headers["content-type"] == "application/json"


def test_feeds_end_and_figures_fall(broker: RunningBroker) -> None:
    fill(broker, 0, 1)
    heard = Listening("127.0.0.1", broker.port(), WHOLE)
    fill(broker, 1, 5)
    heard.values(5)

    def figure(name: str) -> float:
        text = broker.request("GET", "/metrics").body.decode()
        return float(
            next(line for line in text.splitlines() if line.startswith(f"{name} "))[len(name) :]
        )

    assert (figure("barco_listeners"), figure("barco_feeds")) == (1, 1)
    assert figure("barco_listener_bytes_out_total") > 500 and figure("barco_feed_bytes") > 0
    heard.close()
    until(lambda: figure("barco_listeners") == 0)
    until(lambda: figure("barco_feeds") == 0 and figure("barco_feed_bytes") == 0)


def test_a_stop_ends_them_and_the_ids_go_on(broker: RunningBroker) -> None:
    fill(broker, 0, 1)
    with closing(Listening("127.0.0.1", broker.port(), SLICE)) as heard:
        fill(broker, 1, 3)
        assert heard.values(3) == [1, 2, 3]
        assert broker.stop() == 0
        until(heard.ended.is_set)
    broker.restart()
    fill(broker, 4, 2)
    with closing(Listening("127.0.0.1", broker.port(), SLICE, heard.heard[1].id)) as again:
        assert again.values(3) == [3, 4, 5]


def test_who_was_away_while_retention_passed_is_told(broker: RunningBroker) -> None:
    """Nothing is left out in silence: the id is refused, with the first place that is left."""
    settings = {"body": b'{"retentionBytes": 400000}', "headers": {"Content-Type": JSON}}
    assert broker.request("PUT", "/v1/topics/t", **settings).status == 201
    ids = {}
    for path in (SLICE, WHOLE):
        with closing(Listening("127.0.0.1", broker.port(), path)) as heard:
            fill(broker, 0, 2)
            heard.values(2)
            ids[path] = heard.heard[0].id
    rng = random.Random(5)
    for _ in range(20):
        broker.produce("t", rng.randbytes(9000), key=key_of(broker, "t", 5), kind=BYTES)
    assert broker.stop() == 0
    broker.restart()  # Retention looks at once then.
    for path, last in ids.items():

        def again(path: str = path, last: str = last) -> Listening:
            with closing(Listening("127.0.0.1", broker.port(), path, last)) as found:
                return found

        until(lambda again=again: again().status == 410)
        problem = json.loads(again().body)
        assert problem["type"].endswith("cursor-expired") and problem["earliest"]
    with closing(Listening("127.0.0.1", broker.port(), f"{WHOLE}?from=earliest")) as heard:
        heard.values(1)
        assert int(heard.heard[0].line["offset"]) > 4
