"""What may follow a descriptor, and for each that may: that real messages are read with it."""

import base64
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from barco.workers.schemas import words
from barco.workers.schemas.protobuf_rules import descriptor, unreadable


def file(*fields: tuple[Any, ...], name: str = "M", choices: int = 0) -> FileDescriptorProto:
    """Of fields (name, number, type, label, choice or -1)."""
    found = FileDescriptorProto(name="f.proto")
    message = found.message_type.add(name=name)
    for title, number, kind, *more in fields:
        label, choice = (*more, *(Field.LABEL_OPTIONAL, -1)[len(more) :])
        field = message.field.add(name=title, number=number, label=label)
        field.type = kind if isinstance(kind, int) else Field.TYPE_MESSAGE
        if not isinstance(kind, int):
            field.type_name = kind
        if choice >= 0:
            field.oneof_index = choice
    for each in range(choices):
        message.oneof_decl.add(name=f"c{each}")
    found.message_type.add(name="N")
    found.message_type.add(name="O")
    return found


def message(given: FileDescriptorProto) -> Any:
    pool = DescriptorPool()
    pool.Add(given)  # type: ignore[no-untyped-call]
    return GetMessageClass(pool.FindMessageTypeByName("M"))


OPTIONAL, REPEATED, REQUIRED = Field.LABEL_OPTIONAL, Field.LABEL_REPEATED, Field.LABEL_REQUIRED
INT, LONG, TEXT, BYTES = Field.TYPE_INT32, Field.TYPE_INT64, Field.TYPE_STRING, Field.TYPE_BYTES
ONE = file(("a", 1, INT))


@pytest.mark.parametrize(
    "reader",
    [
        ONE,
        file(("renamed", 1, INT)),
        file(("a", 1, LONG)),
        file(("a", 1, Field.TYPE_UINT64)),
        file(("a", 1, INT), ("b", 2, TEXT)),
        file(("b", 2, TEXT)),
        file(("a", 1, INT, OPTIONAL, 0), ("b", 2, TEXT, OPTIONAL, 0), choices=1),
    ],
)
def test_what_can_be_read(reader: FileDescriptorProto) -> None:
    assert not unreadable(reader, ONE)
    read = message(reader).FromString(message(ONE)(a=7).SerializeToString())
    assert all(value == 7 for _, value in read.ListFields())


@pytest.mark.parametrize(
    ("reader", "writer", "word"),
    [
        (file(("a", 1, TEXT)), ONE, "string, and was int32"),
        (file(("a", 1, Field.TYPE_SINT32)), ONE, "sint32"),
        (file(("a", 1, Field.TYPE_FIXED32)), ONE, "fixed32"),
        (file(("a", 1, INT, REPEATED)), ONE, "repeated"),
        (file(("a", 1, INT, REQUIRED)), ONE, "required"),
        (file(("a", 1, INT), ("b", 2, INT, REQUIRED)), ONE, "/M/b"),
        (file(("a", 1, INT), name="L"), ONE, "/M: there is no such message"),
        (file(("a", 1, ".N")), file(("a", 1, ".O")), "message .N, and was message .O"),
        (
            file(("a", 1, INT, OPTIONAL, 0), ("b", 2, TEXT, OPTIONAL, 0), choices=1),
            file(("a", 1, INT), ("b", 2, TEXT)),
            "/M/c0",
        ),
    ],
)
def test_what_can_not(reader: FileDescriptorProto, writer: FileDescriptorProto, word: str) -> None:
    assert word in "; ".join(unreadable(reader, writer))


def test_text_is_not_read() -> None:
    assert descriptor('syntax = "proto3"; message M {}') is None
    packed = base64.b64encode(ONE.SerializeToString()).decode()
    assert descriptor(packed) == ONE
    assert not unreadable(file(("a", 1, BYTES)), file(("a", 1, TEXT)))


def test_what_is_there_often_is_compared_once() -> None:
    """6,000 times 3,000 choices of 3,000 fields would take hours."""
    writer, reader = FileDescriptorProto(), FileDescriptorProto()
    for _ in range(6_000):
        writer.message_type.add()
    message = reader.message_type.add()
    for number in range(3_000):
        message.field.add(name=f"f{number}", number=1 + number)
        message.oneof_decl.add(name=f"c{number}")
    assert unreadable(reader, writer) == []
    assert len(unreadable(writer, reader)) <= words.MESSAGES_MAX
