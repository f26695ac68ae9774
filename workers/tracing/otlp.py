"""Spans as OTLP has them in Protobuf: an ExportTraceServiceRequest, written field by field.

The few fields that we have take less code than a library that knows all, and need none.
"""

import struct
from collections.abc import Mapping, Sequence

from barco.workers.tracing.traces import Span

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_ERROR = 2


def encode(spans: Sequence[Span], resource: Mapping[str, str | int], version: str) -> bytes:
    """A request's body."""
    scope = _bytes(1, b"barco") + _bytes(2, version.encode())
    told = _bytes(1, scope) + b"".join(_bytes(2, _span(span)) for span in spans)
    return _bytes(1, _bytes(1, _attributes(1, resource)) + _bytes(2, told))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(value)) + value


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3 | _VARINT) + _varint(value)


def _time(number: int, at_us: int) -> bytes:
    return _varint(number << 3 | _FIXED64) + struct.pack("<Q", at_us * 1000)


def _attributes(number: int, given: Mapping[str, str | int]) -> bytes:
    found = []
    for key, value in given.items():
        told = _bytes(1, value.encode()) if isinstance(value, str) else _number(3, value)
        found.append(_bytes(number, _bytes(1, key.encode()) + _bytes(2, told)))
    return b"".join(found)


def _span(span: Span) -> bytes:
    told = [_bytes(1, span.trace), _bytes(2, span.id)]
    if span.parent:
        told.append(_bytes(4, span.parent))
    told += [_bytes(5, span.name.encode()), _number(6, span.kind)]
    told += [_time(7, span.begun_us), _time(8, span.ended_us), _attributes(9, span.attributes)]
    if span.failed:
        told.append(_bytes(15, _number(3, _ERROR)))
    return b"".join(told)
