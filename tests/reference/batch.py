"""Client batches, as the core writes and reads them: to be held against it."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from barco.errors import ProtocolError
from barco.protocol.batch import TIMESTAMP_US_MIN
from reference.columns import encode_sections, make_columns
from reference.sections import (
    KEY_NULL,
    PLAIN,
    WITH_HEADERS,
    Headers,
    read_sections,
    unpack_columns,
)

_HEADER = struct.Struct("<IBBHIIqQ")
_MAGIC = 0x54414242
_ENTRY_BYTES = 16


class Batch(NamedTuple):
    """The events of a batch."""

    values: list[bytes | None]
    keys: list[bytes | None]
    timestamps_us: list[int] | None
    """None: the broker's clock."""
    headers: list[Headers]


def encode_batch(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    timestamps_us: Sequence[int] | None = None,
    compress: bool = True,
    headers: Sequence[Headers] | None = None,
) -> bytes:
    """A batch's bytes. ValueError: see make_columns()."""
    columns, base_us = make_columns(values, keys, timestamps_us, headers)
    section_count, directory, body = encode_sections(columns, compress=compress)
    total = _HEADER.size + len(directory) + len(body)
    head = (_MAGIC, columns.version, section_count, 0, columns.count, total, base_us, 0)
    return _HEADER.pack(*head) + directory + body


def decode_batch(buf: bytes | bytearray | memoryview) -> Batch:
    """The events of exactly one batch; ProtocolError if it is none."""
    view = memoryview(buf)
    if len(view) < _HEADER.size:
        raise ProtocolError("a batch has at least 32 bytes")
    magic, version, sections, flags, count, total, base_us, reserved = _HEADER.unpack_from(view)
    if (magic, flags, reserved) != (_MAGIC, 0, 0) or version not in (PLAIN, WITH_HEADERS):
        raise ProtocolError("not a batch")
    head = _HEADER.size + sections * _ENTRY_BYTES
    if total != len(view) or total < head or total % 8 or not count or base_us < TIMESTAMP_US_MIN:
        raise ProtocolError("the batch's header has impossible lengths")
    found = read_sections(
        view[_HEADER.size : head],
        view[head:],
        count=count,
        version=version,
        producers_allowed=False,
    )
    for section in found.values():
        section.verify()
    columns = unpack_columns(found, version)
    if base_us == 0 and columns.ts_delta is not None:
        raise ProtocolError("the batch has timestamps, but no time they count from")
    if any(65_535 < length != KEY_NULL for length in columns.key_len or ()):
        raise ProtocolError("a key has more than 65,535 bytes")
    columns.check_times(base_us)
    times = columns.timestamps(base_us) if base_us else None
    return Batch(columns.value_list(), columns.key_list(), times, columns.headers_list())
