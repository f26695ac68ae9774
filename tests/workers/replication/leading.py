"""A leader's groups, as its core builds them: events of two topics, group offsets and settings."""

import os
import random
import socket
import tempfile
from pathlib import Path

from following import GID, SEGMENT_BYTES, SESSION, make_reactor

from barco._native import Reactor
from barco.model.generation import GroupHead

Groups = list[tuple[GroupHead, bytes]]


def sent_group(reactor: Reactor, pos: int, length: int) -> bytes:
    """A group from the core's memory, by the way that it goes to followers."""
    data = b""
    here, there = socket.socketpair()
    with here, there:
        while len(data) < length:
            sent = reactor.send_group(here.fileno(), b"", pos, length, len(data))
            assert sent, "the group is there, and the socket is empty"
            while sent > 0:
                part = there.recv(sent)
                data, sent = data + part, sent - len(part)
    return data


def lead(count: int, event_bytes: int) -> Groups:
    """So many groups of generation GID, over several segments if the events are large."""
    reactor, rng, found = make_reactor(), random.Random(5), Groups()
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as directory:
        reactor.begin_generation(GID.epoch, SESSION)
        for index in range(12):
            fd = os.open(f"{directory}/{index}", os.O_RDWR | os.O_CREAT)
            os.truncate(fd, SEGMENT_BYTES)
            reactor.add_segment(index, fd, SEGMENT_BYTES)
        reactor.open_generation(b"")
        while len(found) < count:
            index = rng.randrange(4)
            reactor.append(1, f"topic-{index % 2}", index, b"key", rng.randbytes(event_bytes))
            key = f"group\0topic-{index % 2}\0{index}".encode()
            reactor.append(1, "__offsets", index, key, str(len(found)).encode())
            reactor.append(1, "__topics", 0, b"topic-0", rng.randbytes(9))
            before = len(found)
            while len(found) == before or not reactor.log_state()["settled"]:
                for upcall in reactor.run(0.001)[1]:
                    if upcall[0] == "built":
                        _, gseq, prev_crc, header_crc, pos, length = upcall
                        data = sent_group(reactor, pos, length)
                        found.append((GroupHead(gseq, prev_crc, header_crc, length), data))
                reactor.replicated(reactor.log_state()["stable_gseq"])
        reactor.close()
    return found[:count]
