"""What a shell completes: asked of bash itself."""

import shutil
import subprocess
from pathlib import Path

import pytest

from barco.cli import COMMANDS, main

SHELL = shutil.which("bash")

ASK = """\
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _barco; printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert main(["completion", "bash"]) == 0
    path = tmp_path / "barco.bash"
    path.write_text(capsys.readouterr().out)
    return path


def completed(script: Path, *words: str) -> list[str]:
    assert SHELL is not None
    command = [SHELL, "--norc", "-c", ASK, "bash", str(script), "barco", *words]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert not found.stderr
    return found.stdout.split()


@pytest.mark.skipif(SHELL is None, reason="no bash")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("",), list(COMMANDS)),
        (("to",), ["topics", "top", "tour"]),
        (("topics", ""), ["list", "create", "alter", "describe", "delete"]),
        (("topics", "create", "trips", "--comp"), ["--compression"]),
        (("topics", "create", "trips", "--compression", ""), ["lz4", "none"]),
        (("topics", "list", "--endpoint", ""), []),
        (("topics", "--json", "de"), ["describe", "delete"]),
        (("topics", "delete", "trips", "--y"), ["--yes"]),
        (("completion", ""), ["bash", "zsh"]),
        (("no-such", "to"), ["topics", "top", "tour"]),
    ],
)
def test_words(script: Path, words: tuple[str, ...], wanted: list[str]) -> None:
    assert completed(script, *words) == wanted


def test_zsh_reads_the_same_script(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "zsh"]) == 0
    before, _, after = capsys.readouterr().out.partition("\n")
    assert "bashcompinit" in before and after == script.read_text()
