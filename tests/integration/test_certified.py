"""Clients whom their certificates name (access.certificates): who they are, and are not."""

import http.client
import json
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from reference.certificates import Files, authority, issued
from running import RunningBroker

import barco

ROOT = "barco_root"
SECONDS = 60.0
"""Generous: it only ends what has failed."""
MESSAGES = "/v1/topic/{}/messages"


class Certified:
    """A broker that asks for certificates, and takes their names for users'."""

    def __init__(self, path: Path, *, named: bool = True) -> None:
        self.path, self.ca = path, authority(path)
        self.clients = path / "clients.crt"
        self.clients.write_bytes(self.ca.certificate.read_bytes())
        own = issued(path, self.ca, "own")
        more = {"access_certificates": "true"} if named else {}
        self.broker = RunningBroker.closed(
            path / "data",
            ROOT,
            workers=1,
            tls_certificate=str(own.certificate),
            tls_key=str(own.key),
            tls_client_ca=str(self.clients),
            **more,
        )
        self.broker.start()
        with self.admin() as root:
            root.set_user("sensors", token="sensors-token", grants=["produce:trips.*"])
            root.set_user("readers", token="readers-token", grants=["consume:trips.*", "metrics"])
            root.create_topic("trips.new")
            root.create_topic("bills")

    def files(self, name: str) -> Files:
        """A certificate with that name, of the authority that is trusted."""
        found = Files(self.path / f"{name}.crt", self.path / f"{name}.key")
        return found if found.certificate.exists() else issued(self.path, self.ca, name)

    def admin(self) -> barco.Admin:
        """With the first user's token, on a connection with nobody's certificate."""
        shown = self.files("nobody")
        access = barco.Access.of(
            f"https://localhost:{self.broker.port('discovery')}",
            ca=str(self.ca.certificate),
            token=ROOT,
            certificate=str(shown.certificate),
            key=str(shown.key),
        )
        return barco.Admin(access, timeout_s=SECONDS)

    def context(self, name: str, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
        """Of a client with a certificate of this name."""
        shown = self.files(name)
        context = ssl.create_default_context(cafile=self.ca.certificate)
        context.load_cert_chain(shown.certificate, shown.key)
        if version is not None:
            context.maximum_version = version
        return context

    def link(self, context: ssl.SSLContext) -> http.client.HTTPSConnection:
        """One to where events are produced, which answers all else too."""
        port = self.broker.port("produce")
        return http.client.HTTPSConnection("localhost", port, context=context, timeout=SECONDS)


def ask(
    link: http.client.HTTPSConnection, method: str, path: str, token: str = "", body: Any = None
) -> tuple[int, Any]:
    """Status and document."""
    headers = {"Content-Type": "application/json"}
    headers |= {"Authorization": token} if token else {}
    link.request(method, path, None if body is None else json.dumps(body), headers)
    answer = link.getresponse()
    told = answer.read()
    return answer.status, json.loads(told) if told else None


def produce(link: http.client.HTTPSConnection, topic: str, token: str = "") -> int:
    return ask(link, "POST", MESSAGES.format(topic), token, {"a": 1})[0]


def me(link: http.client.HTTPSConnection, token: str = "") -> str | int:
    """Who that is, or the status of who is nobody."""
    status, told = ask(link, "GET", "/v1/me", token)
    return str(told["name"]) if status == 200 else status


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certified]:
    found = Certified(tmp_path_factory.mktemp("certified"))
    yield found
    found.broker.end()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_2])
def test_a_certificate_is_its_user(certified: Certified, version: ssl.TLSVersion) -> None:
    """By the core, for produces, and by Python; of the next connection of a session too."""
    context = certified.context("sensors", version)
    link = certified.link(context)
    assert (me(link), produce(link, "trips.new"), produce(link, "bills")) == ("sensors", 200, 403)
    assert ask(link, "GET", "/v1/topics")[0] == 403
    assert isinstance(link.sock, ssl.SSLSocket)
    again = certified.link(context)
    again.sock = context.wrap_socket(
        certified_socket(certified), server_hostname="localhost", session=link.sock.session
    )
    assert again.sock.session_reused
    assert me(again) == "sensors"
    assert (produce(again, "trips.new"), produce(again, "bills")) == (200, 403)
    link.close()
    again.close()


def certified_socket(certified: Certified) -> socket.socket:
    """To where events are produced."""
    return socket.create_connection(("127.0.0.1", certified.broker.port("produce")), SECONDS)


def test_the_library_and_the_commands_need_no_token(certified: Certified, tmp_path: Path) -> None:
    """What is produced by one certificate is read and exported by another's."""
    where = f"https://localhost:{certified.broker.port('discovery')}"
    ca = str(certified.ca.certificate)
    shown = {name: str(certified.files(name).certificate) for name in ("sensors", "readers")}
    sensors = barco.Access.of(where, ca=ca, certificate=shown["sensors"])
    with barco.Producer(sensors) as producer:
        producer.send("trips.kept", b'{"n": 0}').result(SECONDS)

    def run(name: str, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "barco", *words, "--endpoint", where, "--ca", ca]
        command += ["--certificate", shown[name]]
        return subprocess.run(
            command, check=False, input=given, capture_output=True, text=True, timeout=SECONDS
        )

    assert run("sensors", "produce", "trips.kept", given='{"n": 1}\n').returncode == 0
    refused = run("readers", "produce", "trips.kept", given='{"n": 2}\n')
    assert refused.returncode == 1 and "not granted produce" in refused.stderr, refused
    told = run("readers", "export", "trips.kept", "--to", str(tmp_path / "lake"), "--json")
    assert told.returncode == 0 and json.loads(told.stdout)["events"] == 2, told
    readers = barco.Access.of(where, ca=ca, certificate=shown["readers"])
    with barco.Consumer("trips.kept", "g", readers, start="earliest") as consumer:
        found: list[int] = []
        while len(found) < 2:
            found += [json.loads(each.value or b"")["n"] for each in consumer.poll(1.0)]
    assert sorted(found) == [0, 1]


def test_a_token_goes_first(certified: Certified) -> None:
    """Also one that is nobody's: who shows one says who he is by it."""
    link = certified.link(certified.context("sensors"))
    assert me(link, f"Bearer {ROOT}") == "root"
    assert me(link) == "sensors"
    assert me(link, "Bearer readers-token") == "readers"
    assert produce(link, "trips.new", "Bearer readers-token") == 403
    assert produce(link, "trips.new") == 200
    for wrong in ("Bearer nothing", "Basic eA==", "Negotiate x"):
        assert me(link, wrong) == 401
        assert produce(link, "trips.new", wrong) == 401
    assert produce(link, "trips.new") == 200
    link.close()


@pytest.mark.parametrize("name", ["nobody", "Sensors", "sensors ", "sensors*", "s" * 33])
def test_other_names_are_nobodys(certified: Certified, name: str) -> None:
    link = certified.link(certified.context(name))
    assert (me(link), produce(link, "trips.new")) == (401, 401)
    link.close()


def test_two_names_are_none(certified: Certified) -> None:
    """Others could read the other one."""
    for number, subject in enumerate(("/CN=nobody/CN=sensors", "/CN=sensors/CN=nobody")):
        issued(certified.path, certified.ca, f"both{number}", subject=subject)
        link = certified.link(certified.context(f"both{number}"))
        assert (me(link), produce(link, "trips.new")) == (401, 401)
        link.close()


def test_nobody_says_by_himself_what_the_core_says(certified: Certified) -> None:
    link = certified.link(certified.context("nobody"))
    link.connect()
    link.sock.sendall(
        b"GET /v1/me HTTP/1.1\r\nHost: localhost\r\n:certificate: root\r\nConnection: close\r\n\r\n"
    )
    assert link.sock.recv(4096).startswith(b"HTTP/1.1 400 ")
    link.close()


def test_who_is_removed_is_nobody_on_the_same_connection(certified: Certified) -> None:
    """And whose token changes stays: it was not shown."""
    link = certified.link(certified.context("passing"))
    with certified.admin() as root:
        root.set_user("passing", token="first-token", grants=["produce:trips.*"])
        until(lambda: me(link) == "passing" and produce(link, "trips.new") == 200)
        root.set_user("passing", token="other-token")
        until(lambda: me(link, "Bearer first-token") == 401)
        assert (me(link), produce(link, "trips.new")) == ("passing", 200)
        root.remove_user("passing")
        until(lambda: me(link) == 401)
    assert produce(link, "trips.new") == 401
    link.close()


def test_the_connections_of_a_user_are_counted(certified: Certified) -> None:
    with certified.admin() as root:
        root.set_user("few", token="few-token", grants=["produce:trips.*"], connections=1)
    context = certified.context("few")
    one, other = certified.link(context), certified.link(context)
    until(lambda: produce(one, "trips.new") == 200)
    assert produce(other, "trips.new") == 429
    with certified.admin() as root:  # It stays counted when the token changes: that was not shown.
        root.set_user("few", token="next-token", grants=["produce:trips.*"], connections=1)
    until(lambda: me(other, "Bearer few-token") == 401)
    assert produce(other, "trips.new") == 429
    one.close()
    other.close()

    def has_room() -> bool:
        third = certified.link(context)
        status = produce(third, "trips.new")
        third.close()
        return status == 200

    until(has_room)


def until(holds: Any) -> None:
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_reload_takes_an_authority_back(tmp_path: Path) -> None:
    """Whose certificate it has signed comes in no more, also by a ticket from before; who is in
    stays, until his user is removed."""
    certified = Certified(tmp_path)
    try:
        context = certified.context("sensors")
        inside = certified.link(context)
        assert me(inside) == "sensors"
        assert isinstance(inside.sock, ssl.SSLSocket)
        session = inside.sock.session
        later = authority(tmp_path, "later")
        issued(tmp_path, later, "readers")
        certified.clients.write_bytes(later.certificate.read_bytes())
        assert certified.broker.process is not None
        certified.broker.process.send_signal(signal.SIGHUP)

        def comes_in(ticket: ssl.SSLSession | None) -> bool:
            with certified_socket(certified) as plain, suppress(OSError):
                sealed = context.wrap_socket(plain, server_hostname="localhost", session=ticket)
                sealed.sendall(b"GET /v1/me HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return bool(sealed.recv(1))
            return False

        until(lambda: not comes_in(None))
        assert not comes_in(session)
        other = certified.link(certified.context("readers"))
        assert (me(other), me(inside)) == ("readers", "sensors")
        root = f"Bearer {ROOT}"
        assert ask(other, "DELETE", "/v1/users/sensors", root)[0] in (200, 204)
        until(lambda: me(inside) == 401)
        other.close()
        inside.close()
    finally:
        certified.broker.end()


def test_a_certificate_alone_is_a_ticket_where_nobody_said_more(tmp_path: Path) -> None:
    """tls.client_ca lets in; without access.certificates it says nothing of who it is."""
    plain = Certified(tmp_path, named=False)
    try:
        link = plain.link(plain.context("sensors"))
        assert (me(link), produce(link, "trips.new")) == (401, 401)
        assert (me(link, "Bearer sensors-token"), produce(link, "trips.new")) == ("sensors", 401)
        link.close()
    finally:
        plain.broker.end()
