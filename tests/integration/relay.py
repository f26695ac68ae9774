"""What the members of a shard say to each other, one by one: a test may keep any of it back.

A connection between two workers carries messages one way, from whoever dialled. Each member is
told addresses of relays instead of those of the others.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Any

from replicas import HOSTS, Shard

from barco.errors import ProtocolError
from barco.protocol import frame
from barco.protocol.link import REPLICATION
from barco.protocol.replication import Message
from barco.workers.replication import wire

Filter = Callable[[int, int, Message], Message | None]
"""(from, to, message): what is to arrive instead; None: nothing."""


class Relays:
    """One for each ordered pair of members."""

    def __init__(self, shard: Shard, what: Filter) -> None:
        """Before the members start."""
        self.what = what
        self._ports = [shard.replication_port + member.ordinal for member in shard.members]
        self._open: list[socket.socket] = []
        for member in shard.members:
            brokers = list(HOSTS)
            for other in range(len(HOSTS)):
                if other != member.ordinal:
                    brokers[other] = f"127.0.{member.ordinal + 1}.{other + 1}"
                    self._listen(brokers[other], member.ordinal, other)
            member.brokers = brokers

    def _listen(self, host: str, source: int, target: int) -> None:
        end = socket.create_server((host, self._ports[target]))
        self._open.append(end)
        self._start(self._accept, end, source, target)

    @staticmethod
    def _start(run: Callable[..., None], *args: Any) -> None:
        threading.Thread(target=run, args=args, daemon=True).start()

    def _accept(self, listener: socket.socket, source: int, target: int) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                self._open.append(near)
                try:
                    # From where the target takes this member to be.
                    seen = f"127.0.{target + 1}.{source + 1}"
                    far = socket.create_connection(
                        (HOSTS[target], self._ports[target]), source_address=(seen, 0)
                    )
                except OSError:
                    near.close()
                    continue
                self._open.append(far)
                self._start(self._back, far, near)
                self._start(self._forth, near, far, source, target)

    def _back(self, far: socket.socket, near: socket.socket) -> None:
        """The answer to the hello with its proof, and the end."""
        with contextlib.suppress(OSError):
            while data := far.recv(65536):
                near.sendall(data)
        _hang_up(far, near)

    def _forth(self, near: socket.socket, far: socket.socket, source: int, target: int) -> None:
        stream = near.makefile("rb")
        with contextlib.suppress(OSError, ProtocolError):
            hello = frame.read(stream)
            if hello is None or hello["kind"] != REPLICATION:
                raise ProtocolError("the members need nothing else of each other")
            far.sendall(frame.encode(hello))
            proof = frame.read(stream)
            if proof is None:
                raise ProtocolError("a member hung up within its hello")
            far.sendall(frame.encode(proof))
            while head := stream.read(wire.HEAD.size):
                length, group = wire.HEAD.unpack(head)
                body, data = stream.read(length), stream.read(group)
                message = self.what(source, target, wire.decode(body))
                if message is not None:
                    far.sendall(wire.encode(message, group) + data)
        _hang_up(far, near)

    def close(self) -> None:
        """Nothing gets through any more."""
        _hang_up(*self._open)


def _hang_up(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
