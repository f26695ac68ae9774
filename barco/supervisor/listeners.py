"""The listening sockets. The supervisor owns them, so that a restarted worker finds its own again.

Each worker of the broker's own range has a socket of its own on every public port (SO_REUSEPORT:
the kernel spreads the connections); every process has one for its shard endpoint, and in a cluster
one for the workers of other brokers. While a worker restarts, connections wait in the backlog of
its sockets.
"""

import errno
import ipaddress
import os
import socket
import time
from dataclasses import dataclass

from barco.addresses import bracketed
from barco.config import PortsSection
from barco.errors import ConfigError, InUseError
from barco.limits import LISTEN_BACKLOG, PORT_MAX

PUBLIC = ("discovery", "produce", "consume", "metrics")
"""The ports that share one router."""

SHARD = "shard"
REPLICATION = "replication"
GOSSIP = "gossip"
BIND_SECONDS_MAX = 1.0
"""The sockets of a broker that has just ended can be bound for a moment more."""


@dataclass(slots=True)
class Listeners:
    """What is bound: for each worker its sockets by name, and the numbers to tell clients."""

    by_worker: list[dict[str, socket.socket]]
    ports: dict[str, int]
    shard_endpoints: list[str]
    gossip: socket.socket | None = None
    """The supervisor's own, in a cluster."""

    def close(self) -> None:
        """Give the workers' ports up (as far as no worker holds them)."""
        for sockets in self.by_worker:
            for listener in sockets.values():
                listener.close()


def open_listeners(
    bind: str, ports: PortsSection, workers: int, seats: int = 1, *, advertise: str = ""
) -> Listeners:
    """Bind everything or nothing. In a cluster `workers` processes run at each of `seats`.

    advertise: the host of shard endpoints, as clients are told; else that is `bind`.
    """
    listeners = Listeners([{} for _ in range(workers * seats)], {}, [])
    try:
        for name in PUBLIC:
            port = getattr(ports, name)
            _check_free(bind, name, port)
            for sockets in listeners.by_worker[:workers]:
                sockets[name] = _listen(bind, name, listeners.ports.get(name, port))
                listeners.ports[name] = sockets[name].getsockname()[1]
        for worker, sockets in enumerate(listeners.by_worker):
            sockets[SHARD] = _listen_for(bind, SHARD, ports.shard, worker)
            number = sockets[SHARD].getsockname()[1]
            listeners.shard_endpoints.append(f"{bracketed(advertise or bind)}:{number}")
            if seats > 1:
                sockets[REPLICATION] = _listen_for(bind, REPLICATION, ports.replication, worker)
        if seats > 1:
            _check_free(bind, GOSSIP, ports.gossip)
            listeners.gossip = _listen(bind, GOSSIP, ports.gossip)
    except BaseException:
        listeners.close()
        raise
    return listeners


def _family(bind: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ipaddress.ip_address(bind).version == 6 else socket.AF_INET


def _listen_for(bind: str, name: str, base: int, worker: int) -> socket.socket:
    """A port of the worker's own: the one at `base` + worker, or a free one."""
    port = base and base + worker
    if port > PORT_MAX:
        raise ConfigError(f"ports.{name} = {base}: worker {worker} has no port left")
    _check_free(bind, name, port)
    return _listen(bind, name, port)


def _check_free(bind: str, name: str, port: int) -> None:
    """With SO_REUSEPORT a second broker of the same user would silently share the port."""
    if port == 0:
        return
    deadline = time.monotonic() + BIND_SECONDS_MAX
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


def _listen(bind: str, name: str, port: int) -> socket.socket:
    listener = socket.socket(_family(bind), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((bind, port))
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
