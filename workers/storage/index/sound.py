"""Whether one segment is what it was: its groups, their chain, and what stands between them.

Pure, as `scan`. Unlike a scan it knows where the segment begins and ends: what comes before and
after it, and the tail of its generation, are decided. So nothing that is not as it must be is torn.
"""

from collections.abc import Generator
from typing import NamedTuple

from barco.limits import GROUP_HEADER_BYTES, PAGE_BYTES
from barco.types import KiB, MiB
from barco.workers.storage.index.scan import (
    Buffer,
    GroupHeader,
    Read,
    Tags,
    body_intact,
    parse_header,
)

WINDOW_BYTES = 1 * MiB
"""Read at a time, but for a group that is longer: what a scrub has of the memory for reads."""

FIRST_BYTES = 64 * KiB
"""Read at first: how long the groups of a segment are is not known then."""

WINDOW_GROUPS = 32
"""Checked between two reads at most. Each costs some 30 us of Python, however short it is, and
nobody else has the worker meanwhile: a MiB of single events was 256 of them, 7 to 13 ms."""

Link = tuple[int, int]
"""(gseq, prev_crc) of a group: its place in the chain."""


class Soundness(NamedTuple):
    """How far a segment is sound."""

    next: Link
    """Of the group after the last sound one."""
    end: int
    """Where that one ends."""
    damage: str
    """What is wrong with what stands there; empty: nothing, the segment is sound."""


Walk = Generator[Read, Buffer, Soundness]


def check_group(
    tags: Tags, group: Buffer, link: Link, segment: int | None = None
) -> GroupHeader | str:
    """The header of a whole group if it is the one that must be there, else what is wrong.

    Its padding counts: the copies of a group are the same, byte for byte.
    """
    header = parse_header(group)
    if header is None:
        return "not a group"
    if wrong := misplaced(tags, header, link, segment):
        return wrong
    if header.group_bytes > len(group):
        return "the group is cut off"
    if not body_intact(header, group):
        return "the body's checksum is wrong"
    padding = group[GROUP_HEADER_BYTES + header.body_bytes : header.group_bytes]
    # Not `any`: of 4 KiB that is a step of the interpreter for each byte.
    return "something is behind the body" if bytes(padding) != bytes(len(padding)) else header


def misplaced(tags: Tags, header: GroupHeader, link: Link, segment: int | None) -> str:
    """Why a valid header is not the one that continues the chain here; empty when it is."""
    own = (tags.cluster_uuid, tags.token, tags.epoch)
    if (header.cluster_uuid, header.token, header.epoch) != own or (
        tags.session is not None and header.session != tags.session
    ):
        return "a group of another generation"
    if segment is not None and header.segment_index != segment:
        return "a group of another segment"
    if (header.gseq, header.prev_crc) != link:
        return f"group {header.gseq} stands where group {link[0]} should"
    return ""


def check_segment(size: int, index: int, tags: Tags, link: Link, last: int | None) -> Walk:
    """Walks a segment of `size` bytes from its first group, which must be the one at `link`.

    `last`: its last group; None: it is not known, and whatever is not zeros counts.
    """
    offset, wanted = 0, FIRST_BYTES
    while last is None or link[0] <= last:
        asked = min(wanted, size - offset)
        if asked <= 0:
            damage = "" if last is None else "the file is shorter than it was"
            return Soundness(link, offset, damage)
        view = memoryview((yield Read(0, offset, asked)))
        if len(view) < asked:
            size = offset + len(view)
        window = _check_window(view, index, tags, link, last)
        view.release()
        link, offset = window.next, offset + window.used
        if window.damage:
            return Soundness(link, offset, window.damage)
        if window.ended:
            break
        if offset + window.wanted > size:
            return Soundness(link, offset, "the group is longer than its file")
        # Half of what may be checked: groups that become shorter are seldom read twice.
        mean = window.used // max(1, window.groups)
        usual = -(-mean * WINDOW_GROUPS // 2 // PAGE_BYTES) * PAGE_BYTES
        wanted = max(window.wanted, min(usual, WINDOW_BYTES))
    return Soundness(link, offset, "")


class _Window(NamedTuple):
    next: Link
    used: int
    damage: str = ""
    ended: bool = False
    wanted: int = 0
    """Bytes of the next group, of which not all are in the window."""
    groups: int = 0
    """How many were checked."""


def _check_window(
    view: memoryview, index: int, tags: Tags, link: Link, last: int | None
) -> _Window:
    at = groups = 0
    while at < len(view) and groups < WINDOW_GROUPS:
        if last is not None and link[0] > last:
            return _Window(link, at, ended=True)
        header = parse_header(view, at)
        if header is None:
            blank = not bytes(view[at : at + PAGE_BYTES]).strip(b"\0")
            if blank and last is None:
                return _Window(link, at, ended=True)
            return _Window(link, at, "zeros" if blank else "not a group")
        end = at + header.group_bytes
        if end > len(view):
            if wrong := misplaced(tags, header, link, index):
                return _Window(link, at, wrong)
            return _Window(link, at, wanted=header.group_bytes, groups=groups)
        found = check_group(tags, view[at:end], link, index)
        if isinstance(found, str):
            return _Window(link, at, found)
        link, at = (found.gseq + 1, found.header_crc), end
        groups += 1
    return _Window(link, at, groups=groups)
