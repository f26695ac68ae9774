"""Whole groups of any generation by number, as they stand in the segments: for `Fetch`."""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from barco.limits import PAGE_BYTES
from barco.types import KiB, MiB
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.errors import explain
from barco.workers.storage.index.catalog import FileCache, SegmentKey
from barco.workers.storage.index.scan import GroupHeader, body_intact, parse_header

WINDOW_BYTES = 1 * MiB
HEADERS_WINDOW_BYTES = 64 * KiB
"""Looking for a group, only headers are read."""

SPOTS_MAX = 4096
"""Where groups stand, of those looked at last: whoever catches up comes back for the next one."""


class Spot(NamedTuple):
    """Where a group stands."""

    segment: int
    offset: int


class GroupFiles:
    """Reads groups, and gives only what is sound."""

    def __init__(self, shard: Path, bulk: BulkIo, files: FileCache) -> None:
        self._shard = shard
        self._bulk = bulk
        self._files = files
        self._spots: OrderedDict[tuple[int, int], Spot] = OrderedDict()
        self._firsts: dict[SegmentKey, int] = {}
        self.damage: Callable[[SegmentKey], None] = lambda key: None
        """Hears where a group that must be there is not, or is damaged."""

    async def read(
        self, epoch: int, first: int, last: int, bytes_max: int
    ) -> list[tuple[GroupHeader, bytes]]:
        """Groups from `first` to `last`, fewer where that is more than `bytes_max`, but one.

        None at all if retention has removed it. Raises BarcoError when the disk fails.
        """
        spot = await self.find(epoch, first)
        segment = spot.segment if spot is not None else -1
        found: list[tuple[GroupHeader, bytes]] = []
        want, total = first, 0
        while spot is not None and want <= last:
            groups, length = await self._window(epoch, spot, want, WINDOW_BYTES)
            if not groups and length > WINDOW_BYTES:
                groups, length = await self._window(epoch, spot, want, length)
            for header, group in groups:
                if header.gseq > last or (found and total + len(group) > bytes_max):
                    return found
                found.append((header, group))
                total += len(group)
                want, spot = want + 1, Spot(spot.segment, spot.offset + len(group))
            if not groups:
                spot = await self._next_segment(epoch, spot, want)
            if spot is not None:
                segment = spot.segment
                self._remember(epoch, want, spot)
        if want <= last:
            self.damage(SegmentKey(epoch, segment if segment >= 0 else self._nearest(epoch, want)))
        return found

    def _nearest(self, epoch: int, gseq: int) -> int:
        """The segment that should have a group, as far as the others' first ones tell."""
        known = [
            key.segment
            for key, first in self._firsts.items()
            if key.epoch == epoch and first <= gseq
        ]
        return max(known, default=0)

    async def end_of(self, epoch: int, gseq: int) -> Spot | None:
        """Where a group ends; None: it is not here."""
        spot = await self.find(epoch, gseq)
        header = await self._header(epoch, gseq, spot)
        if spot is None or header is None:
            return None
        return Spot(spot.segment, spot.offset + header.group_bytes)

    async def header_crc(self, epoch: int, gseq: int) -> int | None:
        """Of a group's header; None: it is not here."""
        header = await self._header(epoch, gseq, await self.find(epoch, gseq))
        return None if header is None else header.header_crc

    async def _header(self, epoch: int, gseq: int, spot: Spot | None) -> GroupHeader | None:
        if spot is None:
            return None
        page = await self._read(SegmentKey(epoch, spot.segment), spot.offset, PAGE_BYTES)
        header = parse_header(page)
        return header if header is not None and header.gseq == gseq else None

    async def find(self, epoch: int, gseq: int) -> Spot | None:
        """Where a group begins, or would begin in the last segment; None: it is not here."""
        known = self._spots.get((epoch, gseq))
        if known is not None:
            return known
        chosen: int | None = None
        for index in layout.segment_indexes(self._shard, epoch):
            first = await self._first(SegmentKey(epoch, index))
            if first is None or first > gseq:
                break
            chosen = index
        if chosen is None:
            return None
        return await self._walk(epoch, chosen, gseq)

    async def _walk(self, epoch: int, segment: int, gseq: int) -> Spot | None:
        offset = 0
        while True:
            view = await self._read(SegmentKey(epoch, segment), offset, HEADERS_WINDOW_BYTES)
            at = 0
            while at < len(view):
                header = parse_header(view, at)
                if header is None or header.epoch != epoch or header.gseq > gseq:
                    return None
                if header.gseq == gseq:
                    self._remember(epoch, gseq, Spot(segment, offset + at))
                    return Spot(segment, offset + at)
                at += header.group_bytes
            if len(view) < PAGE_BYTES:
                return None
            offset += at

    async def _window(
        self, epoch: int, spot: Spot, gseq: int, length: int
    ) -> tuple[list[tuple[GroupHeader, bytes]], int]:
        """Whole groups from a spot on, and the length of the first that is cut off."""
        view = await self._read(SegmentKey(epoch, spot.segment), spot.offset, length)
        found: list[tuple[GroupHeader, bytes]] = []
        at = 0
        while at < len(view):
            header = parse_header(view, at)
            if header is None or header.epoch != epoch or header.gseq != gseq + len(found):
                return found, 0
            if at + header.group_bytes > len(view):
                return found, header.group_bytes
            if not body_intact(header, view[at : at + header.group_bytes]):
                return found, 0
            found.append((header, bytes(view[at : at + header.group_bytes])))
            at += header.group_bytes
        return found, 0

    async def _next_segment(self, epoch: int, spot: Spot, gseq: int) -> Spot | None:
        key = SegmentKey(epoch, spot.segment + 1)
        return Spot(key.segment, 0) if await self._first(key) == gseq else None

    async def _first(self, key: SegmentKey) -> int | None:
        """The number of a segment's first group."""
        known = self._firsts.get(key)
        if known is None:
            header = parse_header(await self._read(key, 0, PAGE_BYTES))
            if header is None or header.epoch != key.epoch:
                return None
            known = self._firsts[key] = header.gseq
        return known

    async def _read(self, key: SegmentKey, offset: int, length: int) -> memoryview:
        path = layout.segment_path(self._shard, *key)
        try:
            with self._files.lease(key, path) as fd:
                return await self._bulk.read(fd, offset, length)
        except FileNotFoundError:
            return memoryview(b"")
        except OSError as error:
            raise explain(error, path, "read") from error

    def _remember(self, epoch: int, gseq: int, spot: Spot) -> None:
        self._spots[epoch, gseq] = spot
        while len(self._spots) > SPOTS_MAX:
            self._spots.popitem(last=False)
