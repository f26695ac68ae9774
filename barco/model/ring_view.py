"""What GET /v1/topology?copies says of a ring, for those who draw it: pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import cached_property
from typing import Any

from msgspec import Struct, field

from barco.errors import ProtocolError
from barco.limits import BROKERS_MAX, SLICES_PER_RANGE_MAX


class CopyState(Enum):
    """How one broker's copy of a range is."""

    LEADS = "leads"
    SYNCED = "in sync"
    BEHIND = "catches up"
    DOWN = "down"
    UNKNOWN = "not known"


class DrawnBroker(Struct, frozen=True):
    """One broker of the ring."""

    ordinal: int
    name: str = ""
    state: str = "alive"
    since_us: int | None = None
    """When it came or went; None: that is not known."""
    new: bool = False
    """Of a preview: it would join."""

    @property
    def up(self) -> bool:
        """Whether it may answer: alive, or only suspected."""
        return self.state in ("alive", "suspect")


class DrawnRange(Struct, frozen=True):
    """One range: slices with one log."""

    first: int
    slices: int
    epoch: int
    leader: int | None
    members: tuple[int, ...]
    handed: bool = False
    copies: Mapping[int, CopyState] = field(default_factory=dict)
    """Of each member."""
    groups_behind: Mapping[int, int] = field(default_factory=dict)
    generations: tuple[int, ...] = ()
    """Epochs that hold data or may get some, oldest first, as far as the broker knows that was
    asked; the last one is open."""

    @property
    def span(self) -> str:
        """Its slices: 0-7."""
        return spanned(self.first, self.first + self.slices - 1)

    def lineage(self, arrow: str, shown: int) -> str:
        """The epochs that hold something, so many of them, the open one last."""
        epochs = [*(epoch for epoch in self.generations if epoch < self.epoch), self.epoch]
        cut = [str(epoch) for epoch in epochs[-shown:]]
        if len(epochs) > shown:
            cut.insert(0, f"{len(epochs) - shown} before")
        return f" {arrow} ".join(cut)


@dataclass(frozen=True)
class RingView:
    """A ring to be drawn."""

    cluster: str
    version: str
    slices: int
    brokers: tuple[DrawnBroker, ...]
    """By ordinal."""
    ranges: tuple[DrawnRange, ...]
    """By their first slice; not of those slices of which nothing was heard."""

    def broker(self, ordinal: int) -> DrawnBroker:
        """One broker; of one that is not listed nothing is known."""
        return self._named.get(ordinal) or DrawnBroker(ordinal, state="unknown")

    def led_by(self, ordinal: int) -> int:
        """How many slices a broker leads."""
        return sum(each.slices for each in self.held_by(ordinal) if each.leader == ordinal)

    def held_by(self, ordinal: int) -> Sequence[DrawnRange]:
        """The ranges of which a broker is a member."""
        return self._held.get(ordinal, ())

    @cached_property
    def at(self) -> Sequence[DrawnRange | None]:
        """By slice: the range that it is in; None if nothing was heard of it."""
        found: list[DrawnRange | None] = [None] * self.slices
        for each in self.ranges:
            found[each.first : each.first + each.slices] = [each] * each.slices
        return found

    @cached_property
    def _named(self) -> dict[int, DrawnBroker]:
        return {each.ordinal: each for each in self.brokers}

    @cached_property
    def _held(self) -> dict[int, list[DrawnRange]]:
        found: dict[int, list[DrawnRange]] = {}
        for each in self.ranges:
            for ordinal in each.members:
                found.setdefault(ordinal, []).append(each)
        return found


def spanned(first: int, last: int) -> str:
    """Numbers of slices: 0-7, or 3."""
    return str(first) if first == last else f"{first}-{last}"


def printable(text: object) -> str:
    """A name as it may be shown: what controls a terminal becomes visible."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in str(text))


def view_of(topology: Mapping[str, Any]) -> RingView:
    """The document as a ring; ProtocolError if it is none, or of a broker that tells no routes."""
    if "routes" not in topology:
        raise ProtocolError("this broker tells no routes: it is older than this command")
    try:
        brokers = tuple(
            DrawnBroker(
                ordinal=int(each["ordinal"]),
                name=printable(each["name"]),
                state=printable(each.get("state", "alive")),
                since_us=None if each.get("since") is None else int(each["since"]),
            )
            for each in topology["brokers"]
        )
        states = {each.ordinal: each for each in brokers}
        generations = _generations(topology)
        slices = int(topology["ringSize"]) * int(topology["slicesPerRange"])
        ranges = tuple(_range(each, states, generations) for each in topology["routes"])
        if not 0 < slices <= BROKERS_MAX * SLICES_PER_RANGE_MAX:
            raise ValueError(f"{slices} slices")
        if not all(0 <= each.first < each.first + each.slices <= slices for each in ranges):
            raise ValueError(f"a route behind slice {slices - 1}")
        return RingView(
            cluster=printable(topology["cluster"]),
            version=printable(topology["version"]),
            slices=slices,
            brokers=tuple(sorted(brokers, key=lambda each: each.ordinal)),
            ranges=tuple(sorted(ranges, key=lambda each: each.first)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"GET /v1/topology: {error!r}") from error


def _generations(topology: Mapping[str, Any]) -> dict[int, tuple[int, ...]]:
    """By first slice in the whole ring."""
    starts = {
        str(each["token"]): index * int(topology["slicesPerRange"])
        for index, each in enumerate(topology["ranges"])
    }
    return {
        starts[str(shard["token"])] + int(shard["slices"][0]): tuple(
            int(each["epoch"]) for each in shard["generations"]
        )
        for shard in topology["shards"]
    }


def _range(
    route: Mapping[str, Any],
    brokers: Mapping[int, DrawnBroker],
    generations: Mapping[int, tuple[int, ...]],
) -> DrawnRange:
    leader = None if route["leader"] is None else int(route["leader"])
    if leader is not None and leader in brokers and _gone(brokers[leader]):
        leader = None  # It is the last one of which was heard, and nobody has followed it.
    members = tuple(map(int, route["members"]))
    told = {int(each["ordinal"]): each for each in route.get("followers") or ()}
    return DrawnRange(
        first=int(route["first"]),
        slices=int(route["slices"]),
        epoch=int(route["version"]),
        leader=leader,
        members=members,
        handed=bool(route["handed"]),
        copies={each: _copy(each, leader, told.get(each), brokers.get(each)) for each in members},
        groups_behind={each: int(said["groupsBehind"]) for each, said in told.items()},
        generations=generations.get(int(route["first"]), ()),
    )


def _gone(broker: DrawnBroker) -> bool:
    return not broker.up and broker.state != "unknown"


def _copy(
    ordinal: int, leader: int | None, told: Mapping[str, Any] | None, broker: DrawnBroker | None
) -> CopyState:
    if ordinal == leader:
        return CopyState.LEADS
    if broker is not None and _gone(broker):
        return CopyState.DOWN
    if told is None:
        return CopyState.UNKNOWN
    if told["synced"]:
        return CopyState.SYNCED
    return CopyState.DOWN if told["state"] == "down" else CopyState.BEHIND


# --- In words -------------------------------------------------------------------------------------


def troubles(view: RingView) -> list[str]:
    """What is not as it should be, the worst first, in words; empty if all is well."""
    return _unled(view) + _away(view) + elsewhere(view) + _behind(view)


def troubles_now(view: RingView) -> list[str]:
    """Those of them that want somebody, or time."""
    return _unled(view) + _away(view) + _behind(view)


def first_troubles(view: RingView, shown: int) -> list[str]:
    """The worst of them, and how many there are besides."""
    found = troubles(view)
    if len(found) <= shown:
        return found
    return [*found[: shown - 1], f"and {len(found) - shown + 1} more: barco ring --json has all"]


def verdict(view: RingView) -> str:
    """One line for a ring without troubles."""
    if len(view.brokers) == 1:
        return "all slices are led; a single broker has the only copy of its events"
    return "all is well: every range is led by its owner, and every copy is in sync"


def _unled(view: RingView) -> list[str]:
    silent = [number for number, each in enumerate(view.at) if each is None]
    found = []
    if idle := [each for each in view.ranges if each.leader is None and not each.handed]:
        found.append(
            f"nobody leads slices {_spans(idle)}: what they hold can be read,"
            " nothing can be written"
        )
    led = [each for each in view.ranges if each.leader is not None and len(each.members) > 1]
    if alone := [each for each in led if len(each.members) - _missing(each) == 1]:
        found.append(
            f"of slices {_spans(alone)} only the leader's copy is up: nothing can be written"
        )
    found += [
        f"slices {each.span} were handed over and are not taken in yet: they wait"
        for each in view.ranges
        if each.handed
    ]
    if silent:
        found.append(f"nothing was heard of slices {runs(silent)}")
    return found


def _away(view: RingView) -> list[str]:
    found = []
    for broker in view.brokers:
        if broker.state == "alive":
            continue
        lacks = [
            each
            for each in view.held_by(broker.ordinal)
            if each.copies.get(broker.ordinal) is CopyState.DOWN
        ]
        there = {len(each.members) - _missing(each) for each in lacks}
        copies = f"; slices {_spans(lacks)} have {_copies(there)} of three" if lacks else ""
        name = f" ({broker.name})" if broker.name else ""
        what = {
            "suspect": "does not answer",
            "left": "was stopped",
            "unknown": "was never heard of",
        }
        since = "" if broker.since_us is None or broker.up else f" since {_moment(broker.since_us)}"
        state = what.get(broker.state, "is " + broker.state)
        found.append(f"broker {broker.ordinal}{name} {state}{since}{copies}")
    return found


def _moment(at_us: int) -> str:
    at = datetime.fromtimestamp(at_us // 1_000_000, UTC)
    return at.isoformat(" ").removesuffix("+00:00") + " UTC"


def elsewhere(view: RingView) -> list[str]:
    """Ranges that are led by another broker than planned, in words."""
    return [
        f"broker {each.leader} leads slices {each.span} in the place of broker {each.members[0]}"
        for each in view.ranges
        if each.leader is not None and each.leader != each.members[0]
    ]


def _behind(view: RingView) -> list[str]:
    found = []
    for broker in view.brokers:
        late = [
            each
            for each in view.held_by(broker.ordinal)
            if each.copies.get(broker.ordinal) is CopyState.BEHIND
        ]
        if late:
            groups = sum(each.groups_behind.get(broker.ordinal, 0) for each in late)
            found.append(
                f"broker {broker.ordinal} catches up in slices {_spans(late)}"
                f" ({groups:,} group{'s' if groups != 1 else ''} behind)"
            )
        dark = [
            each
            for each in view.held_by(broker.ordinal)
            if each.copies.get(broker.ordinal) is CopyState.UNKNOWN
        ]
        dark = [each for each in dark if each.leader is not None]
        if dark and broker.up:
            found.append(
                f"how broker {broker.ordinal}'s copies of slices {_spans(dark)} are is not known:"
                " their leader did not say"
            )
    return found


def _missing(each: DrawnRange) -> int:
    return sum(copy is CopyState.DOWN for copy in each.copies.values())


def _copies(numbers: set[int]) -> str:
    """1 copy, 2 copies, 1 or 2 copies."""
    return f"{' or '.join(map(str, sorted(numbers)))} cop{'y' if numbers == {1} else 'ies'}"


def _spans(ranges: Sequence[DrawnRange]) -> str:
    return runs([n for each in ranges for n in range(each.first, each.first + each.slices)])


def runs(numbers: Sequence[int]) -> str:
    """Numbers of slices, what follows each other together: 0-7, 16-23."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(spanned(first, last) for first, last in found)
