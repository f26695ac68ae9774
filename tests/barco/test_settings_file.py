"""What may stand where the configuration should: each is one line and exit 78, and soon."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from barco import config
from barco.cli import main
from barco.errors import ConfigError

SECONDS_MAX = 10.0
"""Of CPU. A key of 100,000 parts alone took minutes."""

BROKER = "[broker]\n"


def refused(path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """What `barco serve` says of a file that it refuses: one line, which it is checked to be."""
    began = time.process_time()
    assert main(["serve", "--config", str(path), "--ports-from", "0", *more]) == 78
    assert time.process_time() - began < SECONDS_MAX
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("barco: ")
    assert shown.err.count("\n") == 1 and len(shown.err) < 2_500
    assert shown.err[:-1].isprintable()
    return shown.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BROKER + "ordinal = " + "9" * 10_000, "a number with thousands of digits"),
        (BROKER + "ordinal = 99999999999999999999", "is not a whole number"),
        (BROKER + "ordinal = 12288", "must be from 0 to 12287"),
        (BROKER + "ordinal = " + "9" * 10_000 + ".5", "inf is not a whole number"),
        (BROKER + "ordinal = nan", "nan is not a whole number"),
        (BROKER + "ordinal = 0x" + "f" * 10_000, "thousands of digits is not a whole number"),
        ("[clients]\n" + "hosts = [0x" + "f" * 10_000 + "]", "is not a list"),
        (BROKER + "bind = 0x" + "f" * 10_000, "is not text"),
        (".".join(["a"] * 100_000) + " = 1", "nested too deep"),
        (".".join(['"a=b"'] * 100_000) + " = 1", "nested too deep"),
        ("[" + ".".join(["a"] * 100_000) + "]\nb = 1", "nested too deep"),
        ("x = {" + ".".join(["a"] * 100_000) + " = 1}", "nested too deep"),
        ("x = " + "{a = " * 2_000 + "1" + "}" * 2_000, "nested too deep"),
        ("x = " + "[" * 100_000, "barco.toml "),
        ('"\\' * 400_000, "is not TOML"),
        ("[clients]\n" + "hosts = [" + "'a'," * 200_000 + "]", "1000 at most"),
        ("[clients]\n" + "hosts = [" + "1," * 200_000 + "]", "is not a list"),
        ("[cluster]\nbrokers = [" + "'127.0.0.1'," * 50_000 + "]", "there twice"),
        (BROKER + "k" * 300_000 + " = 1", "unknown key"),
        (BROKER + '"a\\u001b[2J\\nb" = 1', r"unknown key broker.a\x1b[2J\nb"),
        ('["a\\u001b[2J\\nb"]\nx = 1', r"unknown section [a\x1b[2J\nb]"),
        (BROKER + "bind = '" + "x" * 100_000 + "'", "must be an IP address"),
        (BROKER + 'bind = "\\u0000"', "has control characters"),
        (BROKER + 'data_dir = "/tmp/\\u0000"', "has control characters"),
        ('[cluster]\nsecret_file = "\\u0000"', "has control characters"),
        (BROKER + 'bind = "\\ud800"', "is not TOML"),
        ("# " + "x" * (1 << 20), "more than 1024 KiB"),
    ],
    ids=lambda text: text[:40].replace("\n", " "),
)
def test_text(text: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "barco.toml"
    path.write_text(text, "utf-8")
    assert words in refused(path, capsys)


@pytest.mark.parametrize(
    ("data", "words"), [(b"\x00" * 100, "Invalid"), (BROKER.encode() + b"bind = '\xff'", "utf-8")]
)
def test_bytes(data: bytes, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "barco.toml"
    path.write_bytes(data)
    assert words in refused(path, capsys)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (lambda tmp: tmp, "Is a directory"),
        (lambda tmp: Path("/dev/zero"), "more than 1024 KiB"),
        (lambda tmp: tmp / ("x" * 5_000), "File name too long"),
        (lambda tmp: tmp / "file" / "barco.toml", "Not a directory"),
    ],
    ids=["directory", "endless", "name", "below a file"],
)
def test_places(
    place: Callable[[Path], Path],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    assert words in refused(place(tmp_path), capsys)


@pytest.mark.parametrize(
    "variable",
    [
        ("BARCO_BROKER_ORDINAL", "9" * 10_000),
        ("BARCO_BROKER_ORDINAL", "９"),
        ("BARCO_BROKER_BIND", "9" * 100_000),
        ("BARCO_BROKER_BIND", "a\nb"),
        ("BARCO_BROKER_" + "X" * 10_000, "1"),
        ("BARCO_CLIENTS_HOSTS", "a," * 50_000),
    ],
    ids=lambda pair: f"{pair[0][:30]}={pair[1][:5]!r}",
)
def test_environment(
    variable: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(*variable)
    path = tmp_path / "barco.toml"
    path.touch()
    refused(path, capsys)


def test_what_looks_deep_and_is_not(tmp_path: Path) -> None:
    """Dots in text, in comments and in a list on one line."""
    dots = ".".join(["a"] * 100)
    path = tmp_path / "barco.toml"
    path.write_text(
        f"# {dots} = 1\r\n[clients] # {dots}\r\nhosts = ['{dots}', \"{dots}\"] # {dots} = 2\r\n"
        f'[broker]\r\ndata_dir = """{dots} \\"""{dots}"""\r\n',
        "utf-8",
    )
    loaded = config.load(path, {})
    assert loaded.clients.hosts == (dots, dots)
    assert loaded.broker.data_dir == f'{dots} """{dots}'


def test_a_path_that_no_file_can_have() -> None:
    with pytest.raises(ConfigError, match="null byte"):
        config.load(Path("a\0b"), {})
