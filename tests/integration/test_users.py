"""Who may do what, over sockets: every route with every kind of user, and what ends in a second."""

import base64
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from reference.calls import CALLS, GRANTS
from running import RunningBroker

import barco
from barco.errors import ForbiddenError, UnauthorizedError

ROOT = "barco_root"
SECOND = 1.0
"""In which a change is to be live everywhere: from its answer on. A busy machine takes longer for
one of them or the other, and not for all."""

SECONDS = 60.0
"""Generous: it only ends what has failed."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    found = RunningBroker.closed(tmp_path / "data", ROOT)
    found.start()
    yield found
    found.end()


def test_a_queue_may_not_write_dead_letters_where_its_user_may_not(
    broker: RunningBroker,
) -> None:
    endpoint = f"127.0.0.1:{broker.port()}"
    with barco.Admin(endpoint, token=ROOT) as root:
        root.set_user("c", token="c-token", grants=["consume:t:g"])
        root.set_user("both", token="both-token", grants=["consume:t:g", "produce:graves"])
    broker.knows("Bearer both-token")
    query = {"type": "queue", "topic": "t", "maxDeliveries": 3}

    def put(token: str, **more: str) -> int:
        bearer = {"Authorization": f"Bearer {token}"}
        return broker.request("PUT", "/v1/groups/g", query | more, headers=bearer).status

    assert put("c-token", dead="graves") == 403
    assert put("c-token", dead="t.dead") == put("c-token") == 403, "it would be made"
    assert put("both-token") == 403
    with barco.Admin(endpoint, token=ROOT) as root:
        root.create_topic("t.dead")
    assert put("c-token", dead="t.dead") == put("c-token") == put("both-token") == 200
    assert put("both-token", dead="graves") == 200
    assert put("c-token", topic="u") == 403


def test_a_topic_of_dead_letters_counts_as_its_makers(broker: RunningBroker) -> None:
    endpoint = f"127.0.0.1:{broker.port()}"
    grants = ["consume:*:*", "produce:*", "admin:*"]
    with barco.Admin(endpoint, token=ROOT) as root:
        root.set_user("one", token="one-token", grants=grants, topics=1)
    broker.knows("Bearer one-token")
    for topic, status in (("t", 200), ("u", 403), ("t", 200)):
        query = {"type": "queue", "topic": topic, "maxDeliveries": 3}
        bearer = {"Authorization": "Bearer one-token"}
        answer = broker.request("PUT", f"/v1/groups/{topic}", query, headers=bearer)
        assert answer.status == status, answer
    with barco.Admin(endpoint, token=ROOT) as root:
        topics = {each["topic"] for each in root.topics()}
    assert "t.dead" in topics and "u.dead" not in topics


def ask(
    broker: RunningBroker, who: str, method: str, path: str, query: str = "", body: Any = None
) -> tuple[int, bytes, dict[str, str]]:
    headers = {} if who == "no token" else {"Authorization": f"Bearer {who}"}
    if ":" in who:
        headers["Authorization"] = f"Basic {base64.b64encode(who.encode()).decode()}"
    given = None if body is None else json.dumps(body).encode()
    if body is not None:
        headers["Content-Type"] = "application/json"
    path += f"?{query}" if query else ""
    answer = broker.request(method, path, body=given, headers=headers)
    return answer.status, answer.body, {n.lower(): v for n, v in answer.headers.items()}


def admin(broker: RunningBroker, token: str = ROOT) -> barco.Admin:
    return barco.Admin(f"127.0.0.1:{broker.port('discovery')}", token=token)


def kept(broker: RunningBroker, token: str) -> list[HTTPConnection]:
    """A connection to each worker, which has produced as soon as the user was heard of there."""
    found = []
    for shard in range(broker.workers):
        connection = HTTPConnection("127.0.0.1", broker.port(shard=shard), timeout=30)
        found.append(connection)
        deadline = time.monotonic() + 30
        while (status := produce(connection, token)) != 200:
            assert status == 401 and time.monotonic() < deadline, status
            time.sleep(0.005)
    return found


def produce(connection: HTTPConnection, token: str, topic: str = "t") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection.request("POST", f"/v1/topic/{topic}/messages", b"1", headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status


def all_answer(
    connections: list[HTTPConnection], token: str, status: int, topic: str = "t"
) -> float:
    """Waits until each of them does; how many seconds that took."""
    began = time.monotonic()
    for connection in connections:
        while (found := produce(connection, token, topic)) != status:
            assert time.monotonic() < began + SECONDS, found
            time.sleep(0.005)
    return time.monotonic() - began


NAMED = {
    "all:barco_all": "all",
    "elsewhere:barco_elsewhere": "elsewhere",
    "measures:barco_all": "wrong token",  # All's token, and it is not said to be all's.
    ":barco_all": "wrong token",
    "all:barco_measures": "wrong token",
}
"""Said by name and password, and who that is."""


def test_the_matrix_over_sockets(broker: RunningBroker) -> None:
    calls = {
        **CALLS,
        ("POST", "/v1/topic/{topic}/messages"): ("/v1/topic/t/messages", "", 1, {"produces"}),
    }
    with admin(broker) as root:
        for name, grants in GRANTS.items():
            root.set_user(name, token=f"barco_{name}", grants=grants)
        root.create_topic("t")
        for name in GRANTS:
            broker.knows(f"Bearer barco_{name}")
        keep = [each for each in calls if each[0] != "DELETE"] + [
            each for each in calls if each[0] == "DELETE"
        ]
        for key in keep:
            path, query, body, allowed = calls[key]
            for who in (*GRANTS, *NAMED, "no token", "wrong token"):
                token = f"barco_{who}" if who in GRANTS else who
                user = NAMED.get(who, who)
                status, said, headers = ask(broker, token, key[0], path, query, body)
                if user in allowed | {"all"}:
                    assert status not in (401, 403), (key, who, said)
                    continue
                assert status == (401 if user.endswith("token") else 403), (key, who, said)
                assert ("www-authenticate" in headers) == (status == 401)
        for path in ("/ready/", "/consoles", "//", "/console%2f", "/console%2F..%2Fstatus"):
            assert ask(broker, "no token", "GET", path)[0] == 401, path
        assert ask(broker, "no token", "GET", "/console/")[0] == 200  # The page, as /console.
        for path in ("/console/../status", "/console/%2e%2e", "/console//"):
            assert ask(broker, "no token", "GET", path)[0] == 404, path
        assert ask(broker, "no token", "POST", "/console")[0] == 401
        names = {each["name"] for each in root.users()}
    assert names == {"root", *GRANTS}  # Nothing was changed by whom it was refused.


def test_a_change_ends_what_was_begun_and_survives_a_kill(broker: RunningBroker) -> None:
    with admin(broker) as root:
        root.set_user("p", token="one", grants=["produce:t", "consume:t"])
        connections = kept(broker, "one")
        all_answer(connections, "one", 403, "u")
        root.set_user("p", grants=["produce:u"])
        took = [all_answer(connections, "one", 403)]
        all_answer(connections, "one", 200, "u")
        root.set_user("p", token="two")
        took.append(all_answer(connections, "one", 401))
        all_answer(connections, "two", 200, "u")
        root.remove_user("p")
        took.append(all_answer(connections, "two", 401))
        assert min(took) < SECOND, took
        root.set_user("p", token="three", grants=["produce:t"])
    broker.kill()
    broker.restart()
    all_answer(kept(broker, "three"), "three", 200)


def test_a_body_that_was_begun_before(broker: RunningBroker) -> None:
    """What a user may is asked again when it has come, if it is another table's by then."""
    path = "/v1/topic/t/messages?partitionKey=k"
    with admin(broker) as root:
        root.set_user("p", token="one", grants=["produce:t"])
        for change, heard, status in (
            (lambda: root.set_user("other", token="two", grants=["metrics"]), ("two", 403), 200),
            (lambda: root.set_user("p", grants=["produce:u"]), ("one", 403), 403),
            (lambda: root.remove_user("p"), ("one", 401), 401),
        ):
            root.set_user("p", token="one", grants=["produce:t"])
            produced_until(broker, "one", 200)
            begun = kept(broker, "one")
            for each in begun:
                each.putrequest("POST", path)
                each.putheader("Authorization", "Bearer one")
                each.putheader("Content-Length", "100")
                each.endheaders(b"x" * 50)
            before = stored(root)
            change()
            taken = produced_until(broker, *heard)
            for each in begun:
                each.send(b"x" * 50)
                answer = each.getresponse()
                assert answer.status == status
                if status != 200:
                    line = broker.line_about(answer.headers["Barco-Request-Id"])
                    assert (line["status"], line["method"]) == (status, "POST")
                    assert line["path"] == "/v1/topic/t/messages"
                    assert line["user"] == ("p" if status == 403 else "")
            assert stored(root) - before == (len(begun) if status == 200 else 0) + taken


def stored(root: barco.Admin) -> int:
    return sum(int(each["endOffset"]) for each in root.slices("t"))


def produced_until(broker: RunningBroker, token: str, status: int) -> int:
    """Waits until each worker answers so; how many events that has stored."""
    taken = 0
    for shard in range(broker.workers):
        connection = HTTPConnection("127.0.0.1", broker.port(shard=shard), timeout=30)
        deadline = time.monotonic() + 30
        while (found := produce(connection, token)) != status:
            taken += found == 200
            assert time.monotonic() < deadline, found
            time.sleep(0.005)
        taken += found == 200
    return taken


def test_a_large_body_is_refused_before_it_is_sent(broker: RunningBroker) -> None:
    connection = HTTPConnection("127.0.0.1", broker.port("produce"), timeout=30)
    connection.putrequest("POST", "/v1/topic/t/messages")
    connection.putheader("Content-Length", str(8 << 20))
    connection.endheaders()
    assert connection.getresponse().status == 401


def test_producer_ids_belong_to_who_chose_them(broker: RunningBroker) -> None:
    """The same id, epoch and number of another user is another producer: it is stored."""

    def store(token: str) -> int:
        headers = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
        headers["Authorization"] = f"Bearer {token}"
        answer = broker.request("POST", "/v1/topic/t/messages", body=b"1", headers=headers)
        return answer.status

    with admin(broker) as root:
        for name in "ab":
            root.set_user(name, token=f"token-{name}", grants=["produce:t"])
            broker.knows(f"Bearer token-{name}")
    asked = [store(token) for token in ("token-a", "token-a", "token-b", "token-a", "token-b")]
    assert asked == [200, 204, 200, 204, 204]  # 204: it was stored before.

    def ask(token: str, method: str, path: str, body: bytes | None = None) -> Any:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return broker.request(method, path, body=body, headers=headers)

    with admin(broker) as root:
        root.set_user("c", token="token-c", grants=["produce:t"])
    broker.knows("Bearer token-c")
    for token, slices in (("token-a", 1), ("token-b", 1), ("token-c", 0)):
        told = ask(token, "GET", "/v1/topic/t/producers/p")
        assert len(told.json["slices"]) == slices, (token, told)
    # And so do the notes of writers.
    note = b'{"state": "prepared", "attempts": [], "rows": {}, "note": "of a"}'
    assert ask("token-a", "PUT", "/v1/writes/w/1", note).status == 200
    assert ask("token-b", "GET", "/v1/writes/w").json["note"] is None
    assert ask("token-b", "PUT", "/v1/writes/w/0", note).status == 200
    assert ask("token-b", "DELETE", "/v1/writes/w").status == 204
    assert ask("token-a", "GET", "/v1/writes/w").json["batch"] == "1"


def test_the_clients_and_the_command_show_a_token(broker: RunningBroker, tmp_path: Path) -> None:
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    root = tmp_path / "root.token"
    root.write_text(ROOT + "\n")

    def barco_users(*args: str, code: int = 0) -> str:
        found = subprocess.run(
            [sys.executable, "-m", "barco", "users", *args, "--endpoint", endpoint]
            + ["--token-file", str(root)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert found.returncode == code, found
        return found.stdout

    token = barco_users("add", "app", "produce:t*", "consume:t*:g*").strip()
    assert token.startswith("barco_") and len(token) == 49
    broker.knows(f"Bearer {token}")
    with barco.Producer(endpoint, token=token) as producer:
        assert producer.send("t1", b"x").result(30).offset == 0
    with barco.Consumer("t1", "g1", endpoint, token=token, start="earliest") as consumer:
        assert next(iter(consumer)).value == b"x"
    listed = barco_users("list")
    assert "app" in listed and token not in listed
    assert token not in broker.log_path.read_text()
    barco_users("add", "app", code=1)
    barco_users("remove", "app")
    broker.forgets(f"Bearer {token}")
    with pytest.raises(UnauthorizedError), admin(broker, token) as nobody:
        nobody.topics()


def test_two_headers_are_nobodys(broker: RunningBroker) -> None:
    connection = HTTPConnection("127.0.0.1", broker.port("produce"), timeout=30)
    for headers, status in (
        ([ROOT], 200),
        ([ROOT, ROOT], 401),
        ([ROOT, "x"], 401),
        ([" " + ROOT], 401),
        ([ROOT + "x" * 128], 401),
        ([], 401),
    ):
        connection.putrequest("POST", "/v1/topic/t/messages")
        for each in headers:
            connection.putheader("Authorization", f"Bearer {each}")
        connection.putheader("Content-Length", "1")
        connection.endheaders(b"1")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == status, headers


def test_the_page_for_operators_walks_through_users(tmp_path: Path) -> None:
    """Its commands as they stand there, in its order: `first` before the start, the rest after."""
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")
    section = page.split("\n## Users\n")[1].split("\n## ")[0]
    before, after = re.findall(r"```\n(.*?)```", section, re.DOTALL)
    found = RunningBroker(tmp_path / "data", workers=1, access_required=True)

    def say(lines: str, **more: str) -> str:
        lines = lines.replace("/var/lib/barco", str(found.data_dir))
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euc", lines], cwd=tmp_path, env=os.environ | {"PATH": path} | more,
            check=False, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    say(before)
    assert (tmp_path / "root.token").stat().st_mode & 0o077 == 0
    found.start()
    try:
        told = say(after, BARCO_ENDPOINT=f"127.0.0.1:{found.port('discovery')}")
        assert "consume:trips.*:billing-*" in told
        root, sensors = ((tmp_path / f"{n}.token").read_text().strip() for n in ("root", "sensors"))
        with admin(found, root) as asked:
            assert sorted(each["name"] for each in asked.users()) == ["root", "sensors"]
        found.knows(f"Bearer {sensors}")
        assert len(list(barco.read("trips.new", f"127.0.0.1:{found.port('discovery')}",
                                   token=root))) == 1  # fmt: skip
        connection = HTTPConnection("127.0.0.1", found.port(shard=0), timeout=30)
        assert produce(connection, sensors, "trips.new") == 200
        assert produce(connection, sensors, "bills") == 403
        connection.close()
    finally:
        found.end()


def test_a_user_whose_topics_are_counted_makes_none_by_a_produce(broker: RunningBroker) -> None:
    """In whichever shape, wherever it comes in: each slice from each process."""
    token, batch = "barco_counted", barco._native.batch_encode([b"1", b"2"])
    bodies = {"application/x-ndjson": b"1\n2\n", "application/vnd.barco.batch": batch}
    later = {"Authorization": f"Bearer {token}", "Barco-Deliver-After": "1s"}
    with admin(broker) as root:
        root.set_user("counted", token=token, grants=["produce:*", "admin:*"], topics=2)
        connections = kept(broker, ROOT)
        all_answer(connections, token, 403, "new")
        for connection in connections:
            for kind, body in bodies.items():
                for where in range(8):
                    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
                    path = f"/v1/topic/new/messages?slice={where}"
                    connection.request("POST", path, body, headers)
                    answer = connection.getresponse()
                    said = json.loads(answer.read())
                    assert (answer.status, said["type"]) == (403, "urn:barco:problem:quota-used-up")
                    request = answer.headers["Barco-Request-Id"]
            for where in range(8):  # And not by one that waits either.
                connection.request("POST", f"/v1/topic/new/messages?slice={where}", b"1", later)
                answer = connection.getresponse()
                assert (answer.status, answer.read()[:60].count(b"quota-used-up")) == (403, 1)
        assert "new" not in [each["topic"] for each in root.topics()]
        deadline = time.monotonic() + 30
        while f'"{request}"' not in (log := broker.log_path.read_text()):
            if '"left_out"' in log and '"user": "counted"' in log:
                break  # It was one of those that are only counted.
            assert time.monotonic() < deadline
            time.sleep(0.1)
        with admin(broker, token) as counted:
            counted.create_topic("new")
            counted.create_topic("more")
            with pytest.raises(ForbiddenError, match="2 topics"):
                counted.create_topic("most")
        for connection in connections:
            assert {produce(connection, token, topic) for topic in ("new", "more")} == {200}
            connection.request("POST", "/v1/topic/new/messages", b"1", later)
            answer = connection.getresponse()
            assert (answer.status, b'"topic":"new"' in answer.read()) == (202, True)
            assert {produce(connection, ROOT, "most"), produce(connection, ROOT, "t")} == {200}
        deadline = time.monotonic() + 30  # What others have made, where it has events.
        headers = {"Authorization": f"Bearer {token}"}
        for connection in connections:
            for where in range(8):
                connection.request("POST", f"/v1/topic/t/messages?slice={where}", b"1", headers)
                answer = connection.getresponse()
                answer.read()
                assert answer.status == 200, where
        for connection in connections:
            connection.close()
