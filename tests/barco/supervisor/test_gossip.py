"""Gossip over real sockets on 127.0.0.x, several brokers in one event loop."""

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from gossiping import Lab, hello, host, until

from barco import limits
from barco.cluster.gossip.facts import CONSUMER, ConsumerInfo
from barco.cluster.gossip.gossip import Delivered
from barco.protocol import door, frame
from barco.protocol.gossip import GOSSIP_VERSION, Refuse, to_frame
from barco.supervisor import gossip as module


@asynccontextmanager
async def lab_of(brokers: int) -> AsyncIterator[Lab]:
    lab = Lab(brokers)
    try:
        yield lab
    finally:
        await lab.close()


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a coroutine as a test."""

    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


@in_loop
async def test_three_brokers_meet_lose_one_and_get_it_back() -> None:
    async with lab_of(3) as lab:
        for ordinal in range(3):
            await lab.start(ordinal)
        await until(lab.whole)
        await lab.crash(1)
        await until(lambda: lab.all_see(1, "down"))
        await lab.start(1)
        await until(lab.whole)


@in_loop
async def test_an_orderly_stop_is_no_crash() -> None:
    async with lab_of(3) as lab:
        for ordinal in range(3):
            await lab.start(ordinal)
        await until(lab.whole)
        await lab.nodes.pop(2).close()
        await until(lambda: lab.all_see(2, "left"))
        assert all(n.machine.members.counters.suspicions == 0 for n in lab.nodes.values())


@in_loop
async def test_news_is_acknowledged_by_all() -> None:
    async with lab_of(3) as lab:
        for ordinal in range(3):
            await lab.start(ordinal)
        await until(lab.whole)
        info = ConsumerInfo(
            consumer_id="c", counter=1, ordinal=0, group="g", topics=("t",), start="s"
        )
        node = lab.nodes[0]
        node.run(node.machine.publish(info.fact(), node.now(), receipt=7))
        await until(lambda: Delivered(7, True) in lab.effects[0])
        for other in (1, 2):
            assert lab.nodes[other].machine.store.get(CONSUMER, "c") == info.fact()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cluster_uuid": "d" * 32}, "wrong cluster"),
        ({"protocol": 99}, "wrong version"),
        ({"protocol": 5, "newest": 7}, "speaks gossip 5 to 7"),
        ({"disk_uuid": "e" * 32}, "another disk"),
        ({"workers": 5}, "another shape"),
    ],
)
def test_the_wrong_one_is_refused_and_both_sides_say_why(
    changes: dict[str, Any], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with lab_of(2) as lab:
            await lab.start(0)
            await lab.start(1)
            await until(lab.whole)
            await lab.crash(1)
            await until(lambda: lab.all_see(1, "down"))
            await lab.start(1, **changes)
            await until(lambda: 1 in lab.nodes[0].refusals and 0 in lab.nodes[1].refusals)
            assert words in lab.nodes[0].refusals[1]
            assert words in lab.nodes[1].refusals[0]
            assert lab.state(0, 1) == "down"

    asyncio.run(run())
    said = [record.getMessage() for record in caplog.records if words in record.getMessage()]
    assert any("refuses this one" in line for line in said)
    assert any("is refused" in line for line in said)


@in_loop
async def test_the_next_version_is_let_in_if_it_speaks_this_one_too() -> None:
    async with lab_of(2) as lab:
        await lab.start(0)
        await lab.start(1, newest=GOSSIP_VERSION + 1)
        await until(lab.whole)
        assert not lab.nodes[0].refusals and not lab.nodes[1].refusals


@in_loop
async def test_a_disk_that_replaces_the_lost_one_is_let_in_and_the_lost_one_no_more() -> None:
    async with lab_of(2) as lab:
        await lab.start(0)
        lost = await lab.start(1)
        await until(lab.whole)
        await lab.crash(1)
        disk = lost.machine.members.me.disk_uuid
        await lab.start(1, disk_uuid="e" * 32, replaces=disk)
        await until(lab.whole)
        await lab.crash(1)
        await lab.start(1)
        await until(lambda: 1 in lab.nodes[0].refusals)
        assert "another disk" in lab.nodes[0].refusals[1]


NONCE = {"nonce": b"n" * 32}


async def speak(lab: Lab, source: str, data: bytes) -> bytes:
    """What broker 0 answers to these bytes, until it closes."""
    reader, writer = await asyncio.open_connection(*lab.addresses[0], local_addr=(source, 0))
    try:
        writer.write(data)
        async with asyncio.timeout(30.0):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@in_loop
async def test_a_duplicate_ordinal_is_refused() -> None:
    async with lab_of(3) as lab:
        await lab.start(0)
        greeting = frame.encode(to_frame(hello(1, 3)) | NONCE)
        assert b"duplicate ordinal" in await speak(lab, host(2), greeting)
        greeting = frame.encode(to_frame(hello(0, 3)) | NONCE)
        assert b"duplicate ordinal" in await speak(lab, host(0), greeting)


HELLO = frame.encode(to_frame(hello(1, 3)) | NONCE)


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        frame.LENGTH.pack(limits.GOSSIP_FRAME_BYTES_MAX + 1) + b"x",
        frame.LENGTH.pack(5) + b"\xdd\xff\xff\xff\xff",
        frame.LENGTH.pack(4) + b"\x91" * 4,
        frame.encode({"type": "ping", "number": 1}),
        HELLO + HELLO,
        HELLO + frame.encode({"type": "ping", "number": 1, "facts": [b"bad"]}),
        HELLO + frame.encode({"type": "nothing"}),
        HELLO + frame.encode({"type": "push", "number": 2**64 - 1, "facts": [b"\xc1"]}),
    ],
)
def test_hostile_bytes_end_their_connection_and_nothing_else(data: bytes) -> None:
    async def run() -> None:
        async with lab_of(3) as lab:
            await lab.start(0)
            await speak(lab, host(1), data)
            await lab.start(2)
            await until(lab.whole)

    asyncio.run(run())


@in_loop
async def test_a_flood_of_silent_connections_does_not_keep_a_broker_out() -> None:
    async with lab_of(2) as lab:
        await lab.start(0)
        flood = []
        for _ in range(100):
            flood.append(socket.create_connection(lab.addresses[0]))
        await lab.start(1)
        await until(lab.whole)
        for end in flood:
            end.close()


@in_loop
async def test_outgoing_connections_come_from_the_brokers_own_address() -> None:
    async with lab_of(2) as lab:
        await lab.start(0)
        await lab.start(1)
        await until(lab.whole)
        links = [
            link for node in lab.nodes.values() for p in node._peers.values() for link in p.links
        ]
        names = {link.writer.get_extra_info("peername")[0] for link in links}
        assert names <= {host(0), host(1)} and names


@pytest.mark.parametrize("key", [b"", b"another"])
def test_a_broker_without_the_secret_is_told_so(
    key: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with lab_of(2) as lab:
            lab.keys = {0: b"the key", 1: key}
            await lab.start(0)
            await lab.start(1)
            await until(lambda: 1 in lab.nodes[0].refusals and 0 in lab.nodes[1].refusals)
            for number in (0, 1):
                assert "cluster.secret_file" in lab.nodes[number].refusals[1 - number]
                assert not lab.nodes[number].connected()[1 - number]

    asyncio.run(run())


@in_loop
async def test_a_greeting_without_proof_is_not_believed() -> None:
    """Recorded, reflected or followed by anything else: no word behind it is taken."""
    async with lab_of(3) as lab:
        await lab.start(0)
        news = frame.encode({"type": "push", "number": 1, "facts": []})
        proof = frame.encode({"proof": door.proof(b"another", door.CALLER, b"", b"")})
        for behind in (news, proof + news, frame.encode({"type": "ack"})):
            await speak(lab, host(1), HELLO + behind)
        assert lab.nodes[0].counters.messages_received == 0
        assert not lab.nodes[0].connected()[1]


@in_loop
async def test_who_is_not_listed_is_let_in_with_the_secret_and_only_so() -> None:
    async with lab_of(4) as lab:
        for ordinal in range(3):
            await lab.start(ordinal, listed=3, most=24)
        lab.keys[3] = b"another"
        await lab.start(3, most=24)
        await until(lambda: len(lab.nodes[3].refusals) > 0)
        assert all(lab.state(at, 3) is None for at in range(3))
        await lab.crash(3)
        lab.keys[3] = b""
        await lab.start(3, most=24)
        await until(lab.whole)
        assert all(3 in lab.nodes[at].connected() for at in range(3))
        # It goes and comes back; nobody lists it, and all look for it.
        await lab.crash(3)
        await until(lambda: lab.all_see(3, "down"))
        await lab.start(3, most=24)
        await until(lab.whole)


@in_loop
async def test_who_is_not_listed_speaks_from_nobody_elses_address() -> None:
    async with lab_of(3) as lab:
        node = await lab.start(0, listed=3, most=24)
        assert node._fits(5, host(5)) and node._fits(2, host(2))
        assert not node._fits(5, host(2)) and not node._fits(2, host(5))
        assert not node._fits(5, host(0)), "this broker's own"
        node.meet(5, host(5))
        assert not node._fits(6, host(5)) and node._fits(5, host(7))
        assert node.meet(5, host(7)).host == host(7), "it may move: nobody lists it"
        assert node.meet(2, host(7)).host == host(2), "of this one the list says where it is"


@in_loop
async def test_strangers_fill_neither_the_log_nor_what_is_kept() -> None:
    async with lab_of(3) as lab:
        node = await lab.start(0, listed=3, most=24)
        for number in range(1000):
            node._refused(number, f"stranger {number}", Refuse(reason="no"))
        assert len(node._said) == module.REFUSAL_LINES_MAX and len(node.refusals) == 24
        node._greeting["10.0.0.1"] += 1
        node._greeting -= Counter(["10.0.0.1"])
        assert not node._greeting


@in_loop
async def test_one_that_joins_gets_in_beside_strangers_who_say_nothing() -> None:
    """Each place is taken again as soon as it is free, from one address and from forty."""
    async with lab_of(4) as lab:
        node = await lab.start(0, listed=3, most=24)
        flood = [asyncio.create_task(say_nothing(lab, number)) for number in range(40)]
        flood += [asyncio.create_task(say_nothing(lab, 0)) for _ in range(40)]
        await until(lambda: len(node._strangers) == module.STRANGERS_MAX)
        await lab.start(3, most=24)
        await until(lambda: lab.state(0, 3) == "alive", 30.0)
        for task in flood:
            task.cancel()
        await asyncio.gather(*flood, return_exceptions=True)
        await until(lambda: not node._strangers and not node._greeting)


async def say_nothing(lab: Lab, number: int) -> None:
    """From an address that no broker has, again and again."""
    while True:
        reader, writer = await asyncio.open_connection(
            *lab.addresses[0], local_addr=(f"127.0.1.{number + 1}", 0)
        )
        try:
            await reader.read()
        except OSError:
            pass
        finally:
            writer.close()
        await asyncio.sleep(0.2)
