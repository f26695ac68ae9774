"""TLS of a broker, by clients that are not ours: Python's ssl and OpenSSL's own."""

import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
from reference.certificates import Files, authority, issued
from running import RunningBroker

import barco
from barco.cli.shared.known import _ready
from barco.config import Config
from barco.errors import BarcoError

GET = b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n"
SECONDS_MAX = 20.0
T = TypeVar("T")


class SealedBroker:
    """A broker, and the files it was started with."""

    def __init__(
        self, path: Path, engine: str, *, client_ca: bool = False, **settings: str
    ) -> None:
        self.ca = authority(path)
        self.others = authority(path, "others")
        self.shown = issued(path, self.ca, "shown")
        self.next = issued(path, self.ca, "next")
        self.files = Files(path / "used.crt", path / "used.key")
        self.use(self.shown)
        more = {"tls_client_ca": str(self.ca.certificate)} if client_ca else {}
        self.broker = RunningBroker(
            path / "data",
            workers=1,
            engine=engine,
            tls_certificate=str(self.files.certificate),
            tls_key=str(self.files.key),
            **more,
            **settings,
        )
        self.broker.start()

    def use(self, files: Files) -> None:
        self.files.certificate.write_bytes(files.certificate.read_bytes())
        self.files.key.touch(mode=0o600)
        self.files.key.write_bytes(files.key.read_bytes())

    def access(self, **more: str) -> barco.Access:
        return barco.Access.of(
            f"https://localhost:{self.broker.port('discovery')}", ca=self.ca.certificate, **more
        )

    def where(self) -> str:
        return f"127.0.0.1:{self.broker.port()}"

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca.certificate)

    def plain(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.broker.port()), timeout=SECONDS_MAX)

    def connect(self, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        context = context or self.context()
        return context.wrap_socket(
            self.plain(), server_hostname="localhost", suppress_ragged_eofs=False
        )

    def reload(self, word: str) -> str:
        """SIGHUP; the line that says what came of it."""
        before = self.broker.log_path.read_text().count(word)
        assert self.broker.process is not None
        self.broker.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + SECONDS_MAX
        while self.broker.log_path.read_text().count(word) == before:
            assert time.monotonic() < end, "nothing came of it"
            time.sleep(0.02)
        return self.broker.log_path.read_text()


@pytest.fixture(scope="module", params=["io_uring", "epoll"])
def sealed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SealedBroker]:
    """A broker of one worker, with TLS."""
    broker = SealedBroker(tmp_path_factory.mktemp("sealed"), request.param)
    yield broker
    broker.broker.end()


def run(*command: str, said: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A command that comes to an end by itself."""
    return subprocess.run(
        command, check=False, input=said, capture_output=True, timeout=2 * SECONDS_MAX
    )


def answer(link: ssl.SSLSocket, most: int = 65536) -> bytes:
    """One, as far as its length says."""
    got = b""
    while b"\r\n\r\n" not in got:
        data = link.recv(most)
        assert data, got
        got += data
    head, _, body = got.partition(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    while len(body) < length:
        data = link.recv(most)
        assert data, got
        body += data
    return head + b"\r\n\r\n" + body


def test_the_library_and_the_status(sealed: SealedBroker) -> None:
    with barco.Producer(sealed.access()) as producer:
        for number in range(300):
            producer.send("t", b"%d" % number)
        producer.flush()
    found = [event.value for event in barco.read("t", sealed.access(), start="earliest")]
    assert sorted(found, key=int) == [b"%d" % number for number in range(300)]
    with barco.Admin(sealed.access()) as admin:
        status = admin.status()
        assert status["tls"]["expires"].startswith("20")
        assert "barco_tls_certificate_expires_timestamp_seconds 1" in admin.metrics()
    stranger = barco.Access.of(str(sealed.access()), ca=sealed.others.certificate)
    with barco.Admin(stranger, timeout_s=2.0) as admin, pytest.raises(BarcoError, match="certif"):
        admin.status()


def test_versions(sealed: SealedBroker) -> None:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = sealed.context()
        context.minimum_version = context.maximum_version = version
        with sealed.connect(context) as link:
            link.sendall(GET)
            assert b" 200 " in answer(link)
    for flag in ("-tls1", "-tls1_1"):
        old = (flag, "-cipher", "DEFAULT@SECLEVEL=0")
        done = run("openssl", "s_client", "-connect", sealed.where(), *old)
        assert b"Cipher is (NONE)" in done.stdout and b"alert" in done.stderr, done


def test_no_renegotiation_and_no_other_protocol(sealed: SealedBroker) -> None:
    done = run("openssl", "s_client", "-connect", sealed.where(), "-tls1_2", said=b"R\nGET")
    assert b"no renegotiation" in done.stderr and b"Compression: NONE" in done.stdout
    context = sealed.context()
    context.set_alpn_protocols(["h2"])
    with pytest.raises(ssl.SSLError, match="(?i)no.application.protocol"):
        sealed.connect(context)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with sealed.connect(context) as link:
        assert link.selected_alpn_protocol() == "http/1.1"


def test_tickets_resume(sealed: SealedBroker) -> None:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = sealed.context()
        context.minimum_version = context.maximum_version = version
        with sealed.connect(context) as link:
            link.sendall(GET)
            answer(link)
            session = link.session
        again = context.wrap_socket(sealed.plain(), server_hostname="localhost", session=session)
        with again:
            again.sendall(GET)
            assert b" 200 " in answer(again) and again.session_reused


class Cutter:
    """A client whose records, and the pieces in which they travel, are of sizes that it chooses."""

    version = ssl.TLSVersion.TLSv1_3

    def __init__(self, sealed: SealedBroker, cut: int = 65536) -> None:
        self.link, self.cut = sealed.plain(), cut
        self.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.inside, self.outside = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = sealed.context()
        context.maximum_version = self.version
        self.tls = context.wrap_bio(self.inside, self.outside, server_hostname="localhost")
        self.insist(self.tls.do_handshake)

    def insist(self, what: Callable[[], T]) -> T:
        """Until it needs no more of the other end."""
        while True:
            try:
                return what()
            except ssl.SSLWantReadError:
                self.pass_on()
                data = self.link.recv(65536)
                if data:
                    self.inside.write(data)
                else:
                    self.inside.write_eof()

    def pass_on(self) -> None:
        data = self.outside.read()
        for at in range(0, len(data), self.cut):
            self.link.sendall(data[at : at + self.cut])

    def read(self) -> bytes:
        return self.insist(lambda: self.tls.read(65536))


@pytest.mark.parametrize(("record", "cut"), [(1, 65536), (16384, 1), (7, 5), (16384, 16384)])
def test_records_of_every_size_and_cuts_anywhere(
    sealed: SealedBroker, record: int, cut: int
) -> None:
    body = b"x" * (20_000 if record > 7 else 30)
    said = b"POST /v1/topic/s/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n"
    said += b"Content-Length: %d\r\n\r\n" % len(body) + body
    client = Cutter(sealed, cut)
    for at in range(0, len(said), record):
        client.tls.write(said[at : at + record])
    client.pass_on()
    assert client.read().startswith(b"HTTP/1.1 200 ")
    client.link.close()


class Recutter(Cutter):
    """A client who says its part of a handshake in records of so many bytes, as anybody may."""

    def __init__(self, sealed: SealedBroker, size: int, version: ssl.TLSVersion) -> None:
        self.size, self.version = size, version
        self.cuts, self.sealed_follow = 0, False
        super().__init__(sealed)

    def pass_on(self) -> None:
        said, at, data = b"", 0, self.outside.read()
        while at < len(data):
            kind, end = data[at], at + 5 + int.from_bytes(data[at + 3 : at + 5], "big")
            if kind == 22 and not self.sealed_follow:
                for part in range(at + 5, end, self.size):
                    piece = data[part : min(part + self.size, end)]
                    said += data[at : at + 3] + len(piece).to_bytes(2, "big") + piece
                    self.cuts += 1
            else:  # From here on they are sealed.
                self.sealed_follow = True
                said += data[at:end]
            at = end
        self.link.sendall(said)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_handshake_in_records_of_any_size(
    sealed: SealedBroker, size: int, version: ssl.TLSVersion
) -> None:
    client = Recutter(sealed, size, version)
    client.tls.write(GET)
    client.pass_on()
    assert client.read().startswith(b"HTTP/1.1 200 ")
    assert client.cuts > 150 // size
    assert client.tls.version() == {771: "TLSv1.2", 772: "TLSv1.3"}[version]
    client.link.close()


def test_a_pipeline(sealed: SealedBroker) -> None:
    with sealed.connect() as link:
        link.sendall(100 * GET)
        said = b""
        while said.count(b"HTTP/1.1 200 ") < 100:
            data = link.recv(65536)
            assert data, said
            said += data


def test_who_says_that_nothing_follows_still_gets_the_answers(sealed: SealedBroker) -> None:
    client = Cutter(sealed)
    client.tls.write(3 * GET)
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.unwrap()  # Says so; the other end's own word is read later.
    client.pass_on()
    client.link.shutdown(socket.SHUT_WR)
    raw = b""
    while data := client.link.recv(65536):
        raw += data
    client.inside.write(raw)
    client.inside.write_eof()
    said = b""
    with pytest.raises(ssl.SSLZeroReturnError):  # An end without a word is another error.
        while True:
            said += client.tls.read(65536)
    assert said.count(b"HTTP/1.1 200 ") == 3


def test_what_came_whole_before_a_cut_is_answered(sealed: SealedBroker) -> None:
    """A request says where it ends: a produce that is stored is answered, too. What came behind it
    and was not whole is dropped."""
    put = b"POST /v1/topic/cut/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    with barco.Admin(sealed.access()) as admin:
        for behind, answers in ((b"", 2), (GET[:-2], 2), (put % 1000 + b"not all", 0)):
            before = figure(admin.metrics(), "tls_cuts_total")
            client = Cutter(sealed)
            client.tls.write(put % 3 + b"one" + GET + behind)
            client.pass_on()
            client.link.shutdown(socket.SHUT_WR)
            raw = b""
            while data := client.link.recv(65536):
                raw += data
            client.inside.write(raw)
            client.inside.write_eof()
            said = b""
            with suppress(ssl.SSLError):
                while data := client.tls.read(65536):
                    said += data
            assert said.count(b"HTTP/1.1 200 ") >= answers, said
            assert figure(admin.metrics(), "tls_cuts_total") == before + 1


def test_a_cut_is_no_end(sealed: SealedBroker) -> None:
    """What was said in part is not answered."""
    with barco.Admin(sealed.access()) as admin:
        before = figure(admin.metrics(), "tls_cuts_total")
        client = Cutter(sealed)
        client.tls.write(GET[:-2])
        client.pass_on()
        client.link.shutdown(socket.SHUT_WR)
        raw = b""
        while data := client.link.recv(65536):
            raw += data
        client.inside.write(raw)
        assert client.tls.read(65536) == b""
        assert figure(admin.metrics(), "tls_cuts_total") == before + 1


def figure(metrics: str, name: str) -> float:
    """One of the metrics."""
    found = re.search(rf"(?m)^barco_{name} (\S+)$", metrics)
    assert found is not None
    return float(found[1])


def test_without_tls(sealed: SealedBroker) -> None:
    with sealed.plain() as link:
        link.sendall(GET)
        said = b""
        while data := link.recv(4096):
            said += data
    assert said.startswith(b"HTTP/1.1 400 ") and b"https://" in said


def test_a_large_answer(sealed: SealedBroker) -> None:
    value = bytes(range(256)) * 2048
    with barco.Producer(sealed.access()) as producer:
        for _ in range(8):
            producer.send("large", value)
        producer.flush()
    found = [event.value for event in barco.read("large", sealed.access(), start="earliest")]
    assert found == 8 * [value]


def test_a_reload(sealed: SealedBroker) -> None:
    def shown() -> bytes:
        with sealed.connect() as link:
            found = link.getpeercert(binary_form=True)
        assert found is not None
        return found

    old, new = (
        ssl.PEM_cert_to_DER_cert(files.certificate.read_text())
        for files in (sealed.shown, sealed.next)
    )
    assert shown() == old
    with sealed.connect() as link:
        sealed.use(Files(sealed.next.certificate, sealed.shown.key))
        assert "not that of the certificate" in sealed.reload("reload refused")
        assert shown() == old
        sealed.use(sealed.next)
        sealed.reload("another certificate counts")
        end = time.monotonic() + SECONDS_MAX
        while shown() != new:
            assert time.monotonic() < end
        link.sendall(GET)
        assert b" 200 " in answer(link)  # It goes on.
    sealed.use(sealed.shown)
    sealed.reload("another certificate counts")


def test_clients_with_certificates(tmp_path: Path) -> None:
    sealed = SealedBroker(tmp_path, "", client_ca=True)
    try:
        mine = issued(tmp_path, sealed.ca, "mine")
        theirs = issued(tmp_path, sealed.others, "theirs")
        mine_is = {"certificate": str(mine.certificate), "key": str(mine.key)}
        with barco.Admin(sealed.access(**mine_is)) as admin:
            assert admin.status()["status"] == "ready"
        theirs_is = {"certificate": str(theirs.certificate), "key": str(theirs.key)}
        for wrong in ({}, theirs_is):
            with (
                barco.Admin(sealed.access(**wrong), timeout_s=2.0) as admin,
                pytest.raises(BarcoError),
            ):
                admin.status()
        where = f"https://localhost:{sealed.broker.port('discovery')}"
        ask = (sys.executable, "-m", "barco", "status", "--endpoint", where)
        ask += ("--ca", str(sealed.ca.certificate), "--certificate")
        assert run(*ask, str(mine.certificate)).returncode == 0, "its key is beside it"
        both = tmp_path / "both.pem"
        both.write_text(mine.certificate.read_text() + mine.key.read_text())
        assert run(*ask, str(both)).returncode == 0, "or in it"
        done = run(*ask, str(tmp_path / "nowhere.crt"))
        assert done.returncode == 1 and b"nowhere.crt: cannot be used" in done.stderr, done
        # Who is restored beside it, and whose certificate is one of those, is told how it is.
        tls = {"certificate": str(mine.certificate), "key": str(mine.key)}
        config = Config().override("tls", **tls, client_ca=str(sealed.ca.certificate))
        told = _ready(config, f"127.0.0.1:{sealed.broker.port('discovery')}")
        assert told, "it would count as one that went on"
    finally:
        sealed.broker.end()


def test_commands(sealed: SealedBroker) -> None:
    where = f"https://localhost:{sealed.broker.port('discovery')}"
    status = (sys.executable, "-m", "barco", "status", "--endpoint", where, "--ca")
    done = run(*status, str(sealed.ca.certificate))
    assert done.returncode == 0 and b"certificate until" in done.stdout, done
    done = run(*status, "/nowhere")
    assert done.returncode == 1 and done.stderr.count(b"\n") == 1, done
