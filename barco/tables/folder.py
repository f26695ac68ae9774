"""Parquet files in a folder: TOPIC-00000001.parquet and so on.

A file has in its footer how far the topic is exported with it, so a rename is the commit of both.
The same stands in a hidden file beside, for who moves files away or merges them: what is of the
higher number counts. Whatever a killed exporter left unfinished has a hidden name, and goes.
"""

import fcntl
import os
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from barco.errors import InUseError, OperatorError
from barco.tables.sink import Reached

KEY = b"barco.export"
LOCK, BESIDE, PARTIAL = ".barco-lock", ".barco-export", ".barco-partial"
NUMBER = r"(?P<number>[0-9]{8,})"
FOOTER_BYTES_MAX = 64 << 20


class Folder:
    """A sink. OperatorError: it has another topic, or files that can not be read."""

    def __init__(self, path: str, topic: str) -> None:
        self._path = Path(path)
        if self._path.exists() and not self._path.is_dir():
            raise OperatorError(f"{path} is not a directory")
        self._path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise InUseError(f"another export writes into {path}") from error
        try:
            self._stem = topic
            self._kind: pa.Schema | None = None
            (self._path / PARTIAL).unlink(missing_ok=True)
            self._number, self._progress = self._last()
        except BaseException:
            self.close()
            raise

    def progress(self) -> Reached | None:
        """Those of the last commit."""
        return self._progress

    def kind(self) -> pa.Schema | None:
        """The columns of the last file."""
        return self._kind

    def commit(self, rows: pa.Table, progress: Reached) -> str:
        """A file more, durable before it is told."""
        number = self._number + 1
        name = f"{self._stem}-{number:08}.parquet"
        partial = self._path / PARTIAL
        told = rows.replace_schema_metadata({KEY: progress.to_text().encode()})
        with open(partial, "wb") as file:
            pq.write_table(told, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, self._path / name)  # Not a rename: what is there is never written over.
        partial.unlink()
        self._sync()
        self._number, self._progress, self._kind = number, progress, rows.schema
        self._tell_beside()
        return name

    def close(self) -> None:
        """Lets another exporter begin."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _last(self) -> tuple[int, Reached | None]:
        pattern = re.compile(rf"{re.escape(self._stem)}-{NUMBER}\.parquet")
        found = [
            (int(m["number"]), m.string)
            for m in map(pattern.fullmatch, os.listdir(self._path))
            if m
        ]
        number, progress = self._beside()
        if not found and number == 0:
            return 0, None
        last, name = max(found, default=(0, ""))
        if found:
            self._kind = pq.read_schema(self._path / name)
        if last > number:
            text = (self._kind.metadata or {}).get(KEY) if self._kind is not None else None
            if text is None:
                raise OperatorError(f"{self._path / name} is not of an export")
            number, progress = last, Reached.from_text(text, str(self._path / name))
        return number, progress

    def _beside(self) -> tuple[int, Reached | None]:
        path = self._path / BESIDE
        try:
            number, _, text = path.read_text("utf-8").partition("\n")
        except FileNotFoundError:
            return 0, None
        if not number.isdecimal():
            raise OperatorError(f"{path} does not say how far it is")
        return int(number), Reached.from_text(text, str(path))

    def _tell_beside(self) -> None:
        assert self._progress is not None, "something was committed"
        partial = self._path / PARTIAL
        with open(partial, "w", encoding="utf-8") as file:
            file.write(f"{self._number}\n{self._progress.to_text()}")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._path / BESIDE)
        self._sync()

    def _sync(self) -> None:
        directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
