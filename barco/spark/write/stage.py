"""One task of a write: record batches in, staged batches at the shards out.

Rows are gathered by slice, encoded from Arrow's buffers in C, and sent by a thread for each shard
endpoint while Spark brings the next rows. A batch that has no answer is sent again under the same
number, and kept once.
"""

import queue
import threading
import time
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa

from barco.client.wire.batching import SliceKey
from barco.client.wire.ring import Ring
from barco.errors import BarcoError
from barco.limits import COMMIT_ATTEMPTS_MAX
from barco.protocol.batch import CONTENT_TYPE
from barco.spark.write.alive import Alive
from barco.spark.write.commit import (
    PATIENCE_SECONDS,
    Shard,
    WriteOptions,
    ring_of,
    write_path,
)
from barco.spark.write.rows import (
    RefusedError,
    StageError,
    columns_of,
    encode,
    placed,
    refuse,
    which_row,
)
from barco.spark.write.shares import MovedError, Staged, needed_of
from barco.spark.write.tokens import ROW_BYTES, Columns, Router, offsets_of, sizes_between
from barco.types import MiB

QUEUED_MAX = 4
"""Requests that wait for each shard."""
BUNDLE_BATCHES = 8
BUNDLE_BYTES = 1 * MiB
"""Batches of one slice that go in one request, and how large it becomes with more than one: a
request costs the shard about as much as the batch in it, where values shrink to a tenth."""
BUNDLED_BYTES_MAX = 16 * MiB
"""Over it all that is encoded goes as it is."""
HELD_BYTES_MAX = 64 * MiB
"""Of rows that wait for company; over it all of them are sent as they are."""
SENT_BYTES_MAX = 16 * MiB
"""Of requests that a task keeps, to send them to those that its slices go to while the ring grows
or shrinks. A task that has sent more fails then, and Spark runs it again."""
MOVED_PAUSE_S = 0.2
"""Until the ring is read anew: who has got the slices is told of soon, by all."""


class _Sender(threading.Thread):
    """Sends to one shard endpoint, in order."""

    def __init__(self, endpoint: str, options: WriteOptions) -> None:
        super().__init__(name=f"barco-stage-{endpoint}", daemon=True)
        self.queue: queue.Queue[tuple[str, bytes] | None] = queue.Queue(QUEUED_MAX)
        self.error: BaseException | None = None
        self._given_up = threading.Event()
        self._shard = Shard(options.access, endpoint, options.timeout_s, self._sleep)
        self.start()

    def run(self) -> None:
        try:
            while (item := self.queue.get()) is not None and not self._given_up.is_set():
                path, body = item
                answer = self._shard.put(path, body, CONTENT_TYPE)
                if answer.status == 421:
                    raise MovedError(f"{self._shard.endpoint}: {answer.words}")
                if answer.status != 200:
                    refused = RefusedError if answer.status in (400, 413) else StageError
                    which = which_row(answer, body)
                    raise refused(f"{self._shard.endpoint}: {answer.words}{which}")
        except BaseException as error:  # noqa: BLE001 - raised where the rows come from.
            self.error = error
        finally:
            self._shard.close()

    def put(self, path: str, body: bytes) -> bool:
        """Waits its turn for a while; false: it did not come. Raises what has gone wrong so far."""
        until = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < until:
            if self.error is not None:
                raise self.error
            try:
                self.queue.put((path, body), timeout=0.2)
                return True
            except queue.Full:
                pass
        return False

    def end(self) -> bool:
        """Nothing more comes; false: there is no room for that yet."""
        try:
            self.queue.put_nowait(None)
            return True
        except queue.Full:
            return not self.is_alive()

    def give_up(self) -> None:
        """Nothing more is sent."""
        self._given_up.set()
        try:
            self.queue.put_nowait(None)
        except queue.Full:
            pass

    def _sleep(self, seconds: float) -> None:
        if self._given_up.wait(seconds):
            raise StageError("the task has ended")


class _Copies:
    """Sends to every process that holds a shard. Who is away, or much slower than the others, is
    left out, as long as most are there; what it lacks it gets from them (writes/copies.py)."""

    def __init__(self, holders: tuple[str, ...], away: frozenset[str], options: WriteOptions):
        self.holders = holders
        self._needed = needed_of(holders)
        there = [each for each in holders if each not in away]
        if len(there) < self._needed:
            there = list(holders)
        self._senders = {endpoint: _Sender(endpoint, options) for endpoint in there}

    @property
    def missed(self) -> tuple[str, ...]:
        """Who does not have everything."""
        return tuple(each for each in self.holders if each not in self._senders)

    def put(self, path: str, body: bytes) -> None:
        """Raises what has gone wrong, where it cannot be done without."""
        for endpoint, sender in list(self._senders.items()):
            try:
                while not sender.put(path, body):
                    if len(self._senders) > self._needed:
                        raise StageError(f"{endpoint} is far behind")
            except RefusedError:
                raise
            except BarcoError as error:
                self._leave_out(endpoint, error)

    def end(self) -> None:
        """Returns when all of it is staged; RefusedError if one will not have it, which is more
        than not to be there: only the leader knows what its topics take."""
        told: set[str] = set()
        patience = None
        while running := {at: each for at, each in self._senders.items() if each.is_alive()}:
            told |= {at for at, each in running.items() if at not in told and each.end()}
            next(iter(running.values())).join(0.01)
            ended = [each for each in self._senders.values() if not each.is_alive()]
            if len([each for each in ended if each.error is None]) < self._needed:
                continue
            patience = patience or time.monotonic() + PATIENCE_SECONDS
            if time.monotonic() > patience:
                break
        for endpoint, sender in list(self._senders.items()):
            if sender.is_alive():
                self._leave_out(endpoint, StageError(f"{endpoint} is far behind"))
            elif isinstance(sender.error, RefusedError):
                raise sender.error
            elif sender.error is not None:
                self._leave_out(endpoint, sender.error)

    def give_up(self) -> None:
        """Nothing more is sent."""
        for sender in self._senders.values():
            sender.give_up()

    def _leave_out(self, endpoint: str, error: BaseException) -> None:
        if len(self._senders) <= self._needed:
            raise error
        self._senders.pop(endpoint).give_up()


class _Held:
    """Rows of one slice that wait until they are a piece."""

    def __init__(self) -> None:
        self.parts: list[Columns] = []
        self.bytes = 0

    def take(self) -> Columns:
        """All of them, as one."""
        parts, self.parts, self.bytes = self.parts, [], 0
        if len(parts) == 1:
            return parts[0]
        keyed, names = parts[0].key is not None, parts[0].numbers
        headed = parts[0].headers is not None
        return Columns(
            pa.concat_arrays([part.key for part in parts]) if keyed else None,
            pa.concat_arrays([part.value for part in parts]),
            {name: np.concatenate([part.numbers[name] for part in parts]) for name in names},
            pa.concat_arrays([part.headers for part in parts]) if headed else None,
        )


class _Bundle:
    """Encoded batches of one slice, for one request."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.bodies: list[bytes] = []
        self.bytes = 0

    def add(self, body: bytes) -> None:
        """One more, at the end."""
        self.bodies.append(body)
        self.bytes += len(body)


class Task:
    """The write of one task."""

    def __init__(self, options: WriteOptions, ring: Ring, batch: int, staged: Staged) -> None:
        self._options = options
        self._ring = ring
        self._staged = staged
        self._write = write_path(staged.writer, batch)
        self._path = f"{self._write}/staged?attempt={quote(staged.attempt)}"
        self._skipped = options.skips(batch)
        self._router = Router(ring)
        self._shards: dict[str, _Copies] = {}
        self._held: dict[tuple[str, SliceKey], _Held] = {}
        self._bundles: dict[tuple[str, SliceKey], _Bundle] = {}
        self._bundled_bytes = 0
        self._held_bytes = 0
        self._rows: dict[tuple[str, SliceKey], int] = {}
        self._sent: list[tuple[SliceKey, str, bytes]] = []
        """All requests; their paths and bodies are the same for whoever holds the slice."""
        self._sent_bytes = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> Staged:
        """Stages every row; returns when all are. StageError if they cannot be events."""
        if self._skipped:
            for _ in batches:  # Spark computes them: state of a stream may hang on it.
                pass
            return self._staged
        alive = Alive(self._options.access, self._ring, self._write)
        try:
            for batch in batches:
                self._add(batch)
            self._flush()
            self._post_all()
            self._end()
        except BaseException:
            for shard in self._shards.values():
                shard.give_up()
            raise
        finally:
            alive.end()
        return self._staged

    def _end(self) -> None:
        """Returns when all is staged with those that hold it, and the driver can be told."""
        while True:
            try:
                for shard in self._shards.values():
                    shard.end()
                break
            except MovedError as error:
                self._move(error)
        for home, shard in self._shards.items():
            self._staged.held(home, shard.holders, shard.missed)
        for (topic, slice_key), count in self._rows.items():
            self._staged.add(self._ring.holders[slice_key][0], topic, slice_key, count)

    def _move(self, error: MovedError) -> None:
        """Slices are elsewhere now: sends all once more, to whoever holds them by a new look at the
        ring. What is there already is known by its number. Raises it if that does not help."""
        until = time.monotonic() + self._options.timeout_s
        while True:
            for shard in self._shards.values():
                shard.give_up()
            self._shards.clear()
            if self._sent_bytes > SENT_BYTES_MAX or time.monotonic() > until:
                raise error
            time.sleep(MOVED_PAUSE_S)
            self._ring = ring_of(self._options)
            try:
                for slice_key, path, body in self._sent:
                    self._put(slice_key, path, body)
                return
            except MovedError as again:
                error = again

    def _add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        if self._staged.partition >= COMMIT_ATTEMPTS_MAX:
            raise StageError(
                f"this is task {self._staged.partition}, from 0, and a job is committed with "
                f"{COMMIT_ATTEMPTS_MAX:,} at most: make fewer of them, with "
                f"coalesce({COMMIT_ATTEMPTS_MAX // 10}) before the write or the like"
            )
        columns = columns_of(batch)
        numbers = self._router.numbers(columns)
        if batch.schema.get_field_index("partition") >= 0:
            numbers = placed(batch.column("partition"), columns, numbers, len(self._ring.slices))
        topics, names = None, [self._options.topic or ""]
        if self._options.topic is None:
            encoded = batch.column("topic").dictionary_encode()
            refuse(columns, encoded.is_null(), "its topic is null")
            topics = encoded.indices.to_numpy()
            names = encoded.dictionary.to_pylist()
        split = self._router.split(columns, numbers, topics, len(names))
        for topic, slice_key, part, size in split:
            self._add_rows(names[topic], slice_key, part, size)
        if self._held_bytes > HELD_BYTES_MAX:
            self._flush()

    def _add_rows(self, topic: str, slice_key: SliceKey, columns: Columns, size: int) -> None:
        held = self._held.get((topic, slice_key))
        if held is None:
            held = self._held[topic, slice_key] = _Held()
        held.parts.append(columns)
        held.bytes += size
        self._held_bytes += size
        if held.bytes >= self._options.piece_bytes:
            self._held_bytes -= held.bytes
            rest = self._send_pieces(topic, slice_key, held.take())
            if rest is not None:
                held.parts.append(rest)
                held.bytes = _size(rest)
                self._held_bytes += held.bytes

    def _flush(self) -> None:
        for (topic, slice_key), held in self._held.items():
            if held.parts:
                rest = self._send_pieces(topic, slice_key, held.take())
                if rest is not None:
                    self._send(topic, slice_key, rest)
        self._held_bytes = 0

    def _send_pieces(self, topic: str, slice_key: SliceKey, columns: Columns) -> Columns | None:
        """Sends what is whole pieces; the rest is less than one."""
        measures, most = _measures(columns), self._options.piece_bytes
        count, start = len(columns.value), 0
        while start < count:
            ends = [np.searchsorted(each, each[start] + most, side="right") for each in measures]
            stop = max(int(min(ends)) - 1, start + 1)
            if stop >= count and all(each[-1] - each[start] < most for each in measures):
                return columns.cut(start, count)
            self._send(topic, slice_key, columns.cut(start, stop))
            start = stop
        return None

    def _send(self, topic: str, slice_key: SliceKey, columns: Columns) -> None:
        count = len(columns.value)
        body = encode(columns, self._options.acceleration)
        bundle = self._bundles.setdefault((topic, slice_key), _Bundle(0))
        if bundle.bodies and bundle.bytes + len(body) > BUNDLE_BYTES:
            bundle = self._post(topic, slice_key)
        bundle.add(body)
        self._bundled_bytes += len(body)
        if len(bundle.bodies) == BUNDLE_BATCHES:
            self._post(topic, slice_key)
        elif self._bundled_bytes > BUNDLED_BYTES_MAX:
            self._post_all()
        of = topic, slice_key
        self._rows[of] = self._rows.get(of, 0) + count

    def _post(self, topic: str, slice_key: SliceKey) -> _Bundle:
        """Queues what is encoded for a slice; returns the next bundle, which is empty."""
        bundle = self._bundles[topic, slice_key]
        following = _Bundle(bundle.first + len(bundle.bodies))
        self._bundles[topic, slice_key] = following
        self._bundled_bytes -= bundle.bytes
        path = f"{self._path}&topic={quote(topic)}&slice={slice_key.slice}&seq={bundle.first}"
        body = b"".join(bundle.bodies)
        self._sent_bytes += len(body)
        if self._sent_bytes <= SENT_BYTES_MAX:
            self._sent.append((slice_key, path, body))
        else:
            self._sent.clear()
        try:
            self._put(slice_key, path, body)
        except MovedError as error:
            self._move(error)
        return following

    def _put(self, slice_key: SliceKey, path: str, body: bytes) -> None:
        """Queues a request for those that hold the slice."""
        holders = self._ring.holders[slice_key]
        if holders[0] not in self._shards:
            self._shards[holders[0]] = _Copies(holders, self._ring.away, self._options)
        self._shards[holders[0]].put(path, body)

    def _post_all(self) -> None:
        for (topic, slice_key), bundle in list(self._bundles.items()):
            if bundle.bodies:
                self._post(topic, slice_key)


def _measures(columns: Columns) -> list[Any]:
    """What the rows up to each of them come to, by values, by keys, and by number: a piece is full
    when one of them is. Keys count, for a shard takes no batch that unpacks to more than 16 MiB."""
    found = [offsets_of(array).astype(np.int64) for array in columns.bytes]
    return [*found, ROW_BYTES * np.arange(len(columns.value) + 1)]


def _size(columns: Columns) -> int:
    return int(sizes_between(columns, np.array([0, len(columns.value)]))[0])
