"""What a hurried operator gives to commands: one clear line, a code, and no secret in it."""

import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from reference.certificates import authority, issued

import barco
from barco.cli import main
from barco.cli.commands import spark_load
from barco.errors import BarcoError, RequestError

TOKEN = "barco_" + "s" * 43


def code_of(*arguments: str) -> int:
    try:
        return main(arguments)
    except SystemExit as ended:
        assert isinstance(ended.code, int)
        return ended.code


@pytest.fixture(params=["401 Unauthorized", "400 Bad Request"])
def refusing(request: pytest.FixtureRequest) -> Iterator[str]:
    """Somebody who answers every request so; a port that speaks TLS says 400."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked = []

        def serve() -> None:
            while True:
                try:
                    link, _ = server.accept()
                except OSError:
                    return
                with link:
                    asked.append(link.recv(65536))
                    link.sendall(
                        b"HTTP/1.1 %s\r\nContent-Length: 0\r\n\r\n" % request.param.encode()
                    )

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        host, port = server.getsockname()
        yield f"{host}:{port}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


@pytest.mark.parametrize("command", ["users list", "topics list", "status", "ring", "drain 1"])
@pytest.mark.parametrize(
    "endpoint", [f"http://{TOKEN}@127.0.0.1:9", f"127.0.0.1:9?token={TOKEN}", f"{TOKEN}@h:9"]
)
def test_a_token_in_an_address_is_refused_and_not_repeated(
    command: str, endpoint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(*command.split(), "--endpoint", endpoint) == 2
    said = capsys.readouterr()
    assert "--token-file" in said.err and TOKEN not in said.out + said.err


@pytest.mark.parametrize("arguments", [
    ("users", "first", "--data-dir", "/dev/null", "root"),
    ("users", "first", "--data-dir", "/proc/nothing", "root"),
])  # fmt: skip
def test_a_directory_that_can_be_none_is_one_line(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of(*arguments) in (1, 78)
    said = capsys.readouterr()
    assert re.fullmatch(r"barco: [^\n]+\n", said.err) and not said.out


def test_check_says_what_is_no_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("check", "--data-dir", "/dev/null") == 1
    assert "/dev/null is no directory" in capsys.readouterr().out


def test_a_token_that_others_can_read_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    for mode, told in ((0o600, False), (0o640, False), (0o644, True)):
        token.chmod(mode)
        code_of("users", "list", "--endpoint", "127.0.0.1:1", "--token-file", str(token))
        said = capsys.readouterr().err
        assert ("chmod 600" in said) is told and TOKEN not in said
    token.write_bytes(b"\xff" + TOKEN.encode())
    code_of("users", "list", "--endpoint", "127.0.0.1:1", "--token-file", str(token))
    said = capsys.readouterr().err
    assert "a token is" in said and "codec" not in said and TOKEN not in said


def test_names_are_repeated_in_part(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("topics", "create", "a" * 100_000) == 2
    assert len(capsys.readouterr().err) < 2_000


def test_a_producer_that_is_refused_does_not_wait(refusing: str) -> None:
    """It was asked again for the 30 s in which an event may be acknowledged."""
    with (
        pytest.raises(RequestError),
        barco.Producer(refusing, token=TOKEN, delivery_timeout_s=600.0) as producer,
    ):
        producer.send("t", b"1")
        producer.flush()


@pytest.mark.parametrize("catalog", [f"https://me:{TOKEN}@127.0.0.1:9", f"http://h?token={TOKEN}"])
def test_a_token_in_the_address_of_a_catalog_is_refused_and_not_repeated(
    catalog: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert code_of("export", "t", "--to", "iceberg:a.b", "--catalog", catalog) == 2
    said = capsys.readouterr()
    assert "--catalog-token-file" in said.err and TOKEN not in said.out + said.err


def test_a_catalog_that_is_not_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("pyiceberg", reason="no pyiceberg: pip install 'barco[export]'")
    assert code_of("export", "t", "--to", "iceberg:a.b", "--catalog", "http://127.0.0.1:9") == 1
    said = capsys.readouterr()
    assert re.fullmatch(r"barco: the catalog http://127.0.0.1:9 [^\n]+\n", said.err)


def test_spark_is_told_all_that_other_commands_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that is left out is refused only when Spark is up."""
    told: list[dict[str, str]] = []

    class Load:
        LoadError = BarcoError

        @staticmethod
        def reach(brokers: dict[str, str], topic: str) -> None:
            told.append(brokers)
            raise Load.LoadError("that is all")

    monkeypatch.setitem(sys.modules, "barco.spark.load", cast(Any, Load))
    monkeypatch.setattr(spark_load, "_missing", lambda: "")
    ca = authority(tmp_path)
    own = issued(tmp_path, ca, "job")
    (tmp_path / "token").write_text(TOKEN)
    plain = ("spark-load", "--topic", "t", "--to", "x", "--token-file", str(tmp_path / "token"))
    files = {"ca": str(ca.certificate), "certificate": str(own.certificate)}
    sealed = [word for name, path in files.items() for word in (f"--{name}", path)]
    assert code_of(*plain, "--endpoint", "a:1") == 1
    assert code_of(*plain, "--endpoint", "https://a:1", *sealed) == 1
    assert told == [
        {"endpoints": "a:1", "token": TOKEN},
        {"endpoints": "https://a:1", "token": TOKEN, **files},
    ]


def test_a_directory_that_nobody_named_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator who leaves --data-dir out formats another directory than the service's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert code_of("format") == 0
    assert "so it is barco-data here" in capsys.readouterr().err
    assert code_of("format", "--data-dir", "there") == 0
    assert "here" not in capsys.readouterr().err
