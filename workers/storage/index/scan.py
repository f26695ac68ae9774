"""Walks the append groups of one generation and says where its history ends. Pure: no I/O.

`scan_generation` is a generator: it yields what it wants to read and is sent the bytes, so that
the same code runs on files (through `BulkIo`) and on in-memory crash images.

What is believed (protocol rules S3 and S5): a group counts only if header crc, body crc, every tag
(cluster uuid, token, epoch, session, segment index), gseq = previous + 1 and prev_crc hold. Behind
the first spot that does not, everything is looked through for valid headers; D is the highest
`durable_upto` among them. What is made of the end is in `verdict`: a bad spot at gseq <= D was
stable once, which is corruption. Beyond D it is a torn tail, the end of the log, unless its sectors
tell that it was whole once (`torn`): that is corruption as well.
"""

import struct
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from crc32c import crc32c
from msgspec import Struct, field

from barco.limits import GROUP_BYTES_MAX, GROUP_HEADER_BYTES, PAGE_BYTES
from barco.types import MiB
from barco.workers.storage.files.errors import CorruptLogError, ForeignLogError
from barco.workers.storage.index.torn import body_rotten, header_rotten
from barco.workers.storage.index.verdict import CORRUPT, Seen, judge, stable_upto

MAGIC = b"BGRP"
VERSION = 1
GEN_START, SNAPSHOT, HEARTBEAT, SEAL = 1, 2, 4, 8

WINDOW_BYTES = 4 * MiB
"""Asked for at once: four units of 1 MiB, read in parallel."""

# As native/format/group.c has it, the only other place; reserved bytes are before the header's crc.
_HEADER = struct.Struct("<4sHH16sqQQQIIQQQIIIII4xQ4xI")
assert _HEADER.size == GROUP_HEADER_BYTES
_CRC_AT = GROUP_HEADER_BYTES - 4
_ZEROS = bytes(WINDOW_BYTES)
_ZERO, _FULL = "zeros", "the segment is full"
_ROTTEN = ", though it was whole once"

Buffer = bytes | bytearray | memoryview


class GroupHeader(NamedTuple):
    """The header of an append group, in the order of its fields on disk."""

    magic: bytes
    version: int
    flags: int
    cluster_uuid: bytes
    token: int
    epoch: int
    session: int
    gseq: int
    prev_crc: int
    body_crc: int
    durable_upto: int
    committed: int
    wall_us: int
    """The leader's wall clock."""
    body_bytes: int
    chunk_count: int
    group_bytes: int
    segment_index: int
    blank_sectors: int
    log_us: int
    """The log's own clock; 0: written by an earlier version."""
    header_crc: int

    @property
    def time_us(self) -> int:
        """When it was appended, by the log's own clock: what ages are reckoned from."""
        return self.log_us or self.wall_us


class Read(NamedTuple):
    """A wish: `length` bytes of the `which`-th segment from `offset` on (both page multiples)."""

    which: int
    offset: int
    length: int


class Tags(Struct, frozen=True):
    """What every group of a generation carries; a group with other tags is somebody else's."""

    cluster_uuid: bytes
    token: int
    epoch: int
    session: int | None = None
    """None: that of the first group is taken."""


class SegmentSummary(Struct, frozen=True):
    """What is known of a whole segment, from walking it or from its sidecar."""

    index: int
    first_gseq: int
    last_gseq: int
    first_prev_crc: int
    last_header_crc: int
    end_bytes: int
    min_time_us: int
    max_time_us: int
    """Of its groups, by the log's own clock."""


class SegmentSource(Struct, frozen=True):
    """A segment to scan. With a `summary` of its sidecar its body may be skipped."""

    index: int
    size: int
    name: str
    summary: SegmentSummary | None = None


class ScanResult(Struct):
    """Where the history of a generation ends, and what was seen on the way."""

    tail: int = 0
    """T: the gseq of the last group that counts; 0 when there is none."""
    last_crc: int = 0
    session: int | None = None
    end_segment: int = 0
    end_bytes: int = 0
    groups: int = 0
    """Walked now; groups of skipped segments are not counted."""
    bytes: int = 0
    torn_bytes: int = 0
    """Not zero, behind the end: appends that were never acknowledged."""
    durable: int = 0
    """D of rule S5."""
    committed: int = 0
    """The highest group that a header says was committed."""
    stop: str = "end"
    """end (zeros only behind it), torn, sealed (at the tail given) or lost (given up)."""
    reason: str = ""
    bad_at: tuple[int, int] = (0, 0)
    """(segment index, byte) where the chain stops, for messages."""
    seen: Seen = field(default_factory=Seen)
    """What its end was judged by."""
    lost: tuple[int, int] | None = None
    """With `accept_loss`: (first, last known) gseq behind a corruption."""
    segments: list[SegmentSummary] = field(default_factory=list)
    used_bytes: dict[int, int] = field(default_factory=dict)
    """Per segment index: up to where its file has something other than zeros."""


OnGroup = Callable[[GroupHeader, memoryview, int, int], None]
"""Called for each group that counts: header, its bytes, segment index, position in the file."""

Scan = Generator[Read, Buffer, ScanResult]


def parse_header(buffer: Buffer, at: int = 0) -> GroupHeader | None:
    """The valid group header at `at`, or None: magic, version, crc and sizes are checked."""
    if buffer[at : at + 4] != MAGIC or len(buffer) - at < GROUP_HEADER_BYTES:
        return None
    header = GroupHeader._make(_HEADER.unpack_from(buffer, at))
    if header.header_crc != crc32c(buffer[at : at + _CRC_AT]) or header.version != VERSION:
        return None
    padded = -(-(GROUP_HEADER_BYTES + header.body_bytes) // PAGE_BYTES) * PAGE_BYTES
    return header if header.group_bytes == padded <= GROUP_BYTES_MAX else None


def body_intact(header: GroupHeader, group: Buffer) -> bool:
    """Whether the body's checksum holds; `group` starts with the header."""
    body = group[GROUP_HEADER_BYTES : GROUP_HEADER_BYTES + header.body_bytes]
    return len(body) == header.body_bytes and crc32c(body) == header.body_crc


def run(scan: Scan, read_at: Callable[[Read], Buffer]) -> ScanResult:
    """Drives a scan over bytes that are at hand."""
    try:
        wish = next(scan)
        while True:
            wish = scan.send(read_at(wish))
    except StopIteration as end:
        result: ScanResult = end.value
        return result


def scan_generation(
    segments: Sequence[SegmentSource],
    tags: Tags,
    on_group: OnGroup | None = None,
    *,
    first: tuple[int, int] = (1, 0),
    tail: int | None = None,
    accept_loss: bool = False,
) -> Scan:
    """Walks all segments in order (ascending index) up to the end of the history.

    `first`: gseq and prev_crc of the first group that retention has left: what is missing between
    it and the first one found was lost. `tail`: the agreed T of a sealed generation; nothing behind
    it counts, everything before has to be there. `on_group` is called for the groups of every
    segment that is not skipped, which always includes the last one in use; a segment's first group
    is a snapshot, so that is enough to rebuild the state. Called again from a
    snapshot on when a sidecar proves wrong.

    Raises CorruptLogError (rule S5); with `accept_loss` the result says what is given up.
    """
    skip = yield from _skippable(segments)
    while True:
        walk = _Walk(segments, tags, on_group, first, tail)
        distrusted = yield from walk.run(skip)
        if distrusted is None:
            break
        skip = {which for which in skip if which < distrusted}
    yield from walk.examine_rest()
    return walk.finish(accept_loss)


def _skippable(segments: Sequence[SegmentSource]) -> Generator[Read, Buffer, set[int]]:
    """Segments with a summary that are followed by a segment in use: no need to walk them."""
    if not any(segment.summary for segment in segments):
        return set()
    last = len(segments) - 1
    while last > 0:
        first_page = yield Read(last, 0, min(PAGE_BYTES, segments[last].size))
        if bytes(first_page).strip(b"\0"):
            break
        last -= 1
    return {which for which in range(last) if segments[which].summary}


class _Walk:
    """One pass over the segments; the state of the chain."""

    def __init__(
        self,
        segments: Sequence[SegmentSource],
        tags: Tags,
        on_group: OnGroup | None,
        first: tuple[int, int],
        tail: int | None,
    ) -> None:
        self.segments = segments
        self.tags = tags
        self.on_group = on_group
        self.tail_wanted = tail
        self.result = ScanResult(session=tags.session)
        self.first = first
        self.started = False
        self.stop_at: tuple[int, int] | None = None  # Behind it everything is examined.
        self.bad_at = (0, 0)  # What is wrong is here: where the message points.
        self.missing = False
        self.seen_gseq = 0
        self._open: list[int] = []  # Summary of the segment being walked, as it grows.

    # --- Walking ---------------------------------------------------------------------------

    def run(self, skip: set[int]) -> Generator[Read, Buffer, int | None]:
        """Walks until the first bad spot. Not None: this segment's sidecar must not be believed."""
        result = self.result
        if self.tail_wanted == 0:
            return None
        for which, segment in enumerate(self.segments):
            if which and segment.index != self.segments[which - 1].index + 1:
                self.missing = True
                self._stop(which, 0, f"segment {segment.index - 1} is missing")
                return None
            if which in skip:
                if not self._skip(segment):
                    return which
                continue
            before = result.tail
            offset, reason = yield from self._walk_segment(which, segment)
            if result.tail == before:
                if which - 1 in skip:
                    return which - 1  # Only its sidecar says that the chain came so far.
                self._stop(which, offset, reason)
                return None
            self.stop_at = self.bad_at = (which, offset)
            result.reason = reason
            if result.tail == self.tail_wanted:
                return None
        return None

    def _stop(self, which: int, offset: int, reason: str) -> None:
        """The chain does not go on in this segment: did it end here, or in the one before?"""
        if self.stop_at is None:
            self.stop_at = self.bad_at = (which, offset)
            self.result.reason = reason
        elif self.result.reason in (_ZERO, _FULL) and reason != _ZERO:
            # The one before was left in order, so what is wrong is the start of this one.
            self.bad_at, self.result.reason = (which, offset), reason

    def _skip(self, segment: SegmentSource) -> bool:
        summary, result = segment.summary, self.result
        assert summary is not None
        if (summary.first_gseq, summary.first_prev_crc) != self._link():
            return False
        if summary.end_bytes > segment.size or summary.index != segment.index:
            return False
        if self.tail_wanted is not None and summary.last_gseq >= self.tail_wanted:
            return False  # The history ends in it, and the state is rebuilt from there.
        self.started = True
        result.tail, result.last_crc = summary.last_gseq, summary.last_header_crc
        result.end_segment, result.end_bytes = segment.index, summary.end_bytes
        result.segments.append(summary)
        return True

    def _walk_segment(
        self, which: int, segment: SegmentSource
    ) -> Generator[Read, Buffer, tuple[int, str]]:
        """Where the chain stops in this segment, and why."""
        self._open = []
        offset, wanted, reason = 0, WINDOW_BYTES, _FULL
        while offset < segment.size:
            length = min(wanted, segment.size - offset)
            window = memoryview((yield Read(which, offset, length)))
            used, wanted, reason = self._walk_window(segment, offset, window)
            short = len(window) < length
            window.release()
            offset += used
            if wanted == 0:
                break
            if short:
                reason = "the file is shorter than it was"
                break
            reason = _FULL
        if self._open:
            self.result.segments.append(SegmentSummary(segment.index, *self._open))
        return offset, reason

    def _walk_window(
        self, segment: SegmentSource, offset: int, window: memoryview
    ) -> tuple[int, int, str]:
        """(bytes that counted, bytes to read next or 0 at the chain's end, why it ends)."""
        at = 0
        while at < len(window):
            header = parse_header(window, at)
            if header is None:
                return at, 0, _describe(window[at : at + PAGE_BYTES])
            first = offset + at == 0 and self.result.tail == 0
            if first and self._not_ours_at_all(header):
                raise ForeignLogError(segment.name, header.token, header.cluster_uuid.hex())
            reason = self._refuse(header, segment)
            if reason:
                return at, 0, reason
            end = at + header.group_bytes
            if offset + end > segment.size:
                return at, 0, "the group is longer than its file"
            if end > len(window):
                return at, max(WINDOW_BYTES, header.group_bytes), ""
            if not body_intact(header, window[at:end]):
                return at, 0, _describe_body(header, window[at:end])
            self._accept(header, window[at:end], segment.index, offset + at)
            at = end
            if self.result.tail == self.tail_wanted:
                return at, 0, "sealed here"
        return at, WINDOW_BYTES, ""

    def _not_ours_at_all(self, header: GroupHeader) -> bool:
        """Whether a file begins with a sound group of this epoch, but of another shard.

        Epochs are unique within a range, so such a file has been brought here. Its first group
        also tells the session: nothing that a client sends comes to stand there.
        """
        tags = self.tags
        if (header.epoch, header.segment_index) != (tags.epoch, self.segments[0].index):
            return False
        if (header.cluster_uuid, header.token) != (tags.cluster_uuid, tags.token):
            return True
        if header.gseq == 1:
            self.result.session = header.session
        return False

    def _refuse(self, header: GroupHeader, segment: SegmentSource) -> str:
        """Why a valid header is not the next group of this generation; empty when it is."""
        if not self._ours(header, segment.index):
            return "a group of another generation, segment or broker"
        gseq, prev_crc = self._link()
        if not self.started and not header.flags & (SNAPSHOT | GEN_START):
            return "not a snapshot"
        if header.gseq != gseq:
            self.missing = self.missing or (not self.started and header.gseq > gseq)
            return f"group {header.gseq} stands here"
        return "" if header.prev_crc == prev_crc else "not chained to the group before"

    def _link(self) -> tuple[int, int]:
        """What the next group must be, and follow on."""
        return (self.result.tail + 1, self.result.last_crc) if self.started else self.first

    def _ours(self, header: GroupHeader, index: int) -> bool:
        tags, session = self.tags, self.result.session
        return (
            header.epoch == tags.epoch
            and header.cluster_uuid == tags.cluster_uuid
            and header.token == tags.token
            and header.segment_index == index
            and (session is None or header.session == session)
        )

    def _accept(self, header: GroupHeader, group: memoryview, index: int, at: int) -> None:
        if self.on_group is not None:
            self.on_group(header, group, index, at)
        result = self.result
        self.started = True
        result.session = header.session
        result.tail, result.last_crc = header.gseq, header.header_crc
        result.durable = max(result.durable, header.durable_upto)
        result.committed = max(result.committed, header.committed)
        end = at + header.group_bytes
        result.end_segment, result.end_bytes = index, end
        result.groups += 1
        result.bytes += header.group_bytes
        result.used_bytes[index] = end
        now = header.time_us
        if not self._open:
            self._open = [header.gseq, 0, header.prev_crc, 0, 0, now, now]
        entry = self._open
        entry[1], entry[3], entry[4] = header.gseq, header.header_crc, end
        entry[5], entry[6] = min(entry[5], now), max(entry[6], now)

    # --- Behind the end --------------------------------------------------------------------

    def examine_rest(self) -> Generator[Read, Buffer, None]:
        """Looks through everything behind the bad spot for headers, for D, and for non-zeros."""
        if self.stop_at is None:
            return
        first, start = self.stop_at
        for which in range(first, len(self.segments)):
            segment = self.segments[which]
            offset = start if which == first else 0
            while offset < segment.size:
                length = min(WINDOW_BYTES, segment.size - offset)
                window = memoryview((yield Read(which, offset, length)))
                if not _is_zero(window):
                    self._examine(window, segment.index, offset)
                window.release()
                offset += length

    def _examine(self, window: memoryview, index: int, offset: int) -> None:
        result = self.result
        for at in range(0, len(window), PAGE_BYTES):
            page = window[at : at + PAGE_BYTES]
            if _is_zero(page):
                continue
            result.torn_bytes += len(page)
            result.used_bytes[index] = offset + at + len(page)
            header = parse_header(page)
            if header is None or not self._ours(header, index):
                continue
            # The session is a secret of the log, so bytes of an event cannot pass as a header.
            if header.durable_upto < header.gseq:
                result.durable = max(result.durable, header.durable_upto)
                self.seen_gseq = max(self.seen_gseq, header.gseq)

    def finish(self, accept_loss: bool) -> ScanResult:
        """How it ends: end, torn, sealed, lost; or CorruptLogError."""
        result, wanted = self.result, self.tail_wanted
        if self.segments:
            result.bad_at = (self.segments[self.bad_at[0]].index, self.bad_at[1])
        seen = result.seen = Seen(
            result.tail,
            result.last_crc,
            result.committed,
            result.durable,
            result.reason.endswith(_ROTTEN),
            self.missing,
            result.torn_bytes > 0,
        )
        result.stop = judge(seen, wanted)
        if result.stop == CORRUPT:
            bad, durable = result.tail + 1, stable_upto(seen, wanted)
            which, offset = self.bad_at
            if not accept_loss:
                name = self.segments[which].name if self.segments else "the generation"
                raise CorruptLogError(name, offset, bad, result.reason, durable=durable)
            result.stop = "lost"
            result.lost = (bad, max(durable, self.seen_gseq, bad))
        return result


def _describe(page: memoryview) -> str:
    if _is_zero(page):
        return _ZERO
    reason = "the header's checksum is wrong" if page[:4] == MAGIC else "not a group header"
    return reason + _ROTTEN * header_rotten(page)


def _describe_body(header: GroupHeader, group: memoryview) -> str:
    rotten = body_rotten(group, header.body_bytes, header.blank_sectors)
    return "the body's checksum is wrong" + _ROTTEN * rotten


def _is_zero(view: memoryview) -> bool:
    return view.tobytes() == (_ZEROS if len(view) == WINDOW_BYTES else _ZEROS[: len(view)])
