"""PUT /v1/topology with what nobody should send: nothing ends, nothing is lost, no 500."""

import http.client
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from joining import JoinedCluster, three, until

import barco as client

BODIES, MANY = 250, 5000
REFUSED = {400, 403, 409, 413}

NUMBERS: list[Any] = [
    *(-1, 0, 1, 2, 3, 7, 8, 9, 24, 25, 255, 256, 257, 767, 768, 769, 2**16, 2**16 + 1),
    *(2**31 - 1, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, -(2**63), 10**40, 10**4000),
    *(0.0, -0.0, 1.0, 1.5, 1e308, True, False, None, "1", "0x1", [1], {"a": 1}),
]
TEXTS: list[Any] = [
    *("", "a", "127.0.0.1", "::1", "a b", "a\0b", "a\nb", "é", "\u202e", "😀", "\ud800", "\udfff"),
    *("x" * 32, "x" * 33, "x" * 255, "x" * 256, "x" * 70_000, "0" * 32, "f" * 31, "Z" * 32),
    *(7, 1.5, None, True, [], {}, ["x"]),
]
THINGS: list[Any] = [None, True, 0, -1, 1.5, "", "x", [], {}, [[]], [{}], {"": {}}, [None] * 1000]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JoinedCluster]:
    yield from three(tmp_path_factory.mktemp("fuzz"))


@pytest.fixture(autouse=True)
def _unharmed() -> None:
    """No broker of the neighbours' is needed here."""


class Fuzz:
    """Bodies of one seed, about what a cluster would take."""

    def __init__(self, seed: int, cluster: str) -> None:
        self.random, self.cluster = Random(seed), cluster
        self.version = 0
        self.changes: tuple[Callable[[dict[str, Any]], Any], ...] = (
            self._any_field,
            self._any_of_broker,
            self._brokers,
            self._version,
            lambda doc: doc.pop(self.random.choice(list(doc))),
        )

    def good(self) -> dict[str, Any]:
        size = self.random.choice((3, 3, 4, 5, 6, 12, 24))
        brokers = [{"ordinal": each, "workers": 1} for each in range(size)]
        return {"cluster": self.cluster, "version": self.version, "brokers": brokers}

    def body(self) -> bytes:
        doc = self.good()
        for _ in range(self.random.choice((0, 1, 1, 1, 2, 3))):
            if not doc:
                break
            self.random.choice(self.changes)(doc)
        if self.random.random() < 0.3:
            return self._raw(json.dumps(doc))
        return json.dumps(doc).encode()

    def _any_field(self, doc: dict[str, Any]) -> None:
        name = self.random.choice([*doc, "more", "", "__proto__", "x" * 1000, "é"])
        doc[name] = self.random.choice(NUMBERS + TEXTS + THINGS)

    def _version(self, doc: dict[str, Any]) -> None:
        doc["version"] = self.random.choice(NUMBERS)

    def _any_of_broker(self, doc: dict[str, Any]) -> None:
        brokers = doc.get("brokers")
        if not isinstance(brokers, list) or not brokers or not isinstance(brokers[-1], dict):
            return
        broker = self.random.choice([each for each in brokers if isinstance(each, dict)])
        name = self.random.choice(("ordinal", "workers", "host", "diskUuid", "ports", "more"))
        broker[name] = self.random.choice(
            TEXTS if name in ("host", "diskUuid") else NUMBERS + THINGS
        )

    def _brokers(self, doc: dict[str, Any]) -> None:
        brokers = doc.get("brokers")
        if not isinstance(brokers, list):
            return
        doc["brokers"] = self.random.choice(
            (
                [*brokers, *brokers],
                brokers[::-1],
                brokers[:2],
                brokers[1:],
                brokers * 400,
                [*brokers, self.random.choice(THINGS)],
                [{"ordinal": each, "workers": 8} for each in range(768)],
                [{"ordinal": each, "workers": 1} for each in range(4096)],
                [{**each, "workers": 2} for each in brokers if isinstance(each, dict)],
            )
        )

    def _raw(self, text: str) -> bytes:
        good, at = text.encode(), self.random.randrange(len(text))
        return self.random.choice(
            (
                b"",
                good[:at],
                good + b"}",
                good + good,
                b"\xef\xbb\xbf" + good,
                good[:at] + b"\xff" + good[at:],
                good[:at] + b"\0" + good[at:],
                text.encode("utf-16"),
                b"[" * 100_000,
                b'{"brokers":' * 5_000 + b"1" + b"}" * 5_000,
                good[:-1] + b',"version":7,"version":8}',
                good[:-1] + b',"brokers":[],"brokers":[{"ordinal":0,"ordinal":1,"workers":1}]}',
                good.replace(b"1", b"1e999"),
                good.replace(b"1", b"9" * 5_000),
                good.replace(b"1", b"NaN"),
                good.replace(b"0", b"-Infinity"),
                good.replace(b"0", b"00"),
                b" " * 100_000 + good,
                bytes(self.random.randrange(256) for _ in range(at)),
            )
        )


def put(cluster: JoinedCluster, at: int, body: bytes) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(cluster.endpoints[at].rpartition("/")[2], timeout=60)
    try:
        connection.request("PUT", "/v1/topology", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def starts(cluster: JoinedCluster) -> Counter[tuple[int, int]]:
    """How often each worker of each broker began. A target with more of them begins more, if it is
    not another one soon."""
    lines = [(at, line) for at in range(3) for line in cluster.log(at).read_text().splitlines()]
    return Counter(
        (at, json.loads(line)["worker"]) for at, line in lines if '"worker ready"' in line
    )


def topology(cluster: JoinedCluster, at: int) -> dict[str, Any]:
    with client.Admin(cluster.endpoints[at], timeout_s=60.0) as admin:
        return dict(admin.topology())


def fuzzed(cluster: JoinedCluster, seed: int, count: int) -> Counter[int]:
    seen = topology(cluster, 0)
    fuzz = Fuzz(seed, seen["cluster"])
    fuzz.version = seen["target"]["version"]
    found: Counter[int] = Counter()
    target = seen["target"]
    for number in range(count):
        body = fuzz.body()
        status, answer = put(cluster, number % 3, body)
        found[status] += 1
        assert status == 200 or status in REFUSED, (seed, number, body[:1000], status, answer)
        if status == 200:
            told = json.loads(answer)
            changed = told["version"] - fuzz.version
            assert changed in (0, 1) and (changed or told["brokers"] == target["brokers"]), body
            target, fuzz.version = told, told["version"]
        else:
            assert json.loads(answer)["detail"], "it is said why"
    for at in range(3):  # All of them know what was taken last.
        until("it is told", lambda at=at: topology(cluster, at)["target"] == target)
    return found


@pytest.mark.parametrize(
    ("seed", "count"), [(1, BODIES), pytest.param(2, MANY, marks=pytest.mark.chaos)]
)
def test_no_document_loses_the_target_or_ends_its_keeper(
    cluster: JoinedCluster, seed: int, count: int
) -> None:
    found = fuzzed(cluster, seed, count)
    assert found[200] > count // 50 and found[400] > count // 5 and found[409], found
    begun = starts(cluster)
    assert len(begun) >= 9 and set(begun.values()) == {1}, "nobody began anew"
    for at in range(3):
        with client.Producer(cluster.endpoints[at]) as producer:
            producer.send("t", b"written").result(30)
