"""Who leads which slices, as somebody has heard: for each slice the route of the highest epoch.

A slice is in one open generation at a time (I10), and epochs grow along its path (I9), so the order
in which news arrive makes no difference: what is known of a slice is only ever too old. A route is
told by a member in whose journal its generation is decided, and by nobody else.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgpack
from msgspec import Struct

from barco import limits
from barco.cluster.ring.cut import Cut
from barco.errors import ProtocolError
from barco.model.generation import Generation
from barco.model.placement import REPLICAS, RING_SIZE_MAX
from barco.model.token import TOKEN_MAX

FORMAT = 1
_EPOCH_END = 2**63
_SLICES_END = RING_SIZE_MAX * limits.SLICES_PER_RANGE_MAX + 1


class RangeRoute(NamedTuple):
    """The open generation of a range, or one that was handed to its left neighbour (`handed`)."""

    first: int
    """Its first slice's number."""
    slices: int
    token: int
    """Where its first slice begins."""
    epoch: int
    leader: int
    """The leader's ordinal; of what was handed over, whose it was."""
    members: tuple[int, ...]
    """Ordinals, in the order of succession."""
    handed: bool = False
    """Decided: nobody leads it until the left neighbour has taken it in."""

    @property
    def end(self) -> int:
        """The first slice after it."""
        return self.first + self.slices

    @property
    def age(self) -> tuple[int, bool]:
        """What of two routes of a slice is the later one."""
        return self.epoch, self.handed

    def packed(self) -> bytes:
        """For gossip; `unpack_route` is the opposite."""
        data: bytes = msgpack.packb(list(self))
        return data


def unpack_route(cut: Cut, data: bytes) -> RangeRoute:
    """A route as it came; ProtocolError if it can not be one of this cut."""
    if len(data) > limits.ROUTE_BYTES_MAX:
        raise ProtocolError(f"a route of {len(data)} bytes")
    return _checked(cut, _unpacked(data))


def _unpacked(data: bytes) -> Any:
    try:
        return msgpack.unpackb(data, raw=False, use_list=False, strict_map_key=True)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ProtocolError(f"routes that are none: {str(error)[:200]}") from None


def shaped_route(given: Any) -> RangeRoute:
    """The fields of a route that came, for whoever does not know the cut: `checked_route` has to
    follow. ProtocolError if no cut has such a one."""
    fields = len(RangeRoute._fields)
    _check(isinstance(given, tuple) and len(given) == fields, "has another shape")
    first, slices, token, epoch, leader, members, handed = given
    _check(_number(first, _SLICES_END) and _number(slices, _SLICES_END), "has no slices")
    _check(type(token) is int, "begins at no token")
    _check(_number(epoch, _EPOCH_END) and epoch > 0, "has no epoch")
    _check(isinstance(members, tuple) and 1 <= len(members) <= REPLICAS, "has no members")
    _check(all(_number(member, limits.BROKERS_MAX) for member in members), "has a strange member")
    _check(len(set(members)) == len(members), "has a member twice")
    _check(type(leader) is int and leader in members, "is led by no member")
    _check(isinstance(handed, bool) and not (handed and first == 0), "was handed to nobody")
    return RangeRoute(first, slices, token, epoch, leader, members, handed)


def checked_route(cut: Cut, route: RangeRoute) -> RangeRoute:
    """The route; ProtocolError if this cut can not have it."""
    _check(route.first < cut.slices, "begins at no slice")
    _check(0 < route.slices <= cut.slices - route.first, "ends behind the ring")
    _check(route.token == cut.token(route.first), "begins at another token")
    return route


def _checked(cut: Cut, given: Any) -> RangeRoute:
    return checked_route(cut, shaped_route(given))


def is_cut(cut: Cut, generation: Generation) -> bool:
    """Whether it begins and ends between slices: a record that one member told need not."""
    token, end = generation.gid.token, generation.end
    return cut.slice_at(token) is not None and (end > TOKEN_MAX or cut.slice_at(end) is not None)


def route_of(cut: Cut, generation: Generation, *, handed: bool = False) -> RangeRoute:
    """Where a generation is led, for who has it in the journal. handed: to its left neighbour."""
    token, end = generation.gid.token, generation.end
    first = cut.slice_at(token)
    after = cut.slices if end > TOKEN_MAX else cut.slice_at(end)
    assert first is not None and after is not None and first < after, "ranges end between slices"
    members = tuple(int(member.ordinal) for member in generation.members)
    leader, epoch = int(generation.leader.ordinal), int(generation.gid.epoch)
    return RangeRoute(first, after - first, int(token), epoch, leader, members, handed)


def _number(value: Any, end: int) -> bool:
    return type(value) is int and 0 <= value < end


def _check(fine: bool, what: str) -> None:
    if not fine:
        raise ProtocolError(f"a route that {what}")


class Dispute(Struct, frozen=True):
    """Two routes of one slice and one epoch: a disk went back, or somebody lies."""

    slice: int
    kept: RangeRoute
    other: RangeRoute


class RouteTable:
    """For each slice the latest route that was heard of."""

    def __init__(self, cut: Cut, routes: Iterable[RangeRoute] = ()) -> None:
        self.cut = cut
        self._at: list[RangeRoute | None] = [None] * cut.slices
        self._held: Counter[int] = Counter()
        self._led: dict[int, set[int]] = {}
        self._handed: Counter[RangeRoute] = Counter()
        self._disputes: dict[int, Dispute] = {}
        self._version = ""
        self._unknown = cut.slices
        for route in routes:
            self.merge(route)

    def copy(self) -> RouteTable:
        """Another table that knows the same."""
        return RouteTable(self.cut, self)

    # --- What is known --------------------------------------------------------------------------

    def at(self, number: int) -> RangeRoute | None:
        """The latest route of a slice; None: nothing was heard of it."""
        assert number >= 0, "slices are numbered from 0"
        return self._at[number]

    def __iter__(self) -> Iterator[RangeRoute]:
        """Each route that is the latest of some slice, once, by its first slice."""
        found = dict.fromkeys(route for route in self._at if route is not None)
        return iter(sorted(found))

    def led_by(self, ordinal: int) -> list[RangeRoute]:
        """The routes that a broker leads, or led until it handed them over."""
        return sorted({r for n in self._led.get(ordinal, ()) if (r := self._at[n]) is not None})

    def holds(self, ordinal: int) -> bool:
        """Whether a broker is a member of any route."""
        return self._held[ordinal] > 0

    def members(self) -> set[int]:
        """Every broker that is a member of some route."""
        return {ordinal for ordinal, count in self._held.items() if count}

    def handed(self) -> list[RangeRoute]:
        """What was handed over and not taken in yet."""
        return sorted(+self._handed)

    def is_whole(self, route: RangeRoute) -> bool:
        """Whether it is the latest of all its slices."""
        return all(self._at[number] == route for number in range(route.first, route.end))

    # --- News -------------------------------------------------------------------------------------

    def merge(self, route: RangeRoute) -> bool:
        """Take news; true if they were news of any slice. The later epoch wins; within one, that it
        was handed over. What can not be is kept apart: `faults` names it."""
        assert route.token == self.cut.token(route.first), "it was checked, or made here"
        changed = False
        for number in range(route.first, route.end):
            known = self._at[number]
            if known == route:
                continue
            if known is not None and known.age == route.age:
                kept, other = max(known, route), min(known, route)
                self._disputes[number] = Dispute(number, kept, other)
                if kept is known:
                    continue
            elif known is not None and known.age > route.age:
                continue
            else:
                self._disputes.pop(number, None)
            self._put(number, known, route)
            changed = True
        if changed:
            self._version = ""
        return changed

    def _put(self, number: int, known: RangeRoute | None, route: RangeRoute) -> None:
        assert route.first <= number < route.end, "a slice of its own"
        if known is None:
            self._unknown -= 1
        else:
            self._held.subtract(known.members)
            self._led[known.leader].discard(number)
            if known.handed:
                self._handed[known] -= 1
        self._held.update(route.members)
        self._led.setdefault(route.leader, set()).add(number)
        if route.handed:
            self._handed[route] += 1
        self._at[number] = route

    # --- What does not fit ------------------------------------------------------------------------

    def gaps(self) -> list[int]:
        """The slices of which nothing was heard."""
        return [number for number, route in enumerate(self._at) if route is None]

    @property
    def is_covering(self) -> bool:
        """Whether something was heard of every slice."""
        return self._unknown == 0

    def torn(self) -> list[RangeRoute]:
        """Routes of which later ones have taken a part: the news of the rest are on their way."""
        return [route for route in self if not self.is_whole(route)]

    def disputes(self) -> list[Dispute]:
        """What two tell differently of one generation."""
        return [self._disputes[number] for number in sorted(self._disputes)]

    def faults(self) -> list[str]:
        """In words: why the ring is not covered by one route for each slice; empty if it is."""
        found = []
        if gaps := self.gaps():
            found.append(f"nothing was heard of {_slices(gaps)}")
        found += [
            f"a later route took a part of slices {route.first} to {route.end - 1}, epoch"
            f" {route.epoch}; nothing was heard of the rest"
            for route in self.torn()
        ]
        found += [
            f"slice {each.slice} has two routes of epoch {each.kept.epoch}: led by broker"
            f" {each.kept.leader}, and by broker {each.other.leader}"
            for each in self.disputes()
        ]
        found += [
            f"slices {route.first} to {route.end - 1} were handed to the left: nobody leads them"
            for route in self.handed()
        ]
        return found

    # --- As bytes -------------------------------------------------------------------------------

    @property
    def version(self) -> str:
        """A hash of all routes: 16 hexadecimal digits, the same for the same table."""
        if not self._version:
            self._version = hashlib.blake2b(self.packed(), digest_size=8).hexdigest()
        return self._version

    def packed(self) -> bytes:
        """For a file or a frame; `unpack_routes` is the opposite."""
        routes = [list(route) for route in self]
        head = [FORMAT, self.cut.brokers, self.cut.slices_per_range]
        data: bytes = msgpack.packb([*head, routes])
        assert len(data) <= bytes_max(self.cut), "a route is at most ROUTE_BYTES_MAX"
        return data


def bytes_max(cut: Cut) -> int:
    """How long a packed table of this cut may be: a route for each slice, and its head."""
    return limits.ROUTE_BYTES_MAX * (cut.slices + 1)


def unpack_routes(cut: Cut, data: bytes) -> RouteTable:
    """A table as it came; ProtocolError if it can not be one of this cut."""
    if not 0 < len(data) <= bytes_max(cut):
        raise ProtocolError(f"routes of {len(data)} bytes")
    given = _unpacked(data)
    if not isinstance(given, tuple) or len(given) != 4 or not isinstance(given[3], tuple):
        raise ProtocolError("routes of another shape")
    if given[:3] != (FORMAT, cut.brokers, cut.slices_per_range):
        raise ProtocolError(f"routes of another format or cut: {given[:3]!r:.100}")
    if len(given[3]) > cut.slices:
        raise ProtocolError(f"{len(given[3])} routes of {cut.slices} slices")
    return RouteTable(cut, (_checked(cut, each) for each in given[3]))


def _slices(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"slice {numbers[0]}"
    shown = ", ".join(map(str, numbers[:8]))
    return f"slices {shown}" + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")
