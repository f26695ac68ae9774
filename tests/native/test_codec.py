"""The pure part of barco._native: what Python sees of the C core's codec."""

import json
import random
import struct
import zlib

import pytest
from reference.core import chunk_encode

from barco import _native

MIN, MAX = -(2**63), 2**63 - 1
UUID = bytes(range(16))


def chunk(*values: bytes, base: int = 0, **columns: object) -> bytes:
    """A chunk of these values."""
    return chunk_encode("t", 1, 2, base, values, **columns)  # type: ignore[arg-type]


# --- Checksums and tokens -------------------------------------------------------------------


def test_crc32c_chains_and_takes_any_buffer() -> None:
    """The known answer, in one call or two, from bytes, bytearray or memoryview."""
    assert _native.crc32c(b"123456789") == 0xE3069283
    assert _native.crc32c(memoryview(b"6789"), _native.crc32c(bytearray(b"12345"))) == 0xE3069283
    assert _native.crc32c(b"a") != zlib.crc32(b"a"), "not the polynomial of zlib"


def test_token_takes_any_buffer() -> None:
    """Bytes, bytearray and memoryview of a key have one token."""
    assert {_native.token(kind(b"hui")) for kind in (bytes, bytearray, memoryview)} == {
        7851606034017063987
    }


@pytest.mark.parametrize("call", [_native.token, _native.crc32c, _native.chunks_scan])
def test_text_is_no_buffer(call) -> None:  # type: ignore[no-untyped-def]
    """Text has no bytes until somebody says which."""
    with pytest.raises(TypeError):
        call("text")


# --- Chunks ---------------------------------------------------------------------------------


def test_chunk_info_of_a_cut_chunk_is_none() -> None:
    """None asks for more bytes; an error says that more would not help."""
    whole = chunk(b"value")
    for end in range(len(whole)):
        assert _native.chunk_info(whole[:end]) is None
    with pytest.raises(ValueError, match="no valid chunk at byte 0"):
        _native.chunk_info(b"x" * 200)
    with pytest.raises(ValueError, match="no valid chunk at byte 8"):
        _native.chunk_info(bytes(8) + b"\xff" * 200, 8)


@pytest.mark.parametrize("offset", [-1, 1000, 2**62])
def test_offset_outside_of_the_buffer(offset: int) -> None:
    """An offset beyond the buffer is an error, never a read."""
    with pytest.raises(ValueError, match="outside"):
        _native.chunk_info(b"x", offset)
    with pytest.raises(ValueError, match="outside"):
        _native.chunk_events(b"x", offset)


def test_chunks_scan_stops_before_a_cut_chunk() -> None:
    """Whole chunks are listed with their places; a cut last one is left out; garbage is told."""
    one, two = chunk(b"a"), chunk(b"b" * 1000, b"c", base=1, timestamps_us=[7, 9])
    assert _native.chunks_scan(one + two + two[:-1]) == [
        (0, len(one), "t", 1, 2, 0, 1, 0, 0),
        (len(one), len(two), "t", 1, 2, 1, 2, 7, 9),
    ]
    assert _native.chunks_scan(b"") == []
    with pytest.raises(ValueError, match=f"at byte {len(one)}"):
        _native.chunks_scan(one + b"\xff" * 8)


def test_chunk_events_verifies_the_sections() -> None:
    """A changed byte of a value is told, not returned."""
    damaged = bytearray(chunk(b"value"))
    damaged[-8] ^= 1
    assert _native.chunk_info(damaged) is not None, "the header is still good"
    with pytest.raises(ValueError, match="checksum"):
        _native.chunk_events(damaged)


def test_tokens_of_a_chunk() -> None:
    """Token bounds are those of the keys, or the whole ring if an event has none."""
    info = _native.chunk_info(chunk(b"", b"", keys=[b"abcd", b"wxyz"]))
    assert info is not None
    assert (info["token_min"], info["token_max"]) == (-5153323217664422577, 6541399000449243469)
    for keys in (None, [b"abcd", None]):
        info = _native.chunk_info(chunk(b"", b"", keys=keys))
        assert info is not None and (info["token_min"], info["token_max"]) == (MIN, MAX)


@pytest.mark.parametrize("values", [None, 7, ["text"], [b"a", 7], [bytearray(b"a")]])
def test_values_that_are_no_bytes(values: object) -> None:
    """Only bytes are taken as values: what is encoded cannot change under our hands."""
    with pytest.raises(TypeError):
        _native.batch_encode(values)  # type: ignore[arg-type]


# --- Rendering ------------------------------------------------------------------------------


def rendered(value: bytes) -> object:
    """What a consumer's JSON parser makes of one value."""
    [result] = json.loads(_native.render_json([chunk(value)], 0, 1)[0])
    return result


def is_json(value: bytes) -> bool:
    """Whether the value is spliced: between others, its own bytes stand in the output."""
    return _native.render_json([chunk(value)], 0, 1)[0] == b"[" + value + b"]"


def test_values_are_spliced_quoted_or_encoded() -> None:
    """JSON stays JSON, text becomes a string, other bytes are base64."""
    assert rendered(b'{"a": [1, null]}') == {"a": [1, None]}
    assert rendered("größe".encode()) == "größe"
    assert rendered(b"\xff\x00") == {"base64": "/wA="}
    assert rendered(b"") == ""


def reference(value: bytes) -> bool:
    """Python's own parser, made strict."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    try:
        json.loads(value.decode(), parse_constant=refuse)
    except (ValueError, RecursionError):
        return False
    return True


def test_random_json_is_judged_as_python_judges_it() -> None:
    """Valid documents, and the same with a change here or there, against Python's parser."""
    chance = random.Random(11)

    def document(depth: int) -> object:
        kind = chance.randrange(8 if depth else 5)
        if kind < 5:
            text = "".join(chance.choices('aé"\\\n\x01 0', k=chance.randrange(25)))
            return (None, True, chance.randrange(-99, 99), chance.random() * 1e30, text)[kind]
        size = chance.randrange(4)
        if kind == 5:
            return {str(n): document(depth - 1) for n in range(size)}
        return [document(depth - 1) for _ in range(size)]

    for _ in range(3000):
        text = json.dumps(document(4), ensure_ascii=chance.random() < 0.5)
        value = bytearray(text.encode())
        assert is_json(bytes(value))
        for _ in range(chance.randrange(1, 3)):
            value[chance.randrange(len(value))] = chance.choice(b'[]{}":,\\0-.eE+ \nu\x80\xc3t')
        if b"\\u" not in value:  # Python takes halves of surrogate pairs, which we do not splice.
            assert is_json(bytes(value)) == reference(bytes(value)), bytes(value)


@pytest.mark.parametrize(
    "value", [b"[" * 100_000 + b"]" * 100_000, b"9" * 5000, b'"\\ud800"', b"\xef\xbb\xbf1"]
)
def test_what_hurts_parsers_is_not_spliced(value: bytes) -> None:
    """Deep nesting, endless numbers, half a surrogate pair, a byte order mark: sent as text."""
    assert rendered(value) == value.decode()


def test_lines_hold_the_envelope() -> None:
    """Every field of the envelope, with int64 as strings and keys as text, null or base64."""
    stored = chunk(b'{\n"a":1}', b"x", b"y", keys=[b"k", None, b"\xfe"], timestamps_us=[5, 6, 9])
    lines = _native.render_ndjson([stored], 0, 9, MIN)[0].splitlines()
    common = {"topic": "t", "token": str(MIN), "rangeIndex": 1, "version": 2}
    assert [json.loads(line) for line in lines] == [
        common | {"offset": "0", "timestamp": 5, "key": "k", "value": {"a": 1}},
        common | {"offset": "1", "timestamp": 6, "key": None, "value": "x"},
        common | {"offset": "2", "timestamp": 9, "key": {"base64": "/g=="}, "value": "y"},
    ]


def test_records_hold_timestamp_length_and_value() -> None:
    """As PolarStreams has them: big-endian, of the events in the range, checksums verified."""
    stored = [
        chunk(b"one", b"", b"three", timestamps_us=[5, 6, 9]),
        chunk(b"four", base=3, timestamps_us=[2**60]),
    ]
    rows = [(5, b"one"), (6, b""), (9, b"three"), (2**60, b"four")]
    packed = [struct.pack(">qI", at, len(value)) + value for at, value in rows]
    for start, end in ((0, 4), (1, 3), (2, 99), (4, 9)):
        for buffers in (stored, [b"".join(stored)]):
            assert _native.render_records(buffers, start, end)[0] == b"".join(packed[start:end])
    damaged = bytearray(stored[0])
    damaged[-8] ^= 1
    with pytest.raises(ValueError, match="checksum"):
        _native.render_records([damaged], 0, 9)[0]


def test_offsets_select_across_chunks() -> None:
    """Only events with from <= offset < to, from any number of chunks and buffers."""
    stored = [chunk(*(b"%d" % n for n in range(at, at + 5)), base=at) for at in (0, 5, 10)]
    for buffers in (stored, [b"".join(stored)], [stored[0], stored[1] + stored[2], b""]):
        for start, end in ((0, 15), (3, 11), (5, 10), (14, 99), (15, 99), (7, 7), (9, 3)):
            numbers = json.loads(_native.render_json(buffers, start, end)[0])
            assert numbers == list(range(start, min(end, 15)))
            lines = _native.render_ndjson(buffers, start, end, 0)[0].splitlines()
            assert [json.loads(line)["value"] for line in lines] == numbers
    assert _native.render_json([], 0, 1)[0] == b"[]"
    assert _native.render_ndjson([], 0, 1, 0)[0] == b""


@pytest.mark.parametrize("bound", [-1, 2**64])
def test_offsets_do_not_wrap(bound: int) -> None:
    """An offset outside of 64 bits is refused, not taken modulo."""
    with pytest.raises(ValueError, match="between 0 and"):
        _native.render_json([], bound, 1)
    with pytest.raises(ValueError, match="between 0 and"):
        _native.render_ndjson([], 0, bound, 0)


def test_a_piece_ends_at_an_event_before_it_is_too_long() -> None:
    """Never longer than `most`, unless one event is; the rest follows from where it ended."""
    values = [b"\x01" * 300, *(b"%d" % n for n in range(400)), b"x" * 5000, b"", b"9"]
    stored = [chunk(*values[at : at + 50], base=at) for at in range(0, len(values), 50)]
    forms = (
        lambda at, most: _native.render_json(stored, at, 999, most),
        lambda at, most: _native.render_ndjson(stored, at, 999, 7, most),
        lambda at, most: _native.render_records(stored, at, 999, most),
    )
    for number, form in enumerate(forms):
        for most in (1, 100, 1000, 20_000, 10**9):
            at, pieces = 0, []
            while at < len(values):
                text, after = form(at, most)
                assert after > at and (len(text) <= most + 2 or after == at + 1)
                at, _ = after, pieces.append(text)
            assert len(pieces) > 1 or most > 5000
            whole = b"".join(pieces)
            if number == 0:
                whole = b"[" + b",".join(piece[1:-1] for piece in pieces) + b"]"
            assert whole == form(0, 2**64 - 1)[0]


def test_how_far_a_budget_reaches_and_where_a_time_begins() -> None:
    """Per event a frame, its key and its value; one event at least."""
    stamps = [5, 6, 6, 9]
    stored = chunk(b"", b"ab", b"cdef", b"g", base=3, keys=[b"k", None, b"", b"k"])
    size = len(stored)

    def take(offset: int, budget: int, started: bool = False) -> tuple[int, ...]:
        return _native.chunks_take(stored, 0, offset, budget, 10, started, 2**20)

    assert take(0, 1) == (0, size, 3, 4, 11, True)
    assert take(0, 11, started=True) == (0, size, 3, 4, 11, True)
    assert take(0, 10, started=True)[1:] == (0, 0, 0, 0, True)
    assert take(0, 23) == (0, size, 3, 5, 23, True)
    assert take(5, 10**9)[3] == 7 and take(5, 26) == (0, size, 3, 7, 26, False)
    assert take(5, 25) == (0, size, 3, 6, 14, True)
    assert take(7, 10) == (0, 0, 0, 0, 0, False)
    timed = chunk(b"", b"", b"", b"", base=3, timestamps_us=stamps)
    assert [_native.chunk_since(timed, at) for at in (0, 5, 6, 7, 9, 10)] == [3, 3, 4, 6, 6, 7]
    damaged = bytearray(stored)
    damaged[-8] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        _native.chunks_take(damaged, 0, 0, 1, 10, False, 2**20)
    with pytest.raises(ValueError, match="damaged"):
        _native.chunk_since(damaged, 5)


def test_what_an_answer_has_room_for_is_taken_in_one_pass() -> None:
    """It ends before a gap, another generation, a damaged head, and at about so many bytes."""
    chunks = [chunk(b"%d" % n, b"", base=2 * n) for n in range(10)]
    sizes = [len(each) for each in chunks]
    whole = b"".join(chunks)

    def take(stored: bytes, at: int, offset: int, budget: int, most: int = 2**20) -> tuple:
        return _native.chunks_take(stored, at, offset, budget, 1, False, most)

    one = take(chunks[0], 0, 0, 10**6)[4]
    assert take(whole, 0, 0, 10**6) == (0, len(whole), 0, 20, 10 * one, False)
    assert take(whole, sizes[0], 7, 10**6) == (
        sum(sizes[:3]),
        sum(sizes[3:]),
        6,
        20,
        7 * one,
        False,
    )
    assert take(whole, 0, 0, 4 * one) == (0, sum(sizes[:4]), 0, 8, 4 * one, True)
    first, size, base, end, cost, full = take(whole, 0, 0, 4 * one + 2)
    assert (first, size, base, end, full) == (0, sum(sizes[:5]), 0, 9, True) and cost <= 4 * one + 2
    assert take(whole, 0, 0, 10**6, sizes[0] + 1) == (0, sum(sizes[:2]), 0, 4, 2 * one, False)
    gap = chunks[0] + chunks[2]
    assert take(gap, 0, 0, 10**6)[1:4] == (sizes[0], 0, 2)
    assert take(gap, sizes[0], 2, 10**6)[:4] == (sizes[0], sizes[2], 4, 6)
    later = chunks[0] + chunk_encode("t", 1, 9, 2, [b"1"])
    assert take(later, 0, 0, 10**6)[1:4] == (sizes[0], 0, 2)
    assert take(whole, len(whole), 0, 1) == (0, 0, 0, 0, 0, False)
    for position in (-1, len(whole) + 1, 8, len(whole) - 8):
        with pytest.raises(ValueError, match="damaged"):
            take(whole, position, 0, 1)


def test_text_that_grows_sixfold() -> None:
    """Control characters take six bytes each: the buffer grows with them."""
    assert rendered(b"\x01" * 500_000) == "\x01" * 500_000


def test_damaged_chunks_are_not_rendered() -> None:
    """A checksum that fails, a cut chunk: an error that says where, no events."""
    good, damaged = chunk(b"value"), bytearray(chunk(b"value"))
    damaged[-8] ^= 1
    with pytest.raises(ValueError, match=f"at byte {len(good)} fails its checksum"):
        _native.render_json([good + damaged], 0, 9)
    with pytest.raises(ValueError, match="no valid chunk at byte 0"):
        _native.render_ndjson([good, good[:-1]], 0, 9, 0)
    with pytest.raises(TypeError):
        _native.render_json([good, "text"], 0, 9)  # type: ignore[list-item]
