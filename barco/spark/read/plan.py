"""Which events a query reads, and which Spark partition reads which of them. Pure.

A slice is cut at chunks, by the sizes that the brokers tell; small slices of one shard share a
partition. Neighbouring partitions belong to different shards, so that tasks that run at the same
time keep different workers busy.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from pyspark.sql.datasource import InputPartition

from barco.arrow.decode import Origin
from barco.client.wire.access import Access
from barco.limits import POLL_BYTES_MAX
from barco.spark.base.fetch import DataLossError, Source
from barco.spark.base.options import OptionError, Place, ReadOptions
from barco.types import MiB

PIECES = 16
"""Partitions that a middling topic is cut into where the number of cores is not known: enough for
every core of a small cluster."""

PIECE_BYTES_MIN = 16 * MiB
"""Less than this is not worth a task of its own: one costs Spark 20 to 35 ms of CPU by itself."""

SPLIT_BYTES = 4 * MiB
"""How finely slices can be cut."""


@dataclass(frozen=True, slots=True)
class Slice:
    """One slice of a topic, as the brokers tell."""

    topic: str
    token: int
    index: int
    partition: int
    """Its number among all slices of the topic, in ring order: what Kafka's users know."""
    endpoint: str
    replicas: tuple[str, ...]
    epoch: int
    start: int
    end: int
    stored_bytes: int = 0
    splits: tuple[tuple[int, int], ...] = ()
    """(offset, bytes before it since the last split)."""
    at: int | None = None
    """Where the time begins that was asked for."""

    @property
    def name(self) -> str:
        """What it is called in positions: it has this name as long as it lives."""
        return f"{self.token}/{self.index}"


def slices_of(topic: str, described: Sequence[Mapping[str, Any]]) -> list[Slice]:
    """The slices of GET /v1/topic/{topic}/slices, in ring order."""
    tokens = sorted({int(each["token"]) for each in described})
    width = 1 + max((int(each["index"]) for each in described), default=0)
    found = [
        Slice(
            topic=topic,
            token=int(each["token"]),
            index=int(each["index"]),
            partition=tokens.index(int(each["token"])) * width + int(each["index"]),
            endpoint=str(each["endpoint"]),
            replicas=tuple(map(str, each.get("replicaEndpoints", ()))),
            epoch=int(each["version"]),
            start=int(each["startOffset"]),
            end=int(each["endOffset"]),
            stored_bytes=int(each.get("bytes", 0)),
            splits=tuple((int(s["offset"]), int(s["bytes"])) for s in each.get("splits", ())),
            at=int(each["atOffset"]) if "atOffset" in each else None,
        )
        for each in described
    ]
    return sorted(found, key=lambda each: each.partition)


@dataclass(frozen=True, slots=True)
class Range:
    """Consecutive events of one slice."""

    source: Source
    partition: int
    start: int
    end: int
    stored_bytes: int = 0

    @property
    def origin(self) -> Origin:
        """As the rows say it."""
        source = self.source
        return Origin(source.topic, source.token, source.slice, self.partition)


@dataclass(frozen=True, slots=True)
class Frozen:
    """When a plan was made that ends where the topics ended then."""

    plan: str
    at_s: float
    ends: Mapping[str, int]
    """By topic: the offsets where its slices ended, added up."""


class Ranges(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Sequence[Range], frozen: Frozen | None = None) -> None:
        super().__init__(None)
        self.ranges = tuple(ranges)
        self.frozen = frozen
        """Of the first partition of a plan: one task tells for all."""

    def __repr__(self) -> str:
        parts = [
            f"{r.source.topic}/{r.partition}[{r.start}:{r.end}) at {r.source.access.endpoints[0]}"
            for r in self.ranges
        ]
        return f"Ranges({', '.join(parts)})"


def range_of(slice_: Slice, start: int, end: int, access: Access) -> Range:
    """Events of a slice, from its owner, else from a replica, else through any broker."""
    places = tuple(dict.fromkeys([slice_.endpoint, *slice_.replicas, *access.endpoints]))
    source = Source(slice_.topic, slice_.token, slice_.index, access.to(*places))
    return Range(source, slice_.partition, start, end, _bytes_between(slice_, start, end))


def _bytes_between(slice_: Slice, start: int, end: int) -> int:
    """About: as if all events of the slice had one size."""
    events = slice_.end - slice_.start
    return slice_.stored_bytes * (end - start) // events if events > 0 else 0


def wanted(slices: Iterable[Slice], options: ReadOptions) -> list[Slice]:
    """Those that `assign` names; OptionError if one of them does not exist."""
    found = list(slices)
    if not options.assigned:
        return found
    for topic, partitions in options.assigned.items():
        there = {each.partition for each in found if each.topic == topic}
        missing = [number for number in partitions if number not in there]
        if missing:
            raise OptionError(
                f"option assign: topic {topic} has no partition {missing[0]}: 0 to {len(there) - 1}"
            )
    return [each for each in found if each.partition in options.assigned.get(each.topic, ())]


def check_places(slices: Iterable[Slice], options: ReadOptions) -> None:
    """OptionError if offsets or times are of what is not read: a misspelt topic would be read from
    somewhere else."""
    there: dict[str, set[int | str]] = {}
    for each in slices:
        there.setdefault(each.topic, set()).update((each.partition, each.name))
    for which, places in (("starting", options.starting), ("ending", options.ending)):
        for topic, named in places.by_topic.items():
            wrong = sorted(named.keys() - there.get(topic, named.keys()), key=str)
            if not is_read(topic, options) or wrong:
                what = f"partition {wrong[0]} of topic {topic}" if wrong else f"topic {topic}"
                raise OptionError(
                    f"the {which} offsets or timestamps name {what}, which is not read"
                )


def is_read(topic: str, options: ReadOptions) -> bool:
    """Whether the query is of this topic, which need not exist."""
    if options.pattern is None:
        return topic in options.topics
    return re.fullmatch(options.pattern, topic) is not None


def offset_at(
    place: Place, slice_: Slice, times: Mapping[tuple[str, str], Mapping[int, int]]
) -> int:
    """The offset of a place in a slice. `times`: by topic and time, offsets by partition."""
    if place == "earliest":
        return slice_.start
    if place == "latest":
        return slice_.end
    if isinstance(place, str):
        return times[slice_.topic, place].get(slice_.partition, slice_.end)
    return place


def start_of(
    slice_: Slice,
    options: ReadOptions,
    times: Mapping[tuple[str, str], Mapping[int, int]],
    default: Place = "earliest",
) -> int:
    """Where a query begins in a slice. DataLossError or OptionError: it cannot begin there."""
    place = options.starting.of(slice_.topic, slice_.partition, default, slice_.name)
    offset = offset_at(place, slice_, times)
    late = isinstance(place, str) and ":" in place and offset >= slice_.end > slice_.start
    if late and options.strict_times:
        raise OptionError(
            f"no event of topic {slice_.topic}, partition {slice_.partition}, is as late as "
            "the starting timestamp; with startingOffsetsByTimestampStrategy=latest the "
            "query begins at the end there"
        )
    return _within(slice_, offset, options, "starting")


def end_of(
    slice_: Slice, options: ReadOptions, times: Mapping[tuple[str, str], Mapping[int, int]]
) -> int:
    """Where a batch query ends in a slice (exclusive)."""
    place = options.ending.of(slice_.topic, slice_.partition, "latest", slice_.name)
    return _within(slice_, offset_at(place, slice_, times), options, "ending")


def _within(slice_: Slice, offset: int, options: ReadOptions, which: str) -> int:
    if slice_.start <= offset <= slice_.end:
        return offset
    if options.fail_on_data_loss:
        raise DataLossError(
            f"the {which} offset {offset} of topic {slice_.topic}, partition {slice_.partition}, "
            f"is outside of {slice_.start} to {slice_.end}; failOnDataLoss=false takes what there "
            "is",
            slice_.start,
        )
    return min(max(offset, slice_.start), slice_.end)


def request_bytes(stored_bytes: int, fetch_bytes: int) -> int:
    """What to ask for at a time, about `fetch_bytes`, so that no small rest of a range takes a
    request of its own: each costs the broker half a millisecond, whatever is in it."""
    if stored_bytes <= fetch_bytes:
        return fetch_bytes
    even = stored_bytes // max(1, round(stored_bytes / fetch_bytes))
    # Sizes are estimates, and answers end with a whole chunk.
    return min(even + even // 16, POLL_BYTES_MAX)


def piece_bytes(total: int, options: ReadOptions, cores: int = 0) -> int:
    """The size to aim at for one partition: as few for each of the session's cores as can be, all
    of them busy to the end. `cores` 0: their number is not known."""
    most = options.partition_bytes_max
    pieces = cores * max(1, -(-total // (cores * most))) if cores else PIECES
    return min(max(total // pieces, PIECE_BYTES_MIN), most)


def split_bytes_of(options: ReadOptions) -> int:
    """How finely the brokers are to tell where slices can be cut."""
    return min(SPLIT_BYTES, options.partition_bytes_max)


def piece_bytes_most(target: int, options: ReadOptions) -> int:
    """How much a partition may have, rather than that there is one more of small ones."""
    return min(target + target // 2, max(options.partition_bytes_max, target))


def cut(
    range_: Range, splits: Sequence[tuple[int, int]], target: int, most: int = 0
) -> list[Range]:
    """A range in pieces of about `target` stored bytes, at the splits of its slice.

    What is left goes with the last of them if both are within `most`.
    """
    pieces: list[Range] = []
    start, since = range_.start, 0
    for offset, size in splits:
        if offset <= start:
            continue
        if offset >= range_.end:
            break
        since += size
        if since >= target:
            pieces.append(replace(range_, start=start, end=offset, stored_bytes=since))
            start, since = offset, 0
    taken = sum(piece.stored_bytes for piece in pieces)
    rest = max(range_.stored_bytes - taken, 0)
    if pieces and pieces[-1].stored_bytes + rest <= most:
        last = pieces.pop()
        start, rest = last.start, last.stored_bytes + rest
    pieces.append(replace(range_, start=start, stored_bytes=rest))
    return pieces


def cut_by_count(ranges: list[Range], options: ReadOptions) -> list[Range]:
    """More pieces, for maxRecordsPerPartition and minPartitions: the largest are cut first."""
    if options.partition_records_max is not None:
        most = options.partition_records_max
        ranges = [p for r in ranges for p in _parts(r, -(-(r.end - r.start) // most))]
    if not ranges or len(ranges) >= options.partitions_min:
        return ranges
    total = sum(r.end - r.start for r in ranges)
    found: list[Range] = []
    for r in ranges:
        share = -(-(r.end - r.start) * options.partitions_min // total)
        found += _parts(r, share)
    return found


def _parts(range_: Range, count: int) -> list[Range]:
    events = range_.end - range_.start
    count = max(1, min(count, events))
    marks = [range_.start + events * n // count for n in range(count + 1)]
    size = range_.stored_bytes // count
    return [
        replace(range_, start=first, end=end, stored_bytes=size) for first, end in pairwise(marks)
    ]


def packed(ranges: Sequence[Range], target: int, most: int, *, alone: bool = False) -> list[Ranges]:
    """Partitions of about `target` bytes, up to `most`: small ranges of one shard together, shards
    in turn, those of one shard even.

    `alone`: every range by itself (the user has asked for a number of partitions).
    """
    by_shard: dict[str, list[Range]] = {}
    for range_ in ranges:
        by_shard.setdefault(range_.source.access.endpoints[0], []).append(range_)
    shards = [
        [[range_] for range_ in found] if alone else _filled(found, target, most)
        for found in by_shard.values()
    ]
    return [
        Ranges(groups[turn])
        for turn in range(max(map(len, shards), default=0))
        for groups in shards
        if turn < len(groups)
    ]


def _filled(ranges: Sequence[Range], target: int, most: int) -> list[list[Range]]:
    """Ranges in groups of one size, about: a range goes where its middle lies."""
    total = sum(range_.stored_bytes for range_ in ranges)
    share = total / max(1, total // target, -(-total // most))
    groups: list[list[Range]] = []
    before = filled = 0
    for range_ in ranges:
        size = range_.stored_bytes
        if not groups or before + size / 2 > len(groups) * share or filled + size > most:
            groups.append([])
            filled = 0
        groups[-1].append(range_)
        filled += size
        before += size
    return groups
