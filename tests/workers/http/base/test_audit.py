"""Lines about who was refused: what they have, what they never have, and how many there are."""

import logging

import pytest

from barco.log import JsonFormatter
from barco.model.access import User, hash_of
from barco.workers.http.base.audit import COUNTED, KEPT, KEPT_OF_ONE, Audit, CoreRefusals

BOB = User("bob", (hash_of("secret-token"),))
TOKEN = "barco_" + "aB3_-" * 8 + "xyz"
NOTHING: CoreRefusals = ([], [])


@pytest.fixture
def told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("barco"), "propagate", True)
    logging.getLogger("barco").removeHandler(caplog.handler)  # Who propagates is heard at the root.
    caplog.set_level(logging.INFO, "barco.audit")
    return caplog


def refuse(audit: Audit, count: int, user: User | None = None) -> None:
    for _ in range(count):
        audit.refused("id", user, ("GET", "/"), 401, "no")


def more(told: pytest.LogCaptureFixture) -> dict[str, int]:
    """By user, as the last second's lines have it."""
    found = (vars(each) for each in told.records)
    return {each["user"]: each["left_out"] for each in found if "left_out" in each}


def test_a_line_is_one_line_without_secrets(told: pytest.LogCaptureFixture) -> None:
    audit = Audit(lambda: 1)
    audit.refused("id-1", BOB, ("PUT", "/v1/topics/a\n{}" + "x" * 9_000), 403, "no")
    audit.administered("id-2", None, ("DELETE", "/v1/topics/a"), 401)
    lines = [JsonFormatter().format(each) for each in told.records]
    assert len(lines) == 2 and not any("\n" in each for each in lines)
    assert '"user": "bob"' in lines[0] and '"request": "id-1"' in lines[0] and len(lines[0]) < 600
    assert not any(hash_of("secret-token").hex() in each or "secret" in each for each in lines)


@pytest.mark.parametrize("before", (0, 140, 170, 190))
def test_a_token_in_the_wrong_place_is_not_told(
    told: pytest.LogCaptureFixture, before: int
) -> None:
    """Also not most of one, where the line is cut."""
    path = "/" + "p" * before + TOKEN
    audit = Audit(lambda: 1)
    audit.users = ["bob"]
    audit.refused("id-1", None, ("GET", path), 401, "no")
    audit.tell(([("id-2", 0, 0, 401, "forbidden", "GET", path[:200], "")], []))
    shown = [vars(each)["path"] for each in told.records]
    assert len(shown) == 2 and not any(TOKEN[:26] in each for each in shown)
    audit.refused("id-1", BOB, ("GET", "/"), 403, f"not {TOKEN}", {"topic": TOKEN, "events": 2})
    line = vars(told.records[-1])
    assert line["topic"] == "barco_..." and line["why"] == "not barco_..." and line["events"] == 2
    audit.administered("id-3", None, ("PUT", "/v1/topics/barco_metrics"), 200)
    assert vars(told.records[-1])["path"] == "/v1/topics/barco_metrics"


def test_a_flood_is_counted(told: pytest.LogCaptureFixture) -> None:
    """And of each second anew; another user's refusals are told all the same."""
    audit = Audit(lambda: 1)
    for _ in range(2):
        told.clear()
        refuse(audit, 1_000)
        refuse(audit, 5, BOB)
        assert len(told.records) == KEPT_OF_ONE + 5
        audit.tell(NOTHING)
        assert more(told) == {"": 1_000 - KEPT_OF_ONE} and len(told.records) == KEPT_OF_ONE + 6
        assert "980 more of who showed no user's token" in told.records[-1].getMessage()
    told.clear()
    audit.tell(NOTHING)
    assert not told.records


def test_many_who_flood(told: pytest.LogCaptureFixture) -> None:
    audit = Audit(lambda: 1)
    for number in range(1_000):
        refuse(audit, 7, User(f"user{number}"))
    assert len(told.records) == KEPT
    audit.tell(NOTHING)
    assert len(told.records) == KEPT + COUNTED + 1
    counted = sum(vars(each)["left_out"] for each in told.records[KEPT:])
    assert counted == 7_000 - KEPT


def test_what_the_core_has_refused(told: pytest.LogCaptureFixture) -> None:
    audit = Audit(lambda: 1)
    audit.users = ["ann", "bob"]
    refuse(audit, KEPT_OF_ONE + 3, BOB)
    told.clear()
    kept = [
        ("c-1", 1_000_000, None, 401, "unauthorized", "GET", "/status", "127.0.0.1"),
        ("c-2", 1_234_567, 1, 429, "quota-exceeded", "POST", "/v1/topic/t/messages", "::1"),
    ]
    audit.tell((kept, [(0, 4), (1, 5), (None, 6)]))
    first, second, *_ = (vars(each) for each in told.records)
    assert (first["request"], first["user"], first["status"]) == ("c-1", "", 401)
    assert (first["from"], first["at"]) == ("127.0.0.1", "1970-01-01T00:00:01.000Z")
    assert (second["request"], second["user"], second["why"]) == ("c-2", "bob", "quota-exceeded")
    assert (second["method"], second["path"]) == ("POST", "/v1/topic/t/messages")
    assert second["at"] == "1970-01-01T00:00:01.234Z"
    assert more(told) == {"ann": 4, "bob": 5 + 3, "": 6}


def test_ids_are_never_given_twice() -> None:
    audits = [Audit(lambda: 1) for _ in range(10)]
    ids = [audit.next_id() for audit in audits for _ in range(10)]
    assert len(set(ids)) == 100
