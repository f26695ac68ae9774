"""Links between brokers with TLS: what is too long, has no end, was said before, or ends itself."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from mutuals import UUID, Made, listening, run, until
from reference.certificates import Files

from barco.errors import ProtocolError
from barco.mutual import Mutual, Session
from barco.protocol import door
from barco.protocol.link import KINDS, REPLICATION
from barco.workers.peers import links
from barco.workers.peers.links import End


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Certificates."""
    return Made(tmp_path_factory.mktemp("certificates"))


HELLO_OF_120_KB = b"\x01" + (120_000).to_bytes(3) + b"\x03\x03"
"""Of a client, which begins so."""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"\x16\x03\x03" + (16_641).to_bytes(2), "does not speak TLS"),
        (b"\x13\x03\x03\0\1", "does not speak TLS"),
        (b"\x18\x03\x03\0\1", "does not speak TLS"),
        (b"\0\0\0\x20\x81", "does not speak TLS"),
        (b"\x16\x03\x03\0\0", "ended within"),
        (b"\x17\x03\x03\0\1x", "come to terms"),
        (b"\x16\x03", "ended within"),
        (b"\x16\x03\x03\x01\0" + bytes(10), "ended within"),
        (
            b"\x16\x03\x01\x40\0" + HELLO_OF_120_KB.ljust(16384, b"x")
            + 7 * (b"\x16\x03\x03\x40\0" + bytes(16384)),
            "no end",
        ),
    ],
)  # fmt: skip
def test_what_is_no_handshake_is_refused_at_a_bound(made: Made, said: bytes, words: str) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            for end in (ours, theirs):
                end.setblocking(False)
            session = Session(False, "a name", 1)
            shaking = asyncio.create_task(made.mutual(made.good[0]).shake(ours, session))
            with contextlib.suppress(OSError):
                await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(theirs, said), 2)
            with contextlib.suppress(OSError):
                theirs.shutdown(socket.SHUT_WR)
            with pytest.raises(ProtocolError, match=words):
                await shaking

    run(main)


@pytest.mark.parametrize("kind", KINDS)
def test_what_one_has_said_before_lets_nobody_in(made: Made, kind: str) -> None:
    """All that a caller has said, greeting and TLS, is said again to the same broker."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        said = bytearray()

        async def between(middle: socket.socket, port: int) -> None:
            accepted, _ = await loop.sock_accept(middle)
            far = socket.socket()
            with accepted, far:
                for end in (accepted, far):
                    end.setblocking(False)
                await loop.sock_connect(far, ("127.0.0.1", port))

                async def pipe(one: socket.socket, other: socket.socket, kept: bytearray) -> None:
                    with contextlib.suppress(OSError):
                        while piece := await loop.sock_recv(one, 10_000):
                            kept += piece
                            await loop.sock_sendall(other, piece)

                await asyncio.gather(pipe(accepted, far, said), pipe(far, accepted, bytearray()))

        async with listening(made.mutual(made.good[1])) as taken:
            with socket.create_server(("127.0.0.1", 0)) as middle:
                middle.setblocking(False)
                piping = asyncio.create_task(between(middle, taken.port))
                caller = made.mutual(made.good[0])
                end = await taken.call(kind, caller, middle.getsockname()[1])
                await until(lambda: len(taken.links) == 1)
                end.drop()
                taken.links[0][1].drop()
                piping.cancel()
            again = End(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            again.bind(("127.0.0.1", 0))
            await loop.sock_connect(again, ("127.0.0.1", taken.port))
            with contextlib.suppress(OSError):
                await loop.sock_sendall(again, bytes(said))
            await until(lambda: not taken.server._tasks)
            assert len(taken.links) == 1, "who repeats it is nobody"
            again.close()

    run(main)


@pytest.mark.parametrize("kind", KINDS)
def test_each_end_insists_by_itself(made: Made, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who knows the secret and has no certificate does not mind that the other end wants TLS."""
    disagreement, plain = door.disagreement, Mutual(UUID, {})

    def careless(greeting: Mapping[str, Any], *, tls: door.Tls) -> str | None:
        return None if tls is None else disagreement(greeting, tls=tls)

    monkeypatch.setattr(door, "disagreement", careless)

    async def main() -> None:
        async with listening(made.mutual(made.good[1])) as taken:
            with pytest.raises(ProtocolError, match="this end goes on with TLS"):
                await taken.call(kind, plain)
            await until(lambda: not taken.server._tasks)
            assert not taken.links
        async with listening(plain) as taken:
            with pytest.raises(ProtocolError, match="this end goes on with TLS"):
                await taken.call(kind, made.mutual(made.good[0]))
            await until(lambda: not taken.server._tasks)
            assert not taken.links

    run(main)


def short(path: Path, ca: Files, uri: str, seconds: float) -> Files:
    """One that ends so soon."""
    authority = x509.load_pem_x509_certificate(ca.certificate.read_bytes())
    signs = serialization.load_pem_private_key(ca.key.read_bytes(), None)
    assert isinstance(signs, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "short")])
    names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)])
    uses = [x509.ExtendedKeyUsageOID.SERVER_AUTH, x509.ExtendedKeyUsageOID.CLIENT_AUTH]
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(seconds=seconds))
        .add_extension(names, critical=False)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .sign(signs, hashes.SHA256())
    )
    made = Files(path / "short.crt", path / "short.key")
    made.certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    made.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return made


def test_links_outlive_the_certificate_that_they_began_with(made: Made, tmp_path: Path) -> None:
    """And no new one begins with it."""

    async def main() -> None:
        ends_at = time.time() + 3
        ending = made.mutual(short(tmp_path, made.ca, f"barco:{UUID}/1", 2))
        async with listening(ending) as taken:
            stands = await taken.call(REPLICATION, made.mutual(made.good[0]))
            await until(lambda: taken.links)
            other = taken.links[0][1]
            await asyncio.sleep(ends_at - time.time())
            with pytest.raises(ProtocolError, match="expired"):
                await taken.call(REPLICATION, made.mutual(made.good[0]))
            assert stands.seal is not None and other.seal is not None
            assert stands.seal.send(stands.fileno(), b"goes on", b"", 0) == 7
            assert await links._read_exactly(other, 5)
            stands.drop()

    run(main)
