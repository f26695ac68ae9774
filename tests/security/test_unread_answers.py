"""Answers that a member asks for and never reads: what a worker holds of them, and who still gets
one."""

import itertools
import os
import socket
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import msgpack
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "integration"))

from hostile import Liar, exactly
from replicas import Member, Shard
from test_partial_frames import BUDGET, OVER_MAX, resident

from barco.limits import POLL_BYTES_MAX
from barco.model.token import TOKEN_MIN
from barco.protocol.link import RPC
from barco.types import KiB, MiB

LINKS = 40
REQUESTS = 100
"""On each link; each of them is answered by 16 MiB."""

EVENTS = 24
EVENT_BYTES = 1 * MiB - 4 * KiB
WATCHED_SECONDS = 6.0
FOREVER = 2**40


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    """Three members with the usual limits and an ended generation of 24 MB; one of the three is
    the attacker now."""
    with Shard(
        tmp_path_factory.mktemp("unread"),
        memory_bytes=BUDGET,
        request_bytes_max=16 * MiB,
        segment_bytes=64 * MiB,
    ) as made:
        made.start()
        for _ in range(EVENTS):
            event = os.urandom(EVENT_BYTES)
            path = "/v1/topic/t/messages?slice=0"
            answer = made.members[0].request("POST", path, event)
            assert answer is not None and answer.status == 200
        made.members[0].stop()
        made.leader(made.members[1:])
        made.members[0].start()
        made.members[2].kill()
        made.leader(made.members[:1])  # It has all, and leads again.
        yield made


@pytest.fixture(autouse=True)
def _unharmed() -> None:
    """Nobody else's broker is attacked here."""


def read(victim: Member) -> tuple[str, dict[str, Any]]:
    args = {"topic": "t", "slice": 0, "from": 0, "budget": POLL_BYTES_MAX, "stored": True}
    return "read", args


def history(victim: Member) -> tuple[str, dict[str, Any]]:
    lineage = victim.call("ping")["lineage"]
    sealed = next(each for each in lineage if each.get("tail", 0) >= EVENTS)
    args = {"token": int(TOKEN_MIN), "epoch": sealed["epoch"], "tail": sealed["tail"]}
    args |= {"what": "read", "topic": "t", "slice": 0, "from": 0, "stop": FOREVER}
    return "history", args | {"bytes": POLL_BYTES_MAX, "columns": -1}


def packed(number: int, op: str, args: dict[str, Any]) -> bytes:
    body = msgpack.packb({"id": number, "op": op, "args": args})
    return struct.pack("<I", len(body)) + body


def answer(end: socket.socket) -> dict[str, Any]:
    stream = end.makefile("rb", buffering=0)
    (length,) = struct.unpack("<I", exactly(stream, 4))
    found = msgpack.unpackb(exactly(stream, length), strict_map_key=False)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("asked", [read, history])
def test_answers_that_nobody_reads(shard: Shard, asked: Any) -> None:
    """Four thousand of the largest, all from one member; another one asks beside, and reads."""
    victim, liar = shard.members[0], Liar(shard, 1)
    op, args = asked(victim)
    most = before = resident(victim)
    with ExitStack() as stack:
        ends = []
        for worker in range(LINKS):
            end = stack.enter_context(liar.dial(victim, RPC, worker=worker))
            end.setblocking(False)
            with suppress(OSError):
                end.send(b"".join(packed(number, op, args) for number in range(REQUESTS)))
            ends.append(end)
        until = time.monotonic() + WATCHED_SECONDS
        while time.monotonic() < until and most <= BUDGET + OVER_MAX:
            most = max(most, resident(victim))
            time.sleep(0.02)
        print(f"{op}: {before >> 20} MiB, then {most >> 20}")
        assert most <= BUDGET + OVER_MAX
        with liar.dial(victim, RPC, worker=7, ordinal=1) as honest:
            for number in itertools.count():
                honest.settimeout(20.0)
                honest.sendall(packed(number, op, args))
                told = answer(honest)
                assert told["ok"], told
                most = max(most, resident(victim))
                if number == 4:
                    break
        assert victim.produce("beside", "other") == 200
    assert most <= BUDGET + OVER_MAX
