"""`barco scale` looks on until the ring is so, whatever becomes of the target's version."""

import argparse
from typing import Any

import pytest

import barco.cli.commands.scale as command

from .rings import topology
from .stand_in import StandIn


class Cluster(StandIn):
    """A ring at rest, whose target is `after` (version, workers) soon after it was set to 2."""

    def __init__(self, after: tuple[int, list[int]]) -> None:
        self._now, self._after = (1, [1, 1, 1]), after

    def _target(self) -> dict[str, Any]:
        version, workers = self._now
        brokers = [{"ordinal": n, "workers": each} for n, each in enumerate(workers)]
        return {"version": version, "brokers": brokers}

    def set_target(self, asked: dict[str, Any]) -> dict[str, Any]:
        self._now = (2, [each["workers"] for each in asked["brokers"]])
        told = self._target()
        self._now = self._after
        return told

    def topology(self) -> dict[str, Any]:
        return {**topology(3), "target": self._target()}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "LOOK_SECONDS", 0.0)


def scaled(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    monkeypatch.setattr(command.barco, "Admin", cluster)
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    code = command.run(parser.parse_args(["scale", "--to", "3", "--timeout", "5"]))
    said = capsys.readouterr()
    return code, said.out + said.err


def test_it_is_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = scaled(Cluster((2, [1, 1, 1])), monkeypatch, capsys)
    assert code == 0 and "done" in said


def test_depots_are_named_in_a_later_version(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "changed meanwhile" was said of the change that its own shrink had brought about."""
    code, said = scaled(Cluster((4, [1, 1, 1])), monkeypatch, capsys)
    assert code == 0 and "meanwhile" not in said


def test_somebody_else_asks_for_another_ring(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = scaled(Cluster((3, [2, 2, 2])), monkeypatch, capsys)
    assert code == 1 and "the target was changed meanwhile: it is version 3" in said
