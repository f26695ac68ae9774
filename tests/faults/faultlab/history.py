"""What a load did and saw, one JSON object a line, and the values that it writes.

A line is one operation that has ended, or one that never will be known to have:

    {"f": "send", "t0", "t1", "proc", "type": "ok"|"fail"|"info", "topic", "key": text|null,
     "ns": [numbers of the events], "status", "pid": producer id|null, "attempts"}
    {"f": "poll"|"read", "t1", "proc", "session", "topic", "events": [[slice, epoch, offset, key,
     value]]}
    {"f": "commit", "t1", "group", "positions": {slice: offset}}
    {"f": "fault", "t0", "t1", "what"}
    {"f": "leads", "t1", "slices": [first, stop]}: somebody began to lead these, as the logs say

Times are seconds of the monotonic clock. "fail" stands only for answers that say "not written".
"""

import json
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

Record = dict[str, Any]

PAD = "".join(f"{number * 2654435761 % 2**32:08x}" for number in range(200))


def make_value(proc: str, number: int, key: str | None) -> bytes:
    """The only value that this process writes with this number and key: it proves itself."""
    name = f"{proc}:{number}:{key if key is not None else ''}"
    crc = zlib.crc32(name.encode())
    start = crc % 300
    return f"{name}:{crc:08x}:{PAD[start : start + 20 + crc % 1000]}".encode()


def parse_value(value: bytes) -> tuple[str, int, str | None] | None:
    """(proc, number, key), or None for anything that `make_value` does not make."""
    parts = value.split(b":", 4)
    if len(parts) != 5 or not parts[1].isdigit():
        return None
    proc, number, key = parts[0].decode(), int(parts[1]), parts[2].decode() or None
    return (proc, number, key) if make_value(proc, number, key) == value else None


class History:
    """Appends records to a file; any thread may."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._file: TextIO = path.open("a", encoding="utf-8")
        self.acked = 0
        """Events in answers that said "stored"."""

    def add(self, record: Record) -> None:
        """One operation that has ended."""
        text = json.dumps(record, separators=(",", ":")) + "\n"
        with self._lock:
            if record["f"] == "send" and record["type"] == "ok":
                self.acked += len(record["ns"])
            self._file.write(text)

    def fault(self, what: str, since: float) -> None:
        """From `since` to now something was broken on purpose."""
        self.add({"f": "fault", "t0": since, "t1": time.monotonic(), "what": what})

    def records(self) -> Iterator[Record]:
        """Everything so far."""
        with self._lock:
            self._file.flush()
        with self.path.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)

    def close(self) -> None:
        """Writes what is left."""
        self._file.close()
