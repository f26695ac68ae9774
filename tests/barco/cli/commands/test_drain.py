"""`barco drain`: what it asks for, and what it says while it looks on."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from barco import cli
from barco.cli.commands import drain
from barco.cli.shared.leaving import size, span, words_of
from barco.errors import BarcoError, ConflictError

from .stand_in import StandIn
from .test_ring import topology

REPORT = {
    "ordinal": 5, "up": True, "drained": False, "generations": 3, "copies": 2, "bytesLeft": 3 << 20,
    "bytesAll": 4 << 20, "waits": [],
}  # fmt: skip
DONE = {**REPORT, "drained": True, "bytesLeft": 0}


class Broker(StandIn):
    """In the place of one that is asked."""

    def __init__(self) -> None:
        self.told = topology(size=6, slices=8, cut=3)
        brokers = [{"ordinal": each, "workers": 1} for each in range(6)]
        self.told["target"] = {"version": 4, "brokers": brokers}
        self.asked: list[dict[str, Any]] = []
        self.looks: list[Any] = [REPORT, DONE]
        self.without: list[Any] = []
        self.takes = True

    def topology(self) -> dict[str, Any]:
        return self.told

    def set_target(self, target: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(target)
        if self.takes:
            self.told["target"] = {"version": 5, "brokers": target["brokers"]}
        return {"version": 5, "brokers": target["brokers"]}

    def drains(self, without: Any = ()) -> dict[str, Any]:
        self.without.append(without)
        look = self.looks.pop(0)
        if isinstance(look, BarcoError):
            raise look
        return {"version": 5, "brokers": [look] if look else []}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(drain.barco, "Admin", made)
    monkeypatch.setattr(drain, "LOOK_SECONDS", 0.01)
    return made


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def go(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(["drain", *arguments])
        read = capsys.readouterr()
        return code, read.out, read.err

    return go


def test_it_asks_for_the_target_without_it_and_looks_on(broker: Broker, run: Any) -> None:
    broker.looks = [None, REPORT, BarcoError("away"), {**REPORT, "bytesLeft": 1 << 20}, DONE]
    code, out, _ = run("5")
    assert code == 0
    (asked,) = broker.asked
    assert [each["ordinal"] for each in asked["brokers"]] == [0, 1, 2, 3, 4]
    assert asked["version"] == 4 and asked["cluster"] == broker.told["cluster"]
    said = [line.split("  ", 1)[1] for line in out.splitlines()]
    assert said[:2] == ["the target is version 5", "nobody knows of it yet"]
    assert said[2].startswith("3.0 MiB of 4.0 MiB left to copy (2 generations)")
    assert said[3] == "no answer: away"
    assert said[4].startswith("1.0 MiB of 4.0 MiB left to copy (2 generations), about ")
    assert said[5:] == ["broker 5 is drained: it may be stopped and removed"]


def test_again_it_only_looks_on(broker: Broker, run: Any) -> None:
    del broker.told["target"]["brokers"][5]
    code, out, _ = run("5", "--json")
    assert (code, broker.asked) == (0, [])
    assert [json.loads(line)["drained"] for line in out.splitlines()] == [False, True]


def test_it_ends_where_it_can_not_go_on(broker: Broker, run: Any) -> None:
    broker.looks = [REPORT] * 1000
    code, _, err = run("5", "--timeout", "0.05")
    assert code == 1 and "not drained in 0.05 s; what was said stays: 3.0 MiB" in err
    broker.told["target"]["brokers"].append({"ordinal": 5, "workers": 1})
    broker.looks, broker.takes = [None], False
    code, _, err = run("5")
    assert code == 1 and "it names the broker again" in err
    code, _, err = run("1")
    assert code == 2 and "no ring has brokers 0, 2, 3, 4, 5 without 1" in err
    code, _, err = run("17")
    assert code == 2 and "there is no broker 17" in err
    assert run("five")[0] == 2
    broker.set_target = refuse  # type: ignore[method-assign]
    code, _, err = run("5", "--no-wait")
    assert code == 1 and "start them first" in err


def refuse(target: object) -> dict[str, Any]:
    raise ConflictError("start them first")


def test_no_wait_only_says_so(broker: Broker, run: Any) -> None:
    code, out, _ = run("5", "--no-wait")
    assert (code, len(broker.asked), broker.without) == (0, 1, [])
    assert "the target is version 5" in out


def test_the_plan_changes_nothing(broker: Broker, run: Any) -> None:
    broker.looks = [{**REPORT, "waits": ["brokers 1 do not answer yet"]}] * 2
    code, out, _ = run("5", "--plan")
    assert code == 0 and broker.asked == [] and broker.without == [[5]]
    assert "round 1" in out and "hand" not in out.split("round 1")[0]
    assert "of 3 generations that have ended, 2 to be copied: 3.0 MiB" in out
    assert "it would wait: brokers 1 do not answer yet" in out
    code, out, _ = run("5", "--plan", "--json")
    told = json.loads(out)
    assert told["drain"]["copies"] == 2 and told["steps"]


def test_words() -> None:
    assert words_of(DONE) == "drained: it may be stopped and removed"
    one = {**REPORT, "copies": 1, "bytesLeft": 100, "waits": ["a", "b"]}
    assert words_of(one, 10) == "a; b; 100 bytes of 4.0 MiB left to copy (1 generation), about 10 s"
    assert words_of({**REPORT, "bytesLeft": 0}) == "a broker is being chosen that takes copies"
    assert (size(5 << 30), size(2048), span(0.2), span(600), span(36_000)) == (
        "5.0 GiB", "2.0 KiB", "1 s", "10 min", "10.0 h",
    )  # fmt: skip
