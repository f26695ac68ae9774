"""Quotas of users, over sockets: what is more is refused, and it is told until when.

A worker alone counts, so there is one. What has to be refused would take minutes to be allowed
again, and a table is waited for until it is live, so that how busy the machine is decides nothing.
"""

import itertools
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from running import RunningBroker

import barco
from barco.errors import RequestError
from barco.limits import QUOTA_MAX
from barco.model.access import hash_of

ROOT, FREE = "barco_root", "barco_free"
SLOW = (f"barco_slow{number}" for number in itertools.count())
SECONDS = 60.0
"""Generous: it only ends what has failed."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    found = RunningBroker.closed(tmp_path_factory.mktemp("quotas") / "data", ROOT, workers=1)
    found.start()
    yield found
    found.end()


@pytest.fixture
def root(broker: RunningBroker) -> Iterator[barco.Admin]:
    with barco.Admin(f"127.0.0.1:{broker.port('discovery')}", token=ROOT) as admin:
        admin.set_user("free", token=FREE, grants=["produce:t", "consume:t"])
        yield admin


def asked(
    broker: RunningBroker,
    token: str,
    body: bytes = b"1",
    *,
    chunked: bool = False,
    path: str = "/v1/topic/t/messages?partitionKey=k",
    method: str = "POST",
) -> tuple[HTTPResponse, bytes]:
    connection = HTTPConnection("127.0.0.1", broker.port("produce"), timeout=30)
    headers = {"Authorization": f"Bearer {token}"}
    given = iter([body]) if chunked else body
    connection.request(method, path, given, headers, encode_chunked=chunked)
    answer = connection.getresponse()
    found = answer, answer.read()
    connection.close()
    return found


def refused(broker: RunningBroker, token: str, least: int, most: int) -> None:
    """For so many seconds."""
    answer, said = asked(broker, token)
    document = json.loads(said)
    assert (answer.status, document["status"]) == (429, 429), said
    assert document["type"] == "urn:barco:problem:quota-exceeded"
    assert least <= int(answer.headers["Retry-After"]) <= most
    assert answer.headers["Barco-Outcome"] == "not-written"


def slow(broker: RunningBroker, root: barco.Admin, *, keep: bool = False, **quota: int) -> str:
    """A new token of the user `slow`, with all of this quota but one request: a table that knows
    it is live, and every table begins anew."""
    token, grants = next(SLOW), ["produce:t", "consume:t"]
    root.set_user("slow", token=token, grants=grants, keep=keep, **quota)
    deadline = time.monotonic() + SECONDS
    while asked(broker, token, b"")[0].status == 401:  # Else 400: there is no event in it.
        assert time.monotonic() < deadline
    return token


def stored(root: barco.Admin) -> int:
    """All have the same key, and so are in the same slice."""
    return max(int(each["endOffset"]) for each in root.slices("t"))


def test_requests(broker: RunningBroker, root: barco.Admin) -> None:
    token = slow(broker, root, requests_per_second=3, bytes_per_second=0)
    began = time.monotonic()
    answers = [asked(broker, token)[0].status for _ in range(60)]
    taken, passed = answers.count(200), time.monotonic() - began
    assert set(answers) <= {200, 429} and 2 <= taken <= 3 + 3 * passed
    assert 429 in answers or passed > 15
    assert asked(broker, FREE)[0].status == 200


@pytest.mark.parametrize("chunked", (False, True), ids=("announced", "chunked"))
def test_bytes_that_come(broker: RunningBroker, root: barco.Admin, *, chunked: bool) -> None:
    """What is there at once may be overdrawn by one body, which then is waited for."""
    token = slow(broker, root, requests_per_second=0, bytes_per_second=1000)
    assert asked(broker, token, b"x" * 500_000, chunked=chunked)[0].status == 200
    # A debt of 499,000, and a second until there is more than none: 500 if no time has passed.
    refused(broker, token, 400, 500)
    other = slow(broker, root, keep=True)  # Another token, and the same user.
    assert asked(broker, token, b"x" * 500_000, chunked=chunked)[0].status == 200
    refused(broker, other, 400, 500)
    assert asked(broker, FREE)[0].status == 200


def test_bytes_that_go(broker: RunningBroker, root: barco.Admin) -> None:
    """And none of what does not: neither the body of a HEAD nor one that is refused unread."""
    assert asked(broker, FREE, b"y" * 300_000)[0].status == 200
    token = slow(broker, root, requests_per_second=0, bytes_per_second=1000)
    most = max(root.slices("t"), key=lambda each: int(each["endOffset"]))
    path = f"/v1/topic/t/slices/{most['token']}/{most['index']}/events?maxBytes=16777216"
    too_large = b"x" * (17 << 20)
    assert asked(broker, token, path=path, method="HEAD", body=b"")[0].status == 200
    with suppress(ConnectionError):  # It is answered, and the connection closed, before all came.
        assert asked(broker, token, too_large)[0].status == 413
    answer, body = asked(broker, token, b"", path=path, method="GET")
    assert answer.status == 200 and len(body) > 300_000
    refused(broker, token, 200, len(body) // 1000 + 1)


def test_nobodys_request_behind_a_read(broker: RunningBroker, root: barco.Admin) -> None:
    """What is answered is paid by who asked for it, though somebody unknown has asked since."""
    assert asked(broker, FREE, b"y" * 300_000)[0].status == 200
    token = slow(broker, root, requests_per_second=0, bytes_per_second=1000)
    most = max(root.slices("t"), key=lambda each: int(each["endOffset"]))
    path = f"/v1/topic/t/slices/{most['token']}/{most['index']}/events?maxBytes=16777216"
    said = "".join(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {each}\r\n\r\n"
        for each in (token, "wrong")
    )
    with socket.create_connection(("127.0.0.1", broker.port("produce")), timeout=30) as behind:
        behind.sendall(said.encode())
        got = b""
        while b"unauthorized" not in got:
            more = behind.recv(1 << 20)
            assert more, got[-500:]
            got += more
    assert got.startswith(b"HTTP/1.1 200 ") and len(got) > 300_000
    refused(broker, token, 200, len(got) // 1000 + 1)


def test_chunks_without_an_end(broker: RunningBroker, root: barco.Admin) -> None:
    token = slow(broker, root, requests_per_second=0, bytes_per_second=1000)
    head = (
        "POST /v1/topic/t/messages HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {token}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", broker.port("produce")), timeout=30) as begun:
        begun.sendall(head.encode() + b"7a120\r\n" + b"x" * 500_000)
        deadline = time.monotonic() + SECONDS  # They come in pieces: not all are there at once.
        while int(asked(broker, token, b"")[0].headers.get("Retry-After", 0)) < 350:
            assert time.monotonic() < deadline, "chunks that came cost nothing"
        refused(broker, token, 300, 500)


def test_a_large_debt_and_none(broker: RunningBroker, root: barco.Admin) -> None:
    """An hour at most is waited for; without a quota nothing is."""
    before = stored(root)
    token = slow(broker, root, requests_per_second=0, bytes_per_second=1)
    assert asked(broker, token, b"x" * 100_000)[0].status == 200
    refused(broker, token, 3500, 3601)
    assert asked(broker, token, b"x" * 100)[0].status == 429
    assert stored(root) == before + 1
    for quota in (0, QUOTA_MAX):
        token = slow(broker, root, bytes_per_second=quota)
        assert [asked(broker, token, b"x" * 100_000)[0].status for _ in range(3)] == [200] * 3
        shown = {each["name"]: each for each in root.users()}["slow"]
        assert (shown["requestsPerSecond"], shown["bytesPerSecond"]) == (0, quota)


def test_what_is_no_quota(root: barco.Admin) -> None:
    for wrong in (-1, 2**41, 1.5, True, "1"):
        with pytest.raises(RequestError, match="bytesPerSecond is a whole number"):
            root.set_user("free", bytes_per_second=wrong)  # type: ignore[arg-type]


def test_the_command(broker: RunningBroker, root: barco.Admin, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(ROOT)
    end = ["--endpoint", f"127.0.0.1:{broker.port('discovery')}", "--token-file", str(token)]

    def users(*args: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "barco", "users", *args, *end]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert users("add", "app", "produce:t", "--requests-per-second", "7").returncode == 0
    assert users("quota", "app", "--bytes-per-second", "4000").returncode == 0
    shown = {each["name"]: each for each in root.users()}["app"]
    assert (shown["requestsPerSecond"], shown["bytesPerSecond"]) == (7, 4000)
    assert shown["grants"] == ["produce:t"]
    (line,) = [line for line in users("list").stdout.splitlines() if line.startswith("app")]
    assert line.split() == ["app", "1", "7", "4,000", "-", "-", "-", "-", "produce:t"]
    more = ("--connections", "3", "--topics", "4", "--groups", "5", "--staged-bytes", "6000")
    assert users("quota", "app", *more).returncode == 0
    (line,) = [line for line in users("list").stdout.splitlines() if line.startswith("app")]
    assert line.split() == ["app", "1", "7", "4,000", "3", "4", "5", "6,000", "produce:t"]
    assert users("quota", "app").returncode == 1
    assert users("quota", "app", "--bytes-per-second", "4MB").returncode == 2


class Connections:
    """Open ones of some tokens; each asks again when it is told to."""

    def __init__(self, broker: RunningBroker) -> None:
        self._broker = broker
        self.open: list[HTTPConnection] = []

    def ask(self, connection: HTTPConnection, token: str) -> HTTPResponse:
        path, headers = "/v1/topic/t/messages", {"Authorization": f"Bearer {token}"}
        connection.request("POST", path, b"1", headers)
        answer = connection.getresponse()
        answer.read()
        return answer

    def more(self, token: str, status: int = 200) -> HTTPConnection:
        connection = HTTPConnection("127.0.0.1", self._broker.port("produce"), timeout=30)
        self.open.append(connection)
        answer = self.ask(connection, token)
        assert answer.status == status
        assert (answer.headers["Connection"] == "close") == (status == 429)
        return connection

    def until(self, token: str) -> HTTPConnection:
        """The broker hears of an end a moment later."""
        deadline = time.monotonic() + SECONDS
        while True:
            connection = HTTPConnection("127.0.0.1", self._broker.port("produce"), timeout=30)
            self.open.append(connection)
            if self.ask(connection, token).status == 200:
                return connection
            assert time.monotonic() < deadline

    def close(self) -> None:
        for each in self.open:
            each.close()


def test_connections(broker: RunningBroker, root: barco.Admin) -> None:
    """Counted through changes of the table, given back at their end and when another user is shown
    on them; whatever others have."""
    token = slow(broker, root, requests_per_second=0, bytes_per_second=0, connections=3)
    made = Connections(broker)
    with closing(made):
        first, second, _ = [made.until(token), made.more(token), made.more(token)]
        other = slow(broker, root, keep=True)  # The same user: its one request was refused.
        for one in (token, other):
            made.more(one, 429)
        assert made.ask(first, token).status == 200, "it counts already"
        for _ in range(5):
            made.more(FREE)
        root.set_user("someone", token="barco_someone", grants=["produce:t"])  # Another table.
        while asked(broker, "barco_someone")[0].status == 401:
            pass
        made.more(other, 429)
        second.close()
        second = made.until(other)
        made.more(token, 429)
        assert made.ask(second, FREE).status == 200
        made.until(token)
        assert made.ask(second, token).status == 429
        answer, said = asked(broker, token)
        assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        assert json.loads(said)["type"] == "urn:barco:problem:quota-exceeded"
        assert answer.headers["Barco-Outcome"] == "not-written"
        assert told(broker, answer.headers["Barco-Request-Id"])["user"] == "slow"


def told(broker: RunningBroker, request: str) -> dict[str, object]:
    """The line of the log about a request; it is written within a second or so."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        for line in broker.log_path.read_text().splitlines():
            if f'"{request}"' in line:
                return dict(json.loads(line))
        time.sleep(0.1)
    raise AssertionError(f"no line about {request}")


def test_what_the_core_refuses_is_told_with_the_id_of_its_answer(
    broker: RunningBroker, root: barco.Admin
) -> None:
    """By status: who, what, and where; then a table that changes before it was told."""
    token = slow(broker, root, requests_per_second=0, bytes_per_second=1)
    elsewhere, over = "/v1/topic/other/messages", "/v1/topic/t/messages"
    said = {}
    for status, who, path, shown in (
        (401, "", over, "barco_" + "wrong" * 10),
        (403, "slow", elsewhere, token),
        (200, "slow", over, token),
        (429, "slow", over, token),
        (429, "slow", "/v1/topics", token),
        (401, "", "/v1/topics", "x"),
    ):
        method = "GET" if path == "/v1/topics" else "POST"
        answer, _ = asked(broker, shown, b"x" * 4_000, path=f"{path}?slice=1", method=method)
        assert answer.status == status, path
        if status != 200:
            said[answer.headers["Barco-Request-Id"]] = (status, who, method, path)
        else:
            assert "Barco-Request-Id" not in answer.headers
    root.set_user("aaa", token="barco_aaa", grants=[])  # Other numbers, perhaps.
    assert len(said) == 5
    for request, expected in said.items():
        line = broker.line_about(request)
        found = (line["status"], line["user"], line["method"], line["path"])
        assert (line["logger"], line["message"]) == ("barco.audit", "refused")
        assert found == expected and line["from"] == "127.0.0.1"
    log = broker.log_path.read_text()
    assert token not in log and "wrong" * 3 not in log and hash_of(token).hex() not in log
    root.remove_user("aaa")


def left_out(broker: RunningBroker) -> int:
    """Of who showed no user's token."""
    lines = (json.loads(each) for each in broker.log_path.read_text().splitlines())
    return sum(each.get("left_out", 0) for each in lines if each.get("user") == "")


def test_a_flood_of_refusals_is_counted(broker: RunningBroker, root: barco.Admin) -> None:
    """Each of 401 and 403 apart, however busy one of them is."""
    token = slow(broker, root, requests_per_second=0, bytes_per_second=0)
    ids, before = set(), left_out(broker)
    for _ in range(300):
        ids.add(asked(broker, "nobody")[0].headers["Barco-Request-Id"])
    answer, _ = asked(broker, token, path="/v1/topic/other/messages")
    assert broker.line_about(answer.headers["Barco-Request-Id"])["user"] == "slow"
    assert len(ids) == 300
    deadline, counted = time.monotonic() + SECONDS, 0
    while counted < 300:
        whole = sum(f'"{each}"' in broker.log_path.read_text() for each in ids)
        counted = whole + left_out(broker) - before
        assert time.monotonic() < deadline
    assert whole < 300
