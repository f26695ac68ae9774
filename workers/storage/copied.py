"""The log of a generation that is not the core's: groups that its members send, put in their place.

A replica that was away fetches what it lacks of older generations while it already follows the
newest one. The files come out as on every other replica, byte for byte.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from barco.workers.storage import layout, scan
from barco.workers.storage.bulk import BulkIo
from barco.workers.storage.errors import explain, fsync_directory


@dataclass(slots=True)
class Position:
    """The end of a log: its last stable group, and where the next one comes to stand."""

    tail: int = 0
    header_crc: int = 0
    segment: int = -1
    offset: int = 0


class CopiedLog:
    """Appends to one generation's files. One call at a time."""

    def __init__(self, shard: Path, bulk: BulkIo, tags: scan.Tags, position: Position) -> None:
        self._shard = shard
        self._bulk = bulk
        self._tags = tags
        self.position = position

    def check(self, group: bytes | bytearray, gseq: int, prev_crc: int) -> scan.GroupHeader:
        """The header of the group that must be this one; ValueError says what is wrong with it."""
        header, tags = scan.parse_header(group), self._tags
        if header is None or header.group_bytes != len(group):
            raise ValueError("not a group")
        own = (tags.cluster_uuid, tags.token, tags.epoch, tags.session)
        if (header.cluster_uuid, header.token, header.epoch, header.session) != own:
            raise ValueError("a group of another generation")
        if (header.gseq, header.prev_crc) != (gseq, prev_crc):
            raise ValueError(f"group {header.gseq} does not follow group {gseq - 1}")
        if not scan.body_intact(header, group):
            raise ValueError("the body's checksum is wrong")
        return header

    async def append(self, groups: list[bytes | bytearray]) -> Position:
        """Writes the next groups; stable when it returns. ValueError or BarcoError: none counts.

        They are written as few at a time as rule S5 wants: a header's durable_upto is true here.
        """
        end = self.position
        writes: list[_Write] = []
        wrong: ValueError | None = None
        for group in groups:
            try:
                header = self.check(group, end.tail + 1, end.header_crc)
            except ValueError as error:
                wrong = error  # What came before it is kept.
                break
            rolls = header.segment_index != end.segment
            if rolls or not writes or header.durable_upto > writes[-1].after:
                path = layout.segment_path(self._shard, self._tags.epoch, header.segment_index)
                writes.append(_Write(path, 0 if rolls else end.offset, end.tail, []))
            writes[-1].groups.append(group)
            offset = len(group) + (0 if rolls else end.offset)
            end = Position(header.gseq, header.header_crc, header.segment_index, offset)
        # One turn of a thread for all: this process runs seldom on a busy machine.
        await self._bulk.run(_write_all, writes)
        self.position = end
        if wrong is not None:
            raise wrong
        return end


class _Write(NamedTuple):
    """Groups that may become stable together."""

    path: Path
    offset: int
    after: int
    """The last group that is stable when they are written."""
    groups: list[bytes | bytearray]


def _write_all(writes: list[_Write]) -> None:
    """One is stable before the next is begun."""
    for each in writes:
        _write(each.path, each.offset, b"".join(each.groups))


def _write(path: Path, offset: int, data: bytes) -> None:
    try:
        new = not path.exists()
        if new:
            layout.make_directory(path.parent)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            view = memoryview(data)
            while view:
                done = os.pwrite(fd, view, offset)
                view, offset = view[done:], offset + done
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise explain(error, path, "append to") from error
    if new:
        fsync_directory(path.parent)
