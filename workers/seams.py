"""The seams of a worker: what its parts ask of the reactor, the log reader and the supervisor.

Everything above these protocols runs unchanged on the real reactor and on the in-memory twin of
the tests.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from barco._native import Lent
from barco.errors import BarcoError

Stream = tuple[str, int, int, int, int]
"""(topic, slice, start offset, stable end offset, timestamp in µs of the last event)."""


class ReactorLike(Protocol):
    """The part of `_native.Reactor` that rare requests need."""

    @property
    def engine(self) -> str:
        """The I/O engine in use: io_uring or epoll."""

    @property
    def engine_reason(self) -> str:
        """Why it is not io_uring; empty if it is."""

    def disk_full(self) -> bool:
        """Whether events are refused, for there is no room on the disk."""

    def append(
        self,
        tag: int,
        topic: str,
        slice: int,
        key: bytes | None,
        value: bytes,
        unhurried: bool = False,
        /,
    ) -> None:
        """Append one event; the upcall "appended" with this tag follows when it is stable.
        unhurried: nobody is kept waiting by that, so it may gather with others for 20 ms.

        RuntimeError: it was not taken, there is no room for it now.
        """

    def produce_made(
        self, request_id: int, topic: str, batch: bytes, known_only: bool, at: int = -1, /
    ) -> tuple[int, str, str] | None:
        """Produce a batch on behalf of a request that waits for an answer; the upcall "produced"
        follows: the same of what is wrong, or None. Else status, type and title of what is wrong.
        known_only: it makes no topic. at: the slice, by its number in the ring, of events without a
        key; -1: any."""

    def produce_checked(
        self, request_id: int, body: bytes, told: bool, /
    ) -> tuple[int, str, str] | None:
        """Go on with what "check" told of, with this body. told: "produced" follows, as of
        `produce_made`, with the answer as JSON (None: it was stored before); else the core answers,
        and None is returned."""

    def check_batch(
        self, slice: int, batch: bytes | memoryview, taken: bool = False, /
    ) -> tuple[int, int, int, int, int]:
        """What a batch for a slice holds: events, bytes, lowest and highest token, latest time.

        ValueError: it is malformed or not the slice's; OverflowError: it is too large. `taken`: its
        events are stored already, and may be larger than events may be now: the log bounds them.
        """

    def append_commit(
        self,
        tag: int,
        topic: str,
        slice: int,
        batches: list[tuple[Any, ...]],
        mark_topic: str,
        mark_key: bytes,
        mark_value: bytes,
        /,
    ) -> None:
        """Append batches, each with what `check_batch` told, and their mark as one group.

        The upcall "appended" follows. RuntimeError: not taken now; ValueError: one is damaged.
        """

    def streams(self, topic: str | None = None, /) -> list[Stream]:
        """Every (topic, slice) of this shard, or those of one topic."""

    def stream_ends(self, topic: str, slice: int) -> tuple[int, int] | None:
        """(start offset, stable end) of one of them."""

    def producer(self, topic: str, id: bytes, /) -> list[tuple[int, int, int]]:
        """(slice, epoch, sequence) of what was taken last of a producer."""

    def compacted(self, topic: str) -> list[tuple[bytes, bytes]]:
        """The latest value of each key of an internal topic."""

    def tail_read(
        self,
        topic: str,
        slice: int,
        from_offset: int,
        max_bytes: int,
        lend: bool,
        columns: int = -1,
        to_offset: int = ...,
        /,
    ) -> tuple[Sequence[bytes | Lent], int, int] | None:
        """(stored chunks, next offset, stable end) from memory; None: not there, ask the disk.

        Each element of the list holds one or more chunks, back to back; cut down to some columns,
        if not -1. They end with the one that reaches `to_offset`. lend: it may be lent.
        """

    def locate_timestamp(self, topic: str, slice: int, timestamp_us: int) -> int | None:
        """The first offset of the first chunk of this generation that may be as late as this."""

    def topic_set(
        self,
        topic: str,
        exists: bool,
        compression: str | None = None,
        any_time: bool = False,
        checked: bool = False,
        /,
    ) -> None:
        """Tell the produce path that a topic exists, or does not any more, and how it is packed.

        None: as configured for the broker. any_time: producers' timestamps may be far from now.
        checked: of what is produced there the upcall "check" tells first.
        """

    def time_plausible(self, timestamp_us: int, /) -> bool:
        """Whether a producer's timestamp is of the last 10 years or the next day."""

    def truncate_stream(self, topic: str, slice: int, start_offset: int) -> None:
        """Events before this offset are gone."""

    def delayed_news(self) -> list[tuple[str, int, int, int]]:
        """Of those in which an event became stable since this was asked last: see the next."""

    def delayed_streams(self) -> list[tuple[str, int, int, int]]:
        """(topic, slice, start offset, stable end) of all streams of events that wait."""

    def stats(self) -> dict[str, int]:
        """Counters and gauges by name."""

    def notify(self, on: bool) -> None:
        """Whether "stable" upcalls are wanted."""


class ReadResultLike(Protocol):
    """What a read from disk gave."""

    @property
    def chunks(self) -> Sequence[bytes | memoryview]:
        """Whole stored chunks, verified, back to back in pieces; the first may begin before the
        offset asked for."""

    @property
    def next_offset(self) -> int:
        """After the last event of the chunks."""


class LogReaderLike(Protocol):
    """Reads of what is no longer in memory (`barco.workers.storage.reading.reader.LogReader`)."""

    async def read(
        self,
        topic: str,
        slice_: int,
        from_offset: int,
        max_bytes: int,
        /,
        *,
        raw_bytes_max: int | None = None,
        more: bool = False,
        columns: int = -1,
        stop: int = ...,
    ) -> ReadResultLike:
        """Chunks of one generation of up to so many bytes, stored and uncompressed; or BarcoError.

        Cut down to some columns, as the core counts them; -1: whole. None is wanted that begins at
        `stop` or later.

        At least one chunk if there is any; with `more` (the caller has some already) perhaps none.
        """

    def missing(self, topic: str, slice_: int, first: int, end: int, /) -> BarcoError | None:
        """What to raise when nothing is found below the stable end; it is counted as damage. None:
        retention was there."""

    async def look_up(self, streams: Sequence[tuple[str, int]], /) -> None:
        """`earliest` of each of these will be asked for: what it takes is looked for once."""

    async def earliest(self, topic: str, slice_: int, /) -> int | None:
        """The lowest offset that is still on disk; None when there is nothing."""

    async def by_timestamp(self, topic: str, slice_: int, timestamp_us: int, /) -> int | None:
        """An offset at or shortly before the first event that is as late as this."""


class SpoolLike(Protocol):
    """Where staged events wait (`barco.workers.storage.files.spool.Spool`)."""

    async def recover(self) -> list[tuple[Any, list[Any]]]:
        """Each file of an earlier run and its records."""

    async def create(self, name: str, meta: dict[str, Any]) -> Any:
        """A new file."""

    async def append(self, file: Any, meta: dict[str, Any], body: bytes) -> Any:
        """Adds a record and returns it; under `file.lock`."""

    async def append_all(
        self, file: Any, entries: Sequence[tuple[dict[str, Any], memoryview]]
    ) -> list[Any]:
        """Adds some records by one write; a crash may leave the first of them. As `append`."""

    async def sync(self, file: Any) -> None:
        """Makes what was appended stable."""

    async def read(self, file: Any, records: Sequence[Any]) -> list[bytes]:
        """The records' bodies, verified."""

    async def remove(self, file: Any) -> None:
        """Closes and deletes it."""

    def close(self, files: Sequence[Any]) -> None:
        """Closes them; they stay."""


class SupervisorLike(Protocol):
    """The channel to the supervisor."""

    async def request(self, op: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """Its result, or the BarcoError that it answered with."""


class SiblingsLike(Protocol):
    """The operations of all workers of this broker, this one included."""

    async def call(
        self,
        worker: int,
        op: str,
        args: Mapping[str, Any],
        timeout: float = 5.0,
        late: Callable[[Any], None] | None = None,
    ) -> Any:
        """The result of one operation of one worker, or a BarcoError; `late` is told of one that
        comes too late."""

    def reached(self, worker: int) -> bool:
        """Whether there is a connection to it."""

    async def broadcast(
        self,
        op: str,
        args: Mapping[int, Mapping[str, Any]],
        timeout: float = 5.0,
        sooner: Mapping[int, float] = MappingProxyType({}),
    ) -> dict[int, Any]:
        """The results by worker; a BarcoError stands for itself. sooner: who has less time, from
        the beginning on."""

    async def first_true(
        self, op: str, args: Mapping[int, Mapping[str, Any]], timeout: float
    ) -> set[int]:
        """Who answered with a true value first; the other calls are cancelled. Empty: none did."""


class Gate(Protocol):
    """What a replica may give out now."""

    def serves_consumers(self) -> bool:
        """Whether nobody else can be handing out the same events to a group."""

    def readable(self) -> bool:
        """Whether all of the history is here, and nothing shown that may not become it."""

    def status(self) -> dict[str, Any]:
        """How replication is, for /status; empty where there is none."""
