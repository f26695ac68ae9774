"""What `barco status` says of a cluster, in words, and what it ends with."""

import argparse
import json
from datetime import UTC, datetime
from typing import Any

import pytest

import barco.cli.commands.status as command
from barco.cli import main
from barco.cli.shared.asked import Reports
from barco.client.base.errors import TransportError
from barco.model.health import Diagnosis, health_lines, health_of

from .rings import one_down, topology

NOW = datetime(2026, 11, 26, tzinfo=UTC)
FINE: dict[str, Any] = {
    "status": "ready", "inSync": True, "version": "0.1.0", "engine": "io_uring",
    "engineReason": "", "ordinal": 0, "peers": [], "openToAll": False, "tls": None,
    "mutualTls": None, "routes": {"version": "x", "faults": []},
    "shards": [{
        "worker": 0, "replication": {"suspect": False},
        "storage": {"damagedSegments": 0, "setAside": 0},
    }],
}  # fmt: skip


def health(ring: dict[str, Any] | None = None, **changed: Any) -> Diagnosis:
    """Of a ring of three in which broker 0 says something else than that all is well."""
    said = {f"b{each}.test:9250": dict(FINE) for each in range(3)}
    said["b0.test:9250"] |= changed
    return health_of(said, topology() if ring is None else ring, NOW)


def test_all_is_well() -> None:
    found = health()
    assert found.headline == "All slices are written to three disks"
    assert found.well and not found.notes
    assert health_lines(found, unicode=True) == ["✓ All slices are written to three disks"]
    assert health_lines(found, unicode=False) == ["ok All slices are written to three disks"]


def test_one_broker_that_is_down_puts_nothing_at_risk_yet() -> None:
    found = health(
        one_down(),
        degraded=["broker 1 is down (shards 0, 1, 2)", "broker 1 does not lead its shard 1"],
    )
    assert found.headline.startswith("All slices are written to two disks or more; nothing is")
    assert found.wrong == ["broker 1 (b1.test) is down; slices 0-23 have 2 copies of three"]
    assert found.notes == ["broker 2 leads slices 8-15 in the place of broker 1"]


def test_two_brokers_down_stop_the_writes() -> None:
    told = one_down()
    told["brokers"][2]["state"] = "down"
    told["routes"][0]["followers"][1] |= {"state": "down", "synced": False}
    told["routes"][1]["followers"] = told["routes"][2]["followers"] = None
    found = health(told)
    assert found.headline == "24 of 24 slices can not be written now"
    assert found.wrong[0].startswith("nobody leads slices 8-23")


def test_slices_of_which_nothing_was_heard_can_not_be_written() -> None:
    told = topology()
    del told["routes"][1]
    found = health(told)
    assert found.headline == "8 of 24 slices can not be written now"
    assert "nothing was heard of slices 8-15" in found.wrong


def test_a_ring_in_which_nobody_leads_yet() -> None:
    told = topology()
    told["routes"] = []
    assert health(told).headline == "No slice is led yet: nothing can be written"


def test_a_single_broker_says_that_it_has_the_only_copy() -> None:
    told = topology(1)
    for route in told["routes"]:
        route["members"], route["followers"] = [0], []
    alone = {key: value for key, value in FINE.items() if key not in ("ordinal", "peers")}
    found = health_of({"127.0.0.1:9250": alone}, told, NOW)
    assert found.headline.startswith("All slices can be written; a single broker has the only")
    assert found.well


@pytest.mark.parametrize(("changed", "words"), [
    ({"status": "starting", "reason": "Shard 1 has no leader."},
     "b0.test:9250 is not ready: Shard 1 has no leader."),
    ({"shards": [{"worker": 2, "storage": {"damagedSegments": 1}}]},
     "b0.test:9250, worker 2: 1 segment damaged and not repaired yet"),
    ({"shards": [{"worker": 2, "storage": {"setAside": 2}}]},
     "b0.test:9250, worker 2: 2 logs set aside that nobody has exported: barco recover --help"),
    ({"shards": [{"worker": 1, "replication": {"suspect": True, "suspectWhy": "votes lost"}}]},
     "b0.test:9250, worker 1 has no vote: votes lost"),
    ({"degraded": ["broker 1 has no vote, for its votes are forgotten"]},
     "broker 1 has no vote, for its votes are forgotten"),
    ({"routes": {"faults": ["two tell of slices 3-4"]}}, "b0.test:9250: two tell of slices 3-4"),
    ({"tls": {"expires": "2026-12-01T00:00:00Z"}},
     "b0.test:9250: the certificate ends in 5 days: barco certs renew"),
    ({"mutualTls": {"expires": "2026-11-25T00:00:00Z"}},
     "b0.test:9250: the certificate between brokers has expired: barco certs renew"),
])  # fmt: skip
def test_what_a_broker_says_of_itself(changed: dict[str, Any], words: str) -> None:
    found = health(**changed)
    assert found.wrong == [words]
    assert not found.well


def test_a_certificate_that_is_good_for_a_while_is_not_mentioned() -> None:
    assert health(tls={"expires": "2026-12-27T00:00:00Z"}).well


def test_what_harms_nobody_is_a_note() -> None:
    found = health(openToAll=True, engine="epoll", engineReason="io_uring is switched off")
    assert found.well and len(found.notes) == 2


def test_who_gives_no_answer_is_said_once() -> None:
    """Of one that the ring shows to be down the ring says more."""
    said: dict[str, Any] = {"b0.test:9250": dict(FINE), "b2.test:9250": dict(FINE)}
    silent = health_of({**said, "b1.test:9250": "connection refused"}, topology(), NOW)
    assert silent.wrong == ["b1.test:9250 gives no answer: connection refused"]
    down = health_of({**said, "b1.test:9250": "connection refused"}, one_down(), NOW)
    assert len(down.wrong) == 1 and "b1.test:9250" not in down.wrong[0]


def test_a_name_that_controls_a_terminal_is_shown_harmless() -> None:
    found = health(degraded=["\x1b[2Jgone"])
    assert "\x1b" not in "".join(health_lines(found, unicode=True))


def test_many_lines_are_cut() -> None:
    found = health(degraded=[f"trouble {n}" for n in range(50)])
    lines = health_lines(found, unicode=True)
    assert len(lines) == 20 and lines[-1] == "· and 32 more: barco status --json"


@pytest.mark.parametrize(("changed", "options", "code"), [
    ({}, [], 0),
    ({"degraded": ["something"]}, [], 3),
    ({"degraded": ["something"]}, ["--ready"], 0),
    ({"status": "starting"}, [], 1),
    ({"status": "starting"}, ["--ready"], 1),
])  # fmt: skip
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_the_code_says_whether_something_is_wrong(
    changed: dict[str, Any],
    options: list[str],
    code: int,
    as_json: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = {**FINE, **changed}

    async def ask(args: argparse.Namespace) -> Reports:
        return Reports(status, None, {"b0.test:9250": status})

    monkeypatch.setattr(command, "_ask", ask)
    assert main(["status", *options, *as_json]) == code
    out = capsys.readouterr().out
    assert "something" in out or "degraded" not in changed
    if as_json:
        assert set(json.loads(out)["health"]) == {"headline", "wrong", "notes"}


def test_nobody_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def ask(args: argparse.Namespace) -> Reports:
        raise TransportError("refused")

    monkeypatch.setattr(command, "_ask", ask)
    assert main(["status"]) == 1
    assert "refused" in capsys.readouterr().err
