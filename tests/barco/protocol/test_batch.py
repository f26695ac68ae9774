"""Batches: Python and the C core write the same bytes, and refuse the same damage."""

import random
import struct
from typing import Any

import pytest
from reference.batch import decode_batch, encode_batch

from barco import _native
from barco.errors import ProtocolError
from barco.protocol.batch import TIMESTAMP_US_MIN

TEXT = b'{"carrier":"UA","origin":"EWR"}' * 20


def native_encode(
    values: list[bytes],
    keys: list[bytes | None] | None = None,
    times: list[int] | None = None,
    compress: bool = True,
) -> bytes:
    """The core's, called as the reference is."""
    numbers = None if times is None else {"timestamp": times}
    return _native.batch_encode(values, keys, numbers, compress)


def cases() -> list[tuple[list[bytes], list[bytes | None] | None, list[int] | None]]:
    """Columns of many shapes: empty values, all or some keys, equal or spread timestamps."""
    chance = random.Random(1)
    made = []
    for count in (1, 2, 5, 64, 700):
        values = [TEXT[: chance.choice((0, 1, 30, 600))] for _ in range(count)]
        some = [chance.choice((None, b"", b"N" + TEXT[:9])) for _ in range(count)]
        keys: list[list[bytes | None] | None] = [None, some, [None] * count, [b""] * count]
        spread = [10**15 + chance.randrange(2**32) for _ in range(count)]
        years = [10**15 + chance.randrange(10**14) for _ in range(count)]
        times = (None, [7] * count, spread, years, [2**63 - 2**32 - n for n in range(count)])
        made += [(values, each, time) for each in keys for time in times]
    return made


@pytest.mark.parametrize("case", range(len(cases())))
def test_round_trip_and_same_bytes(case: int) -> None:
    """Both encoders agree byte for byte uncompressed, and either's batch decodes to the events."""
    values, keys, times = cases()[case]
    assert encode_batch(values, keys, times, False) == native_encode(values, keys, times, False)
    for encode in (encode_batch, native_encode):
        batch = decode_batch(encode(values, keys, times))
        assert batch.values == values
        assert batch.keys == (keys or [None] * len(values))
        assert batch.timestamps_us == times
        events = _native.batch_events(encode(values, keys, times))
        rows = zip(range(len(values)), times or [0] * len(values), batch.keys, values, strict=True)
        assert events == list(rows)


def test_text_is_compressed() -> None:
    """A batch of text is smaller than its text."""
    for encode in (encode_batch, native_encode):
        assert len(encode([TEXT] * 100)) < len(TEXT) * 100 / 4


@pytest.mark.parametrize("encode", [encode_batch, native_encode])
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (([],), "event"),
        (([b"a"], []), "1 values but 0 keys"),
        (([b"a"], None, [1, 2]), "1 values but 2 timestamps"),
        (([b"a"], [bytes(65_536)]), "65"),
        (([b"a"], None, [TIMESTAMP_US_MIN - 1]), "before the year 1"),
    ],
)
def test_impossible_columns_are_refused(encode: Any, columns: Any, words: str) -> None:
    """A sentence says what is wrong with the columns."""
    with pytest.raises(ValueError, match=words):
        encode(*columns)


@pytest.mark.parametrize("times", [[5, 6], [5, 6 + 2**40]])
def test_every_damaged_byte_is_refused(times: list[int]) -> None:
    """No changed byte of sections or directory, and no cut, decodes."""
    whole = encode_batch([TEXT, b"x"], [b"k", None], times)
    for at in range(32, len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 0x41
        with pytest.raises(ProtocolError):
            decode_batch(damaged)
        with pytest.raises(ValueError):
            _native.batch_events(damaged)
    for end in range(len(whole)):
        with pytest.raises(ProtocolError):
            decode_batch(whole[:end])
        with pytest.raises(ValueError):
            _native.batch_events(whole[:end])


def test_bomb_is_refused_unread() -> None:
    """A block that claims to expand beyond what LZ4 can is refused before it is unpacked."""
    whole = bytearray(encode_batch([bytes(100_000)]))
    entry = 32 + 16
    assert whole[entry : entry + 2] == b"\x05\x01"
    struct.pack_into("<I", whole, entry + 4, 64 << 20)
    with pytest.raises(ProtocolError, match="impossible lengths"):
        decode_batch(whole)
    with pytest.raises(ValueError, match="not a batch"):
        _native.batch_events(whole)


def test_columns_of_numbers_have_their_names() -> None:
    """What is no column of numbers, or no dict of them, is refused by name."""
    for wrong in ({"key": [1]}, {"origin": [1]}, {7: [1]}, {"timestamp": [1], "": [2]}):
        with pytest.raises(ValueError, match="no column of numbers"):
            _native.batch_encode([b"a"], None, wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a dict"):
        _native.batch_encode([b"a"], None, [1])  # type: ignore[arg-type]
