"""A hostile member's gossip: every message, every field and every fact wrong, over its own links.

The liar is broker 2 of three real nodes, let in with the secret; the two others live on and know
one another.
"""

import asyncio
import random
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgpack
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "barco" / "supervisor"))

from gossiping import Lab, until
from hostile import NASTY, spoil

from barco.cluster.gossip.facts import ALIVE, BROKER, DOWN, KINDS, following
from barco.protocol import frame
from barco.protocol.gossip import (
    Ack,
    Message,
    Nack,
    Ping,
    PingRequest,
    Push,
    PushAck,
    Sync,
    SyncReply,
    to_frame,
)

LAST = 2**64 - 1
"""The highest incarnation that a fact can have."""

BODIES: dict[str, tuple[Any, int, tuple[Any, ...]]] = {
    # Kind: key, parts of its version, body.
    "broker": (
        1,
        2,
        ("1".zfill(32), 7, "127.0.0.2", (("gossip", 1),), 2, "0.1.0", "127.0.0.2", ((0, 5, 1),), 2),
    ),
    "leader": (0, 2, (0, 8, 1, (0, 1, 2))),
    "consumer": ("c", 4, ("g", ("t",), "s", 0, 1)),
    "topics": (1, 2, (b"d" * 8, 1)),
    "target": (0, 1, (zlib.compress(b"t"),)),
}


def facts(rng: random.Random, count: int) -> Iterator[bytes]:
    """One of each kind, then such as are wrong somewhere."""
    assert set(BODIES) == set(KINDS)
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        key, parts, body = BODIES[kind]
        given = msgpack.unpackb(msgpack.packb([kind, key, [3] * parts, body]))
        if number >= len(KINDS):
            spoil(rng, given)
        yield msgpack.packb(given)


def messages(told: tuple[bytes, ...]) -> list[Message]:
    """One of each kind."""
    return [
        Ping(number=1, facts=told),
        Ack(number=1, about=1, facts=told),
        PingRequest(number=1, about=1, facts=told),
        Nack(number=1, about=1, refused=True),
        Push(number=2**63, facts=told),
        PushAck(number=1),
        Sync(digests=b"d" * 2048, facts=told),
        SyncReply(whole=tuple(range(256)), more=True, facts=told),
    ]


def frames(rng: random.Random, rounds: int) -> Iterator[bytes]:
    """Each field of each kind, with each of the values that are wrong; then facts that are."""
    for message in messages(()):
        yield frame.encode(to_frame(message))
        for name in to_frame(message):
            for value in NASTY:
                yield frame.encode(to_frame(message) | {name: value})
    for fact in facts(rng, rounds):
        for message in messages((fact,)):
            yield frame.encode(to_frame(message))


@pytest.fixture(autouse=True)
def _unharmed() -> None:
    """No broker of the neighbours' is needed here."""


@pytest.mark.parametrize("seed", range(2))
def test_gossip_of_a_hostile_member(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    assert {type(each) for each in messages(())} == set(get_args(Message))

    async def run() -> None:
        lab, wrong = Lab(3), []
        asyncio.get_running_loop().set_exception_handler(lambda _, told: wrong.append(told))
        try:
            for ordinal in range(3):
                await lab.start(ordinal)
            await until(lab.whole)
            said = await lie(lab, random.Random(seed))
            assert said > 1_000
            await lab.crash(2)
            await until(lambda: lab.state(0, 1) == lab.state(1, 0) == "alive")
            assert not wrong, wrong[:3]
        finally:
            await lab.close()

    asyncio.run(run())
    failed = [each for each in caplog.records if "connection failed" in each.getMessage()]
    assert not failed, failed[0].getMessage()


def test_a_broker_denies_its_last_incarnation() -> None:
    async def run() -> None:
        lab = Lab(3)
        try:
            for ordinal in range(3):
                await lab.start(ordinal)
            await until(lab.whole)
            body, link = BODIES["broker"][2], lab.nodes[2]._peers[0].links[-1]
            for said in (2**63, LAST):
                told = Push(facts=(msgpack.packb(["broker", 1, [said, DOWN], body]),))
                link.writer.write(frame.encode(to_frame(told)))
                denial = (following(said), ALIVE)
                await until(lambda denial=denial: version(lab, 0, 1) == denial, 5.0)
        finally:
            await lab.close()

    asyncio.run(run())


def version(lab: Lab, at: int, about: int) -> tuple[int, ...]:
    """Incarnation and state of one in another's eyes."""
    fact = lab.nodes[at].machine.store.get(BROKER, about)
    assert fact is not None
    return fact.version


async def lie(lab: Lab, rng: random.Random) -> int:
    """Everything, to both; the liar's own node dials again whenever it is hung up on."""
    said = 0
    for encoded in frames(rng, 300):
        for victim in (0, 1):
            for link in lab.nodes[2]._peers[victim].links[-1:]:
                if not link.writer.transport.is_closing():
                    link.writer.write(encoded)
                    said += 1
        await asyncio.sleep(0.002)
    return said
