"""Bytes that go to and come from brokers, by the C core: a few calls for each batch or chunk."""

from typing import NamedTuple

from barco._native import batch_encode as encode_batch
from barco._native import chunk_events, chunk_info, chunks_scan
from barco._native import token as token_of
from barco.client.base.errors import BadAnswerError
from barco.model.placement import Placement
from barco.model.token import TOKEN_MIN
from barco.protocol.cursor import Cursor
from barco.types import Epoch, Offset, Token

__all__ = ["Event", "Skips", "decode_chunks", "encode_batch", "parse_skips", "token_of"]

Skips = dict[tuple[str, int | None, int], int]
"""By topic, token (None: of a single broker) and slice: the offset before which events of an answer
are not meant."""


class Event(NamedTuple):
    """One event as it is stored. Its cursor is (epoch, offset)."""

    topic: str
    slice: int
    epoch: int
    offset: int
    timestamp_us: int
    """Microseconds since 1970: the producer's, or the broker's clock when it came."""
    key: bytes | None
    value: bytes | None
    """None: it was sent without one, to say that its key is no more."""
    token: int = TOKEN_MIN
    """The start of the token range that the slice is of."""
    headers: tuple[tuple[str, bytes], ...] = ()
    """Names, in lower case, and values, in the order in which they were sent."""

    @property
    def next_cursor(self) -> str:
        """Where to go on after this event, as `read` and the HTTP API take it."""
        return str(Cursor(Epoch(self.epoch), Offset(self.offset + 1)))


def decode_chunks(body: bytes, skips: Skips, ring: Placement | None = None) -> list[Event]:
    """The events of chunks back to back; BadAnswerError if they are damaged.

    ring: of a cluster, whose token ranges all have slices of the same numbers.
    """
    events: list[Event] = []
    end = 0
    try:
        for at, stored_bytes, topic, index, epoch, *_ in chunks_scan(body):
            token = TOKEN_MIN if ring is None else _range_of(body, at, ring)
            first = skips.get((topic, None if ring is None else token, index), 0)
            events += [
                Event(topic, index, epoch, offset, timestamp_us, key, value, token, *headers)
                for offset, timestamp_us, key, value, *headers in chunk_events(body, at)
                if offset >= first
            ]
            end = at + stored_bytes
    except ValueError as error:
        raise BadAnswerError(f"a chunk is damaged: {error}") from error
    if end != len(body):
        raise BadAnswerError(f"an answer of {len(body)} bytes ends inside a chunk")
    return events


def _range_of(body: bytes, at: int, ring: Placement) -> int:
    """The start of the token range that a chunk's slice is of: its events' tokens lie there."""
    head = chunk_info(body, at)
    assert head is not None, "it was scanned"
    return int(ring.token(ring.locate(Token(head["token_min"]))[0]))


def parse_skips(header: str) -> Skips:
    """ "topic/slice@offset, …", in a cluster "topic/token/slice@offset, …", as a table."""
    skips: Skips = {}
    for part in header.split(","):
        name, _, offset = part.strip().rpartition("@")
        name, _, index = name.rpartition("/")
        topic, _, token = name.partition("/")
        if not topic:
            continue
        try:
            skips[topic, int(token) if token else None, int(index)] = int(offset)
        except ValueError as error:
            raise BadAnswerError(f"not a list of offsets: {header[:80]!r}") from error
    return skips
