"""Quotas of users, over sockets: what is more is refused, and it is told until when.

A worker alone counts, so there is one. Rates are low, so that how busy the machine is decides
nothing: what has to be refused would take hours to be allowed again.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from running import RunningBroker

import barco
from barco.errors import RequestError
from barco.model.access import hash_of
from barco.supervisor.files.first_users import NAME, add

ROOT, SLOW, FREE = "barco_root", "barco_slow", "barco_free"
LIVE_SECONDS = 1.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    data_dir = tmp_path_factory.mktemp("quotas") / "data"
    data_dir.mkdir(mode=0o700)
    add(data_dir / NAME, "root", hash_of(ROOT).hex())
    found = RunningBroker(data_dir, workers=1, access_required=True)
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
    """For so many seconds, from the first answer on that is none of the last table."""
    deadline = time.monotonic() + LIVE_SECONDS
    while (found := asked(broker, token, b""))[0].status == 400:  # There is no event in it.
        assert time.monotonic() < deadline
    answer, said = found
    document = json.loads(said)
    assert (answer.status, document["status"]) == (429, 429), said
    assert document["type"] == "urn:barco:problem:quota-exceeded"
    assert least <= int(answer.headers["Retry-After"]) <= most
    assert answer.headers["Barco-Outcome"] == "not-written"


def slow(root: barco.Admin, **quota: int) -> None:
    """The user `slow` with this quota, all of which is left: every table begins anew."""
    root.set_user("slow", token=SLOW, grants=["produce:t", "consume:t"], **quota)
    time.sleep(LIVE_SECONDS)


def stored(root: barco.Admin) -> int:
    """All have the same key, and so are in the same slice."""
    return max(int(each["endOffset"]) for each in root.slices("t"))


def test_requests(broker: RunningBroker, root: barco.Admin) -> None:
    slow(root, requests_per_second=3, bytes_per_second=0)
    began = time.monotonic()
    answers = [asked(broker, SLOW)[0].status for _ in range(60)]
    taken = answers.count(200)
    assert set(answers) == {200, 429} or time.monotonic() - began > 15
    assert 3 <= taken <= 3 + 3 * (time.monotonic() - began) + 1
    assert asked(broker, FREE)[0].status == 200


@pytest.mark.parametrize("chunked", (False, True), ids=("announced", "chunked"))
def test_bytes_that_come(broker: RunningBroker, root: barco.Admin, *, chunked: bool) -> None:
    """What is there at once may be overdrawn by one body, which then is waited for."""
    slow(root, requests_per_second=0, bytes_per_second=1000)
    assert asked(broker, SLOW, b"x" * 500_000, chunked=chunked)[0].status == 200
    refused(broker, SLOW, 400, 499)
    root.set_user("slow", token="barco_other", keep=True)  # Another token, and the same user.
    time.sleep(LIVE_SECONDS)  # A new table.
    assert asked(broker, SLOW, b"x" * 500_000, chunked=chunked)[0].status == 200
    refused(broker, "barco_other", 400, 499)
    assert asked(broker, FREE)[0].status == 200


def test_bytes_that_go(broker: RunningBroker, root: barco.Admin) -> None:
    assert asked(broker, FREE, b"y" * 300_000)[0].status == 200
    slow(root, requests_per_second=0, bytes_per_second=1000)
    found = read_all(broker, root)
    assert found > 300_000
    refused(broker, SLOW, 200, found // 1000 + 1)


def read_all(broker: RunningBroker, root: barco.Admin) -> int:
    """The bytes of one answer."""
    most = max(root.slices("t"), key=lambda each: int(each["endOffset"]))
    path = f"/v1/topic/t/slices/{most['token']}/{most['index']}/events?maxBytes=16777216"
    answer, body = asked(broker, SLOW, b"", path=path, method="GET")
    assert answer.status == 200, body[:300]
    return len(body)


def test_a_large_debt_and_none(broker: RunningBroker, root: barco.Admin) -> None:
    """An hour at most is waited for; without a quota nothing is."""
    before = stored(root)
    slow(root, requests_per_second=0, bytes_per_second=1)
    assert asked(broker, SLOW, b"x" * 100_000)[0].status == 200
    refused(broker, SLOW, 3590, 3601)
    assert asked(broker, SLOW, b"x" * 100)[0].status == 429
    assert stored(root) == before + 1
    root.set_user("slow", bytes_per_second=0)
    time.sleep(LIVE_SECONDS)
    assert [asked(broker, SLOW, b"x" * 100_000)[0].status for _ in range(3)] == [200] * 3
    shown = {each["name"]: each for each in root.users()}["slow"]
    assert (shown["requestsPerSecond"], shown["bytesPerSecond"]) == (0, 0)


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
    assert line.split() == ["app", "1", "7", "4,000", "produce:t"]
    assert users("quota", "app").returncode == 1
    assert users("quota", "app", "--bytes-per-second", "4MB").returncode == 2
