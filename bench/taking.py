"""Taking events from a server over raw sockets: polls, leases and acknowledgements, in one thread.

What is measured is the server's CPU, so the taker may be of Python: it only has to keep some
connections busy, and to count. Each connection follows a script: it sends what the script yields,
and hands it each whole answer.
"""

import json
import os
import re
import selectors
import socket
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from barco import _native
from bench import machine

Script = Generator[bytes, bytes, None]
Whole = Callable[[bytearray], int]
"""Bytes of the first whole answer in a buffer; 0: it is not there yet."""

EVENT_BYTES = 1024
BATCH = 100
STALLED_SECONDS = 30.0
_LENGTH = re.compile(rb"\r\ncontent-length: ([0-9]+)", re.IGNORECASE)


class Wrong(Exception):
    """The server said something else than it should, or events are missing or came twice."""


class Tally:
    """Which events came: all of them, and each once."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.done = 0
        """Acknowledged, or where that is all there is, delivered."""
        self.names: list[str] = []
        """What was leased, and is still to be acknowledged."""
        self._seen: set[object] = set()

    @property
    def complete(self) -> bool:
        """Whether nothing more is to come."""
        return self.done >= self.wanted

    def came(self, events: Sequence[object]) -> None:
        """These; Wrong: one of them was here before."""
        before = len(self._seen)
        self._seen.update(events)
        if len(self._seen) != before + len(events):
            raise Wrong("an event came twice")

    def check(self) -> None:
        """Wrong unless all came."""
        if not len(self._seen) == self.done == self.wanted:
            raise Wrong(f"{len(self._seen)} came and {self.done} were done, of {self.wanted}")


@dataclass(frozen=True, slots=True)
class Taken:
    """One run."""

    events: int
    cpu: float
    seconds: float
    calls: int
    """Answers."""

    @property
    def per_core(self) -> float:
        """Events a second of server CPU."""
        return self.events / max(self.cpu, 1e-9)

    def words(self) -> str:
        """In a few words."""
        return f"{self.per_core:,.0f} events/s/core ({self.events / self.seconds:,.0f} by wall)"


class _Line:
    """A connection and its script."""

    def __init__(self, address: tuple[str, int], script: Script, whole: Whole) -> None:
        self.socket = socket.create_connection(address, timeout=STALLED_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._script, self._whole = script, whole
        self._buffer = bytearray()
        self.answers = 0

    def begin(self) -> None:
        """Send the first request."""
        self.socket.sendall(next(self._script))

    def read(self) -> bool:
        """Take what has come; False: the script is at its end."""
        piece = self.socket.recv(1 << 18)
        if not piece:
            raise Wrong("the server closed a connection")
        self._buffer += piece
        while size := self._whole(self._buffer):
            answer = bytes(self._buffer[:size])
            del self._buffer[:size]
            self.answers += 1
            try:
                request = self._script.send(answer)
            except StopIteration:
                return False
            if request:
                self.socket.sendall(request)
        return True


def take(
    address: Sequence[tuple[str, int]],
    scripts: Sequence[Script],
    whole: Whole,
    pids: Sequence[int],
    tally: Tally,
) -> Taken:
    """Follow all scripts, each at its address, until the tally is complete or all are at their
    end."""
    lines = [_Line(at, script, whole) for at, script in zip(address, scripts, strict=True)]
    with selectors.DefaultSelector() as ready:
        try:
            for line in lines:
                ready.register(line.socket, selectors.EVENT_READ, line)
            cpu, began = sum(map(machine.cpu_seconds, pids)), time.monotonic()
            for line in lines:
                line.begin()
            left = len(lines)
            while left and not tally.complete:
                found = ready.select(STALLED_SECONDS)
                if not found:
                    raise Wrong(f"nothing comes any more: {tally.done} of {tally.wanted}")
                for key, _ in found:
                    if tally.complete:
                        break
                    if not key.data.read():
                        ready.unregister(key.fileobj)
                        left -= 1
            spent = sum(map(machine.cpu_seconds, pids)) - cpu
            seconds = time.monotonic() - began
        finally:
            for line in lines:
                line.socket.close()
    tally.check()
    return Taken(tally.wanted, spent, seconds, sum(line.answers for line in lines))


def bodies(count: int) -> list[list[bytes]]:
    """So many events of 1 KiB, all different, in batches."""
    events = []
    for number in range(count):
        head = b'{"n":%09d,"x":"' % number
        rest = EVENT_BYTES - len(head) - 2
        noise = os.urandom(rest // 4).hex().encode()  # Half of it is said twice, about.
        events.append(head + (noise * 3)[:rest] + b'"}')
    return [events[at : at + BATCH] for at in range(0, count, BATCH)]


# --- barco --------------------------------------------------------------------------------------


def http_whole(buffer: bytearray) -> int:
    """Of answers with a length, and of 204."""
    at = buffer.find(b"\r\n\r\n")
    if at < 0:
        return 0
    found = _LENGTH.search(buffer, 0, at + 2)
    size = at + 4 + (int(found[1]) if found else 0)
    return size if len(buffer) >= size else 0


def http(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """A request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def header(answer: bytes, name: str) -> str:
    """Of an answer; Wrong: it has none."""
    head = answer.partition(b"\r\n\r\n")[0].decode()
    for line in head.split("\r\n"):
        if line.lower().startswith(name + ": "):
            return line[len(name) + 2 :]
    raise Wrong(f"no {name}: {head[:300]}")


def status(answer: bytes, *expected: int) -> int:
    """Of an answer; Wrong: it is another one."""
    found = int(answer[9:12])
    if found not in expected:
        raise Wrong(answer[:600].decode(errors="replace"))
    return found


def once(address: tuple[str, int], request: bytes, *expected: int) -> bytes:
    """One request on a connection of its own."""
    with socket.create_connection(address, timeout=STALLED_SECONDS) as link:
        link.sendall(request)
        buffer = bytearray()
        while not http_whole(buffer):
            piece = link.recv(1 << 18)
            if not piece:
                raise Wrong("no answer")
            buffer += piece
    status(bytes(buffer), *expected)
    return bytes(buffer)


def fill(addresses: Sequence[tuple[str, int]], topic: str, count: int, keys: int = 24) -> None:
    """So many events, one batch a request: so that each chunk has one batch."""
    links = [socket.create_connection(each, timeout=STALLED_SECONDS) for each in addresses]
    try:
        for number, batch in enumerate(bodies(count)):
            path = f"/v1/topic/{topic}/messages?partitionKey=key-{number % keys}"
            link = links[number % len(links)]
            kind = "application/x-ndjson"
            link.sendall(http("POST", path, b"\n".join(batch), Content_Type=kind))
            buffer = bytearray()
            while not http_whole(buffer):
                buffer += link.recv(1 << 16)
            status(bytes(buffer), 200)
    finally:
        for link in links:
            link.close()


CHUNKS = "application/vnd.barco.chunks"


def _leased(names: str) -> list[tuple[str, int]]:
    """(slice, offset) of each event that a lease names."""
    found = []
    for name in names.split(","):
        slice_, _, offset, deliveries, *more = name.split(".")
        if deliveries != "1":
            raise Wrong(f"{name}: it was given before")
        start = int(offset)
        found += [(slice_, at) for at in range(start, start + (int(more[0]) if more else 1))]
    return found


def leases(topic: str, group: str, tally: Tally, most: int, *, acks: bool = True) -> Script:
    """Lease, acknowledge, and so on. Without acks: only the leases are counted."""
    path = f"/v1/queue/{group}/%s?topic={topic}"
    ask = http("POST", path % "lease" + f"&max={most}&waitMs=1000", Accept=CHUNKS)
    while not tally.complete:
        answer = yield ask
        if status(answer, 200, 204) == 204:
            continue
        name = header(answer, "barco-lease")
        events = _leased(name)
        tally.came(events)
        if acks:
            body = json.dumps({"lease": name}).encode()
            answer = yield http("POST", path % "ack", body, Content_Type="application/json")
            status(answer, 204)
        else:
            tally.names.append(name)
        tally.done += len(events)


def acknowledge(topic: str, group: str, names: Sequence[str], tally: Tally) -> Script:
    """Acknowledge these, one a request."""
    for name in names:
        body = json.dumps({"events": [name]}).encode()
        path = f"/v1/queue/{group}/ack?topic={topic}"
        status((yield http("POST", path, body, Content_Type="application/json")), 204)
        tally.came([name])
        tally.done += 1


def make_queue(address: tuple[str, int], topic: str, group: str) -> None:
    """The group is a queue from the topic's begin on."""
    path = f"/v1/groups/{group}?type=queue&topic={topic}&maxInFlight=10000&leaseMs=600000"
    once(address, http("PUT", path), 200)


def _delivered(answer: bytes) -> list[tuple[int, int, int]]:
    """(a token, slice, offset) of each event of an answer: of two ranges no chunk has one token."""
    body = answer.partition(b"\r\n\r\n")[2]
    found, at = [], 0
    while at < len(body):
        head = _native.chunk_info(body, at)
        if head is None:
            raise Wrong("an answer is cut off")
        base, token = head["base_offset"], head["token_min"]
        found += [(token, head["slice"], base + n) for n in range(head["count"])]
        at += head["stored_bytes"]
    return found


def register(address: tuple[str, int], topic: str, group: str, consumer: str) -> None:
    """A member of an ordinary group that begins with the first event."""
    path = f"/v1/consumer/register?consumerId={consumer}&group={group}&topic={topic}"
    once(address, http("PUT", path + "&onNewGroup=startFromEarliest"), 200)


def polls(consumer: str, tally: Tally, max_bytes: int, *, scope: str = "") -> Script:
    """Poll after poll: each acknowledges what the one before brought."""
    name = ""
    while not tally.complete:
        path = f"/v1/consumer/poll?consumerId={consumer}&waitMs=1000&maxBytes={max_bytes}{scope}"
        answer = yield http("POST", path + (f"&delivery={name}" if name else ""), Accept=CHUNKS)
        if status(answer, 200, 204) == 204:
            continue
        name = header(answer, "barco-delivery")
        events = _delivered(answer)
        tally.came(events)
        tally.done += len(events)
