"""The command line itself: help, exit codes, interruption."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import barco
from barco import cli
from barco.errors import BarcoError, ConfigError


def run(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "barco", *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
    )


def present() -> list[str]:
    return list(cli._modules([]))


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"barco {barco.__version__}\n")


def test_help_names_every_command() -> None:
    done = run("--help")
    assert done.returncode == 0 and not done.stderr
    for command in present():
        assert re.search(rf"^    {command}\s", done.stdout, re.MULTILINE)
    assert "Exit codes:" in done.stdout


@pytest.mark.parametrize("command", present())
def test_every_command_has_a_page(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([command, "--help"]) == 0
    page = capsys.readouterr().out
    assert page.startswith(f"usage: barco {command}")
    assert "Examples:" in page or "examples:" in page
    assert "Exit codes:" in page or "exit codes:" in page
    assert all(len(line) <= 100 for line in page.splitlines())


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dance"],
        ["serve", "--workers", "0"],
        ["serve", "--workers", "two"],
        ["serve", "--ports-from", "65535"],
        ["serve", "--engine", "kqueue"],
        ["serve", "--work", "2"],
        ["format", "extra"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(arguments) == 2
    assert "usage: barco" in capsys.readouterr().err


def test_format(tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    done = run("format", "--data-dir", path, "--workers", "2", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["workers"] == 2
    again = run("format", "--data-dir", path)
    assert again.returncode == 78 and again.stderr == f"barco: {path} is already formatted\n"


def test_format_takes_its_shape_from_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "barco.toml"
    file.write_text("[broker]\ndata_dir = 'data'\nworkers = 4\n[cluster]\nslices_per_range = 16\n")
    done = run("format", "--config", str(file), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    identity = json.loads((tmp_path / "data" / "broker.json").read_text())
    assert (identity["workers"], identity["slices_per_range"]) == (4, 16)


def test_a_refused_configuration_is_78_and_one_line(tmp_path: Path) -> None:
    file = tmp_path / "barco.toml"
    file.write_text("[broker]\nbinde = '127.0.0.1'\n")
    done = run("serve", "--config", str(file))
    assert done.returncode == 78
    assert done.stderr == (f"barco: {file}: unknown key broker.binde (did you mean broker.bind?)\n")


def test_cluster_mode_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "barco.toml"
    file.write_text("[cluster]\nbrokers = ['127.0.0.1', '127.0.0.2', '127.0.0.3']\n")
    for command in ("serve", "format"):
        done = run(command, "--config", str(file), "--data-dir", str(tmp_path / "data"))
        assert done.returncode == 78
        assert "cluster mode is not in this version" in done.stderr
    assert not (tmp_path / "data").exists()


def test_dev_takes_no_configuration(tmp_path: Path) -> None:
    done = run("serve", "--dev", "--config", str(tmp_path / "x.toml"))
    assert done.returncode == 78 and "leave out one of the two" in done.stderr


@pytest.mark.parametrize(
    ("raised", "code", "words"),
    [
        (ConfigError("no such thing"), 78, "barco: no such thing\n"),
        (BarcoError("it broke"), 1, "barco: it broke\n"),
        (KeyboardInterrupt(), 128 + signal.SIGINT, ""),
    ],
)
def test_how_errors_end(
    raised: BaseException,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(args: object) -> int:
        raise raised

    monkeypatch.setattr("barco.cli.format.run", fail)
    assert cli.main(["format"]) == code
    assert capsys.readouterr().err == words


def test_a_reader_that_leaves_is_no_error() -> None:
    command = f"{sys.executable} -P -m barco serve --help | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "0" and done.stderr == ""
