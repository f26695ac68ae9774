"""A position in a slice, as clients see it: opaque text that sorts as the events do."""

import re

from msgspec import Struct

from barco.types import Epoch, Offset

_TEXT = re.compile(r"([0-9a-f]{8})-([0-9a-f]{16})", re.ASCII)


class Cursor(Struct, frozen=True, order=True):
    """The next event to read: its offset, and the generation in which the reader saw it."""

    epoch: Epoch
    offset: Offset

    def __post_init__(self) -> None:
        assert 0 <= self.epoch < 2**32
        assert 0 <= self.offset < 2**63

    def __str__(self) -> str:
        return f"{self.epoch:08x}-{self.offset:016x}"

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """The inverse of str(); ValueError for any other text."""
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError(f"not a cursor: {text[:64]!r}")
        epoch, offset = (int(part, 16) for part in match.groups())
        if offset >= 2**63:
            raise ValueError(f"not a cursor: {text!r}")
        return cls(Epoch(epoch), Offset(offset))
