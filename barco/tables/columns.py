"""JSON values as columns, by pyarrow's reader. Pure.

An event that does not fit its columns is neither bent nor dropped: it is kept whole, as text.
What does not fit: what is no JSON object, a field of another type than its column, a field beyond
the columns that a table may have.

The reader knows no lines, only objects one after the other, so each value is put into an object of
its own, {"v": value}: whatever a value is, none reaches into the next one then, since a line that
begins with a brace can not continue anything. As many rows as values are one for each.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from barco.errors import OperatorError

COLUMNS_MAX = 1_000
"""Found ones, nested ones counted: each is a chunk in every file, and a builder in memory."""
DEPTH_MAX = 16
"""Of objects and lists in one another: readers of Parquet recurse."""
NESTED_MAX = 1_000
"""What is given to pyarrow at all: it recurses too, and 20,000 deep it dies of it (26.0)."""
BLOCK_BYTES = 1 << 20

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)

TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", "UTC"),
}


def parse_columns(text: str) -> pa.StructType:
    """`name:type,name:type[]` as columns; OperatorError says what is wrong with it."""
    fields: dict[str, pa.DataType] = {}
    for word in text.split(","):
        name, _, kind = word.strip().rpartition(":")
        base = kind.removesuffix("[]")
        if not name or base not in TYPES:
            raise OperatorError(
                f"column {word.strip()!r}: it is name:type, with a type of {', '.join(TYPES)},"
                " or one of them with []"
            )
        if name.lower() in (each.lower() for each in fields):
            raise OperatorError(f"column {name!r} is named twice")
        fields[name] = TYPES[base] if base == kind else pa.list_(TYPES[base])
    return pa.struct(list(fields.items()))


@dataclass(frozen=True, slots=True)
class Rows:
    """Of values, in their order."""

    columns: pa.StructArray
    """Null where a value does not fit, or is none."""
    fits: pa.BooleanArray


class JsonColumns:
    """The columns of a table so far. They grow with what is read, unless they were given."""

    def __init__(self, kind: pa.StructType, *, grow: bool, taken: Sequence[str] = ()) -> None:
        """taken: names of the event's own columns; a field of such a name does not fit."""
        self._seen: pa.StructType = kind
        """As it was met: a field that was only ever null has no type yet, and is no column."""
        self._grow = grow
        self._taken = frozenset(name.lower() for name in taken)

    @property
    def kind(self) -> pa.StructType:
        """The columns, as one type."""
        return _told(self._seen) or pa.struct([])

    def rows(self, values: pa.BinaryArray) -> Rows:
        """A row for each value. A value that is null, a tombstone, fits: it has no fields."""
        lines = _Lines(values)
        if self._grow and self._read(lines, 0, len(values)) is None:
            before = self.kind
            for found in self._inferred(lines, 0, len(values), before):
                self._learn(found)
        parts = list(self._parts(lines, 0, len(values)))
        kind = self.kind
        columns = pa.chunked_array(
            [
                pa.nulls(end - at, kind) if part is None else _as(part, kind)
                for at, end, part in parts
            ],
            kind,
        ).combine_chunks()
        read = pa.chunked_array(
            [
                pa.repeat(False, end - at) if part is None else part.is_valid()
                for at, end, part in parts
            ],
            pa.bool_(),
        ).combine_chunks()
        return Rows(columns, pc.or_(read, values.is_null()))

    def _parts(
        self, lines: "_Lines", start: int, end: int
    ) -> Iterator[tuple[int, int, pa.StructArray | None]]:
        """Halves what can not be read, until single values are left that can not."""
        if start == end:
            return
        part = self._read(lines, start, end)
        if part is not None or end - start == 1:
            yield start, end, part
            return
        middle = (start + end) // 2
        yield from self._parts(lines, start, middle)
        yield from self._parts(lines, middle, end)

    def _read(self, lines: "_Lines", start: int, end: int) -> pa.StructArray | None:
        # What found columns do not have would be lost; beside given ones it is not asked for.
        return lines.read(start, end, self._seen, "error" if self._grow else "ignore")

    def _inferred(
        self, lines: "_Lines", start: int, end: int, known: pa.StructType
    ) -> Iterator[pa.StructType]:
        """What is found in the values, beside what is known; parts that can not be read halved."""
        if start == end:
            return
        found = lines.read(start, end, known, "infer")
        if found is not None:
            yield found.type
        elif end - start > 1:
            middle = (start + end) // 2
            yield from self._inferred(lines, start, middle, known)
            yield from self._inferred(lines, middle, end, known)

    def _learn(self, found: pa.StructType) -> None:
        """Takes in what may be columns; anything else will not fit."""
        fields = {field.name: field.type for field in self._seen}
        lower = {name.lower(): name for name in fields}
        for field in found:
            low = field.name.lower()
            if not low or low in self._taken or lower.get(low, field.name) != field.name:
                continue
            kind = _plain(field.type)
            kind = _union(fields[field.name], kind) if field.name in fields else kind
            whole = pa.struct([*({**fields, field.name: kind}).items()])
            if _count(whole) > COLUMNS_MAX or _depth(whole) > DEPTH_MAX:
                continue
            fields[field.name] = kind
            lower[low] = field.name
        self._seen = pa.struct(list(fields.items()))


class _Lines:
    """The values, a line each, for pyarrow's reader."""

    def __init__(self, values: pa.BinaryArray) -> None:
        objects = pc.match_substring_regex(values, r"^\s*\{").fill_null(False)
        objects = pc.and_(objects, _shallow(values))
        lines = pc.if_else(objects, values.cast(pa.large_binary()), _wide(b"null"))
        for end in (b"\n", b"\r"):  # Within a string they are escaped, else they are spaces.
            lines = pc.replace_substring(lines, end, b" ")
        lines = pc.binary_join_element_wise(_wide(b'{"v":'), lines, _wide(b"}\n"), _wide(b""))
        self._offsets = lines.buffers()[1]
        self._bytes = lines.buffers()[2]
        assert lines.offset == 0, "offsets are from the buffer's beginning"
        self._at = memoryview(self._offsets).cast("q")
        longest = pc.max(pc.binary_length(lines)).as_py() or 0
        self._block = max(BLOCK_BYTES, 2 * longest)

    def read(
        self, start: int, end: int, kind: pa.StructType, unexpected: str
    ) -> pa.StructArray | None:
        """These values as objects with such fields; None: one of them is not so."""
        first, last = self._at[start], self._at[end]
        explicit = pa.schema([("v", kind)]) if kind.num_fields or unexpected != "infer" else None
        try:
            table = pj.read_json(
                pa.BufferReader(self._bytes.slice(first, last - first)),
                pj.ReadOptions(block_size=self._block),
                pj.ParseOptions(
                    explicit_schema=explicit,
                    unexpected_field_behavior=unexpected,
                ),
            )
            if len(table) != end - start or table.column_names != ["v"]:
                return None
            found = table.column("v").combine_chunks()
            found.validate(full=True)  # Text that is no UTF-8 is read as it is.
        except pa.ArrowInvalid:
            return None
        if pa.types.is_null(found.type):
            return pa.nulls(len(found), kind)
        return found if pa.types.is_struct(found.type) else None


def _shallow(values: pa.BinaryArray) -> pa.BooleanArray:
    """Which are nested at most NESTED_MAX deep. Only what has so many braces is looked at."""
    opened = pc.add(pc.count_substring(values, b"{"), pc.count_substring(values, b"["))
    many = pc.greater(opened, NESTED_MAX).fill_null(False)
    if not pc.any(many).as_py():
        return pc.invert(many)
    fine = [
        not look or value is None or _nested(value) <= NESTED_MAX
        for look, value in zip(many.to_pylist(), values, strict=True)
    ]
    return pa.array(fine)


def _nested(value: pa.BinaryScalar) -> int:
    """How deep; of what is no JSON at least as deep as a reader gets before it knows."""
    steps = {b"{"[0]: 1, b"["[0]: 1, b"}"[0]: -1, b"]"[0]: -1}
    bare = _STRING.sub(b"", value.as_py())
    return max(accumulate(steps.get(each, 0) for each in bare), default=0)


def _wide(text: bytes) -> pa.Scalar:
    """As a column with 64-bit offsets takes it: a batch may be larger than 2 GiB with its ends."""
    return pa.scalar(text, pa.large_binary())


def _plain(kind: pa.DataType) -> pa.DataType:
    """A found type as a column has it: what looks like a time stays text, as others may not."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _plain(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    for test in (pa.types.is_null, pa.types.is_int64, pa.types.is_float64, pa.types.is_boolean):
        if test(kind):
            return kind
    return pa.string()


def _union(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """A type for the values of both, or the first one: what is of the other does not fit then."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    if pa.types.is_int64(one) and pa.types.is_float64(other):
        return other
    if pa.types.is_list(one) and pa.types.is_list(other):
        return pa.list_(_union(one.value_type, other.value_type))
    if pa.types.is_struct(one) and pa.types.is_struct(other):
        fields = {field.name: field.type for field in one}
        for field in other:
            had = fields.get(field.name)
            fields[field.name] = field.type if had is None else _union(had, field.type)
        return pa.struct(list(fields.items()))
    return one


def _told(kind: pa.DataType) -> pa.DataType | None:
    """Without what has no type yet; None: nothing is left."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_list(kind):
        inner = _told(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(kind):
        fields = [(field.name, _told(field.type)) for field in kind]
        left = [(name, told) for name, told in fields if told is not None]
        return pa.struct(left) if left else None
    return kind


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same without what is not in `kind`, and with nulls for what only `kind` has."""
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        fields = [
            pa.nulls(len(array), field.type)
            if array.type.get_field_index(field.name) < 0
            else _as(array.field(field.name), field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        inner = _as(array.values, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, inner, mask=array.is_null())
    return array.cast(kind)


def _count(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(1 + _count(field.type) for field in kind)
    return _count(kind.value_type) if pa.types.is_list(kind) else 0


def _depth(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return 1 + max((_depth(field.type) for field in kind), default=0)
    return 1 + _depth(kind.value_type) if pa.types.is_list(kind) else 0
