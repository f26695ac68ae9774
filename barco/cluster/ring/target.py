"""The brokers that a cluster shall consist of, and what may not be asked of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgpack
from msgspec import Struct, field
from msgspec.structs import replace

from barco import limits
from barco.cluster.ring.cut import Cut, Wanted, full_size
from barco.cluster.ring.depots import COPIES_MIN, Depots
from barco.cluster.ring.routes import RouteTable
from barco.errors import ConflictError, ForbiddenError, ProtocolError, RequestError
from barco.model.generation import Gid

FORMAT = 1
SHOWN = 3
"""Of a list in a refusal."""


class TargetBroker(Struct, frozen=True, kw_only=True):
    """One broker of the target."""

    ordinal: int
    workers: int
    """Ranges that its share of the ring is cut into."""
    host: str = ""
    ports: tuple[tuple[str, int], ...] = ()
    """(name, number), sorted."""
    disk_uuid: str = ""
    """The disk that asks for the ordinal; empty: whichever has it."""

    def described(self) -> dict[str, Any]:
        """As GET and PUT /v1/topology have it; what is empty is left out."""
        assert self.ordinal >= 0 and self.workers > 0, "its shape was looked at"
        told: dict[str, Any] = {"ordinal": self.ordinal, "workers": self.workers}
        told |= {"host": self.host} if self.host else {}
        return told | ({"diskUuid": self.disk_uuid} if self.disk_uuid else {})


class Target(Struct, frozen=True):
    """What the cluster shall consist of; `next_target` makes the version that follows."""

    version: int
    cut: Cut
    brokers: tuple[TargetBroker, ...]
    """By ordinal."""
    depots: Depots = ()
    """Who takes copies of the history of which range, for brokers that leave."""
    departed: tuple[int, ...] = ()
    """Ordinals that an earlier version named, sorted: what they hold is asked of them until it is
    elsewhere, by processes too that have heard of no earlier version."""

    @property
    def workers(self) -> dict[int, int]:
        """Of each broker, by ordinal."""
        return {each.ordinal: each.workers for each in self.brokers}

    def wanted(self, joined: Collection[int] | None = None) -> Wanted:
        """The ranges of a ring of those brokers of the target that have joined; None: all.

        Whoever has not joined has no range and follows none yet, so brokers join in any order.
        """
        workers = self.workers
        if joined is not None:
            assert workers.keys() >= set(joined), "nobody joins who is not wanted"
            workers = {each: workers[each] for each in sorted(joined)}
        return Wanted(self.cut, workers)

    def joined(self, table: RouteTable, present: Iterable[int]) -> set[int]:
        """Those of the target that are there, or are a member of anything: these stay counted. The
        first three are in every ring, so a table with gaps does not make one without them."""
        return ({0, 1, 2} | table.members() | set(present)) & self.workers.keys()

    def packed(self) -> bytes:
        """For the event that keeps it; `unpack_target` is the opposite."""
        brokers = [
            [each.ordinal, each.workers, each.host, each.ports, each.disk_uuid]
            for each in self.brokers
        ]
        cut = (self.cut.brokers, self.cut.slices_per_range)
        more = [self.depots, self.departed] if self.depots or self.departed else []
        data: bytes = msgpack.packb([FORMAT, self.version, *cut, brokers, *more])
        return data

    def asked(self, cluster: str) -> dict[str, Any]:
        """As PUT /v1/topology takes it; `cluster` is its mark, and `version` the one seen."""
        brokers = [each.described() for each in self.brokers]
        assert brokers, "a cluster has a broker"
        return {"cluster": cluster, "version": self.version, "brokers": brokers}

    def change_args(self, cluster: str) -> dict[str, Any]:
        """As operation `target_change` takes it; `cluster` is its mark, `version` the one seen."""
        brokers = [[each.ordinal, each.workers, each.host, each.disk_uuid] for each in self.brokers]
        assert brokers, "a cluster has a broker"
        return {"cluster": cluster, "seen": self.version, "brokers": brokers}

    def depots_of(self, first: int) -> list[int]:
        """The depots of the range that begins with a slice, in their order."""
        return [ordinal for at, ordinal in self.depots if at == first]

    def with_depots(self, named: Depots) -> Target:
        """The next version, with these depots more."""
        assert named and not set(named) & set(self.depots), "each is named once"
        return replace(self, version=self.version + 1, depots=self.depots + named)


def first_target(cut: Cut, workers: int) -> Target:
    """What is wanted before anybody has asked for anything: the brokers of the first cut."""
    assert 1 <= workers <= cut.slices_per_range, "each process leads a slice"
    brokers = tuple(TargetBroker(ordinal=each, workers=workers) for each in range(cut.brokers))
    return Target(0, cut, brokers)


def unpack_target(cut: Cut, data: bytes) -> Target:
    """A target as it came; ProtocolError if it can not be one of this cut."""
    if not isinstance(data, bytes):
        raise ProtocolError("a target that is no bytes")
    if not 0 < len(data) <= limits.TARGET_BYTES_MAX:
        raise ProtocolError(f"a target of {len(data)} bytes")
    try:
        given = msgpack.unpackb(
            data,
            raw=False,
            use_list=False,
            max_array_len=limits.BROKERS_MAX,
            max_map_len=0,  # Two KiB of gossip hold two million empty ones.
            max_ext_len=0,
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise ProtocolError(f"a target that is none: {str(error)[:200]}") from None
    _check(isinstance(given, tuple) and len(given) in (5, 7), "of another shape")
    form, version, brokers, slices_per_range, listed = given[:5]
    _check((form, brokers, slices_per_range) == (FORMAT, cut.brokers, cut.slices_per_range), "cut")
    _check(_number(version, 2**63) and isinstance(listed, tuple), "without a version")
    _check(len(listed) <= limits.BROKERS_MAX, "of too many brokers")
    depots, departed = (_depots(cut, given[5]), _departed(given[6])) if len(given) > 5 else ((), ())
    target = Target(version, cut, tuple(map(_broker, listed)), depots, departed)
    _check(target.workers.keys().isdisjoint(departed), "with a broker that is there and is not")
    try:
        check_shape(cut, target.brokers)
    except RequestError as error:
        raise ProtocolError(f"a target that can not be: {error.detail}") from None
    return target


def _depots(cut: Cut, given: Any) -> Depots:
    _check(isinstance(given, tuple) and len(given) <= limits.BROKERS_MAX, "with strange depots")
    for each in given:
        _check(isinstance(each, tuple) and len(each) == 2, "with a strange depot")
        _check(_number(each[0], cut.slices), "with a depot of a strange slice")
        _check(_number(each[1], limits.BROKERS_MAX), "with a strange depot")
    _check(len(set(given)) == len(given), "with a depot that is named twice")
    return tuple((first, ordinal) for first, ordinal in given)


def _departed(given: Any) -> tuple[int, ...]:
    fine = isinstance(given, tuple) and len(given) <= limits.BROKERS_MAX
    _check(fine and all(_number(each, limits.BROKERS_MAX) for each in given), "with strange ones")
    _check(list(given) == sorted(set(given)), "with one that left twice")
    return given  # type: ignore[no-any-return]


def _broker(given: Any) -> TargetBroker:
    _check(isinstance(given, tuple) and len(given) == 5, "with a broker of another shape")
    ordinal, workers, host, ports, disk_uuid = given
    _check(_number(ordinal, limits.BROKERS_MAX), "with a strange ordinal")
    _check(_number(workers, limits.WORKERS_MAX + 1), "with strange workers")
    _check(_text(host, 255) and _text(disk_uuid, 32), "with a strange name")
    _check(isinstance(ports, tuple) and len(ports) <= 16, "with strange ports")
    for port in ports:
        _check(isinstance(port, tuple) and len(port) == 2, "with a strange port")
        _check(_text(port[0], 32) and _number(port[1], 65_536), "with a strange port")
    return TargetBroker(
        ordinal=ordinal, workers=workers, host=host, ports=ports, disk_uuid=disk_uuid
    )


def _text(value: Any, length_max: int) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= length_max
        and value.isascii()
        and (not value or value.isprintable())
    )


def _number(value: Any, end: int) -> bool:
    return type(value) is int and 0 <= value < end


def _check(fine: bool, what: str) -> None:
    if not fine:
        raise ProtocolError(f"a target {what}")


# --- Compare and set ------------------------------------------------------------------------------


class Known(Struct, frozen=True, kw_only=True):
    """What a change of the target is held against."""

    cluster_uuid: str
    steps_left: Sequence[str] = ()
    """What the last target still wants, in words."""
    disks: Mapping[int, str] = field(default_factory=dict)
    """By ordinal: the disk that the members know."""
    copies: Mapping[Gid, Collection[int]] = field(default_factory=dict)
    """Of each sealed generation that is not expired: the brokers in reach that have all of it."""


def next_target(
    current: Target,
    seen: int,
    brokers: Iterable[TargetBroker],
    *,
    cluster_uuid: str,
    known: Known,
) -> Target:
    """Compare and set: the target that follows, for whoever saw version `seen`.

    What is wanted already is no change: the current one comes back, whatever was seen, so a call
    may be repeated. Else a refusal in words: ForbiddenError, ConflictError or RequestError.
    """
    listed = tuple(sorted(brokers, key=lambda broker: broker.ordinal))
    if cluster_uuid != known.cluster_uuid:
        raise ForbiddenError(
            f"this is cluster {known.cluster_uuid}, and the one that asks belongs to"
            f" {cluster_uuid}: correct cluster.uuid or the endpoint"
        )
    check_shape(current.cut, listed)
    _check_disks(listed, known.disks)
    if listed == current.brokers:
        return current
    if seen != current.version:
        raise ConflictError(
            f"the target was changed meanwhile: it is version {current.version}, and not {seen}"
            " as the one that asks has seen it; look again with barco ring"
        )
    if known.steps_left:
        count, first = len(known.steps_left), "; ".join(known.steps_left[:SHOWN])
        more = f"; and {count - SHOWN} more" if count > SHOWN else ""
        raise ConflictError(
            f"the last target is not reached, {count} step{'s are' if count > 1 else ' is'} left:"
            f" {first}{more}. Wait until barco ring says that the ring is as it shall be"
        )
    _check_copies({each.ordinal for each in listed}, known.copies)
    assert seen == current.version, "compared; now it is set"
    there = {each.ordinal for each in listed}
    departed = tuple(sorted({*current.departed, *current.workers} - there))
    return replace(current, version=current.version + 1, brokers=listed, departed=departed)


def check_shape(cut: Cut, brokers: Sequence[TargetBroker]) -> None:
    """RequestError with words if no ring of this cut has these brokers."""
    ordinals = [each.ordinal for each in brokers]
    if not ordinals or len(set(ordinals)) != len(ordinals):
        raise RequestError("the target names no broker, or one of them twice")
    size = full_size(max(ordinals) + 1)
    if cut.brokers == 1:
        if ordinals != [0]:
            raise RequestError(
                "a single broker does not grow: what it holds has one copy; format three brokers"
                " and load its events into them"
            )
    elif len(ordinals) < 3 or size == 1:
        raise RequestError(
            f"{_brokers(len(ordinals))}: a ring has at least three, as each range has three members"
        )
    most = _size_max(cut, 1)
    if size > most:
        raise RequestError(
            f"{_brokers(max(ordinals) + 1)} lead at least {size} ranges when the ring is full, and"
            f" it was cut into {cut.slices} slices for ever: {most} is the largest number of"
            " brokers that goes"
        )
    whole = size // 2 if size > 3 else size
    if missing := sorted(set(range(whole)) - set(ordinals)):
        raise RequestError(
            f"no ring has brokers {_some(ordinals)} without {_some(missing)}: brokers 0 to"
            f" {whole - 1} are all there before a new one stands between them. Sizes that go:"
            f" {_sizes(most)}, and on the way from one to the next any of the new ones"
        )
    _check_workers(cut, brokers)


def _check_workers(cut: Cut, brokers: Sequence[TargetBroker]) -> None:
    assert brokers, "it was looked at before"
    wanted = Wanted(cut, {each.ordinal: 1 for each in brokers})
    for each in brokers:
        share = len(wanted.share(each.ordinal))
        most = min(share, limits.WORKERS_MAX)
        if not 1 <= each.workers <= most:
            largest = _size_max(cut, max(each.workers, 1))
            raise RequestError(
                f"broker {each.ordinal} would have {each.workers} workers for {share}"
                f" slice{'s' if share > 1 else ''}, and each process leads at least one: {most}"
                f" is the largest number of workers that goes there, or {largest} that of brokers"
                f" with {each.workers} workers each"
            )


def _check_disks(brokers: Sequence[TargetBroker], disks: Mapping[int, str]) -> None:
    for each in brokers:
        there = disks.get(each.ordinal)
        if there and each.disk_uuid and each.disk_uuid != there:
            raise ConflictError(
                f"broker {each.ordinal} is known with disk {there}, and the one that asks has disk"
                f" {each.disk_uuid}: give it an ordinal of its own, or barco replace if the other"
                " disk is lost"
            )


def _check_copies(staying: set[int], copies: Mapping[Gid, Collection[int]]) -> None:
    """Who leaves stays until copies of what it holds are elsewhere; and one copy, of which nobody
    else can say whether it is true, is not copied."""
    assert staying, "a target names somebody"
    few = [
        (gid, sorted(set(holders) - staying))
        for gid, holders in sorted(copies.items())
        if set(holders) - staying and len(set(holders)) < COPIES_MIN
    ]
    if few:
        shown = "; ".join(f"generation {gid.token}/{gid.epoch}" for gid, _ in few[:SHOWN])
        more = f" and {len(few) - SHOWN} more" if len(few) > SHOWN else ""
        leaving = sorted({ordinal for _, gone in few for ordinal in gone})
        raise ConflictError(
            f"{len(few)} generation{'s' if len(few) > 1 else ''} would have no copy without brokers"
            f" {_some(leaving)}, as long as those are away that have another one ({shown}{more}):"
            " start them first"
        )


def _size_max(cut: Cut, workers: int) -> int:
    """The largest whole ring whose brokers have so many slices each; at least the smallest."""
    assert workers >= 1
    if cut.brokers == 1:
        return 1
    size = 3
    while 2 * size * workers <= cut.slices and 2 * size <= limits.BROKERS_MAX:
        size *= 2
    return size


def _sizes(most: int) -> str:
    sizes = [3 * 2**power for power in range(13) if 3 * 2**power <= most]
    return ", ".join(map(str, sizes))


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return shown + (f" and {len(numbers) - 8} more" if len(numbers) > 8 else "")


def _brokers(count: int) -> str:
    return f"{count} broker{'s' if count > 1 else ''}"
