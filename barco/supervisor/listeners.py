"""The listening sockets. The supervisor owns them, so that a restarted worker finds its own again.

Each process that is to lead its range has a socket of its own on every public port (SO_REUSEPORT:
the kernel spreads the connections); every process has one for its shard endpoint, and in a cluster
one for the workers of other brokers, both at the first port of their kind plus its number. While a
worker restarts, connections wait in the backlog of its sockets.
"""

import errno
import ipaddress
import os
import socket
import time
from collections.abc import Collection

from msgspec import Struct, field

from barco.addresses import bracketed
from barco.errors import ConfigError, InUseError
from barco.limits import LISTEN_BACKLOG, PORT_MAX
from barco.sections import PortsSection

PUBLIC = ("discovery", "produce", "consume", "metrics")
"""The ports that share one router."""

SHARD = "shard"
REPLICATION = "replication"
GOSSIP = "gossip"
BIND_SECONDS_MAX = 1.0
"""The sockets of a broker that has just ended can be bound for a moment more."""


class Listeners(Struct):
    """What is bound: for each process its sockets by name, and the numbers to tell clients."""

    bind: str
    wanted: PortsSection
    host: str
    """Of shard endpoints, as clients are told."""
    cluster: bool
    by_worker: dict[int, dict[str, socket.socket]] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)
    """The public ones."""
    shard_endpoints: dict[int, str] = field(default_factory=dict)
    gossip: socket.socket | None = None
    """The supervisor's own, in a cluster."""

    def open(self, number: int, *, public: bool, quiet: bool = False) -> None:
        """Bind everything of one process, or nothing. `public`: it listens on the public ports.

        quiet: there it listens when it is ready, and not before: the kernel would give it
        connections that the others could serve.
        """
        assert number not in self.by_worker, "its sockets are bound once"
        sockets = self.by_worker[number] = {}
        try:
            for name in PUBLIC if public else ():
                port = self.ports.get(name) or getattr(self.wanted, name)
                sockets[name] = _listen(self.bind, name, port, quiet=quiet)
                self.ports[name] = sockets[name].getsockname()[1]
            seconds = 0.0 if quiet else BIND_SECONDS_MAX  # Nobody waits for a supervisor at work.
            sockets[SHARD] = _listen_for(self.bind, SHARD, self.wanted.shard, number, seconds)
            port = sockets[SHARD].getsockname()[1]
            self.shard_endpoints[number] = f"{bracketed(self.host)}:{port}"
            if self.cluster:
                first = self.wanted.replication
                sockets[REPLICATION] = _listen_for(self.bind, REPLICATION, first, number, seconds)
        except BaseException:
            self.shut(number)
            raise

    def shut(self, number: int) -> None:
        """Give the ports of a process up (as far as it does not hold them itself)."""
        self.shard_endpoints.pop(number, None)
        for listener in self.by_worker.pop(number).values():
            listener.close()

    def close(self) -> None:
        """Give the ports of all processes up."""
        for sockets in self.by_worker.values():
            for listener in sockets.values():
                listener.close()


def open_listeners(
    bind: str,
    ports: PortsSection,
    leading: Collection[int],
    following: Collection[int] = (),
    *,
    cluster: bool = False,
    advertise: str = "",
) -> Listeners:
    """Bind everything or nothing, for processes of these numbers.

    advertise: the host of shard endpoints, as clients are told; else that is `bind`.
    """
    listeners = Listeners(bind, ports, advertise or bind, cluster)
    try:
        for name in PUBLIC:
            _check_free(bind, name, getattr(ports, name))
        for number in sorted((*leading, *following)):
            listeners.open(number, public=number in leading)
        if cluster:
            _check_free(bind, GOSSIP, ports.gossip)
            listeners.gossip = _listen(bind, GOSSIP, ports.gossip)
    except BaseException:
        listeners.close()
        raise
    return listeners


def _family(bind: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ipaddress.ip_address(bind).version == 6 else socket.AF_INET


def _listen_for(bind: str, name: str, base: int, worker: int, seconds: float) -> socket.socket:
    """A port of the worker's own: the one at `base` + worker, or a free one."""
    port = base and base + worker
    if port > PORT_MAX:
        raise ConfigError(f"ports.{name} = {base}: worker {worker} has no port left")
    _check_free(bind, name, port, seconds)
    return _listen(bind, name, port)


def _check_free(bind: str, name: str, port: int, seconds: float = BIND_SECONDS_MAX) -> None:
    """With SO_REUSEPORT a second broker of the same user would silently share the port."""
    if port == 0:
        return
    deadline = time.monotonic() + seconds
    while True:
        with socket.socket(_family(bind), socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((bind, port))
                probe.listen(1)
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() >= deadline:
                    raise _refusal(bind, name, port, error) from None
        time.sleep(0.05)


def _listen(bind: str, name: str, port: int, *, quiet: bool = False) -> socket.socket:
    listener = socket.socket(_family(bind), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((bind, port))
        if not quiet:
            listener.listen(LISTEN_BACKLOG)
    except OSError as error:
        listener.close()
        raise _refusal(bind, name, port, error) from None
    return listener


def _refusal(bind: str, name: str, port: int, error: OSError) -> ConfigError | InUseError:
    where = f"ports.{name} ({bracketed(bind)}:{port})"
    if error.errno == errno.EADDRINUSE:
        return InUseError(
            f"{where} is in use by another process: stop it, or choose other ports with"
            " --ports-from N (0: free ones)"
        )
    if error.errno == errno.EADDRNOTAVAIL:
        return ConfigError(f"broker.bind = {bind!r} is not an address of this machine")
    if error.errno == errno.EACCES:
        return ConfigError(f"{where} is reserved for root: choose ports above 1023")
    return ConfigError(f"cannot listen on {where}: {os.strerror(error.errno or 0)}")
