"""Chunks cut down to columns, and chunks as Arrow buffers, held against chunk_events."""

import random
import struct

import pytest
from reference.core import chunk_encode

from barco import _native

KEY, VALUE, TIMESTAMP = (
    _native.COLUMNS["key"],
    _native.COLUMNS["value"],
    _native.COLUMNS["timestamp"],
)
EVERYTHING = KEY | VALUE | TIMESTAMP


def chunks(seed: int, count: int = 6, keyless: bool = False) -> list[bytes]:
    rng = random.Random(seed)
    found, offset = [], 100
    for number in range(count):
        events = rng.choice((1, 7, 8, 9, 300))
        values = [rng.randbytes(2) * rng.randrange(60) for _ in range(events)]
        keys = [rng.choice((None, b"", b"k%d" % rng.randrange(9))) for _ in range(events)]
        apart = rng.choice((2**31, 2**47))  # Half an hour, or four years.
        stamps = [10**15 + rng.randrange(apart) for _ in range(events)]
        given = None if keyless or number == 2 else keys
        found.append(
            chunk_encode("t", 3, 1 + number // 2, offset, values, given,
                                 stamps if number % 2 else None)
        )  # fmt: skip
        offset += events
    return found


def rows(found: tuple, columns: int) -> list[tuple]:  # type: ignore[type-arg]
    """The events that the buffers say."""
    _, first, count, _, stored = found
    no_nulls, no_validity, no_offsets, stamps = stored.get("timestamp", (0, None, None, None))
    assert (no_nulls, no_validity, no_offsets) == (0, None, None)
    nulls, validity, key_at, keys = stored.get("key", (0, b"", None, None))
    no_nulls, no_validity, value_at, values = stored.get("value", (0, None, None, None))
    assert (no_nulls, no_validity) == (0, None)
    assert sum(_native.COLUMNS[name] for name in stored) == columns

    def cut(offsets: bytes | None, data: bytes | None) -> list[bytes | None]:
        if offsets is None or data is None:
            return [None] * count
        marks = struct.unpack(f"<{count + 1}i", offsets)
        return [data[marks[n] : marks[n + 1]] for n in range(count)]

    key_list = cut(key_at, keys)
    if columns & KEY:
        valid = [validity[n // 8] >> n % 8 & 1 for n in range(count)]
        assert valid.count(0) == nulls
        key_list = [key if bit else None for key, bit in zip(key_list, valid, strict=True)]
    times = struct.unpack(f"<{count}q", stamps) if stamps else [None] * count
    return list(zip(range(first, first + count), times, key_list, cut(value_at, values),
                    strict=True))  # fmt: skip


def expected(parts: list[bytes], columns: int) -> list[tuple]:  # type: ignore[type-arg]
    return [
        (
            offset,
            stamp if columns & TIMESTAMP else None,
            key if columns & KEY else None,
            value if columns & VALUE else None,
        )
        for chunk in parts
        for offset, stamp, key, value in _native.chunk_events(chunk)
    ]


def read(buf: bytes, columns: int, *, projected: bool = False, start: int = 100, end: int = 2**62,
         bytes_max: int = 1 << 20, position: int = 0, topic: str = "t", slice_: int = 3
         ) -> tuple:  # type: ignore[type-arg]  # fmt: skip
    return _native.chunks_columns(
        buf, position, topic, slice_, start, end, bytes_max, columns, projected
    )


@pytest.mark.parametrize("columns", range(8))
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("keyless", (False, True))
def test_the_same_events_whole_and_projected(columns: int, seed: int, keyless: bool) -> None:
    parts = chunks(seed, keyless=keyless)
    whole = b"".join(parts)
    small = _native.chunks_project(whole, columns)
    for buf, projected in ((whole, False), (small, True)):
        found = read(buf, columns, projected=projected)
        assert found[0] == len(buf)
        assert rows(found, columns) == expected(parts, columns)
    epochs = [epoch for epoch, count in found[3] for _ in range(count)]
    infos = [_native.chunk_info(chunk) for chunk in parts]
    assert epochs == [info["epoch"] for info in infos if info for _ in range(info["count"])]


def test_several_buffers_are_projected_as_one() -> None:
    parts = chunks(2)
    whole = _native.chunks_project(b"".join(parts), KEY)
    assert _native.chunks_project([memoryview(part) for part in parts], KEY) == whole
    assert _native.chunks_project([], KEY) == b""
    with pytest.raises(ValueError, match="damaged"):
        _native.chunks_project([*parts, parts[0][:-1]], KEY)
    with pytest.raises(TypeError):
        _native.chunks_project([*parts, "text"], KEY)


def test_where_a_chunk_begins_is_in_its_head() -> None:
    for chunk in chunks(3):
        info = _native.chunk_info(chunk)
        assert info is not None
        place = (info["base_offset"], info["count"], info["epoch"])
        small = _native.chunks_project(chunk, 0)
        assert _native.chunk_place(chunk) == _native.chunk_place(small) == place
        for wrong in (b"", small[:-1], bytes([chunk[0] ^ 1]) + chunk[1:]):
            with pytest.raises(ValueError, match="damaged"):
                _native.chunk_place(wrong)


def test_only_what_is_asked_for_is_sent() -> None:
    values = [random.Random(n).randbytes(90) for n in range(1000)]
    chunk = chunk_encode("t", 0, 1, 0, values, [b"%d" % (n % 10) for n in range(1000)])
    assert len(_native.chunks_project(chunk, KEY)) < len(chunk) / 10
    assert len(_native.chunks_project(chunk, 0)) < 200
    assert len(_native.chunks_project(chunk, EVERYTHING)) == len(chunk)


def test_step_by_step() -> None:
    parts = chunks(1, count=20)
    whole, found, position, start = b"".join(parts), [], 0, 100
    while position < len(whole):
        step = read(whole, EVERYTHING, start=start, position=position, bytes_max=1)
        assert step[0] > position and step[2] > 0
        position, start = step[0], step[1] + step[2]
        found += rows(step, EVERYTHING)
    assert found == expected(parts, EVERYTHING)


def test_it_ends_with_the_chunk_that_reaches_the_end() -> None:
    parts = chunks(2)
    first = expected(parts[:1], 0)
    found = read(b"".join(parts), VALUE, end=first[-1][0] + 1)
    assert found[0] == len(parts[0]) and found[2] == len(first)


def test_what_lies_before_is_passed_over() -> None:
    parts = chunks(3)
    begin = _native.chunk_info(parts[2])["base_offset"]  # type: ignore[index]
    found = read(b"".join(parts), VALUE, start=begin)
    assert found[1] == begin and rows(found, VALUE) == expected(parts[2:], VALUE)
    last = expected(parts, 0)[-1][0]
    found = read(b"".join(parts), VALUE, start=last + 1)
    assert found[0] == len(b"".join(parts)) and found[2] == 0


def test_missing_or_foreign_events() -> None:
    parts = chunks(4)
    with pytest.raises(ValueError, match="missing before"):
        read(b"".join(parts[:2] + parts[3:]), VALUE)
    with pytest.raises(ValueError, match="missing before"):
        read(b"".join(parts), VALUE, start=50)
    with pytest.raises(ValueError, match="another slice"):
        read(b"".join(parts), VALUE, slice_=4)
    with pytest.raises(ValueError, match="another slice"):
        read(b"".join(parts), VALUE, topic="u")
    with pytest.raises(ValueError, match="position"):
        read(b"", VALUE, position=1)


@pytest.mark.parametrize("projected", (False, True))
def test_no_flipped_bit_goes_through(projected: bool) -> None:
    parts = chunks(5, count=2)
    buf = b"".join(parts)
    if projected:
        buf = _native.chunks_project(buf, KEY | VALUE)
    good = rows(read(buf, KEY | VALUE, projected=projected), KEY | VALUE)
    rng = random.Random(6)
    for _ in range(1500):
        at = rng.randrange(len(buf))
        bad = bytearray(buf)
        bad[at] ^= 1 << rng.randrange(8)
        try:
            found = rows(read(bytes(bad), KEY | VALUE, projected=projected), KEY | VALUE)
        except ValueError:
            continue
        # Padding, or a column that nobody asked for.
        assert found == good, at


@pytest.mark.parametrize("projected", (False, True))
def test_cut_off_anywhere(projected: bool) -> None:
    (chunk,) = chunks(7, count=1)
    buf = _native.chunks_project(chunk, KEY | VALUE) if projected else chunk
    for length in range(1, len(buf)):
        with pytest.raises(ValueError):
            read(buf[:length], KEY | VALUE, projected=projected)
        if not projected:
            with pytest.raises(ValueError):
                _native.chunks_project(buf[:length], KEY)
