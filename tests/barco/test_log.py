"""Log lines: always one line, always parseable, never longer than the limit."""

import io
import json
import logging
import sys
import time
from contextvars import copy_context

import pytest

from barco import limits
from barco.log import (
    JsonFormatter,
    OfRequest,
    Seldom,
    TerminalFormatter,
    follow,
    for_people,
    level,
    setup,
)


def record(message: str, **extra: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": "barco.x", "levelname": "WARNING", "msg": message})
    vars(made).update(extra)
    return made


def test_lines_of_a_request_have_its_id() -> None:
    def asked() -> None:
        with OfRequest("order-7"):
            line = json.loads(JsonFormatter().format(record("slow", worker=1)))
            assert (line["request"], line["worker"]) == ("order-7", 1)
            assert TerminalFormatter().format(record("slow")).endswith("slow request=order-7")
            line = json.loads(JsonFormatter().format(record("refused", request="another")))
            assert line["request"] == "another", "what it says itself counts"
        assert "request" not in json.loads(JsonFormatter().format(record("slow")))

    copy_context().run(asked)
    assert "request" not in json.loads(JsonFormatter().format(record("slow")))


def test_json() -> None:
    line = json.loads(JsonFormatter().format(record("worker died", worker=1, pid=7)))
    time = line.pop("time")
    assert time.endswith("Z") and len(time) == len("2026-01-01T00:00:00.000Z")
    assert line == {
        "level": "warning",
        "logger": "barco.x",
        "message": "worker died",
        "worker": 1,
        "pid": 7,
    }


def test_for_a_person() -> None:
    text = TerminalFormatter().format(record("worker died", worker=1))
    assert text.split(" ", 1)[1] == "WARNING: worker died worker=1"


@pytest.mark.parametrize("evil", ['a\n{"level": "info"}', "\x1b[2J", "a\r\nb", "\u2028"])
def test_lines_cannot_be_forged(evil: str) -> None:
    for formatter in (JsonFormatter(), TerminalFormatter()):
        text = formatter.format(record(evil, topic=evil))
        assert text.isprintable()
    assert json.loads(JsonFormatter().format(record(evil, topic=evil)))["topic"] == evil


@pytest.mark.parametrize("size", [1_000, 10_000, 1_000_000])
def test_lines_have_a_limit(size: int) -> None:
    for evil in ("x" * size, "\x00" * size):
        line = JsonFormatter().format(record(evil, topic=evil))
        assert len(line) <= limits.LOG_LINE_BYTES_MAX + 200
        json.loads(line)
        assert len(TerminalFormatter().format(record(evil))) <= limits.LOG_LINE_BYTES_MAX


def test_tracebacks_stay_on_one_line() -> None:
    try:
        raise OSError("no disk")
    except OSError:
        text = JsonFormatter().format(record("failed", exc_info=sys.exc_info()))
    message = json.loads(text)["message"]
    assert "\n" not in message and message.endswith("OSError: no disk")


def test_setup_is_for_barco_only() -> None:
    stream = io.StringIO()
    setup(stream)
    try:
        logging.getLogger("barco.test").info("hello", extra={"n": 1})
        logging.getLogger("barco.test").debug("not shown")
    finally:
        logging.getLogger("barco").handlers.clear()
        logging.getLogger("barco").propagate = True
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["hello"]


def test_another_level_and_form_while_it_runs() -> None:
    stream = io.StringIO()
    setup(stream)
    logger = logging.getLogger("barco.test")
    try:
        assert follow("info", "auto") == "" and level() == "info"
        assert follow("error", "auto") == "log.level is error" and level() == "error"
        logger.warning("not shown")
        assert follow("debug", "text") == "log.level is debug; log.format is text"
        logger.debug("shown", extra={"n": 1})
        assert for_people(stream)
    finally:
        follow("info", "auto")
        logging.getLogger("barco").handlers.clear()
        logging.getLogger("barco").propagate = True
    assert stream.getvalue()[8:] == " shown n=1\n" and not for_people(stream)


def test_what_happens_often_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    seldom = Seldom(logging.getLogger("barco.seldom"), 0.05)
    with caplog.at_level("ERROR", "barco.seldom"):
        for number in range(1000):
            seldom.error("bad %d", number)
        assert len(caplog.messages) < 100 and caplog.messages[0] == "bad 0"
        time.sleep(0.06)
        seldom.error("bad %d", 1000)
    assert "more since the last line" in caplog.messages[-1]
