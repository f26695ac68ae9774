"""Log lines: one event a line, JSON for machines, short text for a person at a terminal.

Everybody uses the standard library: `logging.getLogger("barco.…").info("worker started",
extra={"worker": 0})`. What is in `extra` becomes fields. Text that came from a client can not
forge a line: JSON escapes it, the terminal form prints its repr, and lines have a length limit.
"""

import json
import logging
import time
from collections.abc import Coroutine, Mapping
from contextvars import ContextVar
from typing import Any, Self, TextIO

from barco.limits import LOG_LINE_BYTES_MAX

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


GIVEN_ID_BYTES_MAX = 128
"""Of what a client calls its request: twice what people use; the core takes no more."""


class OfRequest:
    """With this, lines of a task are about a request that somebody follows by its id. Each request
    has a task, with a context of its own."""

    def __init__(self, id: str) -> None:
        self.id = id

    def __enter__(self) -> Self:
        _asked.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        """It is answered: what goes on, a connection that it opened perhaps, is others' as well."""
        self.id = ""


_asked: ContextVar[OfRequest | None] = ContextVar("barco.asked", default=None)


async def about(request: str, work: Coroutine[Any, Any, None]) -> None:
    """Does it, as a part of that request."""
    with OfRequest(request[:GIVEN_ID_BYTES_MAX]):
        await work


def asked_id() -> str:
    """Of the request that this task is about; "": it has none, or is answered."""
    asked = _asked.get()
    return "" if asked is None else asked.id


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    found = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if "request" not in found and (request := asked_id()):
        found["request"] = request
    return found


def _text(record: logging.LogRecord) -> str:
    """The message; a traceback, if any, is folded into it so that it stays one line."""
    text = record.getMessage()
    if record.exc_info and record.exc_info[0] is not None:
        lines = logging.Formatter().formatException(record.exc_info).splitlines()
        text += " | " + " | ".join(line.strip() for line in lines)
    return text


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time (UTC), level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The line for one record, without its newline."""
        seconds = time.gmtime(record.created)
        line: dict[str, Any] = {
            "time": f"{time.strftime('%Y-%m-%dT%H:%M:%S', seconds)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _text(record)[: LOG_LINE_BYTES_MAX // 2],
        }
        text = json.dumps(line | _fields(record), default=repr)
        if len(text) > LOG_LINE_BYTES_MAX:
            # Without its fields it fits: escapes can double the message, no more than twice.
            line["message"] = line["message"][: LOG_LINE_BYTES_MAX // 8]
            text = json.dumps(line | {"cut": True})
        return text


class TerminalFormatter(logging.Formatter):
    """`12:00:00 worker started worker=0`; warnings and errors say so."""

    def format(self, record: logging.LogRecord) -> str:
        """The line for one record, without its newline."""
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        return terminal_line(clock, record.levelname.lower(), _text(record), _fields(record))


def terminal_line(clock: str, level: str, message: str, values: Mapping[str, Any]) -> str:
    """One line for a person, safe to print whatever the values hold."""
    marks = {"info": "", "debug": ""}
    parts = [clock, marks.get(level, f"{level.upper()}:"), _safe(message)]
    parts += [f"{name}={_safe(str(value))}" for name, value in values.items()]
    return " ".join(part for part in parts if part)[:LOG_LINE_BYTES_MAX]


def _safe(text: str) -> str:
    """Without control characters: an escape sequence in a topic name must not reach a terminal."""
    return text if text.isprintable() else repr(text)


class Seldom:
    """One line a minute of what may happen thousands of times; it says how often it did."""

    def __init__(self, log: logging.Logger, seconds: float = 60.0) -> None:
        self._log = log
        self._seconds = seconds
        self._next = 0.0
        self._passed_over = 0

    def error(self, text: str, *args: object) -> None:
        """The line, or one more that is only counted."""
        now = time.monotonic()
        if now < self._next:
            self._passed_over += 1
            return
        more = f" ({self._passed_over} more since the last line)" if self._passed_over else ""
        self._log.error(text + "%s", *args, more)
        self._next, self._passed_over = now + self._seconds, 0


JSON = JsonFormatter()

_settings = {"level": "info", "format": "auto"}
"""Of this process, as `follow` had them last."""


def setup(stream: TextIO) -> None:
    """Send barco's log lines to `stream`, in the form that suits it, until `follow` is called."""
    logger = logging.getLogger("barco")
    logger.handlers[:] = [logging.StreamHandler(stream)]
    logger.propagate = False
    follow("info", "auto")


def follow(level: str, format: str) -> str:
    """From now on these; what is another now, in words. Section [log] of the configuration."""
    before, after = dict(_settings), {"level": level, "format": format}
    _settings.update(after)
    logger = logging.getLogger("barco")
    logger.setLevel(level.upper())
    for handler in logger.handlers:
        if type(handler) is logging.StreamHandler:  # That of `setup`; others have a form of theirs.
            handler.setFormatter(TerminalFormatter() if for_people(handler.stream) else JSON)
    changed = [name for name in after if after[name] != before[name]]
    return "; ".join(f"log.{name} is {after[name]}" for name in changed)


def level() -> str:
    """The one that counts now, as `follow` takes it."""
    return _settings["level"]


def for_people(stream: TextIO) -> bool:
    """Whether lines of there are text now, and not JSON."""
    form = _settings["format"]
    return stream.isatty() if form == "auto" else form == "text"
