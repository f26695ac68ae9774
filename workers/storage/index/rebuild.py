"""Looks at one sealed segment alone: its summary from the headers, or its whole index again.

Pure, as `scan`: generators that yield reads. Unlike recovery they do not stop at a damaged group:
what is behind it in a sealed segment is history, and every chunk is verified when it is read.
"""

from collections.abc import Generator

from barco.limits import PAGE_BYTES
from barco.types import KiB
from barco.workers.storage.index.scan import (
    WINDOW_BYTES,
    Buffer,
    GroupHeader,
    Read,
    SegmentSummary,
    Tags,
    parse_header,
)
from barco.workers.storage.index.sidecar import IndexBuilder

_LEAP_WINDOW_BYTES = 64 * KiB
"""Reading headers only: one read for many small groups, one small read for each large one."""

Walk = Generator[Read, Buffer, SegmentSummary | None]


class _Summary:
    """Grows with each group of a segment."""

    def __init__(self, tags: Tags, index: int, tail: int | None) -> None:
        self.tags, self.index, self.tail = tags, index, tail
        self.session = tags.session
        self.value: SegmentSummary | None = None

    def take(self, header: GroupHeader, at: int) -> bool:
        """Whether this is the segment's next group (a later one after a damaged one)."""
        tags, old = self.tags, self.value
        own = (tags.cluster_uuid, tags.token, tags.epoch, self.index)
        found = (header.cluster_uuid, header.token, header.epoch, header.segment_index)
        # The first group of a file tells the session: nothing that a client sends stands there.
        known = None if at == 0 else self.session
        if own != found or (known is not None and header.session != known):
            return False
        if (self.tail is not None and header.gseq > self.tail) or (
            old is not None and header.gseq <= old.last_gseq
        ):
            return False
        self.session = header.session
        now = header.time_us
        self.value = SegmentSummary(
            self.index,
            old.first_gseq if old else header.gseq,
            header.gseq,
            old.first_prev_crc if old else header.prev_crc,
            header.header_crc,
            at + header.group_bytes,
            min(old.min_time_us, now) if old else now,
            max(old.max_time_us, now) if old else now,
        )
        return True


def read_headers(size: int, index: int, tags: Tags, tail: int | None = None) -> Walk:
    """The summary of a segment that is known to be whole, from its group headers alone."""
    summary = _Summary(tags, index, tail)
    offset, length = 0, _LEAP_WINDOW_BYTES
    while offset < size:
        window = memoryview((yield Read(0, offset, min(length, size - offset))))
        start, header = offset, None
        while offset - start < len(window):
            header = parse_header(window, offset - start)
            if header is None or not summary.take(header, offset):
                return summary.value
            offset += header.group_bytes
        window.release()
        if header is None:
            break
        length = PAGE_BYTES if header.group_bytes >= _LEAP_WINDOW_BYTES else _LEAP_WINDOW_BYTES
    return summary.value


def rebuild_index(
    size: int, index: int, tags: Tags, builder: IndexBuilder, tail: int | None = None
) -> Walk:
    """Fills `builder` with every chunk of the segment that can be found; returns the summary."""
    summary = _Summary(tags, index, tail)
    offset, length = 0, WINDOW_BYTES
    while offset < size:
        window = memoryview((yield Read(0, offset, min(length, size - offset))))
        if len(window) < PAGE_BYTES:
            break
        used, length = _index_window(window, offset, size, summary, builder)
        window.release()
        offset += used
    return summary.value


def _index_window(
    window: memoryview, offset: int, size: int, summary: _Summary, builder: IndexBuilder
) -> tuple[int, int]:
    """(bytes done with, bytes to read next)."""
    at = 0
    while at + PAGE_BYTES <= len(window):
        header = parse_header(window, at)
        if header is None or offset + at + header.group_bytes > size:
            at += PAGE_BYTES  # Zeros, or a damaged header: the next one may be anywhere.
            continue
        if at + header.group_bytes > len(window):
            return at, max(WINDOW_BYTES, header.group_bytes)
        if not summary.take(header, offset + at):
            at += PAGE_BYTES
            continue
        try:
            builder.add(header, window[at : at + header.group_bytes], offset + at)
        except ValueError:
            pass  # A damaged chunk header: its group cannot be found through the index.
        at += header.group_bytes
    return max(at, PAGE_BYTES), WINDOW_BYTES
