"""The machine of consumer groups, with a fake clock."""

import msgpack
import pytest

from barco import limits
from barco.cluster.groups.groups import START_EARLIEST, START_LATEST, Groups, Member
from barco.errors import AlreadyRegisteredError, RequestError, TooManyRequestsError
from barco.protocol import frame

SESSION_S = limits.CONSUMER_SESSION_MS_DEFAULT / 1000
RING_OF_ONE = [(-(2**63), index) for index in range(8)]
RING_OF_THREE = [(token, index) for token in (-100, 0, 100) for index in range(2)]


def join(groups: Groups, name: str, *, group: str = "g", topics: str = "t", now: float = 0) -> bool:
    return groups.register(name, group=group, topics=topics.split(), start=START_LATEST, now=now)


def test_one_consumer_reads_everything() -> None:
    groups = Groups(RING_OF_ONE)
    assert join(groups, "a") is False
    assert groups.assignment("g") == {"a": {"t": RING_OF_ONE}}


def test_who_joins_takes_of_each_what_it_has_too_much() -> None:
    groups = Groups(RING_OF_THREE)
    for name in ("d", "b", "a", "c"):
        join(groups, name)
    assigned = {name: topics["t"] for name, topics in groups.assignment("g").items()}
    assert assigned == {
        "d": [(-100, 0), (-100, 1)],
        "b": [(100, 0), (100, 1)],
        "a": [(0, 0)],
        "c": [(0, 1)],
    }


def test_who_registers_again_keeps_its_slices() -> None:
    groups = Groups(RING_OF_THREE)
    for name in ("d", "b", "a", "c"):
        join(groups, name)
    groups.goodbye("d")
    before = groups.assignment("g")
    for name in ("a", "b", "c", "a"):
        assert join(groups, name) is True
        assert groups.assignment("g") == before


def test_weights_are_a_part_of_a_registration() -> None:
    groups = Groups(RING_OF_ONE)
    given = {"consumerId": "a", "group": "g", "topics": ["t"], "start": START_LATEST}
    groups.request("register", given | {"weight": 3}, 0.0)
    groups.request("register", given | {"consumerId": "b"}, 0.0)
    assert [len(each["t"]) for each in groups.assignment("g").values()] == [6, 2]
    assert groups.view()["groups"]["g"]["a"]["weight"] == 3
    groups.request("register", given, 0.0)  # It may change its mind.
    assert [len(each["t"]) for each in groups.assignment("g").values()] == [4, 4]
    for wrong in (0, limits.CONSUMER_WEIGHT_MAX + 1, "3", 1.5, None, True):
        with pytest.raises(RequestError):
            groups.request("register", given | {"weight": wrong}, 0.0)


def test_more_consumers_than_slices_idle() -> None:
    groups = Groups([(0, 0), (0, 1)])
    for name in ("a", "b", "c"):
        join(groups, name)
    assert groups.assignment("g")["c"] == {"t": []}


def test_nobody_gets_a_topic_that_was_not_asked_for() -> None:
    groups = Groups(RING_OF_ONE)
    join(groups, "a", topics="t u")
    join(groups, "b", topics="u")
    assigned = groups.assignment("g")
    assert assigned["a"]["t"] == RING_OF_ONE
    assert "t" not in assigned["b"]
    assert sorted(assigned["a"]["u"] + assigned["b"]["u"]) == RING_OF_ONE


def test_registering_again_is_known_and_opens_a_session() -> None:
    groups = Groups(RING_OF_ONE)
    first = groups.request(
        "register", {"consumerId": "a", "group": "g", "topics": ["t"], "start": START_EARLIEST}, 0.0
    )
    again = groups.request(
        "register", {"consumerId": "a", "group": "g", "topics": ["t"], "start": START_EARLIEST}, 1.0
    )
    assert (first["known"], again["known"]) == (False, True)
    assert again["session"] > first["session"] and again["version"] > first["version"]


def test_the_order_of_topics_does_not_matter() -> None:
    groups = Groups(RING_OF_ONE)
    join(groups, "a", topics="t u")
    assert join(groups, "a", topics="u t") is True


@pytest.mark.parametrize("other", [{"group": "h"}, {"topics": "t u"}, {"topics": "u"}])
def test_other_parameters_are_a_conflict(other: dict[str, str]) -> None:
    groups = Groups(RING_OF_ONE)
    join(groups, "a")
    before = groups.view()
    with pytest.raises(AlreadyRegisteredError):
        join(groups, "a", **other)
    assert groups.view() == before


def test_a_leaver_is_gone_at_once() -> None:
    groups = Groups(RING_OF_ONE)
    join(groups, "a")
    join(groups, "b")
    assert groups.goodbye("a") is True
    assert groups.assignment("g") == {"b": {"t": RING_OF_ONE}}
    assert groups.goodbye("a") is False


def test_silence_ends_membership() -> None:
    groups = Groups(RING_OF_ONE)
    assert groups.deadline() is None
    join(groups, "a", now=0)
    join(groups, "b", now=0)
    groups.touch(["b", "nobody"], SESSION_S / 2)
    assert groups.deadline() == SESSION_S
    assert groups.tick(SESSION_S - 0.1) is False
    assert groups.tick(SESSION_S) is True
    assert groups.assignment("g") == {"b": {"t": RING_OF_ONE}}
    groups.tick(1.5 * SESSION_S)
    assert groups.view()["groups"] == {}


def test_each_consumer_says_how_long_it_may_be_silent() -> None:
    groups = Groups(RING_OF_ONE)
    for name, session_ms in (("slow", 600_000), ("quick", 5_000)):
        given = {"consumerId": name, "group": "g", "topics": ["t"], "start": START_LATEST}
        groups.request("register", given | {"sessionMs": session_ms}, 0.0)
    assert groups.deadline() == 5.0 and groups.tick(4.9) is False and groups.tick(5.0) is True
    assert groups.assignment("g") == {"slow": {"t": RING_OF_ONE}}
    assert groups.view()["groups"]["g"]["slow"]["sessionMs"] == 600_000
    given |= {"consumerId": "slow", "sessionMs": 6_000}
    groups.request("register", given, 10.0)  # It may change its mind.
    assert groups.deadline() == 16.0
    for wrong in (4_999, 600_001, 5_000.0, "5000", None, True):
        with pytest.raises(RequestError):
            groups.request("register", given | {"sessionMs": wrong}, 11.0)
    assert groups.deadline() == 16.0


def test_time_that_goes_back_expires_nobody() -> None:
    groups = Groups(RING_OF_ONE)
    join(groups, "a", now=100)
    groups.touch(["a"], 50)
    assert groups.deadline() == 100 + SESSION_S


@pytest.mark.parametrize("name", ["", "x" * 129, "a\nb", "a\0b", "é", "\x7f"])
def test_bad_names_are_refused(name: str) -> None:
    groups = Groups(RING_OF_ONE)
    with pytest.raises(RequestError):
        join(groups, name)
    with pytest.raises(RequestError):
        join(groups, "a", group=name)
    assert groups.view()["groups"] == {}


@pytest.mark.parametrize("topics", ["", ".", "..", "__offsets", "a/b", "é", "x" * 128])
def test_bad_topics_are_refused(topics: str) -> None:
    with pytest.raises(RequestError):
        join(Groups(RING_OF_ONE), "a", topics=topics)


def test_too_many_topics_are_refused() -> None:
    topics = " ".join(f"t{n}" for n in range(limits.TOPICS_PER_CONSUMER_MAX + 1))
    with pytest.raises(RequestError):
        join(Groups(RING_OF_ONE), "a", topics=topics)


def test_everything_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONSUMERS_MAX", 4)
    monkeypatch.setattr(limits, "GROUPS_MAX", 2)
    monkeypatch.setattr(limits, "CONSUMERS_PER_GROUP_MAX", 2)
    groups = Groups(RING_OF_ONE)
    join(groups, "a")
    join(groups, "b")
    with pytest.raises(TooManyRequestsError):
        join(groups, "c")
    join(groups, "c", group="h")
    with pytest.raises(TooManyRequestsError):
        join(groups, "d", group="i")
    join(groups, "d", group="h")
    groups.goodbye("a")
    join(groups, "e")
    with pytest.raises(TooManyRequestsError):
        join(groups, "f")


@pytest.mark.parametrize(
    ("op", "args"),
    [
        ("register", {}),
        ("register", {"consumerId": 1, "group": "g", "topics": ["t"], "start": START_LATEST}),
        ("register", {"consumerId": "a", "group": "g", "topics": "t", "start": START_LATEST}),
        ("register", {"consumerId": "a", "group": "g", "topics": ["t"], "start": "sometimes"}),
        ("touch", {"consumerIds": [1]}),
        ("goodbye", {}),
        ("nonsense", {}),
    ],
)
def test_bad_requests_change_nothing(op: str, args: dict[str, object]) -> None:
    groups = Groups(RING_OF_ONE)
    before = groups.version
    with pytest.raises(RequestError):
        groups.request(op, args, 0.0)
    assert groups.version == before


def test_a_view_holds_only_what_changed() -> None:
    groups = Groups(RING_OF_ONE)
    join(groups, "a", group="g")
    first = groups.version
    join(groups, "b", group="h")
    view = groups.view(first)
    assert view["since"] == first and list(view["groups"]) == ["h"] and view["removed"] == []
    second = groups.version
    groups.goodbye("a")
    assert groups.view(second)["removed"] == ["g"]
    assert groups.view(second)["groups"] == {}
    join(groups, "a", group="g")
    assert groups.view(second)["removed"] == ["g"]  # And then it began anew.
    assert list(groups.view(second)["groups"]) == ["g"]
    third = groups.version
    join(groups, "c", group="h")
    groups.goodbye("b")
    changed = groups.view(third)["groups"]
    assert list(changed) == ["h"] and changed["h"]["b"] is None and changed["h"]["c"]["assigned"]


def test_a_join_tells_only_of_those_whose_slices_change() -> None:
    """Of a thousand consumers that start together, not each is told of each."""
    groups = Groups(RING_OF_ONE)
    told = 0
    for number in range(500):
        before = groups.version
        join(groups, f"c{number * 7919 % 500}")
        told += sum(map(len, groups.view(before)["groups"].values()))
    assert told < 2 * 500
    before = groups.version
    groups.goodbye("c0")
    assert len(groups.view(before)["groups"]["g"]) <= len(RING_OF_ONE) + 2


def test_another_registration_of_elsewhere_with_other_topics() -> None:
    groups = Groups(RING_OF_ONE)
    join(groups, "a", topics="t u")
    join(groups, "b", topics="t")
    groups.adopt(Member("a", "g", ("u",), START_LATEST, 99, 0.0))
    assert groups.assignment("g") == {"a": {"u": RING_OF_ONE}, "b": {"t": RING_OF_ONE}}


def test_who_leaves_and_returns_expires_by_its_last_life() -> None:
    groups = Groups(RING_OF_ONE)
    join(groups, "a", now=0)
    groups.goodbye("a")
    assert groups.deadline() is None
    join(groups, "a", now=50)
    assert groups.deadline() == 50 + SESSION_S


def test_a_view_from_the_future_is_whole() -> None:
    groups = Groups(RING_OF_ONE)
    join(groups, "a")
    assert groups.view(groups.version + 1)["since"] == 0


def test_a_worker_that_missed_too_many_removals_gets_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("barco.cluster.groups.groups.REMOVED_MAX", 2)
    groups = Groups(RING_OF_ONE)
    start = groups.version
    for number in range(4):
        join(groups, "a", group=f"g{number}")
        groups.goodbye("a")
    assert groups.view(start)["since"] == 0


def test_a_view_travels_in_a_reply_frame() -> None:
    groups = Groups(RING_OF_THREE)
    join(groups, "a", topics="t u")
    reply = {"type": "reply", "id": 1, "ok": True, "result": groups.request("view", {}, 0.0)}
    sent = frame.encode(reply)
    assert msgpack.unpackb(sent[4:]) == reply
