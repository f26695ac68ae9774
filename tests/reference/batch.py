"""Client batches, as the core writes them: to be held against it."""

import struct
from collections.abc import Sequence

from reference.columns import encode_sections, make_columns

_HEADER = struct.Struct("<IBBHIIqQ")
_MAGIC = 0x54414242
_VERSION = 1


def encode_batch(
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None = None,
    timestamps_us: Sequence[int] | None = None,
    compress: bool = True,
) -> bytes:
    """A batch's bytes. ValueError: see make_columns()."""
    columns, base_us = make_columns(values, keys, timestamps_us)
    section_count, directory, body = encode_sections(columns, compress=compress)
    total = _HEADER.size + len(directory) + len(body)
    head = (_MAGIC, _VERSION, section_count, 0, columns.count, total, base_us, 0)
    return _HEADER.pack(*head) + directory + body
