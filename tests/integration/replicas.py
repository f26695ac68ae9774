"""The three processes that hold one shard of a cluster, without their supervisors.

Real workers, disks and connections; the test plays the supervisors' part. The shard is the first
of three; nobody else of the ring is there.
"""

import http.client
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any, Self

import msgpack
from running import Answer

from barco import __version__, _native
from barco.errors import ProtocolError
from barco.model.options import WorkerOptions
from barco.model.ranges import directory_of
from barco.model.token import TOKEN_MIN
from barco.protocol import frame
from barco.supervisor.children.starts import as_input
from barco.supervisor.tied import start_tied
from barco.types import MiB

_NET = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
HOSTS = [f"{_NET}.{number + 1}" for number in range(3)]
"""Addresses that nobody else has: another process of the tests may look for ports just now."""

WAIT_SECONDS_MAX = 60.0
"""Generous: the machine may be busy with something else."""


def free_ports(count: int) -> int:
    """The first of so many neighbouring ports that are free on all hosts."""
    for first in range(21_000, 32_000, count):
        held = []
        try:
            for host in HOSTS:
                for port in range(first, first + count):
                    end = socket.socket()
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    held.append(end)
                    end.bind((host, port))
            return first
        except OSError:
            continue
        finally:
            for end in held:
                end.close()
    raise AssertionError("no free ports")


def until(what: str, found: Callable[[], Any], seconds: float = WAIT_SECONDS_MAX) -> Any:
    """Asks again and again; the first true answer."""
    end = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.02)
    return answer


class Member:
    """One of the three processes."""

    def __init__(self, shard: "Shard", ordinal: int) -> None:
        self.shard = shard
        self.ordinal = ordinal
        self.data_dir = shard.root / f"broker-{ordinal}"
        self.data_dir.mkdir(exist_ok=True)
        self.disk_uuid = uuid.uuid4().hex
        self.replaces = ""
        self.process: subprocess.Popen[bytes] | None = None
        self.fatal = ""
        self.stats: dict[str, int] = {}
        self.environment: dict[str, str] = {}
        self.brokers = HOSTS
        """Where it looks for the others."""
        self._channel: socket.socket | None = None

    @property
    def directory(self) -> Path:
        """Of the range, at each of the three."""
        return self.data_dir / directory_of(TOKEN_MIN)

    @property
    def log(self) -> str:
        path = self.data_dir / "log"
        return path.read_text() if path.exists() else ""

    def start(self) -> None:
        """Returns when the process runs; see `Shard.leader` for when it is of use."""
        host = HOSTS[self.ordinal]
        ours, theirs = socket.socketpair()
        listeners = {
            "shard": [self._listen(host, self.shard.shard_port + self.ordinal)],
            "replication": [self._listen(host, self.shard.replication_port + self.ordinal)],
        }
        options = WorkerOptions(
            version=__version__,
            worker=self.ordinal,  # Place k of broker k is range 0.
            workers=1,
            core=None,
            supervisor_pid=os.getpid(),
            data_dir=str(self.data_dir),
            cluster_uuid=self.shard.cluster_uuid,
            disk_uuid=self.disk_uuid,
            replaces=self.replaces,
            ordinal=self.ordinal,
            slices_per_range=4,
            ring_size=3,
            brokers=self.brokers,
            replication_port=self.shard.replication_port,
            shard_port=self.shard.shard_port,
            channel_fd=theirs.fileno(),
            listeners={name: [end.fileno() for end in ends] for name, ends in listeners.items()},
            bind=host,
            ports={},
            shard_endpoints={k: f"{host}:{self.shard.shard_port + k}" for k in range(3)},
            dev=False,
            **self.shard.limits,
        )
        passed = [theirs, *(end for ends in listeners.values() for end in ends)]
        with (self.data_dir / "log").open("ab") as log:
            self.process = start_tied(
                [sys.executable, "-P", "-m", "barco.workers", options.title],
                stdin=as_input(options),
                pass_fds=[end.fileno() for end in passed],
                stdout=log,
                stderr=log,
                env=os.environ | self.environment,
            )
        for end in passed:
            end.close()
        self._channel = ours
        self.fatal = ""
        threading.Thread(target=self._hear, args=(ours,), daemon=True).start()

    @staticmethod
    def _listen(host: str, port: int) -> socket.socket:
        end = socket.socket()
        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)

        def bound() -> bool:
            try:
                end.bind((host, port))
                return True
            except OSError:  # The ring of a killed process lets go of it a little later.
                return False

        until(f"port {port}", bound)
        end.listen(64)
        end.setblocking(False)
        end.set_inheritable(True)
        return end

    def _hear(self, channel: socket.socket) -> None:
        stream = channel.makefile("rb")
        try:
            while (message := frame.read(stream)) is not None:
                if message["type"] == "heartbeat":
                    self.stats = message["stats"]
                elif message["type"] == "fatal":
                    self.fatal = message["text"]
        except (OSError, ProtocolError):
            pass

    def kill(self, number: int = signal.SIGKILL) -> None:
        """By default SIGKILL; waits unless it is a stop or a continue."""
        assert self.process is not None
        self.process.send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.process.wait(WAIT_SECONDS_MAX)
            self._hang_up()

    def stop(self) -> None:
        """An orderly one: the channel ends."""
        assert self.process is not None
        self._hang_up()
        self.process.wait(WAIT_SECONDS_MAX)

    def lose_disk(self) -> None:
        """An empty one takes its place, under a new name (`barco replace`)."""
        shutil.rmtree(self.directory)
        self.replaces, self.disk_uuid = self.disk_uuid, uuid.uuid4().hex

    def _hang_up(self) -> None:
        if self._channel is not None:
            self._channel.shutdown(socket.SHUT_RDWR)
            self._channel.close()
            self._channel = None

    def end(self) -> None:
        """Whatever state it is in."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_SECONDS_MAX)
        self._hang_up()

    # --- HTTP ---------------------------------------------------------------------------------

    def request(
        self, method: str, path: str, body: bytes = b"", *, timeout: float = 30.0, **headers: str
    ) -> Answer | None:
        """None: no answer."""
        address = (HOSTS[self.ordinal], self.shard.shard_port + self.ordinal)
        connection = http.client.HTTPConnection(*address, timeout=timeout)
        try:
            given = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, given)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def produce(self, value: str, topic: str = "t", timeout: float = 30.0) -> int | None:
        """The status of storing one event in slice 0; None: no answer."""
        path = f"/v1/topic/{topic}/messages?slice=0"
        answer = self.request("POST", path, value.encode(), timeout=timeout)
        return answer.status if answer is not None else None

    def call(self, op: str, **args: Any) -> Any:
        """An operation of its shard service, as a sibling would ask for it."""
        with socket.socket(socket.AF_UNIX) as end:
            end.settimeout(WAIT_SECONDS_MAX)
            end.connect(str(self.data_dir / "run" / f"worker-{self.ordinal}.rpc"))
            body = msgpack.packb({"id": 1, "op": op, "args": args})
            end.sendall(struct.pack("<I", len(body)) + body)
            stream = end.makefile("rb")
            (length,) = struct.unpack("<I", stream.read(4))
            answer = msgpack.unpackb(stream.read(length), strict_map_key=False)
        if not answer["ok"]:
            raise RefusedError(answer)
        return answer["result"]

    def read(self, topic: str = "t") -> list[str]:
        """All events of slice 0 that this member shows."""
        found: list[str] = []
        offset: Any = "earliest"
        while True:
            args = {"topic": topic, "slice": 0, "from": offset, "budget": MiB, "stored": True}
            answer = self.call("read", **args)
            if answer["extent"] is None:
                return found
            _, _, start, offset, _, chunks, *_ = answer["extent"]
            for event_offset, _, _, value in chain.from_iterable(map(chunk_events, chunks)):
                if start <= event_offset < offset:
                    found.append(value.decode())


def chunk_events(chunks: bytes) -> list[Any]:
    """Of chunks back to back."""
    found, at = [], 0
    while at < len(chunks):
        info = _native.chunk_info(chunks, at)
        assert info is not None
        found += _native.chunk_events(chunks[at : at + info["stored_bytes"]])
        at += info["stored_bytes"]
    return found


class RefusedError(Exception):
    """The member answered with an error."""


class Shard:
    """All three. In a `with` block they are ended behind it, and their logs shown if that fails."""

    def __init__(self, root: Path, **limits: Any) -> None:
        self.root = root
        self.cluster_uuid = uuid.uuid4().hex
        self.replication_port = free_ports(6)
        self.shard_port = self.replication_port + 3
        self.limits: dict[str, Any] = {
            "memory_bytes": 64 * MiB,
            "event_bytes_max": 1 * MiB,
            "request_bytes_max": 2 * MiB,
            "connections_max": 200,
            "auto_create": True,
            "retention_hours": 168,
            "retention_bytes": 0,
            "segment_bytes": 8 * MiB,
        } | limits
        self.members = [Member(self, ordinal) for ordinal in range(3)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in self.members:  # Of a test that fails pytest shows it.
            print(f"--- broker {member.ordinal}: {member.fatal}\n{member.log[-4000:]}")
        self.end()

    def start(self) -> None:
        """All of them; returns when the first leads."""
        for member in self.members:
            member.start()
        self.leader()

    def leader(self, among: list[Member] | None = None) -> Member:
        """Who takes events; waits for it. Writes one event to topic `probe`."""

        def find() -> Member | None:
            for member in among or self.members:
                running = member.process is not None and member.process.poll() is None
                if running and member.produce("?", "probe", timeout=20.0) == 200:
                    return member
            return None

        found = until("a leader", find)
        assert isinstance(found, Member)
        return found

    def store(self, value: str, among: list[Member] | None = None) -> None:
        """One event in slice 0 of topic `t`, once, by whoever leads: its key says which it is."""

        def stored() -> bool:
            for member in among or self.members:
                if member.process is not None and member.process.poll() is None:
                    path, key = "/v1/topic/t/messages?slice=0", f"event {value[:40]}"
                    answer = member.request("POST", path, value.encode(), Idempotency_Key=key)
                    if answer is not None and answer.status in (200, 204):
                        return True
            return False

        until(f"{value[:40]} is stored", stored)

    def end(self) -> None:
        for member in self.members:
            member.end()


def check_history(found: list[str], writer: Any) -> None:
    """Everything acknowledged is there, once, in the order in which it was written."""
    numbers = [int(value) for value in found]
    assert numbers == sorted(set(numbers)), "order, and no event twice"
    missing = set(writer.acknowledged) - set(found)
    assert not missing, f"lost: {sorted(missing, key=int)[:10]} of {len(writer.acknowledged)}"


def same_everywhere(shard: Shard, topic: str = "t") -> list[str]:
    """What all three show, once they agree."""
    found: list[list[str]] = []

    def agree() -> bool:
        try:
            found[:] = [member.read(topic) for member in shard.members]
        except (OSError, RefusedError):
            return False  # It starts, or does not follow yet.
        return found[0] == found[1] == found[2]

    until("three equal copies", agree)
    return found[0]
