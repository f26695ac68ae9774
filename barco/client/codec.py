"""Bytes that go to and come from brokers, by the C core: a few calls for each batch or chunk."""

from typing import NamedTuple

from barco._native import batch_encode as encode_batch
from barco._native import chunk_events, chunks_scan
from barco._native import token as token_of
from barco.client.errors import BadAnswerError
from barco.protocol.cursor import Cursor
from barco.types import Epoch, Offset

__all__ = ["Event", "Skips", "decode_chunks", "encode_batch", "parse_skips", "token_of"]

Skips = dict[tuple[str, int], int]
"""By topic and slice: the offset before which events of an answer are not meant."""


class Event(NamedTuple):
    """One event as it is stored. Its cursor is (epoch, offset)."""

    topic: str
    slice: int
    epoch: int
    offset: int
    timestamp_us: int
    """Microseconds since 1970: the producer's, or the broker's clock when it came."""
    key: bytes | None
    value: bytes

    @property
    def next_cursor(self) -> str:
        """Where to go on after this event, as `read` and the HTTP API take it."""
        return str(Cursor(Epoch(self.epoch), Offset(self.offset + 1)))


def decode_chunks(body: bytes, skips: Skips) -> list[Event]:
    """The events of chunks back to back; BadAnswerError if they are damaged."""
    events: list[Event] = []
    end = 0
    try:
        for at, stored_bytes, topic, index, epoch, *_ in chunks_scan(body):
            first = skips.get((topic, index), 0)
            events += [
                Event(topic, index, epoch, offset, timestamp_us, key, value)
                for offset, timestamp_us, key, value in chunk_events(body, at)
                if offset >= first
            ]
            end = at + stored_bytes
    except ValueError as error:
        raise BadAnswerError(f"a chunk is damaged: {error}") from error
    if end != len(body):
        raise BadAnswerError(f"an answer of {len(body)} bytes ends inside a chunk")
    return events


def parse_skips(header: str) -> Skips:
    """ "topic/slice@offset, …" as a table."""
    skips: Skips = {}
    for part in header.split(","):
        name, _, offset = part.strip().rpartition("@")
        topic, _, index = name.rpartition("/")
        if not topic:
            continue
        try:
            skips[topic, int(index)] = int(offset)
        except ValueError as error:
            raise BadAnswerError(f"not a list of offsets: {header[:80]!r}") from error
    return skips
