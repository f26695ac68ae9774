"""How events look as rows: as they are, or with columns of their JSON."""

import base64
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from barco.tables.columns import JsonColumns, parse_columns

OWN = ("key", "topic", "token", "slice", "epoch", "offset", "timestamp", "headers")
NONE, AUTO = "none", "auto"


@dataclass(frozen=True, slots=True)
class Shaped:
    """Rows, and what is to be told of them."""

    table: pa.Table
    kept_whole: int = 0
    not_text: int = 0


class Shape:
    """`asked`: none (key and value as they are), auto (columns by what the JSON has), or the
    columns, `name:type,…`. With columns the event's own are named with a _ before."""

    def __init__(self, asked: str, known: pa.Schema | None = None) -> None:
        """known: the columns that the table has already."""
        self.asked = asked
        self._columns: JsonColumns | None = None
        if asked != NONE:
            own = [f"_{name}" for name in (*OWN, "value")]
            if asked == AUTO:
                kept = [f for f in known or [] if f.name not in own]
                kind = pa.struct([pa.field(each.name, _bare(each.type)) for each in kept])
            else:
                kind = parse_columns(asked)
            self._columns = JsonColumns(kind, grow=asked == AUTO, taken=own)

    def rows(self, events: pa.Table) -> Shaped:
        """Of events as the job reads them."""
        key, bad_keys = _text(_whole(events, "key"))
        value, bad_values = _text(_whole(events, "value"))
        headers, bad_headers = _headers(_whole(events, "headers"))
        made = {"key": key, "headers": headers}
        own = {name: made.get(name, events.column(name)) for name in OWN}
        not_text = bad_keys + bad_values + bad_headers
        if self._columns is None:
            return Shaped(pa.table({**own, "value": value}), not_text=not_text)
        rows = self._columns.rows(_whole(events, "value"))
        columns = {
            field.name: rows.columns.field(number) for number, field in enumerate(rows.columns.type)
        }
        whole = pc.if_else(rows.fits, pa.scalar(None, pa.string()), value)
        table = pa.table(
            {f"_{name}": column for name, column in own.items()} | columns | {"_value": whole}
        )
        return Shaped(table, rows.fits.false_count, not_text)


def _whole(events: pa.Table, name: str) -> pa.Array:
    return events.column(name).combine_chunks()


def _headers(array: pa.ListArray) -> tuple[pa.Array, int]:
    """With values as text."""
    pairs = array.values
    value, bad = _text(pairs.field("value"))
    told = pa.StructArray.from_arrays([pairs.field("name"), value], ["name", "value"])
    return pa.ListArray.from_arrays(array.offsets, told, mask=array.is_null()), bad


def _text(array: pa.BinaryArray) -> tuple[pa.Array, int]:
    """As text; what is none is written as JSON answers write it, and counted."""
    try:
        return array.cast(pa.string()), 0
    except pa.ArrowInvalid:
        pass
    found, bad = [], 0
    for each in array.to_pylist():
        try:
            found.append(None if each is None else each.decode())
        except UnicodeDecodeError:
            bad += 1
            found.append('{"base64":"' + base64.b64encode(each).decode() + '"}')
    return pa.array(found, pa.string()), bad


def _bare(kind: pa.DataType) -> pa.DataType:
    """Without what a format adds: large strings, names of a list's items, ids of fields."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _bare(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_bare(kind.value_type))
    return pa.string() if pa.types.is_large_string(kind) else kind
