"""Frames: any split of the stream, and every way to break the rules."""

import asyncio
import io
import random
import struct

import msgpack
import pytest

from barco.errors import ProtocolError
from barco.limits import FRAME_BYTES_MAX, FRAME_DEPTH_MAX
from barco.protocol import frame

MESSAGES: list[frame.Message] = [
    {"type": "heartbeat", "stats": {"events": 2**63, "lag": -1, "rate": 0.5}},
    {"type": "view", "version": 3, "groups": {"g": {"members": ["a", "b"]}}, "removed": []},
    {"type": "x", "body": b"\x00\xff", "none": None, "flag": True, "text": "ä" * 300},
]


def nested(depth: int) -> frame.Message:
    message: frame.Message = {"end": 1}
    for _ in range(depth - 1):
        message = {"deeper": message}
    return message


def test_round_trip_in_pieces_of_any_size() -> None:
    stream = b"".join(frame.encode(message) for message in MESSAGES * 3)

    async def collect(randomness: random.Random) -> list[frame.Message | None]:
        reader, found = asyncio.StreamReader(), []
        reading = asyncio.ensure_future(frame.read_async(reader))
        rest = stream
        while rest:
            size = randomness.choice((1, 3, 4, 5, 17, 400, 4000))
            reader.feed_data(rest[:size])
            rest = rest[size:]
            for _ in range(4):
                await asyncio.sleep(0)
            while reading.done():
                found.append(reading.result())
                reading = asyncio.ensure_future(frame.read_async(reader))
                await asyncio.sleep(0)
        reading.cancel()
        return found

    for seed in range(50):
        assert asyncio.run(collect(random.Random(seed))) == MESSAGES * 3


def test_blocking_and_asyncio_streams() -> None:
    stream = b"".join(frame.encode(message) for message in MESSAGES)
    file = io.BytesIO(stream)
    assert [frame.read(file) for _ in range(4)] == [*MESSAGES, None]

    async def collect() -> list[frame.Message | None]:
        reader = asyncio.StreamReader()
        reader.feed_data(stream)
        reader.feed_eof()
        return [await frame.read_async(reader) for _ in range(4)]

    assert asyncio.run(collect()) == [*MESSAGES, None]


@pytest.mark.parametrize("cut", [1, 3, 5])
def test_streams_that_end_within_a_frame(cut: int) -> None:
    stream = frame.encode(MESSAGES[0])[:cut]
    with pytest.raises(ProtocolError, match="stream ended"):
        frame.read(io.BytesIO(stream))

    async def read() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(stream)
        reader.feed_eof()
        await frame.read_async(reader)

    with pytest.raises(ProtocolError, match="stream ended"):
        asyncio.run(read())


@pytest.mark.parametrize("length", [0, FRAME_BYTES_MAX + 1, 2**32 - 1])
def test_the_length_is_checked_before_anything_is_read(length: int) -> None:
    class NeverReadFurther(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            assert size == 4
            return struct.pack("<I", length)

    with pytest.raises(ProtocolError, match=f"frame length {length} "):
        frame.read(NeverReadFurther())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\x91" * 100_000,
        b"\x81\xa1a" * 100_000,
        msgpack.packb({"a": 1})[:-1],
        msgpack.packb({"a": 1}) + b"x",
        msgpack.packb([1]),
        msgpack.packb(1),
        msgpack.packb({1: 2}),
        msgpack.packb({b"a": 2}),
        msgpack.packb({"a": {None: 2}}),
        msgpack.packb({"a": msgpack.ExtType(5, b"")}),
        msgpack.packb({"a": msgpack.Timestamp(1)}),
        b"\x81\xa1a\xa2\xff\xfe",
    ],
    ids=lambda body: body[:8].hex() or "empty",
)
def test_bodies_that_are_refused(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        frame.decode(body)


def test_depth() -> None:
    deepest = nested(FRAME_DEPTH_MAX)
    assert frame.decode(frame.encode(deepest)[4:]) == deepest
    with pytest.raises(ProtocolError, match="nested deeper"):
        frame.decode(msgpack.packb(nested(FRAME_DEPTH_MAX + 1)))
    with pytest.raises(ProtocolError, match="nested deeper"):
        frame.encode(nested(FRAME_DEPTH_MAX + 1))


def test_an_author_is_told_of_a_frame_that_nobody_would_take() -> None:
    with pytest.raises(ProtocolError, match="is over the limit"):
        frame.encode({"a": b"x" * FRAME_BYTES_MAX})
    with pytest.raises(ProtocolError, match="holds a set"):
        frame.encode({"a": {1, 2}})


def test_random_bytes_are_refused_and_nothing_else() -> None:
    randomness = random.Random(11)
    for _ in range(5000):
        body = randomness.randbytes(randomness.randrange(40))
        try:
            assert isinstance(frame.decode(body), dict)
        except ProtocolError:
            pass
