"""`barco upgrade-check`: what holds a restart up, and what does not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barco import cli
from barco.cli.commands import upgrade_check
from barco.errors import BarcoError, NotReadyError
from barco.protocol import versions
from barco.supervisor import datadir

from .stand_in import StandIn
from .test_ring import topology


class Broker(StandIn):
    """In the place of the one that runs here."""

    def __init__(self) -> None:
        others = [{"ordinal": n, "state": "alive", "version": "0.1.0"} for n in (1, 2)]
        self.told: dict[str, Any] = {
            "status": "ready", "inSync": True, "version": "0.1.0", "versions": versions.told(),
            "peers": others,
        }  # fmt: skip
        self.ring = topology()
        brokers = [{"ordinal": each, "workers": 1} for each in range(3)]
        self.ring["target"] = {"version": 0, "brokers": brokers}
        self.error: BarcoError | None = None
        self.looks = 0

    def status(self) -> dict[str, Any]:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self.told

    def topology(self, *, copies: bool = False) -> dict[str, Any]:
        assert copies
        return self.ring


Check = Callable[..., tuple[int, dict[str, list[str]]]]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(upgrade_check.barco, "Admin", made)
    monkeypatch.setattr(upgrade_check, "LOOK_SECONDS", 0.0)
    return made


@pytest.fixture
def check(tmp_path: Path, broker: Broker, capsys: pytest.CaptureFixture[str]) -> Check:
    data = tmp_path / "data"
    datadir.format_data_dir(data, workers=1, slices_per_range=8)
    file = tmp_path / "barco.toml"
    file.write_text("[broker]\nworkers = 1\n")

    def run(*more: str) -> tuple[int, dict[str, list[str]]]:
        given = ["--config", str(file), "--data-dir", str(data)]
        code = cli.main(["upgrade-check", "--json", *given, *more])
        told = json.loads(capsys.readouterr().out)
        assert told["restart"] == (code == 0)
        found: dict[str, list[str]] = {}
        for each in told["findings"]:
            found.setdefault(each["level"], []).append(each["words"])
        return code, found

    return run


def test_all_is_well(check: Check) -> None:
    code, found = check()
    assert code == 0 and set(found) == {"good"}
    assert any("speak link 6, gossip 4, log 3" in each for each in found["good"])


def test_every_unknown_key_is_named_and_what_is_near(check: Check, tmp_path: Path) -> None:
    (tmp_path / "barco.toml").write_text("[broker]\nworker = 1\n[stroage]\nx = 1\n")
    code, found = check("--wait", "60")
    words = "\n".join(found["fault"])
    assert code == 78 and "did you mean broker.workers?" in words and "[stroage]" in words


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        ({"link": [7, 9]}, "link [7, 9] there and [6, 6] here"),
        ({"gossip": [1, 3]}, "gossip [1, 3] there and [4, 4] here"),
        ({"log": "x"}, "log x there"),
    ],
)
def test_a_version_that_does_not_speak_with_the_one_that_runs(
    check: Check, broker: Broker, theirs: dict[str, Any], words: str
) -> None:
    broker.told["versions"] |= theirs
    code, found = check("--wait", "60")
    assert code == 1 and broker.looks == 1, "no time helps"
    assert len(found["fault"]) == 1 and words in found["fault"][0]


def test_one_that_does_not_tell_its_versions_and_no_way_back_are_warnings(
    check: Check, broker: Broker
) -> None:
    broker.told["versions"]["directory"] = [1, 1]
    code, found = check()
    assert code == 0 and "does not read the data directory" in found["warning"][0]
    del broker.told["versions"]
    code, found = check()
    assert code == 0 and "links 6 and gossip 4" in found["warning"][0]


def spoil_peer(broker: Broker) -> None:
    broker.told["peers"][0]["state"] = "down"


def spoil_copy(broker: Broker) -> None:
    broker.ring["routes"][1]["followers"][0] |= {"synced": False, "groupsBehind": 3}


def spoil_target(broker: Broker) -> None:
    broker.ring["target"]["brokers"] += [{"ordinal": each, "workers": 1} for each in (3, 4, 5)]


def spoil_sync(broker: Broker) -> None:
    broker.told["degraded"] = ["broker 1 is behind"]


def spoil_start(broker: Broker) -> None:
    broker.told |= {"status": "starting", "reason": "No leader yet"}


def spoil_answer(broker: Broker) -> None:
    broker.error = NotReadyError("nothing listens there")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_peer, "brokers 1 are not up"),
        (spoil_copy, "copies that lack something: slices 8-15 at broker"),
        (spoil_target, "steps to the target are left"),
        (spoil_sync, "broker 1 is behind"),
        (spoil_start, "No leader yet"),
        (spoil_answer, "nothing listens there"),
    ],
)
def test_not_now(check: Check, broker: Broker, spoil: Callable[[Broker], None], words: str) -> None:
    spoil(broker)
    code, found = check()
    assert code == 1 and any(words in each for each in found["fault"]), found


def test_it_is_waited_for(check: Check, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.told["inSync"] = False
    look = broker.status

    def heal() -> dict[str, Any]:
        if broker.looks == 3:
            broker.told["inSync"] = True
        return look()

    monkeypatch.setattr(broker, "status", heal)
    assert check("--wait", "60")[0] == 0
    assert broker.looks == 4


def test_a_full_disk_and_no_data_directory(
    check: Check, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, found = check("--data-dir", str(tmp_path / "nothing"))
    assert code == 1 and any("has no broker.json" in each for each in found["fault"])
    full = upgrade_check.now.disk_space("/").__class__(free=0, total=1 << 40)
    monkeypatch.setattr(upgrade_check.now, "disk_space", lambda path: full)
    code, found = check()
    assert code == 1 and "make room first" in found["fault"][0]
