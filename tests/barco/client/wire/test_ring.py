"""Keys to slices, against the brokers' own arithmetic."""

import random

import pytest

from barco.client.base.errors import BadAnswerError
from barco.client.wire.batching import SliceKey
from barco.client.wire.ring import Ring, ring_from_topology, single_endpoint_ring
from barco.model.placement import Placement
from barco.model.token import TOKEN_MAX, TOKEN_MIN, token_of


@pytest.mark.parametrize("size", [1, 3, 6, 12, 96])
@pytest.mark.parametrize("slices", [1, 4, 8])
def test_the_ring_agrees_with_placement(size, slices):
    placement = Placement(size, slices)
    ranges = {placement.token(index): slices for index in range(size)}
    keys = [SliceKey(token, number) for token in ranges for number in range(slices)]
    ring = Ring.build(ranges, {key: f"h:{number}" for number, key in enumerate(keys, 1)})
    chance = random.Random(size * 100 + slices)
    tokens = [TOKEN_MIN, TOKEN_MAX, TOKEN_MAX - 4000, 0, -1]
    tokens += [chance.randint(TOKEN_MIN, TOKEN_MAX) for _ in range(500)]
    tokens += [placement.token(i) + d for i in range(size) for d in (-1, 0, 1)]
    for token in tokens:
        if token < TOKEN_MIN:
            continue
        index, number = placement.locate(token)
        assert ring.slice_of_token(token) == SliceKey(placement.token(index), number)
    assert len(ring.slices) == size * slices


def test_keys_are_hashed_and_remembered():
    ring = single_endpoint_ring("127.0.0.1:9251")
    for key in (b"", b"a", b"N14228", "schlüssel-ä".encode(), b"\xff" * 40):
        assert ring.slice_of_key(key) == ring.slice_of_token(token_of(key))
        assert ring.slice_of_key(key) is ring.slice_of_key(key)


@pytest.mark.parametrize(
    "topology",
    [
        {},
        {"ranges": []},
        {"ranges": [{"token": "0", "slices": [{"index": 0, "endpoint": "h:1"}]}]},
        {"ranges": [{"token": str(TOKEN_MIN), "slices": []}]},
        {"ranges": [{"token": str(TOKEN_MIN), "slices": [{"index": 1, "endpoint": "h:1"}]}]},
        {"ranges": [{"token": "x", "slices": [{"index": 0, "endpoint": "h:1"}]}]},
        {"ranges": 7},
    ],
)
def test_a_senseless_topology_is_refused(topology):
    with pytest.raises(BadAnswerError):
        ring_from_topology(topology)


def test_who_holds_a_slice_and_who_is_away():
    slices = [{"index": index, "endpoint": f"b:{9300 + index}"} for index in range(2)]
    topology = {
        "ranges": [{"token": str(TOKEN_MIN), "slices": slices}],
        "brokers": [
            {"ordinal": 0, "state": "alive", "shardEndpoints": ["a:9300", "a:9301"]},
            {"ordinal": 1, "state": "down", "shardEndpoints": ["b:9300", "b:9301"]},
        ],
        "shards": [
            {"token": str(TOKEN_MIN), "slices": [0, 0], "members": [[0, 0], [1, 1]]},
            {"token": str(TOKEN_MIN), "slices": [1, 1], "members": [[1, 0], [0, 1]]},
        ],
    }
    ring = ring_from_topology(topology)
    first, second = ring.slices
    assert ring.holders == {first: ("a:9300", "b:9301"), second: ("b:9300", "a:9301")}
    assert ring.away == {"b:9300", "b:9301"}
    del topology["shards"], topology["brokers"]
    alone = ring_from_topology(topology)
    assert alone.holders == {first: ("b:9300",), second: ("b:9301",)} and not alone.away
