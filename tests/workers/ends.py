"""Connections between workers as they are after their greeting, both ends in one process."""

import socket

from barco.workers.peers.links import End


def pair() -> tuple[End, End]:
    """In plain; blocking, as sockets are made."""
    one, other = socket.socketpair()
    return End(fileno=one.detach()), End(fileno=other.detach())
