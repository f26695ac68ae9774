"""Dead letters that somebody has looked at: sent again as they were, or dropped; who may."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from running import Answer, RunningBroker

import barco
from barco.errors import ForbiddenError, TopicNotFoundError, UnprocessableError

ROOT = "barco_root"
HEADERS = {"Content-Type": "application/json"}

WHOLE: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
    (b"far", b"k", [("h", b"1"), ("h", b"2")]),
    (b'"far"', b"k", []),
    (b"\xff\x00", b"\xfe", [("bytes", b"\xff")]),
    (b'{"id": 12345678901234567890, "id": 1}', None, [("traceparent", b"x")]),
    (None, b"gone", []),
    (b" 1 ", b"", []),
]
"""Values, keys and headers that JSON would change."""


def endpoint(broker: RunningBroker) -> str:
    return f"127.0.0.1:{broker.port('discovery')}"


def bury(
    broker: RunningBroker, *values: bytes | None, topic: str = "t", **given: Any
) -> list[barco.Event]:
    """Letters, as a queue leaves them."""
    with barco.Producer(endpoint(broker), **given) as producer:
        for number, value in enumerate(values):
            headers = [("barco-dead-topic", topic.encode()), ("barco-dead-reason", b"why")]
            producer.send("t.dead", value, b"k%d" % number, headers=headers).result(30)
    return letters(broker, **given)


def letters(broker: RunningBroker, **given: Any) -> list[barco.Event]:
    access = barco.Access.of(endpoint(broker), **given)
    return [each for each in barco.read("t.dead", access) if not mark_of(each)]


def marks(broker: RunningBroker) -> set[tuple[int, int, str]]:
    """Slice, offset and what has become of it; each in the slice of its letter, and behind it."""
    found = set()
    for each in barco.read("t.dead", endpoint(broker)):
        if mark := mark_of(each):
            offset = int(dict(each.headers)["barco-dead-offset"])
            assert offset < each.offset and json.loads(each.value or b"")["mark"] == mark
            found.add((each.slice, offset, mark))
    return found


def mark_of(event: barco.Event) -> str:
    return dict(event.headers).get("barco-dead-mark", b"").decode()


def places(events: Sequence[barco.Event], mark: str) -> set[tuple[int, int, str]]:
    return {(each.slice, each.offset, mark) for each in events}


def post(broker: RunningBroker, path: str, body: Any, **headers: str) -> Answer:
    data = json.dumps(body).encode()
    return broker.request("POST", path, body=data, headers=HEADERS | headers, listener="discovery")


def command(broker: RunningBroker, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-m", "barco", "dead", *words, "--endpoint", endpoint(broker)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_they_are_sent_as_they_were(broker: RunningBroker) -> None:
    with barco.Producer(endpoint(broker)) as producer:
        for value, key, headers in WHOLE:
            ours = [("barco-dead-topic", b"t"), ("barco-dead-count", b"5")]
            producer.send("t.dead", value, key, headers=[*headers, *ours]).result(30)
    found = letters(broker)
    with barco.Admin(endpoint(broker)) as admin:
        told = admin.resend_dead("t", found)
    assert (told["done"], told["marked"], told["why"]) == (len(WHOLE), len(WHOLE), "")
    sent = [
        (each.value, each.key, list(each.headers)) for each in barco.read("t", endpoint(broker))
    ]
    assert sorted(sent, key=repr) == sorted(WHOLE, key=repr)
    assert marks(broker) == places(found, "resent")


def test_what_is_no_letter_is_not_sent(broker: RunningBroker) -> None:
    (own,) = bury(broker, b"1")
    bury(broker, b"2", topic="secret")
    (other,) = [each for each in letters(broker) if each.value == b"2"]
    path = "/v1/topic/t/dead/resend"
    nowhere = [{"slice": own.slice, "offset": "4000000000"}]
    here = [{"slice": each.slice, "offset": str(each.offset)} for each in (own, other, own)]
    told = post(broker, path, {"letters": nowhere + here}).json
    assert (told["done"], told["others"], told["gone"], told["left"]) == (1, 1, 1, 0)
    # A mark is none, and a letter that has one may be sent again: who asks knows that.
    mark = next(each for each in barco.read("t.dead", endpoint(broker)) if mark_of(each))
    told = post(broker, path, {"letters": [{"slice": mark.slice, "offset": str(mark.offset)}]}).json
    assert (told["done"], told["gone"]) == (0, 1)
    assert [each.value for each in barco.read("t", endpoint(broker))] == [b"1"]
    with barco.Admin(endpoint(broker)) as admin:
        assert "secret" not in {each["topic"] for each in admin.topics()}


def test_what_is_dropped_stays_and_is_not_listed(broker: RunningBroker) -> None:
    found = bury(broker, *(b'{"n":%d}' % number for number in range(250)))
    one, *rest = found
    where = ("--slice", str(one.slice), "--offset", str(one.offset))
    assert command(broker, "drop", "t").returncode == 2
    done = command(broker, "drop", "t", *where)
    assert done.returncode == 0 and "1 dropped" in done.stderr, done
    assert command(broker, "drop", "t", *where).returncode == 1, "it is not listed any more"
    assert len(command(broker, "list", "t", "--json").stdout.splitlines()) == len(rest)
    done = command(broker, "drop", "t", "--all", "--json")
    assert json.loads(done.stdout) == {"dropped": 249, "marked": 249, "others": 0}
    assert command(broker, "list", "t", "--json").stdout == ""
    assert len(command(broker, "show", "t", "--marked", "--json").stdout.splitlines()) == 250
    assert sorted(letters(broker)) == sorted(found) and marks(broker) == places(found, "dropped")
    with barco.Admin(endpoint(broker)) as admin, pytest.raises(TopicNotFoundError):
        admin.topic("t")


def test_many_large_ones(broker: RunningBroker) -> None:
    """More than one produce may have; what was done before something went wrong is told."""
    size = 600_000
    found = bury(broker, *(b"%06d" % number + b"x" * size for number in range(40)))
    with barco.Admin(endpoint(broker), timeout_s=60) as admin:
        told = admin.resend_dead("t", found)
    assert (told["done"], told["marked"]) == (40, 40)
    sent = sorted(each.value or b"" for each in barco.read("t", endpoint(broker)))
    assert [value[:6] for value in sent] == [b"%06d" % number for number in range(40)]
    assert {len(value) for value in sent} == {size + 6}


def test_what_is_wrong_is_said(broker: RunningBroker) -> None:
    (found,) = bury(broker, b"1")
    place = {"slice": found.slice, "offset": str(found.offset)}
    path = "/v1/topic/t/dead/drop"
    for body in (
        *(None, [], {}, {"letters": []}, {"letters": [place] * 101}, {"letters": [1]}),
        *({"letters": [place], "dead": 1}, {"letters": [place], "dead": "t"}),
        *({"letters": [{**place, "offset": "-1"}]}, {"letters": [{**place, "slice": 100_000}]}),
        *({"letters": [{**place, "slice": "0"}]}, {"letters": [{**place, "offset": 1.5}]}),
        *({"letters": [{**place, "token": "7"}]}, {"letters": [{**place, "cursor": "x"}]}),
        {"letters": [place], "deda": "u"},
    ):
        assert post(broker, path, body).status == 400, body
    assert post(broker, path, {"letters": [place], "dead": "none"}).status == 404
    assert post(broker, "/v1/topic/t/dead/burn", {"letters": [place]}).status == 404
    assert post(broker, "/v1/topic/__x/dead/drop", {"letters": [place]}).status == 400
    assert marks(broker) == set()


def test_a_value_that_is_not_of_the_topics_schema_stays_where_it_is(broker: RunningBroker) -> None:
    found = bury(broker, b'{"n":"x"}')
    with barco.Admin(endpoint(broker)) as admin:
        admin.create_topic("t", schema_check="reject")
        with pytest.raises(UnprocessableError):
            admin.resend_dead("t", found)
        assert marks(broker) == set()
        admin.create_topic("t", schema_check="off")
        assert admin.resend_dead("t", found)["done"] == 1


# --- Who may ------------------------------------------------------------------------------------


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[RunningBroker]:
    found = RunningBroker.closed(tmp_path / "data", ROOT)
    found.start()
    yield found
    found.end()


def test_who_may(closed: RunningBroker) -> None:
    grants = {
        "reader": ["consume:t.dead"],
        "writer": ["produce:t"],
        "sender": ["consume:t.dead", "produce:t"],
        "keeper": ["consume:t.dead", "produce:t", "produce:t.dead"],
    }
    with barco.Admin(endpoint(closed), token=ROOT) as root:
        for name, given in grants.items():
            root.set_user(name, token=f"{name}-token", grants=given)
        for topic in ("t", "t.dead"):
            root.create_topic(topic)
    for name in grants:
        closed.knows(f"Bearer {name}-token")
    found = bury(closed, b"1", b"2", token=ROOT)
    for name in ("reader", "writer"):
        with barco.Admin(endpoint(closed), token=f"{name}-token") as admin:
            for act in (admin.resend_dead, admin.drop_dead):
                with pytest.raises(ForbiddenError):
                    act("t", found)
    with barco.Admin(endpoint(closed), token="sender-token") as admin:
        told = admin.resend_dead("t", found[:1])
        assert (told["done"], told["marked"], told["why"]) == (1, 0, ""), "it may not mark"
        with pytest.raises(ForbiddenError):
            admin.drop_dead("t", found)
        with pytest.raises(ForbiddenError):  # By another name neither.
            admin.drop_dead("u", found)
    bearer = {"Authorization": "Bearer keeper-token"}
    place = [{"slice": found[1].slice, "offset": str(found[1].offset)}]
    answer = post(closed, "/v1/topic/t/dead/drop", {"letters": place}, **bearer)
    assert answer.json["marked"] == 1
    line = closed.line_about(answer.headers["barco-request-id"])
    assert (line["user"], line["path"]) == ("keeper", "/v1/topic/t/dead/drop")
    read = barco.read("t.dead", barco.Access.of(endpoint(closed), ROOT))
    (mark,) = [json.loads(each.value or b"") for each in read if mark_of(each)]
    assert mark["by"] == "keeper"


def test_who_asks_is_told_what_was_granted(closed: RunningBroker, broker: RunningBroker) -> None:
    with barco.Admin(endpoint(closed), token=ROOT) as root:
        root.set_user("reader", token="reader-token", grants=["consume:t.dead"])
    closed.knows("Bearer reader-token")

    def me(of: RunningBroker, token: str) -> Any:
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        return of.request("GET", "/v1/me", headers=shown).json

    assert me(closed, "reader-token") == {
        "name": "reader", "everybody": False, "grants": ["consume:t.dead:*"],
    }  # fmt: skip
    assert "users" in me(closed, ROOT)["grants"]
    assert me(broker, "") == {"name": "", "everybody": True, "grants": []}
    assert closed.request("GET", "/v1/me").status == 401
