"""A worker's standard error on its way into the broker's log."""

import io
import json
import logging
from datetime import datetime

import pytest

from barco import limits
from barco.supervisor.children.relay import LogRelay

LINE = json.dumps({"time": "2026-01-01T12:00:00.000Z", "level": "info", "message": "hi", "n": 1})


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_structured_lines_pass_as_they_are() -> None:
    stream = io.StringIO()
    relay = LogRelay(3, stream)
    for byte in f"{LINE}\n{LINE}\n".encode():
        relay.feed(bytes([byte]))
    assert stream.getvalue() == f"{LINE}\n{LINE}\n"
    assert relay.last_line == "hi"


def test_a_person_gets_short_ones() -> None:
    stream = Terminal()
    LogRelay(3, stream).feed(f"{LINE}\n".encode())
    at = datetime.fromisoformat("2026-01-01T12:00:00Z").astimezone()
    assert stream.getvalue() == f"{at:%H:%M:%S} hi worker=3 n=1\n"
    LogRelay(3, stream).feed(b'{"message": "no time"}\n')
    assert stream.getvalue().endswith("\nno time worker=3\n")


def test_other_lines_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("barco").propagate = True
    relay = LogRelay(3, io.StringIO())
    relay.feed(b"Traceback:\n\n  File x\nOSError: no \xff disk")
    relay.close()
    assert [record.message for record in caplog.records] == [
        "Traceback:",
        "  File x",
        "OSError: no \\xff disk",
    ]
    assert relay.last_line == "OSError: no \\xff disk"


@pytest.mark.parametrize("line", ["{", "{}", "[1]", '{"message"', "{" * 5000, '{"a": 1}'])
def test_what_only_looks_structured(line: str) -> None:
    stream = io.StringIO()
    relay = LogRelay(0, stream)
    relay.feed(line.encode() + b"\n")
    assert stream.getvalue() == "" and relay.last_line == line


def test_an_endless_line_is_cut() -> None:
    relay = LogRelay(0, io.StringIO())
    relay.feed(b"x" * (3 * limits.LOG_LINE_BYTES_MAX + 5))
    assert len(relay._rest) == 5
    assert len(relay.last_line) == limits.LOG_LINE_BYTES_MAX
