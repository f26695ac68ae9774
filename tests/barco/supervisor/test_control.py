"""The control plane as a pure machine: who is told what, and when the asker is answered."""

from collections.abc import Mapping
from typing import Any

import pytest

from barco import limits
from barco.cluster.groups.groups import START_LATEST, Groups, Member
from barco.cluster.ring.cut import Cut
from barco.cluster.ring.routes import RangeRoute
from barco.cluster.ring.target import Target, TargetBroker
from barco.errors import ProtocolError
from barco.protocol import frame
from barco.supervisor.control import PEER, Alone, Control

SLICES = [(-(2**63), index) for index in range(8)]


def register(identifier: int, consumer: str, group: str = "g", **more: int) -> dict[str, Any]:
    args: dict[str, Any] = {
        "consumerId": consumer,
        "group": group,
        "topics": ["t"],
        "start": "startFromEarliest",
        **more,
    }
    return {"type": "request", "id": identifier, "op": "register", "args": args}


def seen(version: int) -> dict[str, Any]:
    return {"type": "seen", "version": version}


def control(workers: int = 2) -> Control:
    it = Control(Groups(SLICES))
    for worker in range(workers):
        ((to, view),) = it.worker_ready(worker)
        assert to == worker and view["type"] == "view" and view["since"] == 0
    return it


def test_a_single_broker_has_routes_and_a_target() -> None:
    """Its processes say them; who comes later is told all of it."""
    cut = Cut(1, 8)
    alone = Alone(Control(Groups(SLICES)), cut)
    first, view = alone.worker_ready(0)
    assert (first[1]["type"], first[1]["routes"], view[1]["type"]) == ("cluster", [], "view")
    assert alone.needed() == []
    whole = RangeRoute(0, 8, cut.token(0), 2, 0, (0,))
    assert alone.receive(0, {"type": "leads", "route": whole.packed()}, 1.0) == []
    assert [held.token for held in alone.needed()] == [cut.token(0)]
    target = Target(1, cut, (TargetBroker(ordinal=0, workers=2),))
    told = alone.receive(0, {"type": "target", "target": target.packed()}, 1.0)
    assert told == [(0, {"type": "target", "target": target.packed()})]
    needed = [(held.first, held.slices, held.members, held.genesis) for held in alone.needed()]
    assert needed == [(0, 4, (0,), False), (4, 4, (0,), False)]
    cluster, wanted, _ = alone.worker_ready(1)
    assert cluster == (1, first[1] | {"routes": [whole.packed()]})
    assert wanted == (1, told[0][1])
    alone.worker_gone(0)
    told = alone.receive(1, {"type": "target", "target": target.packed()}, 1.0)
    assert [worker for worker, _ in told] == [1]


def by_type(sends: list[tuple[int, dict[str, Any]]], kind: str) -> list[tuple[int, Any]]:
    return [(worker, message) for worker, message in sends if message["type"] == kind]


def test_the_asker_is_answered_when_all_have_seen() -> None:
    it = control(3)
    sends = it.receive(1, register(7, "alice"), 0.0)
    views = by_type(sends, "view")
    assert [worker for worker, _ in views] == [0, 1, 2] and not by_type(sends, "reply")
    version = views[0][1]["version"]
    assert "alice" in views[0][1]["groups"]["g"]
    assert it.receive(0, seen(version), 0.1) == []
    assert it.receive(1, seen(version), 0.1) == []
    ((worker, reply),) = it.receive(2, seen(version), 0.1)
    assert worker == 1 and reply["ok"] is True and reply["id"] == 7
    assert reply["result"]["version"] == version
    assert it.receive(2, seen(version), 0.2) == []


def test_a_later_version_counts_for_earlier_answers() -> None:
    it = control(2)
    it.receive(0, register(1, "alice"), 0.0)
    version = by_type(it.receive(1, register(1, "bob"), 0.0), "view")[0][1]["version"]
    assert it.receive(0, seen(version), 0.1) == []
    replies = it.receive(1, seen(version), 0.1)
    assert [worker for worker, _ in replies] == [0, 1]


def test_views_are_differences() -> None:
    it = control(1)
    it.receive(0, register(1, "alice", "first"), 0.0)
    view = by_type(it.receive(0, register(2, "bob", "second"), 0.0), "view")[0][1]
    assert list(view["groups"]) == ["second"] and view["since"] > 0
    it.worker_gone(0)
    ((_, view),) = it.worker_ready(0)
    assert list(view["groups"]) == ["first", "second"] and view["since"] == 0


def test_what_changes_nothing_is_answered_at_once() -> None:
    it = control(2)
    touch = {"type": "request", "id": 3, "op": "touch", "args": {"consumerIds": ["alice"]}}
    ((worker, reply),) = it.receive(0, touch, 0.0)
    assert worker == 0 and reply["ok"] and reply["id"] == 3


def test_errors_are_answered_with_their_status() -> None:
    it = control(2)
    ((_, reply),) = it.receive(0, {"type": "request", "id": 4, "op": "dance", "args": {}}, 0.0)
    assert (reply["ok"], reply["status"], reply["slug"]) == (False, 400, "bad-request")
    assert "dance" in reply["detail"]


@pytest.mark.parametrize(
    "message",
    [
        {"type": "request"},
        {"type": "request", "id": "1", "op": "touch"},
        {"type": "request", "id": 1, "op": 7},
        {"type": "request", "id": 1, "op": "touch", "args": []},
        {"type": "seen"},
        {"type": "unheard-of"},
    ],
)
def test_frames_that_break_the_protocol(message: Mapping[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        control(1).receive(0, message, 0.0)


def test_a_dead_worker_is_not_waited_for() -> None:
    it = control(2)
    version = by_type(it.receive(0, register(1, "alice"), 0.0), "view")[0][1]["version"]
    assert it.receive(0, seen(version), 0.1) == []
    ((worker, reply),) = it.worker_gone(1)
    assert worker == 0 and reply["ok"]


def test_a_dead_asker_is_not_answered() -> None:
    it = control(2)
    version = by_type(it.receive(0, register(1, "alice"), 0.0), "view")[0][1]["version"]
    assert it.worker_gone(0) == []
    assert it.receive(1, seen(version), 0.1) == []
    assert it.tick(20.0) == []


def test_waiting_has_an_end() -> None:
    it = control(2)
    it.receive(0, register(1, "alice"), 0.0)
    assert it.deadline() == limits.VIEW_SECONDS_MAX
    assert it.tick(limits.VIEW_SECONDS_MAX - 0.1) == []
    ((worker, reply),) = it.tick(limits.VIEW_SECONDS_MAX)
    assert worker == 0 and reply["ok"] is False and reply["status"] == 503 and reply["id"] == 1


def test_silent_consumers_expire_and_everybody_is_told() -> None:
    it = control(2)
    it.receive(0, register(1, "alice"), 0.0)
    late = limits.CONSUMER_SESSION_MS_DEFAULT / 1000 + 1.0
    views = by_type(it.tick(late), "view")
    assert [worker for worker, _ in views] == [0, 1]
    assert views[0][1]["removed"] == ["g"]


def test_a_session_ends_when_it_is_over_and_not_a_second_later() -> None:
    """By a clock that is asked as often as it wants to be; many that end are looked at together."""
    it, now, looks = control(1), 0.3, 0
    least = limits.CONSUMER_SESSION_MS_MIN / 1000
    for number in range(100):
        of = register(number, f"c{number}", sessionMs=limits.CONSUMER_SESSION_MS_MIN)
        it.receive(0, of, now + number / 1000)
    ended = 0
    while ended < 100:
        now += it.pause(now)
        looks += 1
        for _, view in by_type(it.tick(now), "view"):
            members = view["groups"].get("g", {}).values()
            ended += 100 if view["removed"] else sum(member is None for member in members)
        assert looks < 12, "once a second, and then as often as there is something"
    assert now < 0.3 + 0.1 + least + limits.LOOK_SECONDS_MIN + 0.01
    assert it.pause(now) == limits.TICK_SECONDS


def test_a_broker_that_stood_still_hears_its_news_before_it_expires_anybody() -> None:
    it = control(1)
    it.receive(0, register(1, "alice"), 0.0)
    for second in range(20):
        assert not by_type(it.tick(float(second)), "view")
    assert not by_type(it.tick(60.0), "view")
    touch = {"type": "request", "id": 2, "op": "touch", "args": {"consumerIds": ["alice"]}}
    it.receive(0, touch, 60.1)
    for second in range(61, 90):
        assert not by_type(it.tick(float(second)), "view")
    (view,) = by_type(it.tick(90.1), "view")
    assert view[1]["removed"] == ["g"]


def test_a_large_view_is_sent_in_parts_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barco.supervisor.control.FRAME_BYTES_MAX", 64 * 1024)
    it = control(1)
    for number in range(300):
        it.receive(0, register(number, f"consumer-{number}", f"group-{number}"), 0.0)
    it.worker_gone(0)
    sends = it.worker_ready(0)
    views = [view for _, view in sends]
    assert len(views) > 3
    assert all(len(frame.encode(view)) <= 64 * 1024 for view in views)
    assert views[0]["since"] == 0
    assert {view["since"] for view in views[1:]} == {views[0]["version"]}
    assert sum(len(view["groups"]) for view in views) == 300


# --- In a cluster -------------------------------------------------------------------------------


def test_with_other_brokers_the_answer_waits_for_them_as_well() -> None:
    it = Control(Groups(SLICES), lambda: 41)
    it.worker_ready(0)
    sends = it.receive(0, register(7, "alice"), 0.0)
    ((_, view),) = by_type(sends, "view")
    assert it.receive(0, seen(view["version"]), 0.1) == []
    assert it.delivered(40) == []
    ((worker, reply),) = it.delivered(41)
    assert (worker, reply["id"], reply["ok"]) == (0, 7, True)


def test_news_of_another_broker_is_acknowledged_when_all_workers_have_it() -> None:
    groups = Groups(SLICES)
    it = Control(groups)
    for worker in range(2):
        it.worker_ready(worker)
        it.receive(worker, seen(groups.version), 0.0)
    assert it.when_seen({"number": 1}, 0.0) == [(PEER, {"number": 1})]
    groups.adopt(Member("c", "g", ("t",), START_LATEST, 99, 0.0))
    views = it.refresh()
    assert [worker for worker, _ in views] == [0, 1]
    assert it.when_seen({"number": 2}, 0.0) == []
    assert it.receive(0, seen(groups.version), 0.1) == []
    assert it.receive(1, seen(groups.version), 0.1) == [(PEER, {"number": 2})]


def test_a_worker_that_hangs_does_not_keep_other_brokers_waiting_for_ever() -> None:
    groups = Groups(SLICES)
    it = Control(groups)
    it.worker_ready(0)
    assert it.when_seen({"number": 1}, 0.0) == []
    assert it.tick(limits.VIEW_SECONDS_MAX) == [(PEER, {"number": 1})]
    assert it.when_seen({"number": 2}, 0.0) == []
    assert it.worker_gone(0) == [(PEER, {"number": 2})]
