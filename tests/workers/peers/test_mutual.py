"""Links between brokers with TLS: who is let in with which certificate, and who is not."""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from mutuals import CALLER, KEY, UUID, Made, Taken, listening, run, until
from reference.certificates import Files

from barco.errors import BarcoError, ProtocolError
from barco.mutual import Mutual, Session, give, tried
from barco.protocol import door, frame
from barco.protocol.link import HAND_OFF, KINDS, REPLICATION, RPC
from barco.workers.peers import links
from barco.workers.peers.links import End


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """All of them."""
    return Made(tmp_path_factory.mktemp("certificates"))


def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[str]:
    return (each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING)


@pytest.mark.parametrize("kind", [HAND_OFF, REPLICATION])
def test_both_ends_have_a_session_of_the_core(made: Made, kind: str) -> None:
    async def main() -> None:
        async with listening(made.mutual(made.good[1])) as taken:
            end = await taken.call(kind, made.mutual(made.good[0]))
            await until(lambda: taken.links)
            hello, other = taken.links[0]
            assert (hello.ordinal, hello.kind) == (0, kind)
            assert end.seal.identity == f"barco:{UUID}/1"
            assert other.seal.identity == f"barco:{UUID}/0"
            assert end.seal.send(end.fileno(), b"secret words", b"", 0) == 12
            assert end.seal.flush(end.fileno())
            seen = await asyncio.get_running_loop().sock_recv(other, 1000)
            assert b"secret" not in seen and seen[:3] == b"\x17\x03\x03"
            end.drop()

    run(main)


class Heard(asyncio.Protocol):
    """What came."""

    def __init__(self) -> None:
        self.data = b""
        self.transport: Any = None
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


def test_questions_go_by_asyncio(made: Made) -> None:
    """What is said at once waits until somebody takes it."""

    async def main() -> None:
        async with listening(made.mutual(made.good[1])) as taken:
            end = await taken.call(RPC, made.mutual(made.good[0]))
            ours = give(end.transport, Heard)
            ours.transport.write(b"a question")
            await until(lambda: taken.links)
            _, other = taken.links[0]
            await asyncio.sleep(0.05)
            theirs = give(other.transport, Heard)
            await until(lambda: theirs.data == b"a question")
            theirs.transport.write(b"its answer")
            await until(lambda: ours.data == b"its answer")
            tls = other.transport.get_extra_info("ssl_object")
            assert tls.version() == "TLSv1.3"
            end.drop()
            await until(lambda: theirs.lost)
            with pytest.raises(ConnectionError):
                give(other.transport, Heard)

    run(main)


@pytest.mark.parametrize("kind", KINDS)
def test_a_caller_that_is_not_who_it_says(
    made: Made, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with listening(made.mutual(made.good[1])) as taken:
            for what, mutual in made.bad(0).items():
                caplog.clear()
                for _ in range(2):
                    with contextlib.suppress(BarcoError):
                        end = await taken.call(kind, mutual)
                        # By Python's ssl who is called looks after its own last word.
                        assert kind == RPC, what
                        left = give(end.transport, Heard)
                        await until(lambda: left.lost)  # noqa: B023 - it is done by then.
                await until(lambda: not taken.server._tasks)
                assert not taken.links, what
                said = list(warnings(caplog))
                assert len(said) == 1 and "0/0 at 127.0.0.1" in said[0], (what, said)
            end = await taken.call(kind, made.mutual(made.good[0]))  # Nothing has changed.
            await until(lambda: taken.links)
            end.drop()

    run(main)


@pytest.mark.parametrize("kind", KINDS)
def test_while_a_ring_goes_over_each_speaks_tls_with_whom_it_can(made: Made, kind: str) -> None:
    plain = Mutual(UUID, {})

    async def met(caller: Mutual, called: Mutual) -> tuple[bool, bool]:
        async with listening(called) as taken:
            end = await taken.call(kind, caller)
            await until(lambda: taken.links)
            ends = [end, taken.links[0][1]]
            ours, theirs = (bool(each.seal or each.transport) for each in ends)
            end.drop()
            return ours, theirs

    async def main() -> None:
        strict = [made.mutual(each) for each in made.good]
        lax = [made.mutual(each, required=False) for each in made.good]
        assert await met(plain, lax[1]) == await met(lax[0], plain) == (False, False)
        assert await met(lax[0], lax[1]) == (True, True)
        assert await met(strict[0], lax[1]) == await met(lax[0], strict[1]) == (True, True)
        async with listening(lax[1]) as taken:  # Plain is no way out for a wrong one.
            for what, files in {"expired": made.old[0], "another's": made.good[2]}.items():
                with contextlib.suppress(BarcoError):
                    end = await taken.call(kind, made.mutual(files, required=False))
                    assert kind == RPC, what
                    end.drop()
            await until(lambda: not taken.server._tasks)
            assert not taken.links

    run(main)


@pytest.mark.parametrize("kind", KINDS)
def test_who_answers_and_is_not_who_was_meant(made: Made, kind: str) -> None:
    async def main() -> None:
        words = {"plain": "go(es)? on with TLS", "expired": "expired"}
        for what, mutual in made.bad(1).items():
            async with listening(mutual) as taken:
                with pytest.raises(
                    ProtocolError, match=words.get(what, "URI|not come to terms|ended within")
                ) as refused:
                    await taken.call(kind, made.mutual(made.good[0]))
                assert what not in ("another broker's", "another cluster's") or (
                    f"barco:{UUID}/1" in refused.value.detail
                )

    run(main)


def test_a_certificate_for_calling_only_is_no_broker_s(made: Made) -> None:
    """Whoever calls is TLS's server, so both purposes are needed of all."""

    async def main() -> None:
        async with listening(made.mutual(made.good[1])) as taken:
            for kind in (REPLICATION, RPC):
                with pytest.raises(BarcoError):
                    await taken.call(kind, made.mutual(made.client))
            await until(lambda: not taken.server._tasks)
            assert not taken.links

    run(main)


class Pretending(Mutual):
    """Greets as one that goes on with TLS, and then speaks plain."""

    async def shake(self, end: Any, session: Session) -> Any:
        await asyncio.get_running_loop().sock_sendall(end, b"\x10\0\0\0\0\0\0\0" + bytes(100))

    async def transport(self, end: Any, session: Session) -> Any:
        await self.shake(end, session)


@pytest.mark.parametrize("kind", KINDS)
def test_who_goes_on_in_plain_is_not_heard(made: Made, kind: str) -> None:
    async def main() -> None:
        texts = made.mutual(made.good[0])._told
        async with listening(made.mutual(made.good[1])) as taken:
            end = await taken.call(kind, Pretending(UUID, texts))
            assert await asyncio.get_running_loop().sock_recv(end, 1) is not None
            await until(lambda: not taken.server._tasks)
            assert not taken.links
            end.close()
        async with listening(Pretending(UUID, texts)) as taken:
            with pytest.raises(ProtocolError):
                await taken.call(kind, made.mutual(made.good[0]))

    run(main)


def test_who_answers_without_a_certificate(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        bare = made.mutual(made.good[1])
        context_of = Mutual._context

        def context(mutual: Mutual, session: Session) -> ssl.SSLContext:
            if mutual is not bare:
                return context_of(mutual, session)
            shows_none = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            shows_none.check_hostname = False
            shows_none.verify_mode = ssl.CERT_NONE
            shows_none.set_alpn_protocols([session.name])
            return shows_none

        monkeypatch.setattr(Mutual, "_context", context)
        async with listening(bare) as taken:
            with pytest.raises(ProtocolError, match="did not return a certificate"):
                await taken.call(RPC, made.mutual(made.good[0]))

    run(main)


def test_who_knows_the_secret_cannot_turn_one_kind_into_another(made: Made) -> None:
    """It greets both in the other's name, and passes on the TLS that follows."""

    async def between(caller: End, taken: Taken) -> None:
        loop = asyncio.get_running_loop()
        message, said = await links.read_frame(caller)
        assert message["kind"] == RPC
        far = End(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        far.bind(("127.0.0.1", 0))
        await loop.sock_connect(far, ("127.0.0.1", taken.port))
        mine = frame.encode(dict(message) | {"kind": REPLICATION})
        await loop.sock_sendall(far, mine)
        answer, answered = await links.read_frame(far)
        await links.read_frame(far)
        near = frame.encode(dict(answer) | {"kind": RPC})
        proof = door.proof(KEY, door.ANSWERER, said, near[4:])
        await loop.sock_sendall(caller, near + frame.encode({door.PROOF: proof}))
        await links.read_frame(caller)
        proof = door.proof(KEY, door.CALLER, mine[4:], answered)
        await loop.sock_sendall(far, frame.encode({door.PROOF: proof}))

        async def pipe(one: End, other: End) -> None:
            with contextlib.suppress(OSError):
                while piece := await loop.sock_recv(one, 10_000):
                    await loop.sock_sendall(other, piece)
                other.shutdown(socket.SHUT_WR)

        await asyncio.gather(pipe(caller, far), pipe(far, caller))
        far.close()

    async def main() -> None:
        async with listening(made.mutual(made.good[1])) as taken:
            with socket.create_server(("127.0.0.1", 0)) as middle:
                middle.setblocking(False)
                port = middle.getsockname()[1]
                call = asyncio.create_task(taken.call(RPC, made.mutual(made.good[0]), port))
                accepted, _ = await asyncio.get_running_loop().sock_accept(middle)
                accepted.setblocking(False)
                caller = End(fileno=accepted.detach())
                await between(caller, taken)
                caller.close()
                with pytest.raises(BarcoError):
                    await call
                await until(lambda: not taken.server._tasks)
                assert not taken.links

    run(main)


def test_no_signature_for_who_does_not_know_the_secret(made: Made) -> None:
    async def main() -> None:
        async with listening(made.mutual(made.good[1])) as taken:
            loop = asyncio.get_running_loop()
            end = End(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            await loop.sock_connect(end, ("127.0.0.1", taken.port))
            nonce = door.added(bytes(32), tls=True)
            said = replace(CALLER, kind=REPLICATION).to_message() | nonce
            await loop.sock_sendall(end, frame.encode(said) + frame.encode({door.PROOF: bytes(32)}))
            heard = b""
            while piece := await loop.sock_recv(end, 4096):
                heard += piece
            assert b"\x16\x03" not in heard, "a handshake has begun"
            end.close()
            assert not taken.links

    run(main)


def test_another_certificate_counts_for_sessions_to_come(made: Made) -> None:
    async def main() -> None:
        mutual = made.mutual(made.good[1])
        async with listening(mutual) as taken:
            first = await taken.call(REPLICATION, made.mutual(made.good[0]))
            mutual.take(made.mutual(made.old[1])._told)
            with pytest.raises(ProtocolError, match="expired"):
                await taken.call(REPLICATION, made.mutual(made.good[0]))
            with pytest.raises(ValueError, match="not that of the certificate"):
                mutual.take(dict(mutual._told) | {"key": made.good[0].key.read_text()})
            mutual.take(made.mutual(made.good[1])._told)
            second = await taken.call(REPLICATION, made.mutual(made.good[0]))
            # Who was called has shaken hands before it hears that it is not believed.
            await until(lambda: len(taken.links) == 3)
            assert first.seal.send(first.fileno(), b"goes on", b"", 0) == 7
            first.drop()
            second.drop()

    run(main)


def test_one_shakes_hands_with_oneself(made: Made) -> None:
    def texts(files: Files) -> tuple[str, str, str]:
        found = files.certificate, files.key, made.ca.certificate
        return found[0].read_text(), found[1].read_text(), found[2].read_text()

    assert tried(*texts(made.good[2])) == f"barco:{UUID}/2"
    assert tried(*texts(made.nameless)) == ""
    for files, words in (
        (made.strange[0], "certificate"),
        (made.old[0], "expired"),
        (made.client, "purpose"),
    ):
        with pytest.raises(ValueError, match=words):
            tried(*texts(files))
