"""Arrow's IPC streams as they are written: a schema, record batches of buffers, an end.

The messages' heads are flatbuffers; of those there is as much here as four tables need. What is
written is little-endian and of metadata version 5; pyarrow, polars, DuckDB and Spark read it.
"""

import struct
from array import array
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from msgspec import Struct, field

CONTENT_TYPE = "application/vnd.apache.arrow.stream"

Buffer: TypeAlias = "bytes | memoryview | array[int]"

END = struct.pack("<Ii", 0xFFFFFFFF, 0)
"""Behind the last message."""

_VERSION_5 = 4
_SCHEMA, _RECORD_BATCH = 1, 3
_INT, _BINARY, _UTF8, _TIMESTAMP = 2, 4, 5, 10
_MICROSECOND = 2


class _Vector(Struct, frozen=True):
    """Of tables, or of structs that are packed already."""

    items: Sequence["_Table"] = ()
    packed: bytes = b""
    count: int = 0


_Child: TypeAlias = "_Table | _Vector | str"


class _Table(Struct):
    """Numbers by field: how struct calls them, and what they are; and what stands elsewhere."""

    numbers: dict[int, tuple[str, int]] = field(default_factory=dict)
    children: dict[int, _Child] = field(default_factory=dict)


class _Writer:
    """One flatbuffer: whatever is pointed to stands behind what points there."""

    def __init__(self, root: _Table) -> None:
        self.bytes = bytearray(4)
        self._point(0, self._table(root))

    def _pad(self, to: int, behind: int = 0) -> None:
        """So that what comes next is at a multiple of `to`, so many bytes further."""
        self.bytes += bytes(-(len(self.bytes) + behind) % to)

    def _point(self, at: int, to: int) -> None:
        struct.pack_into("<I", self.bytes, at, to - at)

    def _table(self, table: _Table) -> int:
        found = [
            (struct.calcsize(how), how, value, at) for at, (how, value) in table.numbers.items()
        ]
        found += [(4, "<I", 0, at) for at in table.children]
        fields = 1 + max([*table.numbers, *table.children], default=-1)
        where, inline = [0] * fields, bytearray(4)
        for size, how, value, at in sorted(found, key=lambda each: -each[0]):
            where[at] = len(inline)  # The widest come first, so that each is aligned.
            inline += struct.pack(how, value)
            assert where[at] % size == 0 or size == 8
        self._pad(8, 4 + 4 + 2 * fields)  # The table's fields begin 4 behind a multiple of 8.
        vtable = len(self.bytes)
        self.bytes += struct.pack(f"<HH{fields}H", 4 + 2 * fields, len(inline), *where)
        start = len(self.bytes)
        struct.pack_into("<i", inline, 0, start - vtable)
        self.bytes += inline
        for at, child in table.children.items():
            self._point(start + where[at], self._child(child))
        return start

    def _child(self, child: _Child) -> int:
        if isinstance(child, _Table):
            return self._table(child)
        if isinstance(child, str):
            self._pad(4)
            start, text = len(self.bytes), child.encode()
            self.bytes += struct.pack("<I", len(text)) + text + b"\0"
            return start
        self._pad(8, 4)
        start = len(self.bytes)
        if child.packed:
            self.bytes += struct.pack("<I", child.count) + child.packed
            return start
        self.bytes += struct.pack("<I", len(child.items)) + bytes(4 * len(child.items))
        for number, item in enumerate(child.items):
            self._point(start + 4 + 4 * number, self._table(item))
        return start


def _message(kind: int, head: _Table, body_bytes: int) -> bytes:
    """A message up to its body, which begins at a multiple of 8."""
    root = _Table({0: ("<h", _VERSION_5), 1: ("<B", kind), 3: ("<q", body_bytes)}, {2: head})
    written = _Writer(root).bytes
    written += bytes(-len(written) % 8)
    return struct.pack("<Ii", 0xFFFFFFFF, len(written)) + bytes(written)


def _of_int(bits: int) -> tuple[int, _Table]:
    return _INT, _Table({0: ("<i", bits), 1: ("<B", 1)})


_TYPES = {
    "int32": _of_int(32),
    "int64": _of_int(64),
    "binary": (_BINARY, _Table()),
    "utf8": (_UTF8, _Table()),
    "timestamp": (_TIMESTAMP, _Table({0: ("<h", _MICROSECOND)}, {1: "UTC"})),
}


def schema(fields: Sequence[tuple[str, str, bool]]) -> bytes:
    """The first message: (name, type, whether there are nulls) of each column."""
    tables = []
    for name, kind, nullable in fields:
        number, described = _TYPES[kind]
        children: dict[int, _Child] = {0: name, 3: described, 5: _Vector()}
        tables.append(_Table({1: ("<B", nullable), 2: ("<B", number)}, children))
    return _message(_SCHEMA, _Table({0: ("<h", 0)}, {1: _Vector(tables)}), 0)


class Column(NamedTuple):
    """Of one batch. `buffers`: validity, then offsets where there are some, then the data."""

    nulls: int
    buffers: Sequence[Buffer]


def batch(rows: int, columns: Sequence[Column]) -> list[Buffer]:
    """A record batch, in parts that are not copied."""
    nodes = b"".join(struct.pack("<qq", rows, each.nulls) for each in columns)
    parts: list[Buffer] = []
    described, at = b"", 0
    for column in columns:
        for each in column.buffers:
            size = len(memoryview(each).cast("B"))
            described += struct.pack("<qq", at, size)
            if size:
                parts.append(each)
            if size % 8:
                parts.append(bytes(-size % 8))
            at += size + -size % 8
    count = sum(len(each.buffers) for each in columns)
    head = _Table(
        {0: ("<q", rows)},
        {1: _Vector(packed=nodes, count=len(columns)), 2: _Vector(packed=described, count=count)},
    )
    return [_message(_RECORD_BATCH, head, at), *parts]
