"""Chunks: Python and the C core write and read the same bytes."""

import pytest
from reference.chunk import (
    Event,
    ProducerRun,
    decode_chunk,
    decode_chunks,
    encode_chunk,
    read_header,
)
from reference.core import chunk_encode

from barco import _native
from barco.errors import ProtocolError
from barco.types import Epoch, Offset, SliceIndex

VALUES = [b'{"tail":"N%d"}' % n * 3 for n in range(200)]
KEYS: list[bytes | None] = [None if n % 3 else b"N%d" % n for n in range(200)]
TIMES = [10**15 + 7 * n for n in range(200)]
PLACE = {"topic": "flights", "slice": SliceIndex(3), "epoch": Epoch(2), "base_offset": Offset(40)}


def make(compress: bool = True) -> bytes:
    """A chunk of 200 events by the C core."""
    return chunk_encode("flights", 3, 2, 40, VALUES, KEYS, TIMES, compress)


def test_same_bytes() -> None:
    """Uncompressed, Python writes what the C core writes."""
    for keys in (None, KEYS, [b"k"] * 200):
        for times in (None, TIMES, [5] * 200):
            native = chunk_encode("flights", 3, 2, 40, VALUES, keys, times, False)
            assert encode_chunk(VALUES, keys, times, compress=False, **PLACE) == native


@pytest.mark.parametrize("compress", [True, False])
def test_each_reads_the_other(compress: bool) -> None:
    """The events come back whichever side wrote and whichever reads."""
    expected = [Event(Offset(40 + n), TIMES[n], KEYS[n], VALUES[n]) for n in range(200)]
    for chunk in (make(compress), encode_chunk(VALUES, KEYS, TIMES, compress=compress, **PLACE)):
        assert decode_chunk(chunk).events() == expected
        assert _native.chunk_events(chunk) == expected


def test_header() -> None:
    """Both sides see the same header."""
    chunk = make()
    header, info = read_header(chunk), _native.chunk_info(chunk)
    assert info is not None
    for name in header.__slots__:
        assert getattr(header, name) == info[name], name  # type: ignore[literal-required]
    assert header.end_offset == 240 and header.topic == "flights"


def test_producers_come_back() -> None:
    """The runs of idempotent producers are kept, and must lie inside the chunk."""
    runs = (ProducerRun(bytes(range(16)), 1, 0, 99, 150), ProducerRun(bytes(16), 0, 150, 1, 50))
    chunk = encode_chunk(VALUES, KEYS, TIMES, producers=runs, **PLACE)
    assert decode_chunk(chunk).producers == runs
    assert len(_native.chunk_events(chunk)) == 200
    outside = encode_chunk(
        VALUES, producers=[runs[0], runs[1]._replace(seq=2, event_count=51)], **PLACE
    )
    with pytest.raises(ProtocolError, match="outside"):
        decode_chunk(outside)
    with pytest.raises(ValueError, match="checksum"):
        _native.chunk_events(outside)


def test_back_to_back() -> None:
    """A buffer of chunks is walked from one to the next; a cut one is told."""
    both = make() + make(False)
    assert [chunk.header.stored_bytes for chunk in decode_chunks(both)] == [
        stored for _, stored, *_ in _native.chunks_scan(both)
    ]
    with pytest.raises(ProtocolError):
        list(decode_chunks(both[:-8]))


def test_damage_is_refused() -> None:
    """No changed byte and no cut decodes."""
    whole = encode_chunk([b"a" * 300, b"b"], [b"k", None], [5, 6], **PLACE)
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x41
        with pytest.raises(ProtocolError):
            decode_chunk(damaged)
        with pytest.raises(ProtocolError):
            decode_chunk(whole[:at])
