"""The checker has to catch what it is there for: each broken promise is made up here once."""

import itertools
import json
import time
from pathlib import Path

import pytest
from faultlab.broker import Broker, range_paths
from faultlab.campaign import table
from faultlab.checker import check
from faultlab.drain import Event, ReadError, drain_group
from faultlab.flips import groups, segments
from faultlab.history import Record, make_value, parse_value
from faultlab.ringflips import Flip
from faultlab.round import Scene
from faultlab.scene import RingScene
from faultlab.wire import Answer

from barco.model.placement import Placement

TOPIC = "t"
KEY = "p-0"


def send(number: int, kind: str = "ok", status: int = 200) -> Record:
    return {
        "f": "send",
        "t0": number,
        "t1": number + 0.5,
        "proc": "p",
        "type": kind,
        "topic": TOPIC,
        "key": KEY,
        "ns": [number],
        "status": status,
    }


def event(number: int, offset: int, epoch: int = 2, key: str | None = KEY) -> Event:
    return (3, epoch, offset, key, make_value("p", number, KEY).decode())


def poll(events: list[Event], t1: float = 9.0) -> Record:
    given = [list(each) for each in events]
    return {"f": "poll", "t1": t1, "proc": "c", "session": 1, "topic": TOPIC, "events": given}


def commit(offset: int, t1: float) -> Record:
    return {"f": "commit", "t1": t1, "group": "g", "topic": TOPIC, "positions": {"3": offset}}


def leads(first: int, t1: float) -> Record:
    return {"f": "leads", "t1": t1, "slices": [first, first + 4]}


GOOD = [send(0), send(1), send(2)]
STORED = [event(0, 0), event(1, 1), event(2, 2)]


def test_a_good_run_passes() -> None:
    records = [*GOOD, send(7, "fail", 503), send(8, "info"), poll(STORED, 0.5), commit(1, 1)]
    records += [commit(3, 2), {"f": "fault", "t0": 3, "t1": 4, "what": "kill"}]
    report = check(records, STORED, TOPIC)
    assert not report.wrong and (report.acked, report.refused, report.unknown) == (3, 1, 1)


def test_who_leads_anew_hands_out_again_what_was_not_committed() -> None:
    again = [poll(STORED), commit(1, 9.1), leads(0, 9.2), poll(STORED[1:], 9.5)]
    assert not check([*GOOD, *again], STORED, TOPIC).wrong


@pytest.mark.parametrize(
    ("wrong", "records", "stored"),
    [
        ("C1 lost", GOOD, STORED[:2]),
        ("C2 twice", GOOD, [*STORED, event(1, 3)]),
        ("C2 gap", [*GOOD, send(3, "gap", 409)], STORED),
        ("C3 order", GOOD, [event(0, 0), event(2, 1), event(1, 2)]),
        ("C4 refused", [*GOOD[:2], send(2, "fail", 503)], STORED),
        ("C5 phantom", GOOD[:2], STORED),
        ("C5 phantom", GOOD, [*STORED, event(0, 3)[:4] + ("noise",)]),
        ("C5 phantom", GOOD, [*STORED[:2], event(2, 2, key="other")]),
        ("C6 offsets", [*GOOD, poll([event(1, 0)])], STORED),
        ("C6 offsets", [*GOOD, poll([event(1, 1, epoch=1)])], STORED),
        ("C6 offsets", GOOD, [*STORED[:2], event(2, 2, epoch=1)]),
        ("C7 gap", GOOD, [*STORED[:2], event(2, 3)]),
        ("C7 skipped", [*GOOD, poll([STORED[0], STORED[2]])], STORED),
        ("C8 backwards", [*GOOD, poll(STORED), poll(STORED[1:], 9.5)], STORED),
        ("C8 backwards", [*GOOD, poll(STORED), leads(4, 9.2), poll(STORED[1:], 9.5)], STORED),
        ("C8 backwards", [*GOOD, leads(0, 7.0), poll(STORED), poll(STORED[1:], 9.5)], STORED),
        ("C8 committed", [*GOOD, commit(3, 8), poll(STORED[2:])], STORED),
        ("C8 committed", [*GOOD, commit(2, 8), leads(0, 8.5), poll(STORED[1:])], STORED),
        ("C9 commit", [*GOOD, commit(3, 1), commit(2, 2)], STORED),
    ],
)
def test_a_broken_promise_is_found(wrong: str, records: list[Record], stored: list[Event]) -> None:
    assert wrong in check(records, stored, TOPIC).wrong


def test_values_prove_themselves() -> None:
    value = make_value("p", 12, "k")
    assert parse_value(value) == ("p", 12, "k")
    for at in range(len(value)):
        assert parse_value(value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]) is None
        assert parse_value(value[:at]) is None


def forget_last_groups(data_dir: Path) -> None:
    """A log that loses appends which it had called stable: a dozen on each worker, for the last
    three may have been in flight when it was killed."""
    for directory in range_paths(data_dir):
        path = segments(directory)[-1]
        last = groups(path)[-12:]
        with path.open("r+b") as file:
            file.seek(last[0][0])
            file.write(bytes(sum(header.group_bytes for _, header in last)))


def test_a_broker_without_sync_is_found(root: Path, seed: int, shim: Path) -> None:
    """It answers before its appends are stable, and writes them only a little later."""
    scene = Scene(root, seed=seed, name="sabotage")
    scene.broker.options = ["--engine", "epoll"]
    scene.broker.env = {"LD_PRELOAD": str(shim), "BARCO_FAULT_WRITES": str(root / "fault")}
    try:
        scene.broker.start()
        (root / "fault").write_text("l")
        load = scene.run_load()
        time.sleep(1.5)
        scene.broker.kill()
        load.stopping.set()
        scene.end_load()
        (root / "fault").unlink()
        scene.broker.restart()
        report = scene.verdict(fresh_group=False)
        assert report.count("C1 lost") > 0
    finally:
        scene.close()


@pytest.mark.chaos
def test_a_ring_without_sync_is_found(root: Path, seed: int, shim: Path) -> None:
    """All three answer each other before their appends are stable; then all die."""
    scene = RingScene(root, seed, "sabotage", start=False)
    for node in scene.ring.nodes:
        node.options = ["--engine", "epoll"]
        node.env |= {"LD_PRELOAD": str(shim), "BARCO_FAULT_WRITES": str(root / "fault")}
    try:
        scene.begin()
        (root / "fault").write_text("l")
        load = scene.run_load()
        time.sleep(2)
        scene.ring.kill()
        load.stopping.set()
        scene.end_load()
        (root / "fault").unlink()
        scene.ring.restart()
        report = scene.verdict(fresh_group=False)
        assert report.count("C1 lost") > 0
    finally:
        scene.close()


def test_a_broker_that_forgets_is_found(root: Path, seed: int) -> None:
    scene = Scene(root, seed=seed, name="sabotage")
    try:
        scene.broker.start()
        load = scene.run_load()
        time.sleep(1)
        scene.broker.kill()
        load.stopping.set()
        scene.end_load()
        forget_last_groups(scene.broker.data_dir)
        scene.broker.restart()
        report = scene.verdict(fresh_group=False)
        assert report.count("C1 lost") > 0
    finally:
        scene.close()


def test_a_flip_is_made_and_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "log"
    page = bytes(range(256)) * 16
    path.write_bytes(page * 3)
    bad = bytes([page[0] ^ 4]) + page[1:]
    flip = Flip(path, len(page), page, bad)
    assert not flip.there
    flip.make()
    assert flip.there and path.read_bytes() == page + bad + page
    flip.take_back()
    assert not flip.there and path.read_bytes() == page * 3
    path.unlink()
    assert not flip.there


def test_totals_of_several_rings_are_one_row() -> None:
    ring = dict.fromkeys(("acked", "lost", "twice", "order", "other"), 0)
    rings = [
        ring | {"kind": "pause", "rounds": 3, "acked": 5, "gaps": [0.5, 0.1], "outcomes": {}},
        ring | {"kind": "pause", "rounds": 4, "lost": 1, "gaps": [9.0], "outcomes": {"x": 2}},
    ]
    _, row, outcomes = table(rings)
    assert row.split() == ["pause", "7", "50", "2", "5", "1", "0", "0", "0", "0.50", "9.00", "9.00"]
    assert outcomes.strip() == "x 2"


class Polled:
    """A connection to a broker that hands out the same events for ever, or takes its time."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)

    def call(self, method: str, target: str, **_: object) -> Answer:
        if "/poll" in target:
            body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            return Answer(200 if body else 204, {}, body)
        return Answer(204 if "/commit" in target else 200, {}, b"{}")

    def close(self) -> None:
        pass


def polled(number: int) -> bytes:
    token = str(int(Placement(1, 8).token(0)))
    names = {"token": token, "rangeIndex": 3, "version": 2, "key": KEY}
    return json.dumps({**names, "offset": str(number), "value": f"v{number}"}).encode()


def test_a_group_may_take_its_time_but_must_come_to_an_end(monkeypatch, tmp_path) -> None:
    broker = Broker(tmp_path)
    slow = Polled(*[polled(number) for number in range(30)], b"")
    monkeypatch.setattr("faultlab.drain.Wire", lambda *_: slow)
    monkeypatch.setattr("faultlab.drain.time.monotonic", itertools.count().__next__)
    assert len(drain_group(broker, TOPIC, "g", limit_s=5)) == 30
    slow.answers = [polled(1)]
    with pytest.raises(ReadError, match="never comes to an end: .* 1 of them different"):
        drain_group(broker, TOPIC, "g", limit_s=5)
