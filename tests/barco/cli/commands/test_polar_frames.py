"""Frames of PolarStreams' binary port: bytes as they were seen on the wire."""

import pytest

from barco.cli.commands.polar import frames
from barco.cli.commands.polar.frames import FrameError, Head, Produced

READY = bytes.fromhex("01 00 0000 02 00000000 8bb2538d")
PRODUCE = bytes.fromhex(
    "01 00 0007 04 0000001d 7af1fa4c"
    "03 313233 02 6274 00000007 7b226d223a317d 00000007 7b226d223a327d"
)
PRODUCED = bytes.fromhex("01 00 0007 05 00000000 2497bf25")


def test_bytes_that_were_seen() -> None:
    assert frames.frame(frames.READY, 0) == READY
    assert frames.frame(frames.PRODUCED, 7) == PRODUCED
    head = Head.read(PRODUCE[: frames.HEAD_BYTES])
    assert (head.stream, head.what, head.body_bytes) == (7, frames.PRODUCE, 29)
    body = PRODUCE[frames.HEAD_BYTES :]
    produced = Produced.read(head.flags, body)
    assert produced == Produced("bt", b"123", [b'{"m":1}', b'{"m":2}'])
    flags, again = produced.body()
    assert frames.frame(frames.PRODUCE, 7, again, flags) == PRODUCE


def test_a_timestamp_stands_first() -> None:
    flags, body = Produced("t", b"", [b"1"], 1_700_000_000_000_000).body()
    assert flags == frames.WITH_TIMESTAMP
    assert Produced.read(flags, body).timestamp_us == 1_700_000_000_000_000


def test_every_cut_of_a_frame_is_refused() -> None:
    _, body = Produced("topic", b"key", [b"value", b"another"], 5).body()
    whole = {1 + 8 + 3 + 1 + 5 + 4 + 5 - 0}  # Behind the first event it is whole as well.
    for end in range(len(body)):
        if end in whole:
            continue
        with pytest.raises(FrameError):
            Produced.read(frames.WITH_TIMESTAMP, body[:end])
