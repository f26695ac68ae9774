"""What a worker writes to its standard error, passed on line by line; the last line is kept."""

import json
import logging
from datetime import datetime
from typing import Any, TextIO

from barco.limits import LOG_LINE_BYTES_MAX
from barco.log import for_people, terminal_line

log = logging.getLogger("barco.worker")


class LogRelay:
    """Lines of one worker on their way to the supervisor's own log."""

    def __init__(self, worker: int, stream: TextIO) -> None:
        self._worker = worker
        self._stream = stream
        self._rest = b""
        self.last_line = ""
        """The text of the last line: what a traceback ends with."""

    def feed(self, data: bytes) -> None:
        """Pass complete lines on; an endless one is cut into pieces."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line)
        while len(self._rest) > LOG_LINE_BYTES_MAX:
            self._line(self._rest[:LOG_LINE_BYTES_MAX])
            self._rest = self._rest[LOG_LINE_BYTES_MAX:]

    def close(self) -> None:
        """Pass on what has no newline."""
        if self._rest:
            self._line(self._rest)
            self._rest = b""

    def _line(self, raw: bytes) -> None:
        text = raw.decode("utf-8", "backslashreplace").rstrip()
        if not text:
            return
        values = _structured(text)
        if values is None:
            self.last_line = text
            log.warning(text, extra={"worker": self._worker})
            return
        self.last_line = str(values.get("message", text))
        if for_people(self._stream):
            text = _for_terminal(self._worker, values)
        # Written directly: it is a finished line of the worker's, not an event of ours.
        self._stream.write(text + "\n")
        self._stream.flush()


def _structured(text: str) -> dict[str, Any] | None:
    """The fields of a JSON log line; None for anything else."""
    if not text.startswith("{"):
        return None
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) and "message" in values else None


def _for_terminal(worker: int, values: dict[str, Any]) -> str:
    try:
        clock = f"{datetime.fromisoformat(str(values.get('time'))).astimezone():%H:%M:%S}"
    except ValueError:
        clock = ""
    rest = {"worker": worker}
    rest |= {k: v for k, v in values.items() if k not in ("time", "level", "logger", "message")}
    return terminal_line(clock, str(values.get("level", "info")), str(values["message"]), rest)
