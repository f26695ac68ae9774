"""Crash images: what a disk may hold after a cut, given what had been submitted.

A stable group is there. Of a group that was on its way any 4 KiB block may be there or not, in
any order, and one block may be torn at a sector; where nothing arrived is what was there before:
zeros, or, on a recycled or sick device, something else.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from barco.limits import GROUP_HEADER_BYTES, PAGE_BYTES
from barco.workers.storage.index import scan
from faultlab.recorder import TAGS, Group, Recording

SECTOR = 512
ALL_SUBSETS_BLOCKS_MAX = 5


@dataclass(slots=True)
class Piece:
    """Bytes at a place of a segment that differ from "everything stable, zeros behind"."""

    segment: int
    offset: int
    data: bytes


Image = tuple[str, list[Piece]]
"""How it was made, and what it is."""


class Disk:
    """The stable prefix of a recording as files in memory, on which images are laid and lifted."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.files = [bytearray(size) for size in recording.sizes]
        self.stable = 0

    def advance(self, stable: int) -> None:
        """Groups up to `stable` are there from now on."""
        for group in self.recording.groups[self.stable : stable]:
            self._put(group.segment, group.offset, group.data)
        self.stable = stable

    def _put(self, segment: int, offset: int, data: bytes) -> None:
        self.files[segment][offset : offset + len(data)] = data

    def lay(self, pieces: list[Piece]) -> list[Piece]:
        """Writes an image; what to lay to get back."""
        before = []
        for piece in pieces:
            old = bytes(self.files[piece.segment][piece.offset : piece.offset + len(piece.data)])
            before.append(Piece(piece.segment, piece.offset, old))
            self._put(piece.segment, piece.offset, piece.data[: len(old)])
        return before[::-1]

    def tail(self, submitted: int) -> int:
        """The last group such that it and all before it are there, byte for byte."""
        last = self.stable
        for group in self.recording.groups[self.stable : submitted]:
            used = GROUP_HEADER_BYTES + group.header.body_bytes  # Padding means nothing.
            found = self.files[group.segment][group.offset : group.offset + used]
            if found != group.data[:used]:
                break
            last = group.header.gseq
        return last

    def scan(self, fed: list[scan.GroupHeader], *, trust: bool) -> scan.ScanResult:
        """The real recovery's scan; with `trust`, old segments have their sidecars."""
        known = {each.index: each for each in self.recording.summaries}
        last = self.recording.groups[self.stable - 1].segment if self.stable else 0
        sources = [
            scan.SegmentSource(
                index, len(data), str(index), known[index] if trust and index < last else None
            )
            for index, data in enumerate(self.files)
        ]
        walk = scan.scan_generation(sources, TAGS, lambda header, *_: fed.append(header))
        return scan.run(
            walk,
            lambda read: bytes(self.files[read.which][read.offset : read.offset + read.length]),
        )


def images(flying: list[Group], rng: random.Random, older: list[Group]) -> Iterator[Image]:
    """Images of a crash with these groups (at most three) on their way."""
    blocks = [(group, page) for group in flying for page in range(group.pages)]
    if len(blocks) <= ALL_SUBSETS_BLOCKS_MAX:
        for mask in product((False, True), repeat=len(blocks)):
            yield "subset", _blocks(blocks, mask)
    else:
        yield from _chosen_subsets(flying, blocks, rng)
    yield from _tears(blocks, rng)
    yield from _other_content(flying, blocks, rng, older)


def _block(group: Group, page: int) -> Piece:
    at = page * PAGE_BYTES
    return Piece(group.segment, group.offset + at, group.data[at : at + PAGE_BYTES])


def _blocks(blocks: list[tuple[Group, int]], mask: tuple[bool, ...]) -> list[Piece]:
    return [_block(*block) for block, there in zip(blocks, mask, strict=True) if there]


def _chosen_subsets(
    flying: list[Group], blocks: list[tuple[Group, int]], rng: random.Random
) -> Iterator[Image]:
    count = len(blocks)
    for mask in product((False, True), repeat=len(flying)):  # Reordered: n + 1 there, n not.
        there = {id(group) for group, kept in zip(flying, mask, strict=True) if kept}
        yield "whole groups", [_block(g, page) for g, page in blocks if id(g) in there]
    for cut in rng.sample(range(count), min(6, count)):
        yield "prefix", [_block(*block) for block in blocks[:cut]]
        yield "one missing", [_block(*b) for i, b in enumerate(blocks) if i != cut]
        yield "one there", [_block(*blocks[cut])]
    for _ in range(8):
        yield "random subset", _blocks(blocks, tuple(rng.random() < 0.7 for _ in blocks))


def _tears(blocks: list[tuple[Group, int]], rng: random.Random) -> Iterator[Image]:
    """One block torn at a sector, all others there."""
    if not blocks:
        return
    for _ in range(6):
        torn = rng.randrange(len(blocks))
        cut = SECTOR * rng.randrange(1, PAGE_BYTES // SECTOR)
        pieces = [_block(*block) for index, block in enumerate(blocks) if index != torn]
        piece = _block(*blocks[torn])
        if rng.random() < 0.5:
            piece.data = piece.data[:cut]
        else:
            piece = Piece(piece.segment, piece.offset + cut, piece.data[cut:])
        yield "tear", [*pieces, piece]
    group, page = rng.choice(blocks)
    for sector in range(1, PAGE_BYTES // SECTOR):
        before = [_block(g, p) for g, p in blocks if (g.header.gseq, p) < (group.header.gseq, page)]
        piece = _block(group, page)
        piece.data = piece.data[: sector * SECTOR]
        yield "cut at a sector", [*before, piece]


def _other_content(
    flying: list[Group], blocks: list[tuple[Group, int]], rng: random.Random, older: list[Group]
) -> Iterator[Image]:
    """Not zeros where nothing arrived: garbage, ones, old groups of this log, another's."""
    if not flying:
        return
    first = flying[0]
    whole = [_block(*block) for block in blocks]
    yield "garbage", [Piece(first.segment, first.offset, rng.randbytes(len(first.data)))]
    yield "ones", [Piece(first.segment, first.offset, b"\xff" * len(first.data))]
    for old in rng.sample(older, min(3, len(older))):
        yield "an old group", [Piece(first.segment, first.offset, old.data)]
    foreign = bytearray(first.data)
    foreign[40:48] = (77).to_bytes(8, "little")  # Its epoch: a recycled file.
    yield "another epoch", [Piece(first.segment, first.offset, bytes(foreign))]
    group = rng.choice(flying)
    hurt = bytearray(group.data)
    bit = rng.randrange(len(hurt) * 8)
    hurt[bit // 8] ^= 1 << bit % 8
    yield "a bit", [*whole, Piece(group.segment, group.offset, bytes(hurt))]
    if len(flying) > 1:
        yield (
            "garbage, then a group",
            [
                Piece(first.segment, first.offset, rng.randbytes(PAGE_BYTES)),
                *whole[first.pages :],
            ],
        )
