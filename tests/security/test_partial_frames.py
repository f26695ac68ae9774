"""Frames of members that do not end, or unpack to much more: what a worker holds of them."""

import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import msgpack
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "integration"))

from hostile import Liar
from replicas import HOSTS, Member, Shard

from barco.protocol.link import HAND_OFF, REPLICATION, RPC
from barco.types import KiB, MiB
from barco.workers.replication import wire

LINKS = 40
FRAME = 33 * MiB - 64 * KiB
BUDGET = 256 * MiB
OVER_MAX = 64 * MiB
"""Beyond the budget: interpreter, code, receive buffers."""

SECONDS = 15.0
"""At most, for what is sent; it ends when nobody takes any more."""


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    """Three members with the usual limits, one of which is the attacker now."""
    with Shard(
        tmp_path_factory.mktemp("partial"),
        memory_bytes=BUDGET,
        request_bytes_max=16 * MiB,
        segment_bytes=64 * MiB,
    ) as made:
        made.start()
        made.members[2].kill()
        made.leader(made.members[:2])
        yield made


@pytest.fixture(autouse=True)
def _unharmed() -> None:
    """Nobody else's broker is attacked here."""


def resident(member: Member) -> int:
    assert member.process is not None
    status = Path(f"/proc/{member.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * KiB


def pour(victim: Member, ends: list[socket.socket], bytes_each: int) -> int:
    """So many bytes into each, side by side, as long as anybody takes them; the most it held."""
    piece, most = bytes(256 * KiB), 0
    left = dict.fromkeys(ends, bytes_each)
    with selectors.DefaultSelector() as ready:
        for end in ends:
            end.setblocking(False)
            ready.register(end, selectors.EVENT_WRITE)
        until = time.monotonic() + SECONDS
        while left and time.monotonic() < until and (events := ready.select(1.0)):
            for key, _ in events:
                end = key.fileobj
                assert isinstance(end, socket.socket)
                try:
                    left[end] -= end.send(piece[: left[end]])
                except BlockingIOError:
                    continue
                except OSError:
                    left[end] = 0
                if left[end] == 0:
                    del left[end]
                    ready.unregister(end)
            most = max(most, resident(victim))
    return most


def beginning(kind: str) -> bytes:
    """Of a frame that is as large as a link of this kind takes."""
    if kind == RPC:
        return struct.pack("<I", FRAME)
    if kind == REPLICATION:
        return wire.HEAD.pack(64, FRAME)
    head = struct.Struct("<IBBBBQqQ16sIIII")
    return head.pack(head.size + 5 + FRAME, 1, 0, 0, 5, 1, 0, 0, b"", 0, 0, 0, FRAME) + b"other"


def unproved(liar: Liar, victim: Member, kind: str, number: int) -> socket.socket:
    """Of somebody at a member's address who never says hello."""
    address = HOSTS[victim.ordinal], liar.shard.replication_port + victim.ordinal
    return socket.create_connection(address, timeout=10.0, source_address=(HOSTS[2], 0))


def proved(liar: Liar, victim: Member, kind: str, number: int) -> socket.socket:
    """Of each process that the member may have, in turn."""
    return liar.dial(victim, kind, worker=2 if kind == REPLICATION else number % 3)


def asked(number: int, padding: Any) -> bytes:
    """A long poll, with something in it that nobody asked for."""
    args = {"topic": "t", "slice": 0, "offset": 1 << 40, "timeout": 60.0, "padding": padding}
    body = msgpack.packb({"id": number, "op": "wait", "args": args})
    return struct.pack("<I", len(body)) + body


def test_requests_under_way(shard: Shard) -> None:
    """Forty that wait for a minute, of the largest size, all from one member."""
    victim, liar = shard.members[0], Liar(shard, 2)
    most = resident(victim)
    with ExitStack() as stack:
        for number in range(LINKS):
            with suppress(OSError):
                end = stack.enter_context(liar.dial(victim, RPC, worker=number % 3))
                end.settimeout(0.2)
                end.sendall(asked(1, bytes(FRAME - 1000)))
            most = max(most, resident(victim))
        with suppress(OSError):
            end = stack.enter_context(liar.dial(victim, RPC, worker=1))
            end.settimeout(0.2)
            for number in range(LINKS):
                end.sendall(asked(number, bytes(FRAME - 1000)))
                most = max(most, resident(victim))
            end.sendall(asked(LINKS, 0))
        time.sleep(0.5)
        most = max(most, resident(victim))
        assert victim.produce("beside") == 200
    print(f"requests under way: {most >> 20} MiB")
    assert most <= BUDGET + OVER_MAX


@pytest.mark.parametrize("padding", [b"\x80", b"\x90", b"\xc0"], ids=["maps", "lists", "nil"])
def test_requests_that_unpack_to_much_more(shard: Shard, padding: bytes) -> None:
    """Thirty million empty things in an array, or in arrays of arrays."""
    victim, liar = shard.members[0], Liar(shard, 3)
    count = FRAME - 200
    flat = b"\xdd" + struct.pack(">I", count) + padding * count
    inner = b"\xdc" + struct.pack(">H", 60_000) + padding * 60_000
    nested = b"\xdd" + struct.pack(">I", 500) + inner * 500
    for value in (flat, nested):
        body = b"\x83\xa2id\x01\xa2op\xa4ping\xa4args\x81\xa1x" + value
        with liar.dial(victim, RPC) as end:
            end.settimeout(20.0)
            end.sendall(struct.pack("<I", len(body)) + body)
            assert end.recv(1) == b"", "closed"
    assert victim.process is not None and victim.process.poll() is None
    peak = Path(f"/proc/{victim.process.pid}/status").read_text().split("VmHWM:")[1]
    print(f"unpacked: {int(peak.split()[0]) >> 10} MiB at most")
    assert int(peak.split()[0]) * KiB <= BUDGET + OVER_MAX
    assert victim.produce("beside") == 200


@pytest.mark.parametrize("kind", [REPLICATION, HAND_OFF, RPC])
@pytest.mark.parametrize("dial", [unproved, proved])
def test_frames_that_do_not_end(
    shard: Shard, kind: str, dial: Callable[[Liar, Member, str, int], socket.socket]
) -> None:
    """Forty at once, of all that a member can claim to be."""
    victim, liar = shard.members[0], Liar(shard, 1)
    before = resident(victim)
    with ExitStack() as stack:
        ends = []
        for number in range(LINKS):
            end = stack.enter_context(dial(liar, victim, kind, number))
            end.sendall(beginning(kind))
            ends.append(end)
        most = pour(victim, ends, FRAME - 64 * KiB)
        print(f"{kind}, {dial.__name__}: {before >> 20} MiB, then {most >> 20}")
        assert most <= BUDGET + OVER_MAX
        assert victim.produce("beside") == 200
    assert shard.leader(shard.members[:2])
