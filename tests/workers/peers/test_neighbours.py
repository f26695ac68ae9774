"""What a worker takes from the gossip of its supervisor."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from twin import Broker

from barco.cluster.ring.routes import RangeRoute
from barco.model.options import WorkerOptions
from barco.model.placement import Placement
from barco.model.ranges import HeldRange, peer_of, to_plain
from barco.workers.peers.leaders import Leaders
from barco.workers.peers.neighbours import Neighbours
from barco.workers.peers.ranges import RingRanges
from barco.workers.peers.siblings import HandOff

THREE = replace(
    Broker().options(0),
    ring_size=3,
    ordinal=1,
    brokers=["127.0.0.1", "127.0.0.2", "127.0.0.3"],
    workers=2,
    worker=0,
    shard_endpoints={number: f"127.0.0.2:{9300 + number}" for number in range(6)},
)

BROKER = {
    "ordinal": 2,
    "disk_uuid": "d" * 32,
    "session": 1,
    "address": "127.0.0.3",
    "host": "127.0.0.3",
    "ports": {"shard": 9300},
    "workers": 2,
    "processes": [],
    "version": "0.1.0",
    "incarnation": 1,
    "state": "alive",
}


RANGES = RingRanges(THREE)
TOKENS = [held.token for held in RANGES.all]


def heard() -> tuple[RingRanges, Leaders, Neighbours]:
    ranges = RingRanges(THREE)
    leaders = Leaders(ranges, alone=False)
    return ranges, leaders, Neighbours(THREE, ranges, leaders)


def route(
    index: int,
    epoch: int,
    leader: int,
    *members: int,
    first: int = -1,
    slices: int = 4,
    handed: bool = False,
) -> RangeRoute:
    """Of the range with this index in the first cut, or of other slices."""
    first = first if first >= 0 else 4 * index
    members = members or RANGES.members(TOKENS[index])
    return RangeRoute(first, slices, RANGES.cut.token(first), epoch, leader, members, handed)


def news(
    *routes: RangeRoute, version: int = 1, brokers: Sequence[Any] = (), hints: Sequence[Any] = ()
) -> dict[str, Any]:
    """A "cluster" frame."""
    return {
        "version": version,
        "brokers": brokers,
        "routes": [each.packed() for each in routes],
        "hints": [each.packed() for each in hints],
    }


def test_leaders_are_learned_by_the_token_of_their_range() -> None:
    _, leaders, neighbours = heard()
    assert TOKENS == sorted(TOKENS) and TOKENS[0] == -(2**63) and len(TOKENS) == 6
    assert TOKENS[2] == Placement(3, THREE.slices_per_range).token(1)
    changed = []
    neighbours.on_change = lambda: changed.append(neighbours.version)
    neighbours.apply(news(route(2, 5, 2), version=4, brokers=[BROKER]))
    assert neighbours.brokers[2].address == "127.0.0.3"
    assert leaders.leader(TOKENS[2]) == (2, 2) and leaders.epoch(TOKENS[2]) == 5
    assert leaders.leader(1) is None and 1 not in leaders.without()
    assert changed == [4]


def test_nobody_far_away_knows_better_than_a_process_of_this_broker() -> None:
    """A member may claim any epoch: it would lead the range for ever."""
    ranges, leaders, neighbours = heard()
    token = TOKENS[2]
    claim = news(route(2, 2**62, 2))
    ranges.reached = lambda peer: peer == peer_of((1, 0))
    assert leaders.learn(route(2, 5, 1))
    neighbours.apply(claim)
    assert leaders.leader(token) == (1, 0) and leaders.epoch(token) == 5
    assert "broker 2 in epoch 4611686018427387904" in ranges.heard.faults()[-1]
    # While that process is away the news counts, but no longer than until it is back.
    ranges.reached = lambda peer: False
    assert leaders.learn_all([]) == []
    assert leaders.leader(token) == (2, 2) and leaders.all() == []
    ranges.reached = lambda peer: peer == peer_of((1, 0))
    leaders.learn_all([])
    assert leaders.leader(token) == (1, 0)
    assert leaders.all() == [[route(2, 5, 1).packed(), False]]


class Routes:
    """Keeps what the core is told."""

    def __init__(self) -> None:
        self.told: dict[int, str] = {}
        self.peers: dict[int, int] = {}

    def set_route(self, first: int, count: int, peer: int, endpoint: str) -> None:
        self.told |= dict.fromkeys(range(first, first + count), endpoint)
        self.peers |= dict.fromkeys(range(first, first + count), peer)


def routed(options: WorkerOptions) -> tuple[Leaders, Neighbours, HandOff, Routes]:
    """As a worker's network puts them together; nothing is connected."""
    ranges, reactor = RingRanges(options), Routes()
    leaders = Leaders(ranges, alone=False)
    neighbours = Neighbours(options, ranges, leaders)
    hand_off = HandOff(reactor, neighbours.addresses, ranges, neighbours.endpoint)
    hand_off.connect = lambda peer: None
    neighbours.on_change = hand_off.rename
    leaders.on_change = hand_off.lead
    return leaders, neighbours, hand_off, reactor


def test_clients_are_told_what_a_broker_says_of_itself() -> None:
    options = replace(THREE, advertise="b1.example", shard_port=9300)
    _, neighbours, hand_off, reactor = routed(options)
    hand_off.lead(TOKENS[4], (2, 0))
    assert reactor.told == dict.fromkeys(range(16, 20), "127.0.0.3:9300"), "not heard yet"
    neighbours.apply(news(brokers=[{**BROKER, "address": "::7"}]))
    assert reactor.told == dict.fromkeys(range(16, 20), "[::7]:9300")
    assert neighbours.endpoint((2, 1)) == "[::7]:9301" and neighbours.host(2) == "::7"
    assert neighbours.host(1) == "b1.example" and neighbours.host(0) == "127.0.0.1"
    assert neighbours.endpoint((1, 2)) == "127.0.0.2:9302", "as the supervisor has it"


def test_a_broker_is_called_by_the_numbers_that_it_tells() -> None:
    """Before it has told of any, as it was formatted; routes follow at once."""
    leaders, neighbours, _, reactor = routed(replace(THREE, shard_port=9300))
    token = TOKENS[4]
    assert leaders.learn(route(4, 5, 2)) and leaders.leader(token) == (2, 0)
    assert set(reactor.peers.values()) == {peer_of((2, 0))}
    told = {**BROKER, "processes": [[0, 77, 5], [9, token, 6]]}
    neighbours.apply(news(brokers=[told]))
    assert leaders.leader(token) == (2, 9) and leaders.peer(token) == peer_of((2, 9))
    assert {n: peer for n, peer in reactor.peers.items() if peer >= 0} == dict.fromkeys(
        range(16, 20), peer_of((2, 9))
    )
    assert reactor.told == dict.fromkeys(range(16, 20), "127.0.0.3:9309")
    # What it holds no more nobody is routed to, though it has led.
    neighbours.apply(news(brokers=[{**told, "processes": [[0, 77, 5]]}]))
    assert leaders.leader(token) is None and set(reactor.peers.values()) == {-1}
    assert token in leaders.without()


def test_this_brokers_processes_are_those_that_its_supervisor_tells() -> None:
    ranges, _, neighbours = heard()
    changed = []
    neighbours.on_own = lambda: changed.append(ranges.peers)
    mine = {**BROKER, "ordinal": 1, "processes": [[7, TOKENS[2], 1]]}
    neighbours.apply(news(brokers=[mine]))
    assert ranges.holder(TOKENS[2], 1) == (1, 0), "gossip does not know better"
    more = THREE.table.without(TOKENS[2]).with_range(
        HeldRange(token=5, first=3, slices=1, number=0, members=(1, 2), genesis=False)
    )
    endpoints = {str(number): f"127.0.0.2:{number}" for number in more.numbers}
    own = {"processes": to_plain(more), "endpoints": endpoints, "sessions": {"0": 99}}
    neighbours.apply_own(own)
    assert ranges.session_of(1, 5) == 99 and ranges.ready(1, 5) and not ranges.ready(1, TOKENS[0])
    assert changed == [[peer_of((1, number)) for number in range(6)]]
    assert ranges.holder(TOKENS[2], 1) is None and ranges.holder(5, 1) == (1, 0)
    assert ranges.shard_number(5) is None and not ranges.known(5), "nobody has decided it"
    assert neighbours.endpoint((1, 0)) == "127.0.0.2:0"
    assert ranges.of_slice(3) == TOKENS[0]
    assert ranges.speaker == 1, "the first one that has a range of the ring"
    assert ranges.numbers_of(5) == range(3, 4) and ranges.members(5) == (1, 2)
    assert ranges.numbers_of(6) == range(0) and ranges.holders(6) == ()


def test_the_ranges_of_the_first_cut() -> None:
    assert [RANGES.shard_number(token) for token in TOKENS] == list(range(6))
    assert RANGES.holders(TOKENS[3]) == ((1, 1), (2, 3), (0, 5))
    assert RANGES.owner(TOKENS[3]) == (1, 1) and RANGES.held_by((2, 3)) == TOKENS[3]
    assert RANGES.held_by((2, 99)) is None and RANGES.holder(TOKENS[0], 7) is None
    assert RANGES.processes_of(2) == [(2, number) for number in range(6)]
    assert RANGES.numbers_of(TOKENS[3]) == range(12, 16) and RANGES.of_slice(12) == TOKENS[3]
