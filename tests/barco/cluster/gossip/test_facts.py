"""Facts: what travels, what is refused, and which of two wins."""

import itertools
from typing import Any

import msgpack
import pytest
from msgspec.structs import replace

from barco import limits
from barco.cluster.gossip.facts import (
    BUCKETS,
    CONFIRMED,
    DOWN,
    LEFT,
    SUSPECT,
    BrokerInfo,
    ConsumerInfo,
    Fact,
    LeaderInfo,
    TargetInfo,
    TopicsInfo,
    following,
    newer,
    next_target_fact,
)
from barco.cluster.ring.cut import Cut
from barco.cluster.ring.routes import RangeRoute
from barco.cluster.ring.target import Target, first_target
from barco.errors import ProtocolError

DISK = "a" * 32
BROKER = BrokerInfo(
    ordinal=1,
    disk_uuid=DISK,
    session=2**64 - 1,
    address="127.0.0.2",
    ports=(("gossip", 9255), ("shard", 9300)),
    workers=2,
    version="0.1.0",
    processes=((0, -(2**63), 0), (3, 2**63 - 1, 2**64 - 1)),
    incarnation=7,
)
ROUTE = RangeRoute(0, 8, -(2**63), 4, 2, (0, 1, 2))
LEADER = LeaderInfo(ROUTE)
CONSUMER = ConsumerInfo(
    consumer_id="c", counter=5, ordinal=1, group="g", topics=("t", "u"), start="startFromLatest"
)
TOPICS = TopicsInfo(ordinal=1, incarnation=7, counter=2, digest="abcd", count=3)


RANKED = replace(CONSUMER, weight=limits.CONSUMER_WEIGHT_MAX, ranks=(0, 2**31 - 1))


@pytest.mark.parametrize(
    "info", [BROKER, replace(BROKER, ranked=False), LEADER, CONSUMER, RANKED, TOPICS]
)
def test_they_travel(info: Any) -> None:
    fact = info.fact()
    again = Fact.unpack(fact.packed)
    assert again == fact
    assert type(info).of(again) == info
    assert 0 <= fact.bucket < BUCKETS


def test_the_largest_registration_fits() -> None:
    topics = tuple(f"{number:0127}" for number in range(limits.TOPICS_PER_CONSUMER_MAX))
    ranks = (2**31 - 1,) * len(topics)
    info = replace(CONSUMER, consumer_id="c" * 128, group="g" * 128, topics=topics, ranks=ranks)
    assert len(info.fact().packed) < limits.GOSSIP_FACT_BYTES_MAX


def test_who_has_no_rank_and_weighs_as_all_do_is_told_of_as_by_earlier_versions() -> None:
    assert len(CONSUMER.fact().body) == 5 and len(RANKED.fact().body) == 7
    port = ("consumers_ranked", 1)
    assert port in BROKER.fact().body[3] and BrokerInfo.of(BROKER.fact()).ports == BROKER.ports
    assert port not in replace(BROKER, ranked=False).fact().body[3]


@pytest.mark.parametrize(
    "wrong",
    [
        {"weight": 0},
        {"weight": limits.CONSUMER_WEIGHT_MAX + 1},
        {"weight": True},
        {"ranks": (1,)},
        {"ranks": (1, 2, 3)},
        {"ranks": (1, 2**31)},
        {"ranks": (1, -1)},
        {"ranks": (1, "2")},
        {"ranks": 7},
    ],
)
def test_ranks_and_weights_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        replace(RANKED, **wrong).fact()


def test_what_is_worse_wins_until_the_broker_itself_denies() -> None:
    states = [BROKER, *(replace(BROKER, state=s) for s in (SUSPECT, CONFIRMED, DOWN, LEFT))]
    facts = [info.fact() for info in states] + [replace(BROKER, incarnation=8).fact()]
    assert all(newer(after, before) for before, after in itertools.combinations(facts, 2))


@pytest.mark.parametrize("said", [0, 7, 2**63 - 1, 2**63, 2**64 - 1])
def test_any_incarnation_can_be_answered(said: int) -> None:
    for state in (SUSPECT, CONFIRMED, DOWN, LEFT):
        lie = replace(BROKER, incarnation=said, state=state)
        denial = replace(BROKER, incarnation=following(said))
        assert newer(denial.fact(), lie.fact())
        assert not newer(lie.fact(), denial.fact())


def test_of_any_two_incarnations_one_wins() -> None:
    ends = [end % 2**64 for end in range(-3, 4)]
    numbers = [(end + half) % 2**64 for end in ends for half in (0, 2**63)]
    for one, other in itertools.combinations(numbers, 2):
        facts = [replace(BROKER, incarnation=number).fact() for number in (one, other)]
        assert newer(*facts) != newer(*reversed(facts))
        assert not newer(facts[0], facts[0])


def test_a_newer_epoch_a_later_registration_and_news_of_a_consumer_win() -> None:
    def later(info: Any, **changes: Any) -> bool:
        return newer(replace(info, **changes).fact(), info.fact())

    assert later(LEADER, route=ROUTE._replace(epoch=5, leader=0))
    assert later(LeaderInfo(ROUTE._replace(first=4)), route=ROUTE._replace(first=4, handed=True))
    assert later(CONSUMER, counter=6, ordinal=0)
    assert later(CONSUMER, removed_at=1)
    assert newer(replace(CONSUMER, heard=1).fact(), replace(CONSUMER, removed_at=9).fact())
    last = replace(CONSUMER, heard=2**64 - 1)
    assert newer(replace(CONSUMER, heard=following(last.heard)).fact(), last.fact())


def test_sessions_of_registrations_are_never_the_same() -> None:
    one, other = replace(CONSUMER, ordinal=2), replace(CONSUMER, ordinal=3)
    assert one.session != other.session
    assert replace(CONSUMER, counter=2**47).session < 2**63


def test_the_longest_table_fits() -> None:
    processes = tuple(
        (number, -(2**63) + number, 2**64 - 1) for number in range(limits.PROCESSES_MAX)
    )
    told = replace(BROKER, processes=processes).fact()
    assert len(told.packed) <= limits.GOSSIP_FACT_BYTES_MAX
    assert BrokerInfo.of(told).processes == processes


def test_the_body_that_others_break_is_sound() -> None:
    processes = [[0, 7, 1], [1, 8, 0]]
    Fact.unpack(bad("broker", 1, [1, 0], [DISK, 1, "h", [["p", 7]], 1, "v", "::1", processes, 0]))
    Fact.unpack(bad("leader", 0, [1, 0], [0, 8, 0, [0, 1, 2]]))


def bad(*parts: Any) -> bytes:
    packed: bytes = msgpack.packb(parts)
    return packed


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"\xc1",
        b"x" * (limits.GOSSIP_FACT_BYTES_MAX + 1),
        bad(),
        bad("broker", 1, [1, 0]),
        bad("broker", 1, [1, 0], []),
        bad("gossip", 1, [1, 0], []),
        bad(["broker"], 1, [1, 0], []),
        bad("consumer", 1, [1, 1, 0, 0], ["g", ["t"], "s", 0]),
        bad("consumer", "c", [1, 1, 0, 1], ["g", ["t"], "s", 0]),
        bad("consumer", "c\n", [1, 1, 0, 0], ["g", ["t"], "s", 0]),
        bad("consumer", "c", [1, 1, 0, 0], ["g", [], "s", 0]),
        bad("consumer", "c", [1, 1, 0, 0], ["g", [], "s", 0, 30_000]),
        bad("consumer", "c", [1, 1, 0, 0], ["g", ["t", "t"], "s", 0, 30_000]),
        bad("consumer", "c", [1, 1, 0, 0], ["g", ["u", "t"], "s", 0, 30_000]),
        bad("leader", 2**63, [1, 0], [0, 8, 0, [0, 1, 2]]),
        bad("leader", 0, [1, -1], [0, 8, 0, [0, 1, 2]]),
        bad("leader", 0, [1, True], [0, 8, 0, [0, 1, 2]]),
        bad("leader", 0, [1, 2], [0, 8, 0, [0, 1, 2]]),
        bad("leader", 0, [0, 0], [0, 8, 0, [0, 1, 2]]),
        bad("leader", 0, [2**63, 0], [0, 8, 0, [0, 1, 2]]),
        bad("leader", 0, [1, 0], [0, 8, 3, [0, 1, 2]]),
        bad("leader", 0, [1, 0], [0, 8, 0, [0, 1, 2, 3]]),
        bad("leader", 0, [1, 0], [0, 8, 0, [0, 0]]),
        bad("leader", 0, [1, 0], [0, 2**32, 0, [0]]),
        bad("leader", 0, [1, 1], [0, 8, 0, [0]]),
        bad("topics", limits.BROKERS_MAX, [1, 1], ["d", 0]),
        bad("broker", 1, [1, 9], [DISK, 1, "h", [], 1, "v", "", [], 0]),
        bad("broker", 1, [1, 0], [DISK, 1, "h", [["p", 70000]], 1, "v", "", [], 0]),
        bad("broker", 1, [1, 0], [DISK, 1, "h", [1], 1, "v", "", [], 0]),
        bad("broker", 1, [1, 0], [DISK, 1, "h", [], 1, "v", "", 0, 0]),
        bad("broker", 1, [1, 0], [DISK, 1, "h", [], 1, "v", "", [1], 0]),
        bad("broker", 1, [1, 0], [DISK, 1, "h", [], 1, "v", "", [[0, 2**63, 1]], 0]),
        bad("broker", 1, [1, 0], [DISK, 1, "h", [], 1, "v", "", [[0, 7]], 0]),
        bad("broker", 1, [1, 0], [DISK, 1, "h", [], 1, "v", "", [[0, 7, -1]], 0]),
        bad("broker", 1, [1, 0], [DISK, 1, "h", [], 1, "v", "", [[limits.PROCESSES_MAX, 7, 1]], 0]),
        bad("broker", 1, [1, 0], [DISK, 1, "h", [], 1, "v", "", [[1, 7, 1], [0, 8, 1]], 0]),
        bad("broker", 1, [1, 0], [DISK, 1, "h", [], 1, "v", "", [[0, 7, 1], [1, 7, 1]], 0]),
        bad("broker", 1, [1, 0], [DISK, 1, "h", [], 1, "v", "127.1", [], 0]),
        *(
            bad("broker", 1, [1, 0], [disk, 1, "h", [], 1, "v", "", [], 0])
            for disk in ("zz", "a" * 31, "g" * 32, "A" * 32, "a" * 33)
        ),
        *(
            bad("broker", 1, [1, 0], [DISK, 1, "h", [], 1, "v", host, [], 0])
            for host in ("::1%a..b", "::1%" + "a" * 64, "::1%\x00", "::1%\x1b[2J")
        ),
        msgpack.packb(["leader", 0, [1, 1], msgpack.ExtType(4, b"x")]),
    ],
)
def test_what_cannot_be_is_refused(packed: bytes) -> None:
    with pytest.raises(ProtocolError):
        Fact.unpack(packed)


@pytest.mark.parametrize("version", [0, 4, 5, 6, 2**63 - 1, 2**63, 2**63 + 5, 2**64 - 1])
def test_who_keeps_the_target_answers_any_lie(version: int) -> None:
    """And tells the same again where it is told already."""
    cut = Cut(3, 8)
    brokers = first_target(cut, 1).brokers
    mine, lie = Target(5, cut, brokers), Target(2**63 - 1, cut, brokers)
    told = TargetInfo(version=version, packed=lie.packed()).fact()
    answer = next_target_fact(mine, told)
    assert newer(answer, told) and not newer(told, answer)
    assert TargetInfo.of(answer).packed == mine.packed()
    assert next_target_fact(mine, answer) == answer
    later = next_target_fact(replace(mine, version=6), answer)
    assert newer(later, answer)
    assert next_target_fact(mine, None).version == (5,)
