"""Whether messages of one Protobuf descriptor can be read with another, by what is on the wire.

Fields are the same if their numbers are; names may change. Careful where Protobuf allows more: a
field that becomes repeated, or no longer is, is told.
"""

import base64
from collections.abc import Iterator
from importlib import import_module
from itertools import islice
from typing import Any

from barco.workers.schemas import words

_ALIKE = (
    frozenset(("INT32", "INT64", "UINT32", "UINT64", "BOOL", "ENUM")),
    frozenset(("SINT32", "SINT64")),
    frozenset(("STRING", "BYTES")),
    frozenset(("FIXED32", "SFIXED32")),
    frozenset(("FIXED64", "SFIXED64")),
)
"""Types that are written alike; all others are read as what they are."""


def descriptor(text: str) -> Any | None:
    """The descriptor that a text is in base64; None of any other text, which is not read."""
    try:
        packed = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return import_module("google.protobuf.descriptor_pb2").FileDescriptorProto.FromString(packed)


def unreadable(reader: Any, writer: Any) -> list[str]:
    """What stands against reading with the one what was written with the other; empty: nothing."""
    return list(islice(_messages(reader.message_type, writer.message_type, ""), words.MESSAGES_MAX))


def _messages(readers: Any, writers: Any, at: str) -> Iterator[str]:
    named = {each.name: each for each in readers}
    for writer in {each.name: each for each in writers}.values():
        below = words.below(at, writer.name)
        if writer.name not in named:
            yield f"{below}: there is no such message any more"
            continue
        reader = named[writer.name]
        yield from _fields(reader, writer, below)
        yield from _choices(reader, writer, below)
        yield from _messages(reader.nested_type, writer.nested_type, below)


def _fields(reader: Any, writer: Any, at: str) -> Iterator[str]:
    written = {each.number: each for each in writer.field}
    for field in reader.field:
        below, there = words.below(at, field.name), written.get(field.number)
        if field.label == field.LABEL_REQUIRED and (
            there is None or there.label != field.LABEL_REQUIRED
        ):
            yield f"{below}: it is required, and was not"
        if there is None:
            continue
        if not _alike(field, there):
            yield f"{below}: number {field.number} is {_shown(field)}, and was {_shown(there)}"
        if (field.label == field.LABEL_REPEATED) != (there.label == field.LABEL_REPEATED):
            yield f"{below}: number {field.number} is repeated, or was"


def _alike(one: Any, other: Any) -> bool:
    kinds = {_kind(one), _kind(other)}
    if kinds & {"MESSAGE", "GROUP"}:
        return len(kinds) == 1 and bool(one.type_name == other.type_name)
    return len(kinds) == 1 or any(kinds <= alike for alike in _ALIKE)


def _choices(reader: Any, writer: Any, at: str) -> Iterator[str]:
    """Of fields that both were set only the last would be read, if they became one choice."""
    before = {each.number: _choice(each) for each in writer.field}
    chosen: dict[int | None, list[int]] = {}
    for field in reader.field:
        if field.number in before:
            chosen.setdefault(_choice(field), []).append(field.number)
    for index, choice in enumerate(reader.oneof_decl):
        inside = chosen.get(index, [])
        choices = [before[number] for number in inside]
        if len(inside) > 1 and (None in choices or len(set(choices)) > 1):
            yield f"{words.below(at, choice.name)}: fields that were not of one choice are in it"


def _choice(field: Any) -> int | None:
    return int(field.oneof_index) if field.HasField("oneof_index") else None


def _kind(field: Any) -> str:
    return str(type(field).Type.Name(field.type)).removeprefix("TYPE_")


def _shown(field: Any) -> str:
    return f"{_kind(field).lower()} {field.type_name}".strip()
