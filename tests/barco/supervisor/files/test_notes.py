"""When a format of logs is noted, and when it is written."""

import json
from pathlib import Path
from typing import Any

import pytest

from barco.protocol import messages
from barco.supervisor.files.notes import PROCESSES, DirectoryNotes


class Ring:
    """What other brokers have said: the newest format that each reads, and has noted."""

    def __init__(self, *said: tuple[int, int]) -> None:
        self.said: list[tuple[int, int]] | None = list(said)
        self.told = 0

    def formats(self) -> list[tuple[int, int]] | None:
        return self.said

    def note_format(self, noted: int) -> None:
        self.told = noted


def notes(path: Path, format: int, alone: bool = False) -> DirectoryNotes:
    (path / PROCESSES).write_text(json.dumps({"format": format}))
    return DirectoryNotes(path, alone, lambda: None)


def wants(*formats: int) -> list[dict[str, Any]]:
    return [{messages.WANTED: each} for each in formats]


def told(format: int) -> dict[str, Any]:
    return {"type": messages.FORMAT, "format": format}


def test_each_format_waits_for_all_that_read_it(tmp_path: Path) -> None:
    made, ring = notes(tmp_path, 1), Ring((3, 1), (2, 1))
    assert made.look(wants(0, 0), ring) == {} and ring.told == 1, "nobody wants any"
    # The second one is wanted, and read by all: noted at once, written when all have noted it.
    assert made.look(wants(0, 2), ring) == {} and ring.told == 2
    ring.said = [(3, 2), (2, 1)]
    assert made.look(wants(2, 2), ring) == {}
    ring.said = [(3, 2), (2, 2)]
    assert made.look([], ring) == told(2) and made.written == 2
    # The third one is wanted, and one does not read it: what is written goes on.
    assert made.look(wants(3, 0), ring) == {} and (made.format, made.written) == (2, 2)
    ring.said = [(3, 2), (3, 2)]
    assert made.look(wants(3, 0), ring) == {} and ring.told == 3 and made.written == 2
    ring.said = [(3, 3), (4, 3)]
    assert made.look([], ring) == told(3)
    # One that has to be heard of anew may be an earlier version.
    ring.said = None
    assert made.look([], ring) == told(1) and made.format == 3
    ring.said = [(3, 3), (2, 2)]
    assert made.look([], ring) == told(2)


def test_what_another_has_noted_is_wanted(tmp_path: Path) -> None:
    made, ring = notes(tmp_path, 2), Ring((3, 3), (3, 2))
    assert made.look([], ring) == told(2) and ring.told == 3
    later = Ring((4, 4), (3, 3))
    assert made.look([], later) == told(3) and later.told == 3, "a fourth one nobody here reads"


@pytest.mark.parametrize("format", [1, 2, 3])
def test_alone(tmp_path: Path, format: int) -> None:
    made = notes(tmp_path, format, alone=True)
    assert made.written == format and made.look([], None) == {}
    for wanted in range(format + 1, 4):
        assert made.look(wants(wanted), None) == told(wanted)


def test_a_note_that_is_not_written_counts_for_nothing(tmp_path: Path) -> None:
    from barco.errors import DataDirError

    def full() -> None:
        raise DataDirError("no room")

    (tmp_path / PROCESSES).write_text('{"format": 1}')
    made = DirectoryNotes(tmp_path, True, full)
    assert made.look(wants(3), None) == {} and (made.format, made.written) == (1, 1)
