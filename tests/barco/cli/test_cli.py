"""The command line itself: help, exit codes, interruption."""

import dataclasses
import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import barco
from barco import cli
from barco.cli.commands import serve
from barco.errors import BarcoError, ConfigError
from barco.sections import PortsSection


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


def test_ports_lie_as_the_usual_ones_do() -> None:
    usual = dataclasses.asdict(PortsSection())
    assert serve._ports_from(19250) == {name: port + 10_000 for name, port in usual.items()}
    assert set(serve._ports_from(0).values()) == {0}


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


def cluster_file(tmp_path: Path, ordinal: str = "ordinal = 1\n") -> Path:
    file = tmp_path / "barco.toml"
    # Addresses at which nobody answers.
    brokers = ["127.250.250.1", "127.250.250.2", "127.250.250.3"]
    file.write_text(
        f"[broker]\nworkers = 1\n{ordinal}[cluster]\nbrokers = {brokers}\nuuid = '{'ab' * 16}'\n"
    )
    return file


def test_a_broker_of_a_cluster_is_formatted(tmp_path: Path) -> None:
    path = tmp_path / "data"
    done = run("format", "--config", str(cluster_file(tmp_path)), "--data-dir", str(path), "--json")
    identity = json.loads(done.stdout)
    assert (identity["ordinal"], identity["ring_size"]) == (1, 3)
    assert identity["cluster_uuid"] == "ab" * 16 and identity["replaces"] == ""
    alone = run("serve", "--data-dir", str(path), "--ports-from", "0")
    assert alone.returncode == 78 and "was formatted for a broker of a cluster" in alone.stderr


def test_a_broker_that_does_not_know_its_number_is_refused(tmp_path: Path) -> None:
    file = cluster_file(tmp_path, "ordinal = 3\n")
    for command in ("serve", "format", "replace"):
        done = run(command, "--config", str(file), "--data-dir", str(tmp_path / "data"))
        assert done.returncode == 78 and "so ordinals go to 2" in done.stderr
    assert not (tmp_path / "data").exists()


def test_replace_names_the_lost_disk(tmp_path: Path) -> None:
    config = ("--config", str(cluster_file(tmp_path)), "--data-dir", str(tmp_path / "data"))
    done = run("replace", *config)
    assert done.returncode == 78 and "no other broker knows broker 1" in done.stderr
    for wrong in ("sda1", "cd" * 15, "CD" * 16):
        done = run("replace", *config, "--disk", wrong)
        assert done.returncode == 2 and "is not the disk_uuid" in done.stderr
    done = run("replace", *config, "--disk", "cd" * 16, "--json")
    assert json.loads(done.stdout)["replaces"] == "cd" * 16
    done = run("replace", "--data-dir", str(tmp_path / "other"))
    assert done.returncode == 78 and "a single broker has no copies elsewhere" in done.stderr


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

    monkeypatch.setattr("barco.cli.commands.format.run", fail)
    assert cli.main(["format"]) == code
    assert capsys.readouterr().err == words


def test_a_reader_that_leaves_is_no_error() -> None:
    command = f"{sys.executable} -P -m barco serve --help | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "0" and done.stderr == ""


def test_a_cluster_gives_nothing_up(tmp_path: Path) -> None:
    path = tmp_path / "data"
    run("format", "--config", str(cluster_file(tmp_path)), "--data-dir", str(path))
    assert run("recover", str(path)).returncode == 0
    done = run("recover", str(path), "--accept-data-loss")
    assert done.returncode == 78 and "repaired from the two others" in done.stderr


def test_a_full_or_closed_output_is_one_line(tmp_path: Path) -> None:
    """Not a traceback: `barco dump > /dev/full`, `barco dump >&-`."""
    assert run("format", "--data-dir", str(tmp_path)).returncode == 0
    dump = f"{sys.executable} -m barco dump {tmp_path}"
    full = subprocess.run(
        f"{dump} > /dev/full", check=False, shell=True, capture_output=True, text=True
    )
    assert full.returncode == 1
    assert full.stderr == "barco: what it prints can not be written: no space is left\n"
    closed = subprocess.run(f"{dump} >&-", check=False, shell=True, capture_output=True, text=True)
    assert (closed.returncode, closed.stderr) == (0, "")


def test_ctrl_c_is_quiet_while_the_command_is_imported() -> None:
    """`serve` imports for most of a second, and people who mistype are faster."""
    code = (
        "import importlib, os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # Background jobs ignore it.
        "usual = importlib.import_module\n"
        "def slow(name, *rest):\n"
        "    if name.startswith('barco.cli'):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return usual(name, *rest)\n"
        "importlib.import_module = slow\n"
        "sys.argv = ['barco', '--version']\n"
        "assert 'barco.cli' not in sys.modules\n"
        "from barco.__main__ import main\n"
        "sys.exit(main())\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "")


def test_a_file_that_is_not_there_is_told_before_spark_starts() -> None:
    """Spark takes seconds to begin with."""
    done = run("spark-load", "nofile.ndjson", "--topic", "flights")
    assert done.returncode == 1
    assert done.stderr == "barco: cannot read nofile.ndjson: there is no such file\n"


def test_dump_refuses_a_shard_before_it_prints(tmp_path: Path) -> None:
    """What it prints may go to a file."""
    assert run("format", "--data-dir", str(tmp_path)).returncode == 0
    done = run("dump", str(tmp_path), "--shard", "-1")
    assert done.returncode != 0 and done.stdout == ""


def test_produce_says_what_it_waits_for_and_how_far_it_was() -> None:
    """No broker answers there, and somebody loses patience."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
        code = (
            "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "from barco.__main__ import main\n"
            f"sys.argv = ['barco', 'produce', 't', '--endpoint', {endpoint!r}]\n"
            "sys.exit(main())\n"
        )
        pipe = subprocess.PIPE
        with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stderr=pipe) as process:
            assert process.stdin is not None and process.stderr is not None
            process.stdin.write(b"1\n")
            process.stdin.flush()
            told = process.stderr.readline().decode()
            assert told == f"nothing is acknowledged yet by {endpoint}: waiting 30 s\n"
            process.send_signal(signal.SIGINT)
            rest = process.stderr.read().decode()
            assert process.wait(60) == 130
    assert rest == "interrupted: 0 events acknowledged in t, perhaps more stored\n"
