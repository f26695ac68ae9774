"""How many workers the configuration asked for last."""

from pathlib import Path

import pytest

from barco.supervisor.files.asked import asked_before, note_asked


def test_what_was_granted_is_remembered(tmp_path: Path) -> None:
    assert asked_before(tmp_path, 2) == 2, "what it was formatted for"
    for number in (4, 1):
        note_asked(tmp_path, number)
        assert asked_before(tmp_path, 2) == number
    assert [each.name for each in tmp_path.iterdir()] == ["workers"]


@pytest.mark.parametrize("text", ["", "two", "0", "-1", "4096", "1\n2", "\u0662"])
def test_what_can_not_be_read_never_was(tmp_path: Path, text: str) -> None:
    (tmp_path / "workers").write_text(text, "utf-8")
    assert asked_before(tmp_path, 2) == 2


def test_a_disk_that_takes_nothing_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    note_asked(tmp_path / "none", 3)
    assert "is not written" in caplog.text
