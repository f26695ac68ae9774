"""What a worker takes from the gossip of its supervisor."""

from dataclasses import replace

from twin import Broker

from barco.model.placement import Placement
from barco.workers.peers.leaders import Leaders
from barco.workers.peers.neighbours import Neighbours, token_of_shard
from barco.workers.peers.siblings import HandOff

THREE = replace(
    Broker().options(0),
    ring_size=3,
    ordinal=1,
    brokers=["127.0.0.1", "127.0.0.2", "127.0.0.3"],
    workers=2,
    worker=0,
    shard_endpoints=[f"127.0.0.2:{9300 + number}" for number in range(6)],
)

BROKER = {
    "ordinal": 2,
    "disk_uuid": "d" * 32,
    "session": 1,
    "address": "127.0.0.3",
    "ports": {"shard": 9300},
    "workers": 2,
    "version": "0.1.0",
    "incarnation": 1,
    "state": "alive",
}


def test_leaders_are_learned_by_the_token_of_their_shard() -> None:
    leaders = Leaders(THREE)
    neighbours = Neighbours(THREE, leaders)
    tokens = [token_of_shard(THREE, shard) for shard in range(6)]
    assert tokens == sorted(tokens) and tokens[0] == -(2**63)
    assert tokens[2] == Placement(3, THREE.slices_per_range).token(1)
    changed = []
    neighbours.on_change = lambda: changed.append(neighbours.version)
    news = {
        "version": 4,
        "brokers": [BROKER],
        "leaders": [[tokens[2], 5, 2, 2, 77], [1, 9, 0, 0, 1]],
    }
    neighbours.apply(news)
    assert neighbours.brokers[2].address == "127.0.0.3"
    assert leaders.leader(2) == (2, 2) and leaders.epoch(2) == 5
    assert changed == [4]


def test_nobody_far_away_knows_better_than_a_process_of_this_broker() -> None:
    """A member may claim any epoch: it would lead the shard for ever."""
    leaders = Leaders(THREE)
    neighbours = Neighbours(THREE, leaders)
    token = token_of_shard(THREE, 2)
    claim = {"version": 1, "brokers": [], "leaders": [[token, 2**62, 2, 2, 7]]}
    neighbours.vouched = lambda shard: shard == 2
    assert leaders.learn(2, 5, 1)
    neighbours.apply(claim)
    assert leaders.leader(2) == (1, 0) and leaders.epoch(2) == 5
    # While that process is away the news counts, but no longer than until it is back.
    neighbours.vouched = lambda shard: False
    neighbours.apply(claim)
    assert leaders.leader(2) == (2, 2) and leaders.all() == []
    assert leaders.learn(2, 5, 1)
    assert leaders.leader(2) == (1, 0) and leaders.all() == [[2, 5, 1]]


class Routes:
    """Keeps what the core is told."""

    def __init__(self) -> None:
        self.told: dict[int, str] = {}

    def set_route(self, first: int, count: int, peer: int, endpoint: str) -> None:
        self.told |= dict.fromkeys(range(first, first + count), endpoint)


def test_clients_are_told_what_a_broker_says_of_itself() -> None:
    options = replace(THREE, advertise="b1.example", shard_port=9300)
    neighbours, reactor = Neighbours(options, Leaders(options)), Routes()
    hand_off = HandOff(reactor, options, endpoint=neighbours.endpoint)
    hand_off.connect = lambda peer: None
    neighbours.on_change = hand_off.rename
    hand_off.lead(4, (2, 0))
    assert reactor.told == dict.fromkeys(range(16, 20), "127.0.0.3:9300"), "not heard yet"
    neighbours.apply({"version": 1, "brokers": [{**BROKER, "address": "::7"}], "leaders": []})
    assert reactor.told == dict.fromkeys(range(16, 20), "[::7]:9300")
    assert neighbours.endpoint((2, 1)) == "[::7]:9301" and neighbours.host(2) == "::7"
    assert neighbours.host(1) == "b1.example" and neighbours.host(0) == "127.0.0.1"
    assert neighbours.endpoint((1, 2)) == "127.0.0.2:9302", "as the supervisor has it"
