"""PolarStreams' clients as their protocol says they are: a second hand for what `barco polar`
speaks. Producers by frames; consumers by HTTP/2, known by their connection."""

import http.client
import json
import socket
import struct
import subprocess
import sys
import zlib
from dataclasses import dataclass
from typing import Any, Self

import zstandard
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import DataReceived, ResponseReceived, StreamEnded

from barco.supervisor.tied import start_tied


class Door:
    """`barco polar` beside a broker."""

    def __init__(self, endpoint: str, bind: str = "127.0.0.1", *options: str, port: int = 0):
        command = [sys.executable, "-P", "-m", "barco", "polar", "--endpoint", endpoint]
        command += ["--bind", bind, "--port", str(port), "--json", *options]
        self.bind = bind
        self.process = start_tied(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.ports: dict[str, int] = json.loads(self.process.stdout.readline())

    def brokers(self) -> Any:
        """What a client asks first."""
        connection = http.client.HTTPConnection(self.bind, self.ports["discovery"], timeout=30)
        connection.request("GET", "/v1/brokers")
        return json.loads(connection.getresponse().read())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.code = self.process.wait(30)


HEAD = struct.Struct(">BBHBI")


def frame(
    what: int, stream: int, body: bytes = b"", flags: int = 0, crc: int | None = None
) -> bytes:
    head = HEAD.pack(1, flags, stream, what, len(body))
    return head + struct.pack(">I", zlib.crc32(head) if crc is None else crc) + body


def produce_body(topic: str, key: str, *values: bytes, timestamp: int | None = None) -> bytes:
    body = b"" if timestamp is None else struct.pack(">q", timestamp)
    body += bytes([len(key)]) + key.encode() + bytes([len(topic)]) + topic.encode()
    return body + b"".join(struct.pack(">I", len(value)) + value for value in values)


class Producer:
    """A connection to the binary port."""

    def __init__(self, host: str, port: int):
        self.socket = socket.create_connection((host, port), timeout=60)
        self.file = self.socket.makefile("rb")

    def begin(self) -> Self:
        self.socket.sendall(frame(1, 0))
        assert self.answer() == (2, 0, b"")
        return self

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def answer(self) -> tuple[int, int, bytes] | None:
        """What it is, its stream and its body; None: the connection has ended."""
        head = self.file.read(13)
        if len(head) < 13:
            return None
        version, _, stream, what, size = HEAD.unpack_from(head)
        assert version == 1 and struct.unpack(">I", head[9:])[0] == zlib.crc32(head[:9])
        return what, stream, self.file.read(size)

    def close(self) -> None:
        self.file.close()
        self.socket.close()


@dataclass
class Item:
    """Events of one slice and generation."""

    topic: str
    token: int
    index: int
    version: int
    start: int
    values: list[bytes]


def items_of(body: bytes) -> list[Item]:
    """A consumer message."""
    (count,) = struct.unpack_from(">H", body)
    at, found = 2, []
    for _ in range(count):
        token, index, version, size = struct.unpack_from(">qBIB", body, at)
        at += 14
        topic = body[at : at + size].decode()
        at += size
        start, packed = struct.unpack_from(">qi", body, at)
        at += 12
        records = zstandard.ZstdDecompressor().decompressobj().decompress(body[at : at + packed])
        at += packed
        values, place = [], 0
        while place < len(records):
            _, length = struct.unpack_from(">qI", records, place)
            values.append(records[place + 12 : place + 12 + length])
            place += 12 + length
        found.append(Item(topic, token, index, version, start, values))
    assert at == len(body), "there is more than it says"
    return found


class Consumer:
    """A connection to the consumer port: HTTP/2 without TLS, by prior knowledge."""

    def __init__(self, host: str, port: int):
        self.socket = socket.create_connection((host, port), timeout=60)
        self.h2 = H2Connection(H2Configuration(header_encoding="utf-8"))
        self.h2.initiate_connection()
        self._flush()

    def _flush(self) -> None:
        self.socket.sendall(self.h2.data_to_send())

    def ask(
        self, method: str, path: str, body: bytes = b"", accept: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        stream = self.h2.get_next_available_stream_id()
        headers = [(":method", method), (":path", path), (":scheme", "http"), (":authority", "x")]
        headers += [("accept", accept)] if accept else []
        self.h2.send_headers(stream, headers, end_stream=not body)
        if body:
            self.h2.send_data(stream, body, end_stream=True)
        self._flush()
        told, got = {}, b""
        while True:
            data = self.socket.recv(65_536)
            if not data:
                raise ConnectionError("the connection has ended")
            for event in self.h2.receive_data(data):
                if isinstance(event, ResponseReceived) and event.stream_id == stream:
                    told = dict(event.headers)
                elif isinstance(event, DataReceived) and event.stream_id == stream:
                    got += event.data
                    self.h2.acknowledge_received_data(event.flow_controlled_length, stream)
                elif isinstance(event, StreamEnded) and event.stream_id == stream:
                    self._flush()
                    return int(told[":status"]), told, got
            self._flush()

    def register(self, name: str, group: str, *topics: str, **more: Any) -> tuple[int, bytes]:
        body = json.dumps({"id": name, "group": group, "topics": topics, **more}).encode()
        status, _, words = self.ask("PUT", "/v1/consumer/register", body)
        return status, words

    def poll(self) -> list[Item]:
        status, told, body = self.ask("POST", "/v1/consumer/poll")
        assert status in (200, 204), (status, body)
        if status == 204:
            assert int(told["retry-after"]) >= 1 and not body
            return []
        assert told["content-type"] == "application/vnd.polar.consumermessage"
        assert int(told["content-length"]) == len(body)
        return items_of(body)

    def commit(self) -> int:
        return self.ask("POST", "/v1/consumer/commit")[0]

    def close(self) -> None:
        self.socket.close()
