"""What a pipeline writes, by topic and slice: gathered, encoded, and staged when it is much.

In one batch all events of a slice are of one attempt and in the order in which they came, so events
of one key keep their order.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from barco.client.base.names import Bytes, check_timestamp, check_topic, to_bytes, to_key
from barco.client.wire.batching import SliceKey
from barco.client.wire.codec import encode_batch, token_of
from barco.client.wire.ring import Ring
from barco.client.wire.staged import Attempt, Rows, StagedWrites
from barco.limits import STAGED_TOGETHER_MAX
from barco.types import KiB, MiB

PIECE_BYTES = 512 * KiB
PIECE_EVENTS_MAX = 65_536
"""One encoded batch becomes one stored chunk, which readers like large."""
REQUEST_BYTES = 4 * MiB
EVENT_BYTES = 64
"""What an event weighs in memory beside its bytes."""


@dataclass(frozen=True, slots=True)
class Output:
    """An event that a pipeline is to write."""

    value: Bytes
    key: Bytes | None = None
    timestamp_us: int | None = None
    """Microseconds since 1970; None: the broker's clock."""
    topic: str | None = None
    """None: the pipeline's sink."""


@dataclass(slots=True)
class _Pieces:
    """The events of one slice of one topic that are on their way."""

    values: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    size: int = 0
    sealed: list[bytes] = field(default_factory=list)
    staged: int = 0
    """Batches of the slice that are staged."""
    rows: int = 0

    def add(self, key: bytes | None, value: bytes, timestamp_us: int | None, compress: bool) -> int:
        """One more; what it weighs."""
        timed = timestamp_us is not None
        full = self.size >= PIECE_BYTES or len(self.values) >= PIECE_EVENTS_MAX
        if self.values and (full or timed != bool(self.timestamps)):
            self.seal(compress)
        self.values.append(value)
        self.keys.append(key)
        if timestamp_us is not None:
            self.timestamps.append(timestamp_us)
        self.rows += 1
        size = len(value) + len(key or b"") + EVENT_BYTES
        self.size += size
        return size

    def seal(self, compress: bool) -> None:
        """What was gathered becomes a batch."""
        if self.values:
            keys = None if all(key is None for key in self.keys) else self.keys
            timed: dict[str, Sequence[int]] = {"timestamp": self.timestamps}
            numbers = timed if self.timestamps else None
            self.sealed.append(encode_batch(self.values, keys, numbers, compress))
            self.values, self.keys, self.timestamps, self.size = [], [], [], 0


class Outputs:
    """Those of one attempt."""

    def __init__(self, attempt: Attempt, ring: Ring, sink: str, compress: bool) -> None:
        self.attempt = attempt
        self.held = 0
        """Bytes of memory that wait to be staged."""
        self.count = 0
        self._ring = ring
        self._sink = sink
        self._compress = compress
        self._pieces: dict[tuple[str, SliceKey], _Pieces] = {}

    def add(self, output: Output) -> None:
        """One more event. ValueError, TypeError: it can be none."""
        topic = self._sink if output.topic is None else check_topic(output.topic)
        value = to_bytes("value", output.value)
        key = None if output.key is None else to_key(output.key)
        check_timestamp(output.timestamp_us)
        # As Spark's rows: without a key the value says where, so that events spread.
        at = self._slice_of(key, value)
        pieces = self._pieces.get((topic, at))
        if pieces is None:
            pieces = self._pieces[topic, at] = _Pieces()
        self.held += pieces.add(key, value, output.timestamp_us, self._compress)
        self.count += 1

    def _slice_of(self, key: bytes | None, value: bytes) -> SliceKey:
        if key is None:
            return self._ring.slice_of_token(token_of(value))
        return self._ring.slice_of_key(key)

    @property
    def rows(self) -> Rows:
        """How many events each slice is to get."""
        rows: Rows = {}
        for (topic, key), pieces in self._pieces.items():
            rows.setdefault(topic, {})[key] = pieces.rows
        return rows

    async def stage(self, writes: StagedWrites) -> None:
        """Has all that waits staged; nothing of it is held here then."""
        self.held = 0
        asked = [self._stage(writes, *each) for each in self._pieces.items()]
        for ended in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    async def _stage(self, writes: StagedWrites, at: tuple[str, SliceKey], pieces: _Pieces) -> None:
        pieces.seal(self._compress)
        while pieces.sealed:
            together, size = 0, 0
            for body in pieces.sealed[:STAGED_TOGETHER_MAX]:
                if together and size + len(body) > REQUEST_BYTES:
                    break
                together, size = together + 1, size + len(body)
            await writes.stage(self.attempt, *at, pieces.staged, pieces.sealed[:together])
            del pieces.sealed[:together]
            pieces.staged += together
