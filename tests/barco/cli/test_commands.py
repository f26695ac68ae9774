"""The commands that talk to a broker, against one that keeps everything in memory."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from barco.cli import main
from barco.cli.shared import talk
from barco.cli.shared.lines import BadInputError, KeyField, blocks, csv_blocks, split_lines


@pytest.fixture
def run(broker, capfd):
    """Runs a command against the broker: (exit code, stdout, stderr)."""

    def command(*arguments):
        code = main([*arguments, "--endpoint", broker.endpoint])
        return code, *capfd.readouterr()

    return command


def piped(broker, *arguments, given=b""):
    command = [sys.executable, "-m", "barco", *arguments]
    environment = {**os.environ, "BARCO_ENDPOINT": broker.endpoint}
    return subprocess.run(command, input=given, capture_output=True, env=environment, check=False)


def test_produce_and_consume(broker, run, tmp_path):
    file = tmp_path / "in"
    file.write_bytes(b'{"k":"a","n":1}\r\n\n{"k":"b","n":2}\n{"n":3}\n{"k":4.50}')
    code, out, err = run("produce", "t", str(file), "--key-field", "k")
    assert (code, out, err) == (0, "", "4 events acknowledged in t\n")
    assert {event.key for event in broker.events("t")} == {b"a", b"b", None, b"4.50"}
    code, out, _ = run("consume", "t", "--values")
    assert sorted(out.splitlines()) == [
        '{"k":"a","n":1}', '{"k":"b","n":2}', '{"k":4.50}', '{"n":3}',
    ]  # fmt: skip
    code, out, _ = run("consume", "t", "--json")
    events = [json.loads(line) for line in out.splitlines()]
    assert {event["value"].get("n") for event in events} == {1, 2, 3, None}
    assert set(events[0]) == {
        "topic", "slice", "epoch", "offset", "timestamp", "cursor", "key", "value",
    }  # fmt: skip


def test_produce_reads_standard_input(broker):
    done = piped(broker, "produce", "t", "--key", "k", "--json", given=b"one\ntwo\n")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["events"] == 2
    assert [(e.key, e.value) for e in broker.events("t")] == [(b"k", b"one"), (b"k", b"two")]


def test_produce_takes_a_whole_file_as_one_event(broker, run, tmp_path):
    file = tmp_path / "picture"
    file.write_bytes(bytes(range(256)) * 300)
    assert run("produce", "t", str(file), "--raw", "--key", "k")[0] == 0
    assert [event.value for event in broker.events("t")] == [file.read_bytes()]
    _, out, _ = run("consume", "t", "--json")
    assert set(json.loads(out)["value"]) == {"base64"}


def test_consume_for_people_obeys_no_control_characters(broker, run, tmp_path):
    file = tmp_path / "in"
    file.write_bytes(b"\x1b[31mred\x07 \xff\xc3\xa4")
    run("produce", "t", str(file), "--raw", "--key", "k\n")
    _, out, _ = run("consume", "t")
    assert out.endswith("@0  k\\n  \\x1b[31mred\\x07 \\xffä\n")
    assert out.startswith("1970-01-01T00:00:00.001000Z  t/")


def test_consume_with_a_group_goes_on_where_it_stopped(broker, run, tmp_path):
    file = tmp_path / "in"
    file.write_bytes(b"".join(b"%d\n" % number for number in range(500)))
    run("produce", "t", str(file), "--key", "k")
    got = []
    for count in ("1", "250", "249"):
        code, out, err = run("consume", "t", "--group", "g", "--count", count, "--values")
        assert (code, err) == (0, "")
        got += out.splitlines()
    assert got == [str(number) for number in range(500)]
    code, out, err = run("consume", "t", "--group", "g", "--count", "1", "--timeout", "0.1")
    assert (code, out, err) == (1, "", "barco: 0 of 1 events came\n")


@pytest.mark.parametrize("command", [["produce", "t"], ["load", "--topic", "t"]])
def test_a_field_that_no_event_has_is_told(broker, run, tmp_path, command):
    file = tmp_path / "in"
    file.write_text('{"id":1}\n{"n":2}\n')
    code, _, err = run(*command, str(file), "--key-field", "id")
    assert code == 0 and "no event has" not in err
    code, out, err = run(*command, str(file), "--key-field", "ident", "--json")
    assert code == 0 and "warning: no event has the field ident" in err
    assert json.loads(out)["events"] == 2


def test_load(broker, run, tmp_path):
    lines = tmp_path / "a.ndjson"
    lines.write_text("".join(f'{{"id":"{n % 7}","n":{n}}}\n' for n in range(5_000)))
    table = tmp_path / "b.csv"
    table.write_text('id,name\n1,"a, ""b"""\n2,ä\n,"two\nlines"\n', "utf-8")
    code, out, _ = run(
        "load", str(lines), str(table), "--topic", "t", "--key-field", "id", "--json"
    )
    summary = json.loads(out)
    assert (code, summary["events"]) == (0, 5_003)
    assert summary["bytes"] == lines.stat().st_size + table.stat().st_size
    rows = [json.loads(event.value) for event in broker.events("t")]
    assert {"id": "1", "name": 'a, "b"'} in rows
    assert {"id": "", "name": "two\nlines"} in rows
    ordered = [r["n"] for r in rows if r["id"] == "3" and "n" in r]
    assert ordered == list(range(3, 5_000, 7))


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["produce", "a/b"], 2, "not a topic name"),
        (["produce", "t", "--key", "a", "--key-field", "b"], 2, "not allowed with"),
        (["produce", "t", "--raw", "--key-field", "b"], 2, "--raw"),
        (["produce", "t", "/no/such/file"], 1, "cannot read /no/such/file"),
        (["load", "/no/such/file", "--topic", "t"], 1, "cannot read /no/such/file"),
        (["load", "--topic", "t"], 2, "required: FILE"),
        (["consume", "t", "--from", "noon"], 2, "neither earliest"),
        (["consume", "t", "--group", "g", "--session", "4.9"], 2, "from 5 to 600 seconds"),
        (["consume", "t", "--group", "g", "--from", "12"], 2, "barco groups seek"),
        (["consume", "t", "--count", "0"], 2, "whole number from 1"),
        (["consume", "t", "u", "--follow"], 2, "--group"),
        (["topics", "create", "t", "--retention-hours", "-1"], 2, "--retention-hours"),
        (["topics"], 2, "list|create|alter|describe|delete"),
        (["groups", "seek", "g", "--topic", "t", "--to", "noon"], 2, "neither earliest"),
    ],
)
def test_wrong_usage_says_what_is_wrong(broker, capfd, arguments, code, text):
    if "topics" not in arguments or len(arguments) > 1:
        arguments = [*arguments, "--endpoint", broker.endpoint]
    assert main(arguments) == code
    assert text in capfd.readouterr().err


def test_bad_input_names_the_line(broker, run, tmp_path):
    file = tmp_path / "in"
    file.write_text('{"k":1}\n{"k":\n')
    code, _, err = run("load", str(file), "--topic", "t", "--key-field", "k")
    assert code == 1
    assert "event 2 is not JSON" in err
    file = tmp_path / "in.csv"
    file.write_text("a,b\n1,2\n1,2,3\n")
    assert "line 3: 3 fields" in run("load", str(file), "--topic", "t")[2]
    assert "no column 'c'" in run("load", str(file), "--topic", "t", "--key-field", "c")[2]


def test_status_and_lists(run):
    assert run("topics", "list", "--json")[1] == "[]\n"
    code, _, err = run("topics", "describe", "t")
    assert (code, err.startswith("barco: ")) == (1, True)
    assert main(["status", "--endpoint", "127.0.0.1:1", "--timeout", "0.1"]) == 1


@pytest.mark.parametrize("name", ["produce", "consume", "load", "topics", "groups", "status"])
def test_help_has_examples_and_exit_codes(name, capsys):
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Examples:\n" in text
    assert "Exit codes:\n" in text
    assert max(map(len, text.splitlines())) <= 100


KEYS = [
    (b'{"k":"v"}', b"v"),
    (b' { "a" : 1, "k" : "v" } ', b"v"),
    (b'{"a":{"k":"inner"},"k":"v"}', b"v"),
    (b'{"a":{"k":"inner"}}', None),
    (b'{"a":[{"k":"inner"}]}', None),
    (b'{"a":"{","k":"v"}', b"v"),
    (b'{"a":"\\"k\\":\\"no\\"","k":"v"}', b"v"),
    (b'{"x\\"k":"no"}', None),
    (b'{"a":"k","b":1}', None),
    (b'{"a":"\\"k\\": \\"no\\""}', None),
    (b'{"k":"a","k":"b"}', b"b"),
    (b'{"k":"a\\u00e4\\n"}', "aä\n".encode()),
    ('{"k":"ä"}'.encode(), "ä".encode()),
    (b'{"k":1.10}', b"1.10"),
    (b'{"k":-2e5,"a":1}', b"-2e5"),
    (b'{"k":true}', b"true"),
    (b'{"k":null}', None),
    (b'{"k":{"a":1}}', b'{"a":"1"}'),
    (b"{}", None),
]


@pytest.mark.parametrize(("line", "key"), KEYS)
def test_the_key_is_what_a_parser_finds(line, key):
    assert KeyField("k").keys([line]) == [key]


@pytest.mark.parametrize("line", [b"[1]", b'"k"', b"{", b"\xff"])
def test_no_json_object_no_key(line):
    with pytest.raises(BadInputError, match="event 2 is not"):
        KeyField("k").keys([b"{}", line])


class Trickle(io.RawIOBase):
    """A file that gives a few bytes at a time."""

    def __init__(self, data, size):
        self.data, self.size = data, size

    def readable(self):
        return True

    def read(self, size=-1):
        piece, self.data = self.data[: self.size], self.data[self.size :]
        return piece

    def readinto(self, buffer):
        piece = self.read()
        buffer[: len(piece)] = piece
        return len(piece)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_found_however_they_come(size):
    text = b"a\r\n\n  \nbb\nc\rc\n\r\nlast"
    lines = [line for block in blocks(Trickle(text, size)) for line in block]
    assert lines == split_lines(text) == [b"a", b"bb", b"c\rc", b"last"]


def test_csv_in_pieces():
    text = '\ufeffid,n\r\n1,2\r\n3,"4\r\n5"\r\n'.encode()
    found = list(csv_blocks(Trickle(text, 64), "n"))
    assert found == [([b'{"id":"1","n":"2"}', b'{"id":"3","n":"4\\r\\n5"}'], [b"2", b"4\r\n5"])]


def test_times():
    assert talk.place("2026-01-31T12:00:00Z") == "timestamp:1769860800000000"
    assert talk.place("timestamp:5") == talk.place("5") == "timestamp:5"
    assert talk.time_of(1_769_860_800_000_001) == "2026-01-31T12:00:00.000001Z"
    assert talk.time_of(2**62) == f"{2**62}us"
    assert talk.time_of(-1) == "1969-12-31T23:59:59.999999Z"
    assert talk.time_of(-62135596800000000) == "0001-01-01T00:00:00.000000Z"
    assert talk.place("1969-12-31T23:59:59Z") == "timestamp:-1000000"
    assert talk.place("timestamp:-5") == "timestamp:-5"
    assert talk.size_of(1536) == "1.5 KiB"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "is Java 11"),
        ('java version "1.8.0_392"', "is Java 8"),
        ('openjdk version "17.0.9" 2023-10-17', ""),
        ("what?", ""),
    ],
)
def test_an_old_java_is_told(
    told: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    java.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = talk.java_missing()
    assert said in found and bool(found) is bool(said)


def test_spark_load_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ["spark-load", "x.ndjson", "--topic", "t"]
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    assert main(load) == 1
    said = capsys.readouterr().err
    assert "Java 17" in said and "apt-get" in said or "pip install" in said
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert main(load) == 1
    said = capsys.readouterr().err
    assert "/nowhere" in said or "pip install" in said
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("importlib.metadata.version", lambda name: "4.1.3")
    assert main(load) == 1
    assert "pyspark 4.1.3 is too old" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(load) == 1
    assert "pip install 'barco[spark]'" in capsys.readouterr().err
    assert main(["spark-load", "--topic", "t"]) == 2
    assert main([*load, "--to", "x"]) == 2
    assert main(["spark-load", "--topic", "t", "--to", "x", "--key-field", "k"]) == 2
