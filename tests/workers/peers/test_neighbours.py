"""What a worker takes from the gossip of its supervisor."""

from collections.abc import Callable, Sequence
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


def heard(wall_us: Callable[[], int] = lambda: 0) -> tuple[RingRanges, Leaders, Neighbours]:
    ranges = RingRanges(THREE)
    leaders = Leaders(ranges, alone=False)
    return ranges, leaders, Neighbours(THREE, ranges, leaders, wall_us)


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
    neighbours = Neighbours(options, ranges, leaders, lambda: 0)
    hand_off = HandOff(reactor, neighbours.addresses, ranges, neighbours.endpoint)
    hand_off.connect = lambda peer: None
    neighbours.on_change = hand_off.rename
    leaders.on_change = hand_off.lead
    return leaders, neighbours, hand_off, reactor


def told(options: WorkerOptions) -> tuple[RingRanges, Leaders, Neighbours, Routes]:
    """The same, with the ranges."""
    leaders, neighbours, _, reactor = routed(options)
    return neighbours._ranges, leaders, neighbours, reactor


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


def test_a_split_that_gossip_tells_moves_where_requests_go() -> None:
    """Broker 1 of a ring cut for three hears that broker 3, which joined later, leads a part of
    what it holds no copy of; a late old route moves nothing back."""
    options = replace(THREE, workers=1, shard_endpoints=dict.fromkeys(range(3), "x"))
    options = replace(options, shard_port=9300, brokers=[*options.brokers, "127.0.0.4"])
    ranges, leaders, neighbours, reactor = told(options)
    old = RangeRoute(0, 8, ranges.cut.token(0), 5, 0, (0, 1, 2))
    left, right = (
        old._replace(slices=4, epoch=6, members=(0, 3, 2)),
        RangeRoute(4, 4, ranges.cut.token(4), 6, 3, (3, 2, 0)),
    )
    joined = {
        **BROKER,
        "ordinal": 3,
        "disk_uuid": "3" * 32,
        "address": "127.0.0.4",
        "processes": [[0, right.token, 33], [2, left.token, 0]],
    }
    neighbours.apply(news(old, brokers=[joined]))
    assert set(reactor.peers.values()) == {peer_of((0, 0))} and len(reactor.peers) == 8
    neighbours.apply(news(right))
    # Of the rest nothing was heard yet: whoever led it, does.
    assert [reactor.peers[n] for n in range(8)] == 4 * [peer_of((0, 0))] + 4 * [peer_of((3, 0))]
    assert reactor.told[4] == "127.0.0.4:9300"
    assert ranges.numbers_of(old.token) == range(4) and ranges.members(old.token) == (0, 1, 2)
    neighbours.apply(news(left))
    assert ranges.members(left.token) == (0, 3, 2) and ranges.members(right.token) == (3, 2, 0)
    assert [ranges.of_slice(n) for n in (3, 4, 8)] == [left.token, right.token, TOKENS[2]]
    assert [each.slices for each in ranges.all] == [4, 4, 8, 8]
    before = dict(reactor.peers)
    neighbours.apply(news(old))
    assert reactor.peers == before and leaders.epoch(old.token) == 6
    # Documents go on to count ranges as the cluster was formatted.
    assert ranges.shard_number(left.token) == 0 and ranges.shard_number(right.token) is None
    assert ranges.shard_of(5) == 0 and ranges.shard_of(8) == 1
    assert ranges.holders(left.token) == ((0, 0), (3, 2), (2, 2))
    assert ranges.ready(3, right.token) and ranges.session_of(3, right.token) == 33
    assert not ranges.ready(3, left.token) and not ranges.ready(0, right.token)
    assert ranges.disk_of(3) == bytes.fromhex("3" * 32) and ranges.disk_of(7) == b""
    neighbours.apply(news(brokers=[{**joined, "state": "down"}]))
    assert not ranges.ready(3, right.token)


def test_ranges_that_are_joined_again_are_one_and_the_right_ones_token_is_history() -> None:
    options = replace(THREE, workers=1, shard_endpoints=dict.fromkeys(range(3), "x"))
    ranges, leaders, neighbours, reactor = told(options)
    left = RangeRoute(0, 4, ranges.cut.token(0), 6, 0, (0, 2, 1))
    right = RangeRoute(4, 4, ranges.cut.token(4), 6, 2, (2, 0, 1))
    processes = [[0, TOKENS[4], 1], [1, left.token, 2], [9, right.token, 3]]
    neighbours.apply(news(left, right, brokers=[{**BROKER, "processes": processes}]))
    assert leaders.leader(right.token) == (2, 9)
    assert [reactor.peers[n] for n in (0, 4)] == [peer_of((0, 0)), peer_of((2, 9))]
    neighbours.apply(news(right._replace(handed=True)))
    assert leaders.leader(right.token) is None and reactor.peers[4] == -1
    assert right.token in leaders.without()
    whole = left._replace(slices=8, epoch=7)
    neighbours.apply(news(whole))
    assert [reactor.peers[n] for n in range(8)] == 8 * [peer_of((0, 0))]
    assert not ranges.known(right.token) and ranges.at(right.token) is None
    assert ranges.processes_of_token(right.token) == [(2, 9)] == list(ranges.holders(right.token))
    assert ranges.processes_of_token(left.token) == [(0, 0), (1, 1), (2, 1)]
    # Who held a part of it and is told so late does not take it back.
    neighbours.apply(news(right))
    assert reactor.peers[4] == peer_of((0, 0))


def test_what_this_broker_leads_nobody_else_says() -> None:
    """After a start gossip still has the generation that this broker led before; its process has
    begun anew, and does not lead it."""
    options = replace(THREE, workers=1, shard_endpoints=dict.fromkeys(range(3), "x"))
    ranges, leaders, neighbours, reactor = told(options)
    mine = RangeRoute(8, 8, ranges.cut.token(8), 5, 1, (1, 2, 0))
    neighbours.apply(news(hints=[mine]))
    neighbours.apply(news(mine))
    assert leaders.leader(mine.token) is None and set(reactor.peers.values()) <= {-1}
    assert leaders.learn(mine._replace(epoch=6))
    assert leaders.leader(mine.token) == (1, 0) and reactor.peers[8] == options.peer
    assert leaders.learn(mine._replace(epoch=6), stopped=True)
    assert leaders.leader(mine.token) is None and reactor.peers[8] == -1
    neighbours.apply(news(mine._replace(epoch=6)))
    assert leaders.leader(mine.token) is None, "gossip may be late"


def test_the_core_is_not_told_to_take_slices_that_it_does_not_have() -> None:
    options = replace(THREE, workers=1, shard_endpoints=dict.fromkeys(range(3), "x"))
    leaders, neighbours, hand_off, reactor = routed(options)
    wide = RangeRoute(4, 12, RANGES.cut.token(4), 7, 1, (1, 2, 0))
    table = options.table.without(TOKENS[2]).with_range(
        HeldRange(token=wide.token, first=4, slices=12, number=0, members=(1, 2, 0))
    )
    own = {"processes": to_plain(table), "endpoints": {"0": "x", "1": "x", "2": "x"}}
    neighbours.apply_own(own | {"sessions": {}})
    assert leaders.learn(wide)
    assert [n for n, peer in reactor.peers.items() if peer == options.peer] == [*range(8, 16)]
    assert not hand_off.reaches(wide.token)
    hand_off.hold(range(4, 16))
    assert [n for n in range(24) if reactor.peers.get(n) == options.peer] == [*range(4, 16)]
    assert hand_off.reaches(wide.token)


def test_since_when_a_broker_is_gone_or_there() -> None:
    """A suspicion is no change; of what was so from the first word on nobody knows."""
    at = iter(range(1000, 9000, 1000))
    _, _, neighbours = heard(lambda: next(at))
    for state, since in (
        *(("alive", None), ("suspect", None), ("down", 1000), ("down", 1000), ("left", 1000)),
        *(("alive", 2000), ("suspect", 2000), ("left", 3000)),
    ):
        neighbours.apply(news(brokers=[BROKER | {"state": state}]))
        assert neighbours.changed_us.get(2) == since, state
