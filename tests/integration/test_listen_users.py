"""Who may listen, over TLS too: asked again when what users may do has changed."""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hearing import Listening, until
from reference.certificates import authority, issued
from running import RunningBroker

import barco

ROOT = "barco_root"
PATH = "/v1/topic/t/events"


@pytest.fixture(params=[False, True], ids=["plain", "tls"])
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    sealed: dict[str, Any] = {}
    if request.param:
        shown = issued(tmp_path, authority(tmp_path), "shown")
        sealed = {"tls_certificate": shown.certificate, "tls_key": shown.key}
    found = RunningBroker.closed(tmp_path / "data", ROOT, **sealed)
    found.start()
    yield found
    found.end()


def test_a_revoked_user_hears_no_more_and_others_do(broker: RunningBroker, tmp_path: Path) -> None:
    context: ssl.SSLContext | None = None
    given: dict[str, Any] = {}
    if "tls_certificate" in broker.settings:
        ca = tmp_path / "ca.crt"
        context, given = ssl.create_default_context(cafile=ca), {"ca": ca}

    def listen(token: str) -> Listening:
        headers = {"Authorization": f"Bearer {token}"}
        return Listening("127.0.0.1", broker.port(), PATH, context=context, headers=headers)

    where = f"{'https://' if context else ''}localhost:{broker.port('discovery')}"
    access = barco.Access.of(where, token=ROOT, **given)
    with barco.Admin(access) as root:
        root.create_topic("t")
        for name, grants in {
            "one": ["consume:t"],
            "two": ["consume:t"],
            "writer": ["produce:t"],
        }.items():
            root.set_user(name, token=name, grants=grants)
        until(lambda: closed(listen("one")) == 200)
        assert closed(listen("writer")) == 403 and closed(listen("nobody")) == 401
        with closing(listen("one")) as one, closing(listen("two")) as two:
            assert (one.status, two.status) == (200, 200)
            producer = barco.Producer(access)
            with producer:
                producer.send("t", b"1").result(30)
                assert one.values(1) == two.values(1) == [1]
                root.set_user("one", grants=["consume:u"])
                until(one.ended.is_set)
                producer.send("t", b"2").result(30)
            assert two.values(2) == [1, 2]
            assert len(one.heard) == 1
            root.remove_user("two")
            until(two.ended.is_set)


def test_who_waits_for_his_turn_while_he_is_revoked_does_not_begin(tmp_path: Path) -> None:
    """A stream begins when what was asked before it is answered: until then much may change."""
    broker = RunningBroker.closed(tmp_path / "data", ROOT, workers=1)
    broker.start()
    try:
        where = f"localhost:{broker.port('discovery')}"
        with barco.Admin(barco.Access.of(where, token=ROOT)) as root:
            root.create_topic("t")
            for name in "abcdefgh":
                answers = revoked_meanwhile(broker, root, name)
                if not answers[1].startswith(b"401"):
                    break  # Else a busy machine had read it too late.
        assert answers[1].startswith(b"503"), answers
    finally:
        broker.end()


def revoked_meanwhile(broker: RunningBroker, root: barco.Admin, name: str) -> list[bytes]:
    """Two answers on one connection, to a poll that waits and to a stream behind it; who asked is
    removed, and then the poll gets an event."""
    asked = (
        "{} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer one\r\nContent-Length: 0\r\n{}\r\n"
    )
    polled = asked.format(f"POST /v1/consumer/poll?consumerId={name}&waitMs=30000", "")
    heard = asked.format(f"GET {PATH}", "Accept: text/event-stream\r\n")
    root.set_user("one", token="one", grants=["consume:t"])
    shown = {"Authorization": "Bearer one"}
    query = {"consumerId": name, "group": name, "topic": "t", "onNewGroup": "startFromLatest"}
    register = "/v1/consumer/register"
    until(lambda: broker.request("PUT", register, query, headers=shown).status == 200)
    with socket.create_connection(("127.0.0.1", broker.port()), timeout=60) as both:
        both.sendall((polled + heard).encode())
        time.sleep(0.7)  # It waits behind the poll.
        root.remove_user("one")
        broker.forgets("Bearer one")
        token = {"Authorization": f"Bearer {ROOT}"}
        path = "/v1/topic/t/messages"
        assert broker.request("POST", path, body=b"1", headers=token).status == 200
        found = b""
        while found.count(b"HTTP/1.1 ") < 2:
            piece = both.recv(65536)
            assert piece, found
            found += piece
    return found.split(b"HTTP/1.1 ")[1:]


def closed(listening: Listening) -> int:
    listening.close()
    return listening.status
