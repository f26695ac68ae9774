"""Users shown by name and password, `Authorization: Basic`, at real brokers, on connections that
stay and on new ones; and what is never told of it."""

import base64
import json
import struct
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from running import RunningBroker

import barco

ROOT = "barco_root"
TOKEN = "barco_" + "t" * 43
SECONDS = 30.0


def basic(name: str | bytes, token: str) -> str:
    raw = name if isinstance(name, bytes) else name.encode()
    return f"Basic {base64.b64encode(raw + b':' + token.encode()).decode()}"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """With two users, each worker of it has heard of them."""
    found = RunningBroker.closed(tmp_path / "data", ROOT)
    found.start()
    try:
        with barco.Admin(f"127.0.0.1:{found.port('discovery')}", token=ROOT) as root:
            root.set_user("ann", token=TOKEN, grants=["produce:t", "metrics"])
            root.set_user("bob", token="bob-token", grants=["produce:t"])
        found.knows(basic("bob", "bob-token"))
        yield found
    finally:
        found.end()


def heard(broker: RunningBroker, shard: int, shown: str, status: int) -> None:
    deadline = time.monotonic() + SECONDS
    headers = {"Authorization": shown}
    while broker.request("GET", "/v1/topics", headers=headers, shard=shard).status != status:
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Kept:
    """Calls on one connection."""

    def __init__(self, broker: RunningBroker) -> None:
        self._link = HTTPConnection("127.0.0.1", broker.port(shard=0), timeout=SECONDS)

    def __call__(self, shown: str | None, method: str = "GET", path: str = "/v1/topics") -> int:
        return self.answer(shown, method, path).status

    def answer(self, shown: str | None, method: str, path: str) -> HTTPResponse:
        headers = {} if shown is None else {"Authorization": shown}
        body = b"1" if method == "POST" else None
        self._link.request(method, path, body, headers)
        answer = self._link.getresponse()
        answer.read()
        return answer


def test_a_connection_is_whose_each_request_says(broker: RunningBroker) -> None:
    asks, produce = Kept(broker), ("POST", "/v1/topic/t/messages")
    right = basic("ann", TOKEN)
    for _ in range(2):  # Looked up, and then known by the connection.
        assert asks(right) == asks(right.replace("Basic", "bAsIc")) == 200
        assert asks(right, *produce) == 200
        assert asks(basic("bob", TOKEN)) == asks(basic("bob", TOKEN), *produce) == 401
        assert asks(basic("", TOKEN)) == asks(basic("ANN", TOKEN)) == 401
        assert asks(basic("ann", "bob-token")) == 401
        assert asks(f"Bearer {TOKEN}") == asks(right.rstrip("=")) == 200
        assert asks(basic("bob", "bob-token")) == 403
        assert asks(f"Bearer ann:{TOKEN}") == 401
    with barco.Admin(f"127.0.0.1:{broker.port('discovery')}", token=ROOT) as root:
        root.set_user("ann", grants=["produce:t"])
        heard(broker, 0, right, 403)
        assert asks(right) == 403 and asks(right, *produce) == 200
        root.remove_user("ann")
    heard(broker, 0, right, 401)
    assert asks(right) == asks(right, *produce) == 401


WRONG = (
    *("Basic", "Basic ", "Basic !!!!", "Basic ====", "Basic YQ===", "Basic YW5uOnR0d"),
    f"Basic {base64.b64encode(TOKEN.encode()).decode()}",
    f"Basic {base64.b64encode(b'ann' + TOKEN.encode()).decode()}",
    f"Basic ann:{TOKEN}",
    f"Basic  {basic('ann', TOKEN)[6:]}",
    f"{basic('ann', TOKEN)} x",
    *(basic("ann", ""), basic(b"\xff\xfe", TOKEN), basic(b"ann\0", TOKEN), basic("ann:", TOKEN)),
    *(basic("n" * 40, TOKEN), basic("n" * 400, TOKEN), basic("ann", "t" * 400)),
    basic("ann", "t" * 20_000),
)


def test_what_is_no_name_and_token_is_refused_and_never_told(broker: RunningBroker) -> None:
    asks = Kept(broker)
    refused = asks.answer(basic("bob", TOKEN), "GET", "/v1/topics")
    for shown in WRONG:
        for call in (("GET", "/v1/topics"), ("POST", "/v1/topic/t/messages"), ("GET", "/elastic")):
            assert asks(shown, *call) == 401, (shown[:80], call)
    line = broker.line_about(refused.headers["Barco-Request-Id"])
    assert (line["status"], line["user"], line["why"]) == (401, "", "unauthorized")
    log = broker.log_path.read_text()
    assert '"unauthorized"' in log and TOKEN not in log
    for shown in (*WRONG[6:], basic("ann", TOKEN), basic("bob", TOKEN)):
        assert shown.rpartition(" ")[2][:40] not in log or len(shown) < 20, shown[:80]


def test_who_is_told_of_names_and_passwords(broker: RunningBroker) -> None:
    asks = Kept(broker)
    bearer, named = 'Bearer realm="barco"', 'Basic realm="barco", charset="UTF-8"'
    for shown, challenges in (
        (None, [bearer, named]),
        (basic("ann", "x"), [bearer, named]),
        ("Token x", [bearer, named]),
        ("Bearer x", [bearer]),  # As the console says it: a browser would ask in its place.
    ):
        for call in (("GET", "/v1/topics"), ("POST", "/v1/topic/t/messages")):
            answer = asks.answer(shown, *call)
            assert answer.status == 401
            assert answer.headers.get_all("WWW-Authenticate") == challenges, shown


def field(number: int, said: bytes) -> bytes:
    assert len(said) < 128
    return bytes((number << 3 | 2, len(said))) + said


def varint(value: int) -> bytes:
    return bytes((value & 127 | 128,)) + varint(value >> 7) if value > 127 else bytes((value,))


def sample() -> bytes:
    """One of remote write, in Snappy's format as one literal."""
    label = field(1, b"__name__") + field(2, b"up")
    value = b"\x09" + struct.pack("<d", 1.0) + b"\x10" + varint(time.time_ns() // 10**6)
    body = field(1, field(1, label) + field(2, value))
    return varint(len(body)) + bytes(((len(body) - 1) << 2,)) + body


def test_shippers_that_know_names_and_passwords_alone(broker: RunningBroker) -> None:
    pushed = {"streams": [{"stream": {"a": "b"}, "values": [[str(time.time_ns()), "line"]]}]}
    calls = {
        "/elastic/_bulk": (b'{"index":{"_index":"t"}}\n{}\n', "application/x-ndjson", 200),
        "/loki/api/v1/push?topic=t": (json.dumps(pushed).encode(), "application/json", 204),
        "/api/v1/write?topic=t": (sample(), "application/x-protobuf", 204),
        "/v1/logs?topic=t": (b'{"resourceLogs":[]}', "application/json", 200),
        "/services/collector/event": (b'{"event":1,"index":"t"}', "application/json", 200),
    }
    for path, (body, kind, status) in calls.items():
        for shown, expected in (
            (basic("ann", TOKEN), status),
            (basic("bob", TOKEN), 401),
            (basic("ann", "bob-token"), 401),
        ):
            headers = {"Authorization": shown, "Content-Type": kind}
            answer = broker.request("POST", path, body=body, headers=headers)
            assert answer.status == expected, (path, answer)
