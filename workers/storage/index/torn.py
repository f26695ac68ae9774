"""Torn, or whole once and rotten since? What stands where a log ends is told apart by its sectors.

Three appends are in flight, so the headers behind a group do not always say that it was stable,
although it was, and acknowledged (rule S5 knows only of what `durable_upto` covers). But a segment
is all zeros, and stable so, before anything is written to it (rule S2), and a disk stores a sector
whole or not at all. What a crash has torn lacks sectors: they are zeros. What was stored whole and
has rotted since lacks none. Each header says how many of its group's sectors are zeros anyway.
"""

from barco.limits import GROUP_HEADER_BYTES

SECTOR_BYTES = 512
"""As native/format/group.h has it."""

WRITTEN_BYTES_MIN = 16
"""A first sector with fewer bytes that are not zero was never written: a header alone has more."""

Buffer = bytes | bytearray | memoryview


def header_rotten(sector: Buffer) -> bool:
    """Whether what is no header was one: `sector` is the first of a group's place."""
    data = bytes(sector[:SECTOR_BYTES])
    return len(data) - data.count(0) >= WRITTEN_BYTES_MIN


def body_rotten(group: Buffer, body_bytes: int, blank_sectors: int) -> bool:
    """Whether a body whose checksum is wrong was whole once.

    `blank_sectors`: as its header has it; 0 where an older version did not count: it must have
    none then to be sure of it.
    """
    end = GROUP_HEADER_BYTES + body_bytes
    return _blank_sectors(group, end) <= max(blank_sectors, 1)


def _blank_sectors(group: Buffer, end: int) -> int:
    """1 + those of the group's sectors that are zeros; group_blank_sectors of the core."""
    data = bytes(group[:end])
    return 1 + sum(
        not data[at : at + SECTOR_BYTES].strip(b"\0")
        for at in range(SECTOR_BYTES, end, SECTOR_BYTES)
    )
