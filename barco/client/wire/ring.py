"""Where slices are: the topology that brokers publish, as a client needs it. Pure.

The arithmetic is the brokers' (PolarStreams' ring): a key hashes to a token; the token range that
holds it is the one with the greatest start at or below it; a range is cut into equal slices.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from barco.client.base.errors import BadAnswerError
from barco.client.wire.batching import SliceKey
from barco.client.wire.codec import token_of
from barco.model.placement import RING_UNIT
from barco.model.token import TOKEN_MIN

TOKEN_END = 2**63


@dataclass(frozen=True, slots=True)
class Ring:
    """Every slice of the cluster in token order, and the endpoint of its owner."""

    endpoints: Mapping[SliceKey, str]
    slices: tuple[SliceKey, ...]
    holders: Mapping[SliceKey, tuple[str, ...]]
    """HOST:PORT of every process that holds the slice, in the order of succession."""
    away: frozenset[str]
    """Those of brokers that the one that was asked believes to be down."""
    _starts: tuple[int, ...] = field(repr=False)
    _owners: tuple[SliceKey, ...] = field(repr=False)
    """Arcs of the ring by first token, and the slice of each. The few tokens at the end of a range
    that division leaves over belong to its slice 0, as with PolarStreams."""
    _memory: dict[bytes, SliceKey] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def build(
        cls,
        ranges: Mapping[int, int],
        endpoints: Mapping[SliceKey, str],
        holders: Mapping[SliceKey, tuple[str, ...]] | None = None,
        away: Iterable[str] = (),
    ) -> "Ring":
        """`ranges`: number of slices by start token. Every slice must have an endpoint; without
        `holders` it has that one alone."""
        starts = sorted(ranges)
        if not starts or starts[0] != TOKEN_MIN:
            raise BadAnswerError("the topology does not begin at the lowest token")
        slices: list[SliceKey] = []
        arcs: list[tuple[int, SliceKey]] = []
        for start, end in zip(starts, [*starts[1:], TOKEN_END], strict=True):
            count = ranges[start]
            if not 1 <= count <= end - start:
                raise BadAnswerError(f"the range at {start} has {count} slices")
            span = end - start
            if len(starts) > 1:
                span -= span % RING_UNIT  # At the very top of the ring some tokens are left over.
            width = span // count
            slices += [SliceKey(start, index) for index in range(count)]
            arcs += [(start + index * width, SliceKey(start, index)) for index in range(count)]
            if start + count * width < end:
                arcs.append((start + count * width, SliceKey(start, 0)))
        missing = [each for each in slices if each not in endpoints]
        if missing:
            raise BadAnswerError(f"the topology names no endpoint for {missing[0]}")
        firsts, owners = zip(*arcs, strict=True)
        alone = {key: (endpoints[key],) for key in slices}
        return cls(
            dict(endpoints),
            tuple(slices),
            alone | dict(holders or {}),
            frozenset(away),
            firsts,
            owners,
        )

    @property
    def arcs(self) -> tuple[tuple[int, ...], tuple[SliceKey, ...]]:
        """Arcs of the ring in order: the first token of each, and the slice that holds it."""
        return self._starts, self._owners

    def slice_of_token(self, token: int) -> SliceKey:
        """The slice that holds the token."""
        return self._owners[bisect_right(self._starts, token) - 1]

    def slice_of_key(self, key: bytes) -> SliceKey:
        """The slice of a partition key. Remembers recent keys: most streams have few."""
        found = self._memory.get(key)
        if found is None:
            if len(self._memory) >= KEYS_REMEMBERED:
                self._memory.clear()
            found = self._memory[key] = self.slice_of_token(token_of(key))
        return found

    def endpoint(self, slice_key: SliceKey) -> str:
        """HOST:PORT of the process that owns the slice."""
        return self.endpoints[slice_key]


KEYS_REMEMBERED = 65_536


def ring_from_topology(topology: Mapping[str, Any]) -> Ring:
    """The answer of GET /v1/topology as a ring; BadAnswerError if it is none."""
    try:
        ranges: dict[int, int] = {}
        endpoints: dict[SliceKey, str] = {}
        for each in topology["ranges"]:
            start = int(each["token"])
            ranges[start] = len(each["slices"])
            for one in each["slices"]:
                endpoints[SliceKey(start, int(one["index"]))] = str(one["endpoint"])
        holders, away = _holders(topology)
    except (KeyError, TypeError, ValueError) as error:
        raise BadAnswerError(f"GET /v1/topology: {error!r}") from error
    return Ring.build(ranges, endpoints, holders, away)


def _holders(
    topology: Mapping[str, Any],
) -> tuple[dict[SliceKey, tuple[str, ...]], set[str]]:
    """Who holds each slice of a cluster, and whose broker is down; nothing for a single broker."""
    brokers = {int(each["ordinal"]): each for each in topology.get("brokers", ())}
    places = {at: each.get("shardEndpoints", ()) for at, each in brokers.items()}
    holders = {}
    for shard in topology.get("shards", ()):
        if "members" not in shard:
            continue
        found = tuple(
            str(places[ordinal][number])
            for ordinal, number in shard["members"]
            if number < len(places.get(ordinal, ()))  # One may have been told of by others only.
        )
        first, last = shard["slices"]
        for index in range(first, last + 1):
            holders[SliceKey(int(shard["token"]), index)] = found
    down = [each for each in brokers.values() if each.get("state") in ("down", "left")]
    return holders, {str(end) for each in down for end in each.get("shardEndpoints", ())}


def single_endpoint_ring(endpoint: str, slices_per_range: int = 8) -> Ring:
    """For a broker that publishes no shard endpoints: everything goes to its produce port, which
    hands it on. The slices still keep the order of a key."""
    keys = [SliceKey(TOKEN_MIN, index) for index in range(slices_per_range)]
    return Ring.build({TOKEN_MIN: slices_per_range}, dict.fromkeys(keys, endpoint))
