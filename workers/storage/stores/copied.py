"""The log of a generation that is not the core's: groups that its members send, put in their place.

A replica that was away fetches what it lacks of older generations while it already follows the
newest one. The files come out as on every other replica, byte for byte.
"""

from pathlib import Path

from msgspec import Struct

from barco.workers.storage.files import kept, layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.index import scan


class Position(Struct):
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
        """Writes the next groups; stable when it returns. ValueError or BarcoError: see `position`.

        One after the other where rule S5 wants it, or all at once where they are kept first.
        """
        at = 0
        while at < len(groups):
            row, end = self.row(groups[at:])
            if not row:  # It opens a segment, or is not the next one.
                header = self.check(groups[at], end.tail + 1, end.header_crc)
                row = groups[at : at + 1]
                offset = header.group_bytes
                if header.segment_index == end.segment:
                    offset += end.offset
                end = Position(header.gseq, header.header_crc, header.segment_index, offset)
            start = 0 if end.segment != self.position.segment else self.position.offset
            await self._bulk.run(_write_row, self._shard, self._tags.epoch, end.segment, start, row)
            at += len(row)
            self.position = end
        return end

    def row(self, groups: list[bytes | bytearray]) -> tuple[list[bytes | bytearray], Position]:
        """Those that come next in the segment where the log ends, and the end behind them.

        At most ROW_BYTES_MAX, and none that is not as it must be.
        """
        end, row, length = self.position, [], 0
        for group in groups:
            try:
                header = self.check(group, end.tail + 1, end.header_crc)
            except ValueError:
                break
            length += len(group)
            if header.segment_index != end.segment or length > kept.ROW_BYTES_MAX:
                break
            row.append(group)
            offset = end.offset + len(group)
            end = Position(header.gseq, header.header_crc, end.segment, offset)
        return row, end


def _write_row(
    shard: Path, epoch: int, segment: int, offset: int, row: list[bytes | bytearray]
) -> None:
    data = b"".join(row)
    if len(row) > 1:
        kept.keep(shard, epoch, segment, offset, data)
    kept.write_stable(layout.segment_path(shard, epoch, segment), offset, data)
