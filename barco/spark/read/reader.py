"""`spark.read.format("barco")`: from options to partitions on the driver, from a partition to Arrow
batches in a task."""

import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from barco.arrow.decode import Decoder, Projection
from barco.errors import NotFoundError
from barco.spark.base import cores, named
from barco.spark.base.fetch import Brokers, DataLossError, SliceFetch
from barco.spark.base.options import ReadOptions
from barco.spark.base.settle import settle
from barco.spark.read.again import tell
from barco.spark.read.plan import (
    Frozen,
    Range,
    Ranges,
    Slice,
    check_places,
    cut,
    cut_by_count,
    end_of,
    packed,
    piece_bytes,
    piece_bytes_most,
    range_of,
    request_bytes,
    slices_of,
    split_bytes_of,
    start_of,
    wanted,
)

Times = dict[tuple[str, str], dict[int, int]]
"""By topic and "timestamp:<µs>": the offsets where that time begins, by partition."""


def topics_of(brokers: Brokers, options: ReadOptions) -> list[str]:
    """The topics that are subscribed to; those of a pattern as they are now."""
    if options.pattern is None:
        return list(options.topics)
    return [topic for topic in brokers.topics() if re.fullmatch(options.pattern, topic)]


def look_up(brokers: Brokers, options: ReadOptions, topic: str, split_bytes: int) -> list[Slice]:
    """The slices of one topic; DataLossError if it does not exist."""
    try:
        described = brokers.slices(topic, split_bytes=split_bytes)
    except NotFoundError as error:
        raise DataLossError(f"topic {topic} does not exist: {error}") from None
    return wanted(slices_of(topic, described), options)


def look_up_times(brokers: Brokers, topics: Sequence[str], times: Iterable[str]) -> Times:
    """Where each of some times begins in every slice."""
    found: Times = {}
    for topic in topics:
        for place in times:
            slices = slices_of(topic, brokers.slices(topic, at=place))
            found[topic, place] = {
                each.partition: each.end if each.at is None else each.at for each in slices
            }
    return found


def tasks_of(ranges: Sequence[tuple[Range, Slice]], options: ReadOptions) -> list[Ranges]:
    """What each task reads of some slices."""
    total = sum(range_.stored_bytes for range_, _ in ranges)
    target = piece_bytes(total, options, cores.told())
    most = piece_bytes_most(target, options)
    pieces = [p for range_, slice_ in ranges for p in cut(range_, slice_.splits, target, most)]
    alone = bool(options.partitions_min or options.partition_records_max)
    return packed(cut_by_count(pieces, options), target, most, alone=alone)


def read_ranges(
    ranges: Sequence[Range], options: ReadOptions, projection: Projection
) -> Iterator[pa.RecordBatch]:
    """The events of ranges, each exactly once and in order, whatever happens to the brokers.

    While the last events of one are unpacked, the first of the next one are on their way.
    """
    settle()
    reader = named.reader()
    fetches = [
        SliceFetch(
            range_.source,
            projection.sent,
            fetch_bytes=request_bytes(range_.stored_bytes, options.fetch_bytes),
            timeout_s=options.timeout_s,
            reader=reader,
        )
        for range_ in ranges
    ]
    try:
        for number, range_ in enumerate(ranges):
            after = number + 1
            following = None
            if after < len(ranges):
                start, end = ranges[after].start, ranges[after].end
                following = partial(fetches[after].follow, fetches[number], start, end)
            decoder = Decoder(projection, range_.origin, options.batch_bytes)
            yield from _read_range(range_, fetches[number], decoder, options, following)
            fetches[number].close()
    finally:
        for fetch in fetches:
            fetch.close()


def _read_range(
    range_: Range,
    fetch: SliceFetch,
    decoder: Decoder,
    options: ReadOptions,
    following: Callable[[], None] | None,
) -> Iterator[pa.RecordBatch]:
    at, end = range_.start, range_.end
    while at < end:
        try:
            body, after, projected = fetch.get(at, end)
        except DataLossError as error:
            if options.fail_on_data_loss or error.earliest is None:
                raise
            at = max(at, error.earliest)
            continue
        if after < end:
            fetch.ahead(after, end)
        elif following is not None:
            following()
        try:
            for batch, reached in decoder.batches(body, at, end, projected=projected):
                yield batch
                at = reached
            if at != min(after, end):
                raise ValueError(f"an answer ends at offset {at}, not at {after}")
        except ValueError as error:
            fetch.damaged(str(error))
            continue
        fetch.good()


class BatchReader(DataSourceReader):
    """Reads topics from one set of offsets to another, both fixed when the query is planned.

    It takes no filters (`pushFilters`), whatever the session says: Spark 4.2 and 4.3 keep one plan
    for each DataFrame that was loaded, and a filter of one query would be in the next one's plan.
    """

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection

    def partitions(self) -> list[InputPartition]:
        """Where the slices are now, cut into ranges of a good size."""
        options = self._options
        brokers = Brokers(options.access, options.timeout_s)
        topics = topics_of(brokers, options)
        times = look_up_times(brokers, topics, [*options.starting.times(), *options.ending.times()])
        ranges: list[tuple[Range, Slice]] = []
        split_bytes = split_bytes_of(options)
        slices = [s for topic in topics for s in look_up(brokers, options, topic, split_bytes)]
        check_places(slices, options)
        for slice_ in slices:
            start = start_of(slice_, options, times)
            end = end_of(slice_, options, times)
            if start < end:
                ranges.append((range_of(slice_, start, end, options.access), slice_))
        tasks = list(tasks_of(ranges, options)) or [Ranges(())]
        if not options.ending.given:
            ends = dict.fromkeys(topics, 0)
            for slice_ in slices:
                ends[slice_.topic] += slice_.end
            tasks[0] = Ranges(tasks[0].ranges, Frozen(uuid.uuid4().hex, time.time(), ends))
        return list[InputPartition](tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one partition's ranges, one after the other."""
        assert isinstance(partition, Ranges)
        if partition.frozen is not None:
            tell(partition.frozen, self._options)
        yield from read_ranges(partition.ranges, self._options, self._projection)
