"""The file of those who are known before anybody was added: who can read it, what it may have."""

import os
from pathlib import Path

import pytest

from barco.config import Config
from barco.errors import ConfigError
from barco.supervisor.files.first_users import NAME, access_options, add, read

DIGEST = "ab" * 32
ON = Config().override("access", required=True)


def test_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / NAME
    assert read(path) == []
    add(path, "root", DIGEST)
    add(path, "other", "cd" * 32)
    assert read(path) == [("root", DIGEST), ("other", "cd" * 32)]
    assert path.stat().st_mode & 0o777 == 0o600 and os.listdir(tmp_path) == [NAME]
    with pytest.raises(ConfigError, match="has a user root"):
        add(path, "root", "ef" * 32)
    assert access_options(ON, tmp_path)["first"] == read(path)


def test_nothing_is_read_where_it_is_off(tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    assert access_options(Config(), tmp_path) == {"required": False}
    with pytest.raises(ConfigError):
        access_options(ON, tmp_path)


@pytest.mark.parametrize("mode", (0o640, 0o604, 0o660))
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / NAME
    add(path, "root", DIGEST)
    path.chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        read(path)


@pytest.mark.parametrize(
    "text",
    ("root\n", f"root {DIGEST[:-1]}\n", f"ro:t {DIGEST}\n", f"a {DIGEST}\nb {DIGEST}\n", "\n")
    + (f"a {DIGEST}\na {'cd' * 32}\n", f"root {DIGEST.upper()}\n", "x" * 65_537, f" a {DIGEST}"),
)
def test_what_is_no_such_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / NAME
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="barco users first"):
        read(path)
