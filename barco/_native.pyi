"""The C core of barco. Section 1: pure functions over bytes.

Every function takes any contiguous buffer where it takes bytes to read, checks every length, and
raises ValueError with a sentence that says what is wrong with them.
"""

from collections.abc import Sequence
from typing import Any, Self, TypeAlias, TypedDict, final, type_check_only

from typing_extensions import Buffer

@type_check_only
class ChunkInfo(TypedDict):
    topic: str
    slice: int
    count: int
    epoch: int
    base_offset: int
    base_timestamp_us: int
    max_timestamp_us: int
    token_min: int
    token_max: int
    stored_bytes: int
    raw_bytes: int
    sections: list[tuple[int, int, int, int, int]]  # id, codec, raw_len, stored_len, crc

def token(key: Buffer, /) -> int:
    """The point of the ring, a signed 64-bit integer, that a partition key hashes to."""

def histogram_bounds() -> list[int]:
    """Of each bucket of a histogram the lowest value that is in a later one; the last has none."""

def crc32c(data: Buffer, seed: int = 0) -> int:
    """CRC-32C of data, continued from seed (the checksum of what came before)."""

def headers_encode(headers: Sequence[tuple[str, bytes]], /) -> bytes:
    """An event's headers as batches have them, of names and values; none: no bytes. ValueError:
    more of them than an event may have, or a name that is none."""

def headers_lists(offsets: Buffer, headers: Buffer, /) -> tuple[bytes, bytes, bytes, bytes, bytes]:
    """Of a column of headers Arrow's buffers of lists of names and values: offsets of the lists, of
    the names, the names, offsets of the values, the values. ValueError: they are damaged."""

def headers_pack(
    lists: Buffer, name_offsets: Buffer, names: Buffer, value_offsets: Buffer, values: Buffer, /
) -> tuple[int, bytes, bytes]:
    """The opposite: offsets and data of a column, no bytes for an empty list; before them -1, or
    the first row that no event can have. ValueError: buffers that do not fit each other."""

def batch_encode(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    numbers: dict[str, Sequence[int]] | None = None,
    compress: bool = True,
    headers: Sequence[bytes | None] | None = None,
) -> bytes:
    """A body of type application/vnd.barco.batch. `headers`: of each event what headers_encode()
    made, or None.

    `numbers`: columns of 64-bit integers by name; without "timestamp", microseconds since 1970, the
    broker's clock is used. ValueError: no value, columns of different lengths or of another name, a
    key over 65,535 bytes, a column over 64 MiB, timestamps before the year 1.
    """

def snappy_unpack(body: Buffer, most: int, /) -> bytes:
    """Of Snappy's block format. OverflowError: it says that it is longer than `most`, and no memory
    is taken; ValueError: it is malformed."""

def keyed_values(body: Buffer, /) -> list[bytes | None] | None:
    """Of lines that bring a key each the values, as they will be stored. None: a line is not as it
    may be, so nothing will be; times and sizes are not looked at."""

class Shape:
    """What JSON texts surely are: a program as native/format/shape.h has it."""

    def __new__(cls, program: Buffer, /) -> Self: ...  # ValueError: it is none
    def run(self, values: list[bytes | None], at: int, lead: bytes, most: int, /) -> int:
        """From there over values that are None, or that begin with `lead` and are right behind it,
        until so many bytes are looked at: where the next one is. ~ (below 0): of that one nothing
        is known; the others before it are right."""

class Shipped:
    """Events as a shipper of logs sent them: read once, then made a batch for each topic."""

    def __new__(
        cls,
        format: str,
        body: Buffer,
        event_bytes_max: int,
        bytes_max: int,
        low_us: int,
        high_us: int,
        headers: bytes = b"",
    ) -> Self:
        """format: bulk (Elasticsearch), hec (Splunk), otlp, otlp-json (OpenTelemetry), loki,
        loki-json, remote-write (Prometheus), or lines, all with `headers`. A time that is not
        within low_us and high_us is none. ValueError: a limit is out of bounds."""
    @property
    def flaw(self) -> str: ...  # of the whole body; empty: none
    @property
    def at(self) -> int: ...  # the event, from 0, or the line, from 1, that has it
    @property
    def count(self) -> int: ...
    def kinds(self) -> list[tuple[int, str | None, str, int]]:
        """Of each kind of events the operation, the name that is said, what is wrong with each of
        them (empty: nothing), and how many there are."""
    def batch(self, wanted: bytes, now_us: int, /) -> bytes:
        """The events of some kinds, a byte for each of kinds(), as application/vnd.barco.batch; one
        without a time has now_us where others have one. ValueError: there is none, or a flaw."""
    def items(self, heads: list[bytes], tails: list[bytes], /) -> bytes:
        """Of each event its kind's head, its id, and its kind's tail, between commas."""

def tokens(offsets: Buffer, keys: Buffer, /) -> bytes:
    """The tokens of a column of keys, native 64-bit integers. `offsets`: 32-bit, one more than
    there are keys, as Arrow has them. ValueError: an offset that leads outside."""

def batch_columns(
    value_offsets: Buffer,
    values: Buffer,
    key_offsets: Buffer | None = None,
    keys: Buffer | None = None,
    key_valid: Buffer | None = None,
    numbers: dict[str, Buffer] | None = None,
    acceleration: int = 1,
    value_valid: Buffer | None = None,
    header_offsets: Buffer | None = None,
    headers: Buffer | None = None,
    header_valid: Buffer | None = None,
) -> bytes:
    """A body of type application/vnd.barco.batch, of Arrow's buffers, without the GIL.

    `numbers`: as for batch_encode(), native 64-bit integers. `key_valid`: a byte for each event, 0
    where it has no key; so `value_valid` and `header_valid`. `headers` are as headers_encode()
    makes them. `acceleration`: LZ4's; 0 compresses nothing. ValueError: as batch_encode(),
    or buffers that do not fit each other.
    """

def chunk_info(buf: Buffer, offset: int = 0) -> ChunkInfo | None:
    """The header of the chunk at offset, or None if buf ends before the chunk does."""

def chunks_scan(buf: Buffer, /) -> list[tuple[int, int, str, int, int, int, int, int, int]]:
    """Every whole chunk of a buffer of chunks back to back; stops before one that is cut off.

    Each as (offset in buf, stored bytes, topic, slice, epoch, base offset, count, base timestamp,
    max timestamp), timestamps in microseconds. Headers are verified, sections are not.
    """

def chunk_is(buf: Buffer, topic: str, slice: int, base_offset: int, count: int, /) -> bool:
    """Whether a buffer is exactly this chunk: header, bounds and all checksums are right."""

Headers: TypeAlias = tuple[tuple[str, bytes], ...]
StoredEvent: TypeAlias = tuple[int, int, bytes | None, bytes | None, *tuple[Headers, ...]]

EVENT: tuple[str, ...]
"""The names of what chunk_events() says of an event: offset, then each column."""

def chunk_events(buf: Buffer, offset: int = 0) -> list[StoredEvent]:
    """(offset, timestamp in microseconds, key, value) of each event, and if any of the chunk has
    headers, its own; all checksums verified."""

def batch_events(batch: Buffer, /) -> list[StoredEvent]:
    """The same of exactly one batch, with the place in it for an offset, and timestamp 0 where the
    broker's clock is to be used. ValueError: it is none."""

COLUMNS: dict[str, int]
"""A bit for each column of stored events, by its name."""

def chunks_project(buf: Buffer | list[Any], columns: int, /) -> bytes:
    """Chunks back to back, of one buffer or of several, cut down to some columns (COLUMNS, added
    up): the heads as they are stored, then only the sections of these columns. Nothing is unpacked.
    """

def entries_plan(
    entries: bytes, bytes_max: int, group_bytes: int, stop: int = ..., /
) -> list[tuple[int, int, int]]:
    """How entries of an index, in the layout of sidecars, are read: (first, count, bytes of memory)
    of each call of disk_chunks. Up to bytes_max stored bytes, to the one that reaches `stop` and to
    the first missing offset; at least one entry. Groups take group_bytes of memory at most, unless
    one chunk alone is larger."""

def disk_chunks(
    fd: int,
    entries: bytes,
    groups: list[tuple[int, int, memoryview]],
    topic: str,
    slice: int,
    columns: int,
    /,
) -> list[tuple[int, int, int, int]]:
    """Reads groups of chunks (first entry, count, page-aligned memory), without Python's lock,
    checks all of them and moves them together, cut down to some columns (-1: whole): (chunks,
    bytes, raw bytes, offset after the last event) of those that are what their entries say. It ends
    with the first group that has one that is not. ValueError: there is not enough memory."""

def chunks_fit(
    buf: Buffer, stored_max: int, raw_max: int, stop: int, one: bool, columns: int = -1, /
) -> tuple[int, int, int]:
    """(bytes, raw bytes, offset after the last event) of the first chunks of a buffer, whole or cut
    down to some columns, that are within bounds and begin before an offset; with `one` the first
    in any case. ValueError: a head is damaged."""

def chunk_place(buf: Buffer, /) -> tuple[int, int, int]:
    """(base offset, events, epoch) of the chunk at the start of a buffer, whole or cut down; only
    its head is verified. ValueError: damaged."""

def chunks_columns(
    buf: Buffer,
    position: int,
    topic: str,
    slice: int,
    from_offset: int,
    to_offset: int,
    bytes_max: int,
    columns: int,
    projected: bool,
) -> tuple[
    int,
    int,
    int,
    list[tuple[int, int]],
    dict[str, tuple[int, bytes | None, bytes | None, bytes]],
]:
    """The next whole chunks from `position` on as buffers of Arrow arrays; every checksum verified.

    (next position, first offset, rows, [(epoch, rows)], {column: (nulls, validity, offsets int32,
    data)}); columns of numbers, which are int64, have no offsets. At least one chunk, then as many
    as have `bytes_max` uncompressed bytes; it ends with the chunk that reaches `to_offset`. The
    first chunk may begin before `from_offset`. ValueError: damaged, events are missing, or of
    another slice. `projected`: the chunks hold the sections of `columns` only (chunks_project).
    """

def tls_dates(certificate: bytes, key: bytes, client_ca: bytes, /) -> tuple[int, int]:
    """From when until when a certificate and its chain are valid, in seconds since 1970, after all
    has been checked that Reactor.set_tls() checks. ValueError: what is wrong."""

def tls_kernel() -> str:
    """Whether the kernel can seal what is sent, tried on a connection to ourselves: empty, or why
    it can not."""

class Seals:
    """What a broker shows to other brokers, and of whom it believes them; texts in PEM.

    ValueError: what is wrong with them.
    """

    def __init__(self, certificate: bytes, key: bytes, ca: bytes, /) -> None: ...
    def begin(self, client: bool, name: bytes, /) -> Seal:
        """A session of TLS that both ends call by that name, 1 to 96 bytes."""

class Seal:
    """A session of TLS between two brokers."""

    def shake(self, record: bytes, /) -> bytes:
        """What is to be sent, after one record of the other end; none to begin with. ValueError:
        why it is over; `unsent` tells the other end."""
    def unsent(self) -> bytes:
        """What is to be sent still; it counts as sent then."""
    @property
    def done(self) -> bool:
        """Whether the handshake has come to a good end."""
    @property
    def identity(self) -> str:
        """The one URI barco:… in the certificate of the other end; "": it is not so."""
    def send(self, fd: int, head: bytes, data: bytes | bytearray | memoryview, sent: int, /) -> int:
        """Bytes more taken of the two together, of which so many were; 0: the socket is full.
        OSError: it is of no use any more."""
    def flush(self, fd: int, /) -> bool:
        """Whether all that was taken is the socket's by now."""

def render_json(
    chunks: Sequence[Buffer], from_offset: int, to_offset: int, most: int = ...
) -> tuple[bytes, int]:
    """A JSON array of the values with from_offset <= offset < to_offset; checksums verified.

    And the offset of the first event that is not in it: it ends before it would be longer than
    `most` bytes, or earlier; one event is in it at least.

    Each buffer holds whole chunks back to back. A value that is valid JSON is spliced as it is,
    other valid UTF-8 becomes a string, anything else {"base64": "..."}.
    """

def render_ndjson(
    chunks: Sequence[Buffer],
    from_offset: int,
    to_offset: int,
    token: int,
    most: int = ...,
    id: str | None = None,
    deliveries: int = 0,
    where: Sequence[tuple[int, int, bytes, Sequence[bytes | int], bytes, bool, float | None]] = (),
) -> tuple[bytes, int]:
    """The same: a line for each event with from_offset <= offset < to_offset; checksums verified.

    Fields: topic, token (start of the shard's range, as a string), rangeIndex, version, offset
    (as a string), timestamp (microseconds), key, value. With `id`, what stands before the offset in
    it, of what a queue hands out: id and deliveries as well. With `where` only events of which all
    of it is true, within some `most` bytes that are looked at: what of an event, the test, a
    header's name, steps into the value, the text, whether only a string is that, and as a number.
    """

def frame_events(
    text: Buffer, offset: int, epoch: int, before: str, behind: str, listed: bool, /
) -> bytes:
    """Lines as server-sent events, the first of them that of `offset`; the place behind each is its
    id, between what stands before and behind it: as a cursor, or (listed) as `epoch.offset`."""

def render_records(
    chunks: Sequence[Buffer], from_offset: int, to_offset: int, most: int = ...
) -> tuple[bytes, int]:
    """The same: PolarStreams' records of these events.

    Each is a timestamp in microseconds (8 bytes), a length (4), both big-endian, and the value.
    """

def chunks_take(
    buf: Buffer, position: int, offset: int, budget: int, frame: int, started: bool, most: int, /
) -> tuple[int, int, int, int, int, bool]:
    """The chunks of a buffer, from byte `position` on, that an answer has room for.

    They follow each other, are of one generation, and begin with the one that `offset` is in. An
    event costs `frame` bytes more than its key and value; what fits into `budget` is taken, to
    within a chunk, and unless the answer has been started one event in any case; no more chunks
    once they are `most` stored bytes. (first byte, stored bytes, base offset of the first chunk,
    offset behind the last event, cost, whether the next event does not fit.) ValueError: damaged.
    """

def chunk_since(chunk: Buffer, timestamp_us: int, /) -> int:
    """The first event of the chunk that is as late as this, else the offset behind its last."""

# --- Delayed events -------------------------------------------------------------------------

def times_between(
    times: Buffer, first: int, low: tuple[int, int], high: tuple[int, int], /
) -> tuple[list[tuple[int, int]], tuple[int, int] | None]:
    """Of events from offset `first` on, by their times of 8 bytes each: the keys (time, offset)
    from `low` on and before `high`, in the order of offsets; and the least key from `high` on."""

def chunk_batch(chunk: Buffer, offsets: list[int], /) -> bytes:
    """The events of a chunk that have these offsets, in this order and with their times, as a
    batch. ValueError: damaged, or one is not in it."""

# --- States: what a generation begins with (native/log/state.h) ------------------------------

def state_cut(state: Buffer, slice_first: int, slice_count: int, /) -> bytes:
    """The state of some of a state's slices, rows in one order whatever the order was.

    ValueError says what is wrong with it. Python's lock is not held meanwhile.
    """

def state_union(one: Buffer, other: Buffer, /) -> bytes:
    """The state of the slices of both, which are neighbours, in any order. As `state_cut`."""

@final
class ShardState:
    """The sum of a history, beside what the reactor has. One thread at a time may use it."""

    def __init__(self, slice_first: int, slice_count: int, /) -> None: ...
    def restore(self, snapshot: Buffer, /) -> None:
        """Begin with the body of a GEN_START or SNAPSHOT group, and with its slices, if it says
        them. ValueError: it is none."""
    def apply_group(self, group: Buffer, /) -> None:
        """Add a group, header and all, whose checksums are right. ValueError: its chunks are
        not of these slices."""
    def walk(
        self,
        groups: Buffer,
        cluster_uuid: bytes,
        token: int,
        epoch: int,
        session: int,
        gseq: int,
        header_crc: int,
        tail: int,
        /,
    ) -> tuple[int, int, int]:
        """Add the groups that these bytes begin with, up to `tail`, for as long as each is whole,
        of that generation, and the one that follows: bytes used, number and header_crc of the last.

        `gseq`, `header_crc`: of the one before; 0: the first one begins with a state. What is not
        taken may be incomplete or damaged: `index.scan` says which. Python's lock is not held.
        """
    def snapshot(self) -> bytes:
        """The state as bytes."""

# --- The event loop of a worker (native/python/py_reactor.c) ---------------------------------

Upcall: TypeAlias = tuple[Any, ...]

@final
class Lent:
    """Stored chunks that answers are sent from where they lie; a buffer, once somebody asks."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def head(self) -> ChunkInfo | None:
        """`chunk_info` of the first one."""
    def begin(self) -> int:
        """The offset of the first event of the first one. ValueError: it is damaged."""

def send_parts(fd: int, parts: list[bytes | Lent], /) -> int:
    """Sends these to a socket without waiting, from where they lie; so many bytes of them were
    taken. In the thread of the reactor, if there are chunks that a log has lent."""

class Reactor:
    """A worker's event loop: connections, produce path and log, in C. One thread, no re-entry."""

    def __init__(
        self,
        *,
        engine: str = ...,
        arena_bytes: int = ...,
        request_bytes_max: int = ...,
        event_bytes_max: int = ...,
        body_memory_max: int = ...,
        auto_create: bool = ...,
        worker: int = ...,
        workers: int = ...,
        slices: int = ...,
        slice_first: int = ...,
        slice_last: int = ...,
        range_token: int = ...,
        cluster_uuid: bytes,
        session: int = ...,
        epoch: int = ...,
        connections_max: int = ...,
        acceleration: int = ...,
        ring_size: int = ...,
        range_index: int = ...,
        peer: int = ...,
        peers: int = ...,
        compression: str | None = None,
    ) -> None: ...
    @property
    def engine(self) -> str: ...  # "io_uring" or "epoll"
    @property
    def engine_reason(self) -> str: ...  # why io_uring is not used; "" where it is
    def close(self) -> None: ...  # sockets are closed, everything is freed
    def listen(self, fd: int, kind: int, /) -> None: ...  # 0 HTTP, 1 hand-off, 2 HTTP in TLS
    def attach_peer(self, peer: int, fd: int, seal: Seal | None = None, /) -> None:
        """Takes the fd, and the session of the seal; so does `adopt_peer`."""
    def adopt_peer(self, fd: int, peer: int, seal: Seal | None = None, /) -> None: ...
    def set_route(self, first: int, count: int, peer: int, endpoint: str, /) -> None:
        """-1: nobody leads these slices of the ring."""
    def watch(self, epoll_fd: int, /) -> None: ...  # `run` returns when it is readable
    def run(self, timeout: float | None, /) -> tuple[bool, list[Upcall]]:
        """(selector readable, upcalls)."""
    def respond(
        self,
        request_id: int,
        status: int,
        headers: bytes,
        body: bytes | bytearray | memoryview | Lent | list[bytes | bytearray | memoryview | Lent],
        /,
    ) -> bool:
        """Whether the client is still there."""
    def connected(self, request_id: int, /) -> bool: ...  # and the client's side is open
    def produce_made(
        self, request_id: int, topic: str, batch: Buffer, known_only: bool, at: int = -1, /
    ) -> tuple[int, str, str] | None: ...
    def produce_checked(
        self, request_id: int, body: Buffer, told: bool, /
    ) -> tuple[int, str, str] | None: ...
    def feed_open(self, place: str, /) -> int | None: ...
    def feed_close(self, feed: int, /) -> None: ...
    def feed_push(self, feed: int, place: str, text: Buffer, /) -> tuple[int, int] | None: ...
    def stream(self, request_id: int, headers: bytes, /) -> bool: ...
    def stream_write(self, request_id: int, text: Buffer, /) -> bool: ...
    def stream_join(self, request_id: int, feed: int, place: int, /) -> bool: ...
    def stream_end(self, request_id: int, /) -> None: ...
    def append(
        self,
        tag: int,
        topic: str,
        slice: int,
        key: bytes | None,
        value: bytes,
        unhurried: bool = False,
        /,
    ) -> None: ...
    def check_batch(
        self, slice: int, batch: Buffer, taken: bool = False, /
    ) -> tuple[int, int, int, int, int]: ...
    def append_commit(
        self,
        tag: int,
        topic: str,
        slice: int,
        batches: list[tuple[Buffer, int, int, int, int, int]],
        mark_topic: str,
        mark_key: bytes,
        mark_value: bytes,
        /,
    ) -> None: ...
    def add_segment(self, index: int, fd: int, capacity: int, /) -> None: ...
    def restore(self, snapshot: bytes | memoryview | None, /) -> None:
        """The state becomes this one, and the slices those that it says; None: of what there is now
        nothing is known any more. Who waits in an open generation is told as by `fence`.
        ValueError: it is none, or of more than a token range."""
    def apply_group(self, group: bytes | memoryview, /) -> None: ...
    def open_generation(self, parents: bytes, /) -> None: ...
    def begin_generation(self, epoch: int, session: int, followers: bool = True, /) -> None:
        """From group 1 on. Without followers what is stable is committed, and only group 1 told."""
    def set_slices(self, first: int, last: int, /) -> None:
        """Between two generations: this process has these slices, numbered within the token range
        at format time. Of what it loses nothing is known any more, and nothing is routed to it;
        of what it gains nothing is known yet. RuntimeError: a generation is open here."""
    def follow(self) -> None: ...  # groups come from a leader from now on
    def kept(self, gseq: int, /) -> None:
        """So far groups may be written together: a start would restore them."""
    def take_group(self, group: bytes | bytearray | memoryview, /) -> str:
        """Taken, wait, gap, strange, damaged, closed."""
    def load_segment(self, index: int, fd: int, capacity: int, /) -> None:
        """The last of a generation that goes on."""
    def load_group(self, group: bytes | memoryview, /) -> None: ...  # the next one in it
    def replicated(self, gseq: int, /) -> None: ...  # at followers, or as the leader committed
    def drain_generation(self) -> None: ...  # nothing is built or taken; calls wait on
    def tell_settled(self) -> None: ...  # once no append is under way: upcall 'settled'
    def park(self, most_ms: int, /) -> None:
        """So long produces wait for a slice's next leader; 0, as it begins: they are refused."""
    def hold(self, ms: int, /) -> bool:
        """For so long, or until the next generation opens, produces for the slices that are led
        here wait; whether those that came before are all stored and answered."""
    def fence(self) -> None: ...  # no append and no acknowledgement any more
    def adopt_replica(self, fd: int, group_bytes_max: int, seal: Seal | None = None, /) -> int: ...
    def pause_replica(self, number: int, paused: bool, /) -> None: ...  # the peer has to wait
    def close_replica(self, number: int, /) -> None: ...  # hangs up
    def arm_intake(
        self,
        number: int,
        fd: int,
        gseq: int,
        header_crc: int,
        committed: int,
        seal: Seal | None = None,
        /,
    ) -> bool:
        """Whether what follows that group is taken as it comes, and acknowledged on `fd`."""
    def disarm_intake(self) -> None: ...  # only Python takes and acknowledges
    def intake_news(self) -> tuple[int, int, int, int, int, int] | None:
        """(epoch, taken, its crc, stable, its crc, committed) since the last call."""
    def send_group(
        self,
        fd: int,
        head: bytes,
        pos: int,
        length: int,
        sent: int,
        seal: Seal | None = None,
        /,
    ) -> int | None:
        """Bytes more that were sent; None: they are not in memory any more."""
    def drain(self) -> None: ...  # no new connections or events from now on
    def seal(self) -> None: ...  # an empty SEAL group, if the log is idle
    def idle(self) -> bool: ...  # nothing waits, is being written or sent
    def bound_state(self, bytes_max: int, /) -> int: ...  # bytes now; beyond it clients add nothing
    # There is no room for another segment: 507 when this one is nearly used up.
    def set_disk_full(self, full: bool, /) -> None: ...
    def disk_full(self) -> bool: ...
    def notify(self, on: bool, /) -> None: ...  # 'stable' upcalls
    def add_host(self, name: str, /) -> None:
        """Once there is one, Host has to be known; '*': all are."""
    def set_tls(
        self,
        certificate: bytes,
        key: bytes,
        client_ca: bytes,
        ticket_keys: bytes,
        handshakes_per_second: int,
        handshake_ms: int,
        kernel: bool,
        /,
    ) -> None:
        """Connections that come from now on have this certificate: texts in PEM, `client_ca` may be
        empty. kernel: it seals their large answers where it can. ValueError says what is wrong with
        them; then nothing is changed."""
    def tls_reason(self) -> str: ...  # why the last handshake failed
    def set_access(self, table: bytes | None, /) -> None: ...  # None: not known yet
    def take_certificates(self, on: bool, /) -> None:
        """Whether the name in a client's certificate says who asks, where no token does."""
    def write_format(self, format: int, /) -> None:
        """Whether events with headers or without a value are stored from now on; if not, 503."""
    def take_delays(self, most_us: int, /) -> None: ...  # how far ahead events may be due
    def delayed_news(self) -> list[tuple[str, int, int, int]]: ...
    def delayed_streams(self) -> list[tuple[str, int, int, int]]: ...
    def refusals(
        self,
    ) -> tuple[
        list[tuple[str, int, int | None, int, str, str, str, str]], list[tuple[int | None, int]]
    ]:
        """What was refused since this was asked last, some of it whole: (request's id, time in µs,
        number of the user or None, status, the problem's type, method, path, address); then how
        many more of whom."""
    def shed(self, bytes_: int, /) -> int: ...  # bytes of answers freed: nobody reads them
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
    ) -> tuple[list[bytes | Lent], int, int] | None:
        """(chunks back to back in one piece, next offset, stable end) from memory.

        lend: they may stay there, for an answer that sends them as they are. At least one chunk if
        there is any, none beyond the one that reaches `to_offset`; None: not in memory, ask the
        disk. columns: cut down to these, as chunks_project does it, out of `max_bytes` of whole
        chunks.
        """
    def locate(
        self, topic: str, slice: int, from_offset: int, max_chunks: int, max_bytes: int = ..., /
    ) -> list[tuple[int, int, int, int, int]]:
        """(segment, position in it, bytes, base offset, count) of each chunk."""
    def locate_timestamp(self, topic: str, slice: int, timestamp_us: int, /) -> int | None: ...
    def locate_appended(self, topic: str, slice: int, time_us: int, /) -> int | None:
        """By the log's clock."""
    def streams(self, topic: str | None = None, /) -> list[tuple[str, int, int, int, int]]:
        """(topic, slice, start, stable end, highest timestamp) of each that has events."""
    def stream_ends(self, topic: str, slice: int, /) -> tuple[int, int] | None:
        """(start, stable end)."""
    def shard_slices(self, /) -> tuple[int, int]: ...  # (first, how many)
    def producer(self, topic: str, id: bytes, /) -> list[tuple[int, int, int]]:
        """(slice, epoch, sequence) of what was taken last of it, in each slice that knows it."""
    def compacted(self, topic: str, /) -> list[tuple[bytes, bytes]]: ...  # (key, last value)
    def topic_set(
        self,
        topic: str,
        exists: bool,
        compression: str | None = None,
        any_time: bool = False,
        checked: bool = False,
        /,
    ) -> None: ...
    def time_plausible(self, timestamp_us: int, /) -> bool:
        """Near enough to now for a producer's."""
    def truncate_stream(self, topic: str, slice: int, start_offset: int, /) -> None: ...
    def export_index(self, segment: int, /) -> bytes: ...  # a sidecar's body
    def segment_summary(self, segment: int, /) -> tuple[int, int, int, int, int, int, int, int]: ...
    def drop_index(self, segment: int, /) -> None: ...
    def log_state(self) -> dict[str, int]: ...  # of the open generation
    def clock_us(self) -> int: ...  # `log_state` has it as well, among much else
    def stats(self) -> dict[str, int]: ...  # counters since the start, and gauges
    def trace(self, ratio: float) -> None:
        """From now on produces are traced whose traceparent says so, and that share of others."""
    def spans(
        self,
    ) -> tuple[
        list[
            tuple[bytes, bytes, bytes, bool, str, str, int, int, int, int, int, int, int, int, int]
        ],
        int,
    ]:
        """Of those answered since the last call: trace, parent (or b""), the span of its hand-off
        (or b""), whether it is another process's, which has handed it over, what its client calls
        it (or ""), topic, status, events; then in microseconds since 1970, 0 for what it never came
        to: begun, received, built, written, replicated, handed to another process, answered. And
        how many were lost."""
    def stages(self) -> dict[str, tuple[int, list[int]]]:
        """How long the stages of a produce took since the start: the sum in microseconds, and how
        many in each bucket of `histogram_bounds`; empty ones at the end are left out."""
