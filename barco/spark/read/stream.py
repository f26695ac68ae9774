"""`spark.readStream.format("barco")`: positions in Spark's checkpoint, every event exactly once.

A position is {"topic": {"<token>/<index>": "<cursor>"}}: for each slice the next offset, and the
generation in which the reader saw it. Spark compares positions as text, so keys are always in the
same order, and where nothing is new the very same position is given back.
"""

import time
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from barco.arrow.decode import Projection
from barco.errors import NotFoundError
from barco.protocol.cursor import Cursor
from barco.spark.base.fetch import Brokers, DataLossError
from barco.spark.base.options import ReadOptions
from barco.spark.read.group import GroupPositions
from barco.spark.read.plan import (
    Range,
    Ranges,
    Slice,
    check_places,
    is_read,
    range_of,
    slices_of,
    split_bytes_of,
    start_of,
    wanted,
)
from barco.spark.read.reader import look_up_times, read_ranges, tasks_of, topics_of
from barco.types import Epoch, Offset

CUT_EVENTS_MIN = 50_000
"""Micro-batches with fewer events are not worth a look at the brokers' indexes."""

BEHIND_SECONDS, BEHIND_PAUSE_S = 30.0, 0.2
"""How long a slice may seem shorter than it was: a fail-over takes less, and a step of a ring that
grows, also on a busy machine. Who speaks of lost data ends a query."""

Position = dict[str, dict[str, str]]
Ends = dict[tuple[str, str], Cursor]
"""By topic and name of the slice."""


def position(places: Mapping[tuple[str, str], Cursor]) -> Position:
    """As the checkpoint has it: sorted."""
    found: Position = {}
    for (topic, name), cursor in sorted(places.items()):
        found.setdefault(topic, {})[name] = str(cursor)
    return found


def places_of(given: Mapping[str, Mapping[str, str]]) -> Ends:
    """The opposite; ValueError if it is none of ours."""
    return {
        (topic, name): Cursor.parse(cursor)
        for topic, slices in given.items()
        for name, cursor in slices.items()
    }


def limited(start: Ends, end: Ends, rows_max: int) -> Ends:
    """An end with about so many events, shared in proportion to what each slice has.

    At least one event of every slice that has any: none starves.
    """
    news = {key: cursor.offset - _offset(start, key, cursor) for key, cursor in end.items()}
    total = sum(news.values())
    if total <= rows_max:
        return end
    found: Ends = {}
    for key, cursor in end.items():
        begin = _offset(start, key, cursor)
        share = min(news[key], max(1, news[key] * rows_max // total)) if news[key] else 0
        whole = share == news[key]
        epoch = cursor.epoch if whole or key not in start else start[key].epoch
        found[key] = cursor if whole else Cursor(epoch, Offset(begin + share))
    return found


def _offset(places: Ends, key: tuple[str, str], default: Cursor) -> int:
    return places[key].offset if key in places else default.offset


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The driver's side lives as long as the query, in a process of its own."""

    def __init__(self, options: ReadOptions, projection: Projection) -> None:
        self._options = options
        self._projection = projection
        self._slices: dict[tuple[str, str], Slice] = {}
        self._now = False
        self._target: Ends | None = None
        self._newest: Position | None = None
        self._held_since: float | None = None
        self._group: GroupPositions | None = None
        if options.group is not None:
            self._group = GroupPositions(options.group, options.access)

    # --- Positions ------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins: at the end unless the user says otherwise."""
        self._look()
        check_places(self._slices.values(), self._options)
        brokers = self._brokers()
        topics = sorted({topic for topic, _ in self._slices})
        times = look_up_times(brokers, topics, self._options.starting.times())
        return position(
            {
                key: Cursor(
                    Epoch(slice_.epoch), Offset(start_of(slice_, self._options, times, "latest"))
                )
                for key, slice_ in self._slices.items()
            }
        )

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next micro-batch goes; `start` itself if there is nothing new."""
        begin = places_of(start)
        ends = self._look_again(begin)
        self._newest = position(begin | ends)
        self._tell(begin)
        if self._now and self._target is None:
            self._target = ends
        if self._target is not None:
            ends = {key: min(end, self._target[key], key=_by_offset)
                    for key, end in ends.items() if key in self._target}  # fmt: skip
        full = self._forward(begin, ends)
        new = sum(end.offset - begin[key].offset for key, end in full.items() if key in begin)
        if not new and full.keys() == begin.keys():
            return start
        if isinstance(limit, ReadMaxRows):
            full = limited(begin, full, limit.max_rows)
        return start if self._too_few(new) else position(full)

    def _tell(self, begin: Ends) -> None:
        """Spark asks for the next batch when the last one is stored; `commit` it calls later, and
        for the last batch of a run never."""
        if self._group is None:
            return
        places: dict[str, dict[int, Cursor]] = {}
        for (topic, name), cursor in begin.items():
            if (slice_ := self._slices.get((topic, name))) is not None:
                places.setdefault(topic, {})[slice_.partition] = cursor
        self._group.tell(places)

    def getDefaultReadLimit(self) -> ReadLimit:
        """maxOffsetsPerTrigger."""
        most = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of every slice, for the progress of the query."""
        return self._newest

    def prepareForTriggerAvailableNow(self) -> None:
        """What is there now is all that this run reads: now is when it first asks, because the
        position says then which answer to believe."""
        self._now, self._target = True, None

    def _forward(self, begin: Ends, ends: Ends) -> Ends:
        """From `begin` as far as `ends`: new slices from their start, none ever back."""
        found = dict(begin)
        for key, end in ends.items():
            slice_ = self._slices[key]
            first = begin.get(key)
            if first is None:
                # The position names the start, so that the batch after it begins there.
                found[key] = Cursor(Epoch(slice_.epoch), Offset(slice_.start))
            elif end.offset < first.offset:
                self._lost(
                    f"topic {key[0]}, slice {key[1]} ends at offset {end.offset}, before the "
                    f"position {first.offset} of the query"
                )
                found[key] = end
            elif end.offset > first.offset:
                found[key] = end
        return found

    def _too_few(self, new: int) -> bool:
        """Whether minOffsetsPerTrigger says to wait a little longer."""
        least = self._options.offsets_per_trigger_min
        if least is None or new >= least or self._target is not None:
            self._held_since = None
            return False
        now = time.monotonic()
        self._held_since = self._held_since or now
        if now - self._held_since < self._options.trigger_delay_s:
            return True
        self._held_since = None
        return False

    # --- Events ---------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The events between two positions: after a restart exactly those of the first time."""
        begin, until = places_of(start), places_of(end)
        options = self._options
        new = sum(c.offset - _offset(begin, key, c) for key, c in until.items())
        if new > CUT_EVENTS_MIN:
            self._look(split_bytes_of(options))
        elif any(key not in self._slices for key in until):
            self._look()
        ranges: list[tuple[Range, Slice]] = []
        for key, cursor in until.items():
            first: int = begin[key].offset if key in begin else cursor.offset
            if cursor.offset <= first:
                continue
            slice_ = self._slices.get(key)
            if slice_ is None:
                self._lost(f"topic {key[0]}, slice {key[1]} does not exist any more")
                continue
            if first < slice_.start:
                self._lost(
                    f"topic {key[0]}, slice {key[1]}: the events from offset {first} to "
                    f"{slice_.start} are gone"
                )
                first = min(slice_.start, cursor.offset)
            ranges.append((range_of(slice_, first, cursor.offset, options.access), slice_))
        return list[InputPartition](tasks_of(ranges, options))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Arrow batches of one partition's ranges."""
        assert isinstance(partition, Ranges)
        yield from read_ranges(partition.ranges, self._options, self._projection)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: Spark's checkpoint is where the positions are."""

    def stop(self) -> None:
        """Nothing is held open between batches."""

    # --- The brokers ----------------------------------------------------------------------------

    def _brokers(self) -> Brokers:
        return Brokers(self._options.access, self._options.timeout_s)

    def _look(self, split_bytes: int = 0) -> Ends:
        """The ends of all slices, as they are now; with `split_bytes` also where to cut them."""
        brokers = self._brokers()
        found: dict[tuple[str, str], Slice] = {}
        for topic in topics_of(brokers, self._options):
            try:
                described = brokers.slices(topic, split_bytes=split_bytes)
            except NotFoundError:
                continue  # It has not been written to yet: from its first event on, then.
            for slice_ in wanted(slices_of(topic, described), self._options):
                found[topic, slice_.name] = slice_
        self._slices = found
        return {key: Cursor(Epoch(s.epoch), Offset(s.end)) for key, s in found.items()}

    def _look_again(self, begin: Ends) -> Ends:
        """The ends; for a while not such as lie before a position. While a slice has no leader,
        another replica tells of it, which may not have heard yet how far the leader came."""
        deadline = time.monotonic() + BEHIND_SECONDS
        while True:
            ends = self._look()
            behind = any(end.offset < _offset(begin, key, end) for key, end in ends.items())
            gone = self._gone(begin, ends)
            if not behind and not (gone and self._options.fail_on_data_loss):
                return ends
            if time.monotonic() > deadline:
                for topic in gone:
                    self._lost(f"topic {topic} does not exist any more")
                return ends
            time.sleep(BEHIND_PAUSE_S)

    def _gone(self, begin: Ends, ends: Ends) -> list[str]:
        """Topics that the query has read, is still to read, and does not find."""
        gone = {topic for topic, _ in begin} - {topic for topic, _ in ends}
        return sorted(topic for topic in gone if is_read(topic, self._options))

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{what}; failOnDataLoss=false goes on with what there is")


class RefusedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says what is wrong with options or schema when it is first asked: where none is made at all,
    Spark 4.3 tells of a variable that it has not set."""

    def __init__(self, error: ValueError) -> None:
        self._error = error

    def _refuse(self, *_: object) -> NoReturn:
        raise self._error

    initialOffset: Any = _refuse
    latestOffset: Any = _refuse
    partitions: Any = _refuse
    read: Any = _refuse
    getDefaultReadLimit: Any = _refuse
    reportLatestOffset: Any = _refuse
    prepareForTriggerAvailableNow: Any = _refuse


def _by_offset(cursor: Cursor) -> int:
    return cursor.offset
