"""Large answers that the kernel seals (docs/tls.md, "Kernel TLS"). `make ktls` runs them in a guest
where the kernel of the machine has no TLS."""

import hashlib
import hmac
import http.client
import json
import re
import socket
import ssl
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from test_tls import GET, SECONDS_MAX, Cutter, SealedBroker, answer, figure, run

import barco
from barco._native import tls_kernel

pytestmark = pytest.mark.skipif(bool(tls_kernel()), reason=f"no TLS in this kernel: {tls_kernel()}")

CHUNKS = "application/vnd.barco.chunks"
EVENTS, EVENT_BYTES = 32, 48 << 10
ROOM_BYTES = 8192
"""What the socket of a slow reader takes at a time."""
CIPHERS = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")


class Filled(SealedBroker):
    """One with 1.5 MiB that do not shrink, and the request for them."""

    def __init__(self, path: Path, engine: str) -> None:
        super().__init__(path, engine, tls_kernel="auto")
        block = hashlib.shake_256(b"events").digest(EVENT_BYTES)
        with barco.Producer(self.access()) as producer:
            for number in range(EVENTS):
                producer.send("bulk", b"%04d" % number + block, key=b"one")
            producer.flush()
        link = http.client.HTTPSConnection(self.where(), context=self.context(), timeout=60)
        with closing(link):
            link.request("GET", "/v1/topic/bulk/slices")
            slices = json.loads(link.getresponse().read())["slices"]
            found = max(slices, key=lambda each: int(each["endOffset"]))
            self.target = f"/v1/topic/bulk/slices/{found['token']}/{found['index']}/events"
            self.target += "?maxBytes=1048576"
            link.request("GET", self.target, headers={"Accept": CHUNKS})
            self.large = link.getresponse().read()
        assert len(self.large) > 1 << 20

    def ask(self, more: str = "") -> bytes:
        """The request for the large answer."""
        head = f"GET {self.target} HTTP/1.1\r\nHost: localhost\r\nAccept: {CHUNKS}\r\n{more}\r\n"
        return head.encode()

    def taken(self) -> float:
        """Connections that the kernel has sealed for."""
        with barco.Admin(self.access()) as admin:
            return figure(admin.metrics(), "tls_kernel_connections_total")

    def slow(self) -> Cutter:
        """A client that takes little at a time."""
        client = Cutter.__new__(Cutter)
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM_BYTES)
        link.settimeout(SECONDS_MAX)
        link.connect(("127.0.0.1", self.broker.port()))
        client.link, client.cut = link, 65536
        client.inside, client.outside = ssl.MemoryBIO(), ssl.MemoryBIO()
        client.tls = self.context().wrap_bio(
            client.inside, client.outside, server_hostname="localhost"
        )
        client.insist(client.tls.do_handshake)
        return client


@pytest.fixture(scope="module", params=["io_uring", "epoll"])
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Filled]:
    broker = Filled(tmp_path_factory.mktemp("filled"), request.param)
    yield broker
    broker.broker.end()


def body(said: bytes) -> bytes:
    return said.partition(b"\r\n\r\n")[2]


def test_it_is_told(filled: Filled) -> None:
    with barco.Admin(filled.access()) as admin:
        assert admin.status()["tls"]["kernel"] is True
    assert "the kernel seals" in filled.broker.log_path.read_text()


def test_answers_of_every_size_in_any_order(filled: Filled) -> None:
    before = filled.taken()
    with filled.connect() as link:
        for large in (False, True, False, False, True, True, False):
            link.sendall(filled.ask() if large else GET)
            said = answer(link)
            assert b" 200 " in said[:20] and (not large or body(said) == filled.large)
        link.sendall(3 * (GET + filled.ask()))
        for _ in range(3):
            said = b""
            while len(said) < len(filled.large):
                said += link.recv(65536)
            link.settimeout(1.0)
            with suppress(TimeoutError):
                while data := link.recv(65536):
                    said += data
            if said.count(b"HTTP/1.1 200 ") == 6:
                break
    assert said.count(filled.large) == 3
    assert filled.taken() == before + 1, "a connection goes over once"
    with filled.connect() as link:
        link.sendall(GET)
        answer(link)
    assert filled.taken() == before + 1, "and one with little to say does not"


@pytest.mark.parametrize("cipher", CIPHERS)
def test_each_cipher(filled: Filled, cipher: str) -> None:
    before = filled.taken()
    call = ("openssl", "s_client", "-connect", filled.where(), "-tls1_3", "-quiet", "-ign_eof")
    asked = filled.ask() + filled.ask("Connection: close\r\n")
    done = run(*call, "-ciphersuites", cipher, said=asked)
    assert done.stdout.count(filled.large) == 2, done.stderr
    assert filled.taken() == before + 1


def test_tls_1_2_stays_as_it_is(filled: Filled) -> None:
    before = filled.taken()
    context = filled.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with filled.connect(context) as link:
        link.sendall(filled.ask())
        assert body(answer(link)) == filled.large
    assert filled.taken() == before


@pytest.mark.parametrize("ends", ["close_notify", "Connection: close"])
def test_a_slow_reader_loses_nothing_at_the_end(filled: Filled, ends: str) -> None:
    """Of what the kernel has sealed TCP may have no room for the last records yet: a socket that is
    shut or closed then loses them."""
    for pause_s in (0.0, 0.02):
        client = filled.slow()
        client.tls.write(GET + filled.ask())
        client.pass_on()
        said = b""
        while len(said) < 200_000:  # The kernel seals by now.
            said += client.read()
        last = filled.ask("Connection: close\r\n" if ends != "close_notify" else "")
        client.tls.write(last)
        if ends == "close_notify":
            with pytest.raises(ssl.SSLWantReadError):
                client.tls.unwrap()
        client.pass_on()
        time.sleep(30 * pause_s)
        client.inside.write(b"")
        raw = 0
        client.link.settimeout(SECONDS_MAX)
        is_ended = False
        while not is_ended:
            try:
                while True:
                    data = client.tls.read(65536)
                    said += data
                    if not data:
                        is_ended = True
                        break
            except ssl.SSLWantReadError:
                got = client.link.recv(4096)
                raw += len(got)
                assert got, f"a cut: {len(said)} bytes of {2 * len(filled.large)}"
                client.inside.write(got)
                if raw % (64 * 4096) < 4096:
                    time.sleep(pause_s)
            except ssl.SSLZeroReturnError:
                is_ended = True
        assert said.count(filled.large) == 2, len(said)
        client.link.close()


def records(link: socket.socket) -> Iterator[bytes]:
    """Those that come, as long as some do."""
    file = link.makefile("rb")
    while head := file.read(5):
        yield head + file.read(int.from_bytes(head[3:], "big"))


def test_a_record_that_is_none_gets_an_alert(filled: Filled) -> None:
    """Sealed as an alert, not as data."""
    with filled.connect() as link:
        link.sendall(filled.ask())
        assert body(answer(link)) == filled.large
        raw = socket.socket(fileno=link.fileno())
        try:
            raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
            with pytest.raises(ssl.SSLError, match="(?i)bad.record.mac"):
                link.recv(65536)
        finally:
            raw.detach()


def test_an_end_is_said(filled: Filled) -> None:
    client = Cutter(filled)
    client.tls.write(filled.ask("Connection: close\r\n"))
    client.pass_on()
    said = b""
    with suppress(ssl.SSLZeroReturnError):  # Any other end is another error.
        while data := client.read():
            said += data
    assert body(said) == filled.large
    client.link.close()


def by_command(filled: Filled, lines: list[bytes], until: int) -> tuple[bytes, bytes]:
    """What OpenSSL's own command prints when these lines are typed, one after an answer each."""
    command = ("openssl", "s_client", "-connect", filled.where(), "-tls1_3")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as typed:
        assert typed.stdin is not None
        for line in lines:
            with suppress(BrokenPipeError):
                typed.stdin.write(line)
                typed.stdin.flush()
            time.sleep(until)
        out, err = typed.communicate(timeout=2 * SECONDS_MAX)
    return out, err


def test_other_keys(filled: Filled) -> None:
    """The kernel takes no others: who asks for them is told, and the connection ends. Who only says
    that his own follow is heard, and who has asked before is served by us."""
    before = filled.taken()
    out, _ = by_command(filled, [filled.ask(), b"k\n", filled.ask(), b"Q\n"], 3)
    assert out.count(filled.large) == 2 and filled.taken() == before + 1
    out, err = by_command(filled, [filled.ask(), b"K\n", filled.ask()], 3)
    assert out.count(filled.large) == 1 and b"alert internal error" in err, err
    assert filled.taken() == before + 2
    out, _ = by_command(filled, [b"K\n", filled.ask(), b"K\n", filled.ask(), b"Q\n"], 3)
    assert out.count(filled.large) == 2 and filled.taken() == before + 2


def test_a_reset_in_the_middle(filled: Filled) -> None:
    for _ in range(10):
        client = filled.slow()
        client.tls.write(GET + 4 * filled.ask())
        client.pass_on()
        client.read()
        client.link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.link.close()
    with filled.connect() as link:
        link.sendall(filled.ask())
        assert body(answer(link)) == filled.large


def expanded(secret: bytes, label: bytes, length: int) -> bytes:
    """HKDF-Expand-Label of RFC 8446, 7.1, for less than one round."""
    name = {32: "sha256", 48: "sha384"}[len(secret)]
    label = b"tls13 " + label
    info = struct.pack(">HB", length, len(label)) + label + b"\0\1"
    return hmac.new(secret, info, name).digest()[:length]


def memory(pid: int) -> bytes:
    """All that a process may write to."""
    found = b""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            where, mode = line.split()[:2]
            begin, end = (int(each, 16) for each in where.split("-"))
            if mode.startswith("rw"):
                with suppress(OSError):
                    file.seek(begin)
                    found += file.read(end - begin)
    return found


def test_keys_are_gone_from_the_worker(filled: Filled, tmp_path: Path) -> None:
    pid = filled.broker.ready["workers"][0]
    context = filled.context()
    context.keylog_filename = str(tmp_path / "keys")
    with filled.connect(context) as link:
        link.sendall(GET)
        answer(link)
        lines = (tmp_path / "keys").read_text()
        found = re.search(r"SERVER_TRAFFIC_SECRET_0 \w+ (\w+)", lines)
        assert found is not None
        secret = bytes.fromhex(found[1])
        size = {32: 16, 48: 32}[len(secret)]
        secrets = [secret, expanded(secret, b"key", size), expanded(secret, b"iv", 12)]
        assert all(each in memory(pid) for each in secrets), "as long as the worker seals"
        link.sendall(filled.ask())
        assert body(answer(link)) == filled.large
        held = memory(pid)
        assert [each in held for each in secrets] == [False, False, False]


def test_off(tmp_path: Path) -> None:
    sealed = SealedBroker(tmp_path, "", tls_kernel="off")
    try:
        with barco.Admin(sealed.access()) as admin:
            assert admin.status()["tls"]["kernel"] is False
    finally:
        sealed.broker.end()
