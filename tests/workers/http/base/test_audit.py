"""Lines about who was refused: what they have, what they never have, and how many there are."""

import logging
from itertools import count

import pytest

from barco.log import JsonFormatter
from barco.model.access import User, hash_of
from barco.workers.http.base.audit import REFUSALS_PER_SECOND_MAX, Audit

BOB = User("bob", (hash_of("secret-token"),))


@pytest.fixture
def told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("barco"), "propagate", True)
    caplog.set_level(logging.INFO, "barco.audit")
    return caplog


def test_a_line_is_one_line_without_secrets(told: pytest.LogCaptureFixture) -> None:
    audit = Audit(lambda: 0.0)
    audit.refused("id-1", BOB, ("PUT", "/v1/topics/a\n{}" + "x" * 9_000), 403, "no")
    audit.administered("id-2", None, ("DELETE", "/v1/topics/a"), 401)
    lines = [JsonFormatter().format(each) for each in told.records]
    assert len(lines) == 2 and not any("\n" in each for each in lines)
    assert '"user": "bob"' in lines[0] and '"request": "id-1"' in lines[0] and len(lines[0]) < 600
    assert not any(hash_of("secret-token").hex() in each or "secret" in each for each in lines)


def test_a_flood_is_counted(told: pytest.LogCaptureFixture) -> None:
    clock = count()
    audit = Audit(lambda: next(clock) / 1_000)
    for _ in range(1_500):
        audit.refused("id", None, ("GET", "/"), 401, "no")
    assert len(told.records) == 2 * REFUSALS_PER_SECOND_MAX
    left_out = [getattr(each, "left_out", 0) for each in told.records]
    assert left_out[REFUSALS_PER_SECOND_MAX] == 1_000 - REFUSALS_PER_SECOND_MAX


def test_ids_are_never_given_twice() -> None:
    audits = [Audit(lambda: 0.0) for _ in range(10)]
    ids = [audit.next_id() for audit in audits for _ in range(10)]
    assert len(set(ids)) == 100
