"""The same work at the peers: groups of Redis streams, and a work queue of NATS JetStream."""

import itertools
import json
import socket
from collections.abc import Sequence

from bench.taking import BATCH, STALLED_SECONDS, Script, Tally, Wrong, bodies

# --- Redis --------------------------------------------------------------------------------------


def resp_end(buffer: bytearray | bytes, at: int = 0) -> int:
    """Where the value that begins there ends; 0: it is not all there."""
    line = buffer.find(b"\r\n", at)
    if line < 0:
        return 0
    kind, after = buffer[at], line + 2
    if kind in b"+:":
        return after
    if kind == ord("-"):
        raise Wrong(bytes(buffer[at:line]).decode(errors="replace"))
    size = int(buffer[at + 1 : line])
    if size < 0:
        return after
    if kind == ord("$"):
        return after + size + 2 if len(buffer) >= after + size + 2 else 0
    for _ in range(size):
        after = resp_end(buffer, after)
        if not after:
            return 0
    return after


def resp_whole(buffer: bytearray) -> int:
    """Of answers of Redis."""
    return resp_end(buffer) if buffer else 0


def command(*words: str | bytes) -> bytes:
    """A command of Redis."""
    parts = [word.encode() if isinstance(word, str) else word for word in words]
    return b"".join(
        [b"*%d\r\n" % len(parts), *(b"$%d\r\n%s\r\n" % (len(each), each) for each in parts)]
    )


def _ids(answer: bytes) -> list[bytes]:
    """Of an answer of XREADGROUP: one stream, [name, entries], each of them [id, ["f", value]]."""
    if answer.startswith((b"*-1", b"$-1")):
        return []
    at = resp_end(answer, answer.index(b"$"))  # Behind the name.
    found, at = [], answer.index(b"\r\n", at) + 2
    while at < len(answer):
        at = answer.index(b"\r\n", answer.index(b"$", at)) + 2
        end = answer.index(b"\r\n", at)
        found.append(answer[at:end])
        at = resp_end(answer, end + 2)
    return found


def redis_fill(port: int, stream: str, count: int) -> None:
    """So many entries, a batch at a time."""
    with socket.create_connection(("127.0.0.1", port), timeout=STALLED_SECONDS) as link:
        for batch in bodies(count):
            link.sendall(b"".join(command("XADD", stream, "*", "f", each) for each in batch))
            _await(link, len(batch))


def redis_ask(port: int, *words: str) -> None:
    """One command that must succeed."""
    with socket.create_connection(("127.0.0.1", port), timeout=STALLED_SECONDS) as link:
        link.sendall(command(*words))
        _await(link, 1)


def _await(link: socket.socket, count: int) -> None:
    buffer = bytearray()
    for _ in range(count):
        while not (size := resp_whole(buffer)):
            buffer += link.recv(1 << 16)
        del buffer[:size]


def redis_takes(stream: str, group: str, consumer: str, tally: Tally) -> Script:
    """Read what is new for the group, acknowledge it, and so on."""
    ask = command(
        "XREADGROUP", "GROUP", group, consumer, "COUNT", str(BATCH), "BLOCK", "1000", "STREAMS",
        stream, ">",
    )  # fmt: skip
    while not tally.complete:
        ids = _ids((yield ask))
        if not ids:
            continue
        tally.came(ids)
        answer = yield command("XACK", stream, group, *ids)
        if answer != b":%d\r\n" % len(ids):
            raise Wrong(f"XACK: {answer!r}")
        tally.done += len(ids)


# --- NATS ---------------------------------------------------------------------------------------

CONNECT = (
    b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,'
    b'"lang":"bench","version":"1","protocol":1}\r\n'
)


def nats_whole(buffer: bytearray) -> int:
    """Of one word of the server, with what it carries."""
    line = buffer.find(b"\r\n")
    if line < 0:
        return 0
    if buffer[:3] == b"MSG" or buffer[:4] == b"HMSG":
        size = line + 2 + int(buffer[:line].rpartition(b" ")[2]) + 2
        return size if len(buffer) >= size else 0
    return line + 2


def _message(answer: bytes) -> tuple[bytes, bytes, bytes]:
    """(subscription, where to answer, all that it carries) of a word; empty: it is no message."""
    if answer.startswith(b"-ERR"):
        raise Wrong(answer.decode(errors="replace"))
    head, _, body = answer.partition(b"\r\n")
    words = head.split(b" ")
    if words[0] not in (b"MSG", b"HMSG"):
        return b"", b"", b""
    plain = 4 if words[0] == b"MSG" else 5
    reply = words[3] if len(words) > plain else b""
    return words[2], reply, body[:-2]


class Nats:
    """A connection that asks and waits."""

    def __init__(self, port: int) -> None:
        self._link = socket.create_connection(("127.0.0.1", port), timeout=STALLED_SECONDS)
        self._buffer = bytearray()
        self._link.sendall(CONNECT + b"SUB answers.* 1\r\n")

    def messages(self, count: int) -> list[bytes]:
        """What the next of them carry."""
        found: list[bytes] = []
        while len(found) < count:
            while not (size := nats_whole(self._buffer)):
                piece = self._link.recv(1 << 16)
                if not piece:
                    raise Wrong("nats-server closed the connection")
                self._buffer += piece
            word = bytes(self._buffer[:size])
            del self._buffer[:size]
            if word.startswith(b"PING"):
                self._link.sendall(b"PONG\r\n")
            heard, _, body = _message(word)
            if heard:
                found.append(body)
        return found

    def ask(self, subject: str, document: object) -> None:
        """A call of the API that must succeed."""
        body = json.dumps(document).encode()
        self._link.sendall(b"PUB %s answers.0 %d\r\n%s\r\n" % (subject.encode(), len(body), body))
        (answer,) = self.messages(1)
        if "error" in json.loads(answer):
            raise Wrong(f"{subject}: {answer.decode()}")

    def publish(self, subject: str, events: Sequence[bytes]) -> None:
        """Stored, each with an answer."""
        name = subject.encode()
        self._link.sendall(
            b"".join(b"PUB %s answers.0 %d\r\n%s\r\n" % (name, len(e), e) for e in events)
        )
        for answer in self.messages(len(events)):
            if "error" in json.loads(answer):
                raise Wrong(answer.decode())

    def close(self) -> None:
        """End it."""
        self._link.close()


def nats_fill(port: int, stream: str, count: int) -> None:
    """A work queue on disk with so many messages, and a consumer that pulls."""
    nats = Nats(port)
    try:
        settings = {"name": stream, "subjects": [stream], "retention": "workqueue"}
        settings |= {"storage": "file", "num_replicas": 1}
        nats.ask(f"$JS.API.STREAM.CREATE.{stream}", settings)
        taker = {"durable_name": "c", "ack_policy": "explicit", "ack_wait": 600 * 10**9}
        taker |= {"max_ack_pending": 100_000, "deliver_policy": "all"}
        nats.ask(
            f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.c",
            {"stream_name": stream, "config": taker},
        )
        for batch in bodies(count):
            nats.publish(stream, batch)
    finally:
        nats.close()


def nats_drop(port: int, stream: str) -> None:
    """The stream is gone."""
    nats = Nats(port)
    try:
        nats.ask(f"$JS.API.STREAM.DELETE.{stream}", {})
    finally:
        nats.close()


def nats_takes(stream: str, name: str, tally: Tally) -> Script:
    """Pull a batch, acknowledge each message and wait until the server has that, and so on."""
    inbox = f"got.{name}".encode()
    acks = f"acks.{name}".encode()
    first = CONNECT + b"SUB %s 1\r\nSUB %s 2\r\n" % (inbox, acks)
    body = json.dumps({"batch": BATCH, "expires": 10**9}).encode()
    ask = f"PUB $JS.API.CONSUMER.MSG.NEXT.{stream}.c ".encode() + inbox
    ask += b" %d\r\n%s\r\n" % (len(body), body)
    request = first + ask
    while not tally.complete:
        got: list[bytes] = []
        while len(got) < BATCH:
            word = yield request
            request = b""
            if word.startswith(b"PING"):
                request = b"PONG\r\n"
                continue
            heard, reply, carried = _message(word)
            if heard == b"1" and not reply:  # Its time is over: what came is all.
                if not carried.startswith(b"NATS/1.0 408") and b"404" not in carried[:16]:
                    raise Wrong(carried[:200].decode(errors="replace"))
                break
            if heard == b"1":
                got.append(reply)
        if not got:
            request = ask
            continue
        tally.came(got)
        request = b"".join(b"PUB %s %s 4\r\n+ACK\r\n" % (each, acks) for each in got)
        for number in itertools.count(1):
            heard = b""
            while heard != b"2":
                word = yield request
                request = b"PONG\r\n" if word.startswith(b"PING") else b""
                heard = _message(word)[0]
            if number == len(got):
                break
        tally.done += len(got)
        request = ask
