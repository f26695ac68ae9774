"""Links between workers: who is let in, who is not, and that nothing is read beyond the hello."""

import asyncio
import contextlib
import dataclasses
import os
import socket
import struct
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from barco.cluster.ring.routes import RangeRoute
from barco.errors import NotReadyError, ProtocolError
from barco.limits import PROCESSES_MAX
from barco.mutual import Mutual
from barco.protocol import door, frame
from barco.protocol.link import HAND_OFF, LINK_VERSION, RPC, Hello, hello_from, refusal
from barco.workers.operations.network import Network
from barco.workers.peers import links
from barco.workers.peers.ranges import RingRanges

from ..twin import Broker

MINE = Hello(
    kind="",
    cluster_uuid="c" * 32,
    ordinal=1,
    disk_uuid="d" * 32,
    worker=0,
    token=-(2**63),
    session=7,
    ring_size=3,
    workers=2,
    slices_per_range=8,
)
KEY = door.link_key(b"a secret of these tests", "c" * 32)
PLAIN = Mutual("c" * 32, {})
THEIRS = replace(MINE, ordinal=0, worker=3, kind=HAND_OFF)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"link_version": 5}, "links of version 5 are not spoken here, 6 is"),
        ({"link_version": 5, "link_newest": 6}, None),
        ({"link_version": 6, "link_newest": 9}, None),
        ({"link_version": 7, "link_newest": 9}, "version 7 to 9 are not spoken here, 6 is"),
        ({"cluster_uuid": "e" * 32}, "another cluster"),
        ({"kind": "telnet"}, "no link of kind"),
        ({"workers": 3}, "workers is 2 here and 3 there"),
        ({"ring_size": 6}, "ring_size is 3 here and 6 there"),
        ({"format": 2}, "format is 1 here and 2 there"),
        ({"ordinal": 3}, "there is no broker 3"),
        ({"ordinal": 1}, "two brokers have the same ordinal"),
    ],
)
def test_who_is_let_in(change, words):
    why = refusal(MINE, replace(THEIRS, **change), 3)
    assert (why is None) if words is None else words in why


@pytest.mark.parametrize(
    "message",
    [
        {},
        THEIRS.to_message() | {"more": 1},
        THEIRS.to_message() | {"ordinal": "0"},
        THEIRS.to_message() | {"ordinal": True},
        THEIRS.to_message() | {"kind": "x" * 65},
    ],
)
def test_what_is_no_hello(message):
    with pytest.raises(ProtocolError):
        hello_from(message)


async def served(taken, fatal=None):
    listener = socket.create_server(("127.0.0.1", 0))
    said = [] if fatal is None else fatal
    server = links.LinkServer(MINE, links.Addresses(options_for(1)), KEY, PLAIN, said.append)
    server.handle(HAND_OFF, lambda hello, end: taken.append((hello, end)))
    server.start(listener.fileno())
    return server, listener


def options_for(port):
    return dataclasses.replace(
        Broker().options(0),
        ring_size=3,
        worker=3,
        brokers=["127.0.0.1"] * 3,
        shard_endpoints=dict.fromkeys(range(6), ""),
        replication_port=port,
        link_key=KEY.hex(),
        shard_port=9300,
    )


def test_a_link_is_handed_over_whole():
    async def main():
        taken = []
        server, listener = await served(taken)
        options = options_for(listener.getsockname()[1])
        hello = replace(links.own_hello(options, 9), cluster_uuid="c" * 32)
        with listener:
            theirs, end = await links.open_link(
                links.Addresses(options), (1, 0), hello, HAND_OFF, PLAIN
            )
            assert (theirs.ordinal, theirs.worker, theirs.session) == (1, 0, 7)
            end.setblocking(True)
            end.sendall(b"behind the hello")
            end.close()
            while not taken:  # The caller is done before its proof has been looked at.
                await asyncio.sleep(0.001)
            hello_there, other = taken[0]
            other.setblocking(True)
            assert (hello_there.worker, hello_there.session) == (3, 9)
            assert other.recv(100) == b"behind the hello"
            other.close()
            with pytest.raises(ProtocolError, match="takes no rpc yet"):
                await links.open_link(links.Addresses(options), (1, 0), hello, RPC, PLAIN)
            stranger = replace(hello, cluster_uuid="e" * 32)
            with pytest.raises(ProtocolError, match="refused: this is another cluster"):
                await links.open_link(links.Addresses(options), (1, 0), stranger, HAND_OFF, PLAIN)
        await server.close()
        with pytest.raises(NotReadyError):
            await links.open_link(links.Addresses(options), (1, 0), hello, HAND_OFF, PLAIN)

    asyncio.run(main())


def refuses_with(error):
    def take(*given):
        raise error

    return take


def test_who_takes_a_connection_over_ends_the_process_with_a_bug():
    """An OSError there is the connection's end; anything else has left who knows what behind."""

    async def main():
        fatal = []
        server, listener = await served([], fatal)
        with listener:
            options = options_for(listener.getsockname()[1])
            hello = links.own_hello(options, session=9)
            for error in (ConnectionResetError("it went"), KeyError("what")):
                assert not fatal
                server.handle(HAND_OFF, refuses_with(error))
                _, end = await links.open_link(
                    links.Addresses(options), (1, 0), hello, HAND_OFF, PLAIN
                )
                with end:
                    await until(lambda: not server._tasks)
        await server.close()
        assert fatal == ["a connection was not taken over, this is a bug: KeyError('what')"]

    asyncio.run(main())


def test_a_bug_in_a_greeting_ends_that_connection_only(monkeypatch, caplog):
    async def main():
        fatal = []
        server, listener = await served([], fatal)
        with listener:
            options = options_for(listener.getsockname()[1])
            hello = links.own_hello(options, session=9)
            with monkeypatch.context() as patched:
                patched.setattr(links, "refusal", refuses_with(KeyError("what")))
                with pytest.raises(ProtocolError):
                    await links.open_link(links.Addresses(options), (1, 0), hello, HAND_OFF, PLAIN)
            _, end = await links.open_link(links.Addresses(options), (1, 0), hello, HAND_OFF, PLAIN)
            end.close()
        await server.close()
        assert not fatal

    asyncio.run(main())
    assert "its greeting met a bug: KeyError('what')" in caplog.text and "Traceback" in caplog.text


async def until(true):
    for _ in range(500):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come to that")


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack("<I", 0),
        struct.pack("<I", 2**32 - 1),
        struct.pack("<I", 1025),
        frame.encode({"hello": 1}),
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("<I", 3) + b"\xdf\xff\xff",
    ],
)
def test_garbage_is_closed(garbage):
    async def main():
        taken = []
        server, listener = await served(taken)
        with listener:
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(garbage)
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        await server.close()
        assert not taken

    asyncio.run(main())


async def answered(address, *pieces):
    """What the server sends until it closes, of these frames and of what a proof makes of them."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        for piece in pieces:
            writer.write(piece)
        async with asyncio.timeout(links.HELLO_SECONDS_MAX + 5):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def greeting(**changes):
    nonce = changes.pop("nonce", os.urandom(32))
    return frame.encode(replace(THEIRS, **changes).to_message() | {"nonce": nonce})


def test_the_hello_of_the_next_version_is_understood_and_of_an_unknown_one_refused_in_one_line(
    caplog,
):
    """The next one says that it speaks this one's too, and more that this one does not know."""
    next_one = replace(THEIRS, link_newest=LINK_VERSION + 1).to_message()
    unknown = {"link_version": LINK_VERSION + 1, "name": "all else is another"}

    async def main():
        taken = []
        server, listener = await served(taken)
        with listener:
            nonce = {"nonce": os.urandom(32)}
            said = await answered_once(
                listener.getsockname(), frame.encode(next_one | {"more": [1]} | nonce)
            )
            assert hello_from(door.without_nonce(said)).ordinal == MINE.ordinal
            assert "link_newest" not in said, "who came before takes no further name"
            refused = await answered(listener.getsockname(), frame.encode(unknown))
        await server.close()
        words = "links of version 7 are not spoken here, 6 is"
        assert frame.decode(refused[4:]) == {"refused": words}
        return words

    words = asyncio.run(main())
    assert [words in each for each in caplog.messages].count(True) == 1


async def answered_once(address, piece):
    """The first frame that the server sends."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(piece)
        return (await frame.read_whole(reader, 1024))[0]
    finally:
        writer.close()


def test_refusals_without_end_are_few_lines(caplog):
    async def main():
        server, listener = await served([])
        for number in range(10 * links.GREETING_MAX):
            server._tell(f"{number} at 127.0.0.1", f"workers is 2 here and {number} there")
        await server.close()
        listener.close()

    asyncio.run(main())
    assert len(caplog.records) == links.GREETING_MAX


@pytest.mark.parametrize(
    "key", [b"", b"another", door.link_key(b"", "c" * 32), door.link_key(b"a secret", "c" * 32)]
)
def test_who_does_not_know_the_secret_is_not_let_in_and_lets_nobody_in(key, caplog):
    async def main():
        taken = []
        server, listener = await served(taken)
        options = options_for(listener.getsockname()[1])
        wrong = dataclasses.replace(options, link_key=key.hex())
        hello = replace(links.own_hello(options, 9), cluster_uuid="c" * 32)
        with listener:
            with pytest.raises(ProtocolError, match="cluster.secret_file"):
                await links.open_link(links.Addresses(wrong), (1, 0), hello, HAND_OFF, PLAIN)
            # A caller that does not look at the proof gets no further either.
            proof = frame.encode({"proof": door.proof(key, door.CALLER, b"", b"")})
            await answered(listener.getsockname(), greeting(), proof)
        await server.close()
        assert not taken

    asyncio.run(main())
    assert sum("cluster.secret_file" in each for each in caplog.messages) == 2


def test_a_recorded_session_is_worth_nothing_and_no_proof_comes_back():
    """Replayed byte for byte, and reflected: what the server says is no proof of a caller."""

    async def main():
        taken, recorded = [], []
        server, listener = await served(taken)
        options = options_for(listener.getsockname()[1])
        hello = replace(links.own_hello(options, 9), cluster_uuid="c" * 32)
        send = links._send

        async def recording(end, data):
            recorded.append(data)
            await send(end, data)

        with listener, pytest.MonkeyPatch.context() as patched:
            patched.setattr(links, "_send", recording)
            _, end = await links.open_link(links.Addresses(options), (1, 0), hello, HAND_OFF, PLAIN)
            end.close()
            while not taken:
                await asyncio.sleep(0.001)
            patched.undo()
            mine, theirs, proof = recorded
            await answered(listener.getsockname(), mine, proof)
            reflected = theirs[-len(proof) :]
            assert len(frame.decode(reflected[4:])["proof"]) == 32
            await answered(listener.getsockname(), mine, reflected)
            assert len(taken) == 1
        taken[0][1].close()
        await server.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "changes",
    [
        {"ordinal": 2},
        {"worker": PROCESSES_MAX},
        {"worker": -1},
        {"session": 0},
        {"disk_uuid": "../../x"},
    ],
)
def test_nobody_speaks_for_another(changes):
    """The right secret from the address of another broker, or for a worker that there is not."""

    async def main():
        taken = []
        server, listener = await served(taken)
        listed = dataclasses.replace(options_for(1), brokers=[f"127.0.0.{n + 1}" for n in range(3)])
        server._addresses = links.Addresses(listed)
        with listener:
            assert b"refused" in await answered(listener.getsockname(), greeting(**changes))
            elsewhere = dataclasses.replace(listed, brokers=["127.0.0.7"] * 3)
            server._addresses = links.Addresses(elsewhere)
            assert await answered(listener.getsockname(), greeting()) == b""
        await server.close()
        assert not taken

    asyncio.run(main())


def test_a_crowd_that_says_nothing_keeps_nobody_out():
    """Nothing is kept of it but its sockets, and the oldest go first."""

    async def main():
        taken = []
        server, listener = await served(taken)
        options = options_for(listener.getsockname()[1])
        hello = replace(links.own_hello(options, 9), cluster_uuid="c" * 32)
        crowd = []
        with listener:
            for _ in range(3 * links.GREETING_MAX):
                crowd.append(await asyncio.open_connection(*listener.getsockname()))
                crowd[-1][1].write(frame.LENGTH.pack(links.HELLO_BYTES_MAX) + b"x" * 100)
            await asyncio.sleep(0.05)
            assert len(server._tasks) <= links.GREETING_MAX + 1
            _, end = await links.open_link(links.Addresses(options), (1, 0), hello, HAND_OFF, PLAIN)
            end.close()
            while not taken:
                await asyncio.sleep(0.001)
        for _, writer in crowd:
            writer.close()
        await server.close()

    asyncio.run(main())


def test_news_that_cannot_be_told_ends_the_process(tmp_path):
    """Only that the other one is away is expected."""

    async def main():
        fatal = []
        options = dataclasses.replace(Broker().options(0), workers=2, data_dir=tmp_path)
        service = SimpleNamespace(
            operation=None,
            neighbours=SimpleNamespace(endpoint=None, addresses=links.Addresses(options)),
            leaders=SimpleNamespace(learn=lambda *news, **more: True, learn_all=lambda news: None),
            ranges=RingRanges(options),
        )
        network = Network(options, None, service, 7, fatal.append)
        for error in (NotReadyError("It is away."), KeyError("what")):
            assert not fatal
            network.siblings.call = refuses_with(error)
            network.told(RangeRoute(0, 1, 0, 1, 1, (1,)))
            assert network._tasks
            await until(lambda: not network._tasks)
        assert fatal == ["news of leaders was not told, this is a bug: KeyError('what')"]

    asyncio.run(main())


def test_who_came_later_says_where_it_is():
    """Of a broker that is listed nobody says another address."""
    addresses = links.Addresses(options_for(9256))
    assert addresses.host(3) is None and not addresses.knows("127.0.0.4")
    with pytest.raises(NotReadyError):
        addresses.link((3, 2))
    addresses.tell(3, "127.0.0.4")
    addresses.tell(1, "127.0.0.5")
    addresses.tell(addresses.most, "127.0.0.6")
    assert addresses.link((3, 2)) == ("127.0.0.4", 9258)
    assert addresses.link((1, 0)) == ("127.0.0.1", 9256)
    assert addresses.knows("127.0.0.4") and not addresses.knows("127.0.0.5")
    assert not addresses.knows("127.0.0.6")


@pytest.mark.parametrize("joins", [True, False])
def test_who_has_just_joined_is_no_stranger(joins, monkeypatch, caplog):
    """It calls before it was heard of here, and again; of who is never heard of it is said."""
    monkeypatch.setattr(links, "NEWS_SECONDS", 0.3)

    def refused():
        return [each.getMessage() for each in caplog.records if "refused a conn" in each.message]

    async def call(listener, host):
        with socket.socket() as caller:
            caller.setblocking(False)
            caller.bind((host, 0))
            loop = asyncio.get_running_loop()
            await loop.sock_connect(caller, listener.getsockname())
            with contextlib.suppress(ConnectionError):
                assert await loop.sock_recv(caller, 1) == b"", "it is closed at once"

    async def main():
        server, listener = await served([])
        with listener:
            for _ in range(3):
                await call(listener, "127.0.0.9")
            assert not refused() and len(server._unheard) == 1
            if joins:
                server._addresses.tell(3, "127.0.0.9")
            while server._unheard:
                await asyncio.sleep(0.01)
            wanted = [] if joins else ["127.0.0.9: no broker has this address"]
            assert [each.rpartition("worker ")[2] for each in refused()] == wanted
            # Of very many that call some are told at once: they take no memory.
            for at in range(links.GREETING_MAX + 1):
                server._wonder(f"127.1.0.{at}")
            assert len(server._unheard) == links.GREETING_MAX
            assert any("127.1.0." in each for each in refused())
        await server.close()
        assert not server._unheard

    asyncio.run(main())
