"""Cursors: text that comes back, sorts, and refuses everything else."""

import pytest

from barco.protocol.cursor import Cursor
from barco.types import Epoch, Offset


def test_text_comes_back() -> None:
    """The text form is fixed, and parse() is its inverse."""
    cursor = Cursor(Epoch(7), Offset(255))
    assert str(cursor) == "00000007-00000000000000ff"
    assert Cursor.parse(str(cursor)) == cursor


def test_text_sorts_as_cursors_do() -> None:
    """Sorting the text sorts the positions."""
    cursors = [
        Cursor(Epoch(e), Offset(o)) for e in (1, 2, 2**32 - 1) for o in (0, 9, 10, 2**63 - 1)
    ]
    assert sorted(cursors) == cursors
    assert sorted(map(str, cursors)) == list(map(str, cursors))


@pytest.mark.parametrize(
    "text",
    [
        *("", "1-2", "earliest", "0000000G-0000000000000000", "00000001-8000000000000000"),
        *("00000001-0000000000000000 ", "00000001_0000000000000000", "+0000001-0000000000000000"),
        *("٠٠٠٠٠٠٠١-0000000000000000", "0000000A-0000000000000000", "\n", "0" * 1_000_000),
    ],
)
def test_other_text_is_refused(text: str) -> None:
    """Nothing but the exact form is a cursor."""
    with pytest.raises(ValueError, match="not a cursor"):
        Cursor.parse(text)
