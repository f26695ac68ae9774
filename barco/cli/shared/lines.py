"""Lines in, keys out: the bulk paths of `barco produce` and `barco load`.

A block of about a MiB at a time, so that the cost of Python is for the block, not for the event.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from barco.errors import OperatorError
from barco.limits import EVENT_BYTES_MAX_CEILING

BLOCK_BYTES = 1024 * 1024
_BRACE, _BACKSLASH = b"{\\"


class BadInputError(OperatorError):
    """The input is not what the options say it is; the message names the line."""

    slug = "bad-input"
    title = "The input cannot be read"


def blocks(stream: BinaryIO) -> Iterator[list[bytes]]:
    """The lines of the stream, without line ends and without blank ones, as they come.

    `stream` is unbuffered (a FileIO): a read returns what there is, so lines typed at a terminal
    or trickling through a pipe are not held back.
    """
    rest = b""
    while block := stream.read(BLOCK_BYTES):
        end = block.rfind(b"\n")
        if end < 0:
            rest += block
            if len(rest) > EVENT_BYTES_MAX_CEILING:
                raise BadInputError(f"a line is longer than {EVENT_BYTES_MAX_CEILING} bytes")
            continue
        yield split_lines(rest + block[:end])
        rest = block[end + 1 :]
    if rest:
        yield split_lines(rest)


def split_lines(text: bytes) -> list[bytes]:
    """The lines that are not blank; a carriage return before a line end belongs to it."""
    lines = text.split(b"\n")
    if b"\r" in text:
        lines = [line.removesuffix(b"\r") for line in lines]
    return [line for line in lines if line and not line.isspace()]


class KeyField:
    """Finds the partition key in lines of JSON: the value of one field of the outermost object.

    It is looked up in the bytes where that is certain: the field's name occurs once, and before it
    no other object begins. Any other line is parsed. Text is the key as it is, a number or a
    truth value as JSON writes it; null or no such field: no key.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines = 0
        self._quoted = json.dumps(name, ensure_ascii=False).encode()
        self._value = re.compile(
            rb'\s*:\s*(?:"([^"\\]*)"|(-?[0-9][0-9.eE+-]*|true|false)(?=\s*[,}])|null)'
        ).match

    def keys(self, lines: list[bytes]) -> list[bytes | None]:
        """The key of each line, None where there is none. BadInputError names a bad line."""
        quoted, length, value = self._quoted, len(self._quoted), self._value
        keys: list[bytes | None] = []
        for line in lines:
            at = line.find(quoted)
            if (
                at > 0
                and line[0] == _BRACE
                and line[at - 1] != _BACKSLASH
                and line.find(quoted, at + 1) < 0
                and line.count(b"{", 0, at) == 1
                and (match := value(line, at + length)) is not None
            ):
                keys.append(match[1] if match[2] is None else match[2])
            else:
                keys.append(self._parsed(line, self.lines + len(keys) + 1))
        self.lines += len(lines)
        return keys

    def _parsed(self, line: bytes, number: int) -> bytes | None:
        try:
            # Numbers stay as they are written: 1.10 and 1.1 are different keys, always.
            event = json.loads(line, parse_float=_Written, parse_int=_Written)
        except (ValueError, RecursionError) as error:
            raise BadInputError(f"event {number} is not JSON: {error}") from None
        if not isinstance(event, dict):
            raise BadInputError(f"event {number} is not a JSON object, so it has no field")
        return key_of(event.get(self.name))


class _Written(str):
    """A number as it was written."""

    __slots__ = ()


def key_of(value: Any) -> bytes | None:
    """A JSON value as a partition key."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def csv_blocks(
    stream: BinaryIO, key_field: str | None
) -> Iterator[tuple[list[bytes], list[bytes | None] | None]]:
    """(events, keys) of a CSV file with a header: each row as a JSON object of strings."""
    text = io.TextIOWrapper(stream, "utf-8-sig", newline="")
    reader = csv.reader(text)
    try:
        header = next(reader, None)
        if not header:
            return
        if key_field is not None and key_field not in header:
            raise BadInputError(f"there is no column {key_field!r}: {', '.join(header)}")
        column = None if key_field is None else header.index(key_field)
        yield from _csv_rows(reader, header, column)
    except (csv.Error, UnicodeDecodeError) as error:
        raise BadInputError(f"line {reader.line_num}: not CSV in UTF-8: {error}") from None


def _csv_rows(
    reader: Any, header: list[str], column: int | None
) -> Iterator[tuple[list[bytes], list[bytes | None] | None]]:
    encode: Callable[[Any], str] = json.JSONEncoder(
        ensure_ascii=False, separators=(",", ":")
    ).encode
    values: list[bytes] = []
    keys: list[bytes | None] = []
    size = 0
    for row in reader:
        if not row:
            continue
        if len(row) != len(header):
            raise BadInputError(
                f"line {reader.line_num}: {len(row)} fields, but the header has {len(header)}"
            )
        value = encode(dict(zip(header, row, strict=True))).encode()
        values.append(value)
        size += len(value)
        if column is not None:
            keys.append(row[column].encode() or None)
        if size >= BLOCK_BYTES:
            yield values, keys if column is not None else None
            values, keys, size = [], [], 0
    if values:
        yield values, keys if column is not None else None
