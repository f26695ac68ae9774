"""Events with headers or without a value: Python and the core agree, and all others are as ever."""

import random
from typing import Any

import barco_faces
import pytest
from reference.batch import decode_batch, encode_batch
from reference.chunk import decode_chunk, encode_chunk
from reference.sections import Headers, pack_headers

from barco import _native
from barco.errors import ProtocolError
from barco.types import Epoch, Offset, SliceIndex

PLACE: Any = {"topic": "t", "slice": SliceIndex(3), "epoch": Epoch(2), "base_offset": Offset(40)}
NAMES = ("a", "content-type", "x.y_z~", "a")


def encode(
    values: list[bytes | None],
    keys: list[bytes | None] | None,
    times: list[int] | None,
    headers: list[Headers],
    compress: bool = False,
) -> bytes:
    """The core's, called as the reference is."""
    numbers = None if times is None else {"timestamp": times}
    packed = [_native.headers_encode(each) or None for each in headers]
    return _native.batch_encode(values, keys, numbers, compress, packed)


def events(seed: int) -> tuple[list[bytes | None], list[bytes | None] | None, Any, list[Headers]]:
    """Columns of some shape; in some no event has headers, or each has a value."""
    chance = random.Random(seed)
    count = chance.choice((1, 2, 7, 300))
    values = [
        None if seed % 3 and chance.random() < 0.3 else chance.randbytes(chance.randrange(90))
        for _ in range(count)
    ]
    keys = [chance.choice((None, b"", b"key")) for _ in range(count)] if seed % 2 else None
    times = [10**15 + chance.randrange(10**9) for _ in range(count)] if seed % 5 else None
    headers = [
        tuple(
            (name, chance.randbytes(chance.choice((0, 3, 200))))
            for name in chance.sample(NAMES, chance.randrange(len(NAMES) + 1) if seed % 4 else 0)
        )
        for _ in range(count)
    ]
    return values, keys, times, headers


@pytest.mark.parametrize("seed", range(30))
def test_same_bytes_and_the_same_events(seed: int) -> None:
    """Both encoders agree byte for byte, and either's batch and chunk has the events."""
    values, keys, times, headers = events(seed)
    batch = encode(values, keys, times, headers)
    assert encode_batch(values, keys, times, False, headers) == batch
    plain = None not in values and not any(headers)
    assert batch[4] == (1 if plain else 2)
    for each in (batch, encode(values, keys, times, headers, compress=True)):
        found = decode_batch(each)
        assert (found.values, found.headers) == (values, headers)
        assert [event[3] for event in _native.batch_events(each)] == values
        if any(headers):
            assert [event[4] for event in _native.batch_events(each)] == headers
        else:
            assert {len(event) for event in _native.batch_events(each)} == {4}
    chunk = barco_faces.chunk_of_batch(batch, "t", 3, 2, 40, False)
    if times is not None:
        assert encode_chunk(values, keys, times, headers, compress=False, **PLACE) == chunk
    back = decode_chunk(chunk)
    assert [event.value for event in back.events()] == values and back.headers() == headers
    assert [event[3] for event in _native.chunk_events(chunk)] == values


def test_without_any_not_a_byte_is_another() -> None:
    """A chunk that was written before there were headers, byte for byte."""
    values: list[bytes | None] = [b'{"n":1}', b"", b"x" * 12]
    batch = encode(values, [b"k", None, b""], [1000, 1007, 1000], [(), (), ()])
    chunk = barco_faces.chunk_of_batch(batch, "golden", 3, 2, 40, False)
    assert chunk == bytes.fromhex(GOLDEN)
    assert _native.batch_encode(values, [b"k", None, b""], {"timestamp": [1000, 1007, 1000]},
                                False) == batch  # fmt: skip


@pytest.mark.parametrize("compress", [False, True])
def test_every_damaged_byte_is_refused(compress: bool) -> None:
    """No changed byte of sections or directory, and no cut, decodes."""
    headers: list[Headers] = [(("name", b"value" * 80), ("name", b"")), ()]
    whole = encode([None, b"x"], [b"k", None], [5, 6], headers, compress)
    assert decode_batch(whole).headers == headers
    for at in range(32, len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x41
        with pytest.raises(ProtocolError):
            decode_batch(damaged)
        with pytest.raises(ValueError):
            _native.batch_events(damaged)
    for end in range(len(whole)):
        with pytest.raises(ValueError):
            _native.batch_events(whole[:end])


@pytest.mark.parametrize(
    "wrong",
    [
        [("a", b"")] * 65,
        [("a", b"x" * (16 * 1024))],
        [("a", b"x" * (8 * 1024)), ("b", b"x" * (8 * 1024))],
        [("", b"x")],
        [("Name", b"x")],
        [("a b", b"x")],
        [("a:", b"x")],
        [("n\u00e4me", b"x")],
        [("a\0", b"x")],
        [("n" * 129, b"x")],
    ],
)
def test_what_no_event_can_have(wrong: Headers) -> None:
    """More than 64, more than 16 KiB, and names that are none: ValueError says what may be."""
    with pytest.raises(ValueError, match="at most 64 headers"):
        _native.headers_encode(wrong)
    with pytest.raises(ValueError, match="no headers"):
        _native.batch_encode([b"v"], None, None, False, [pack_headers(tuple(wrong))])


def test_the_most_an_event_can_have() -> None:
    """64 headers, of exactly 16 KiB."""
    most = [("n" * 128, b"x" * (16 * 1024 - 128 - 63))] + [("a", b"")] * 63
    packed = _native.headers_encode(most)
    assert packed == pack_headers(tuple(most))
    [event] = _native.batch_events(_native.batch_encode([None], None, None, True, [packed]))
    assert list(event[4]) == most and event[3] is None
    assert _native.headers_encode([]) == b""


@pytest.mark.parametrize("wrong", [[("a", "text")], ["ab"], [("a",)], [(1, b"b")], 5])
def test_other_types_are_refused(wrong: Any) -> None:
    """A header is a tuple of str and bytes."""
    with pytest.raises(TypeError):
        _native.headers_encode(wrong)


GOLDEN = (
    "4243484b01000605f80000000300000002000000000000002800000000000000e803000000000000"
    "ef030000000000000000000000000080ffffffffffffff7f0300000038000000000000003f21985e"
    "676f6c64656e0000010000000c0000000c00000059b039d1020000000c0000000c000000182cc669"
    "030000000c0000000c000000d8cb5330040000000100000001000000086b32aa0500000013000000"
    "130000002b4f6c6b0000000007000000000000000000000001000000ffffffff0000000000000000"
    "07000000000000000c000000000000006b000000000000007b226e223a317d787878787878787878"
    "7878780000000000"
)
