"""A ring that is closed as docs/operations.md has it: each route, at each port for clients, by each
kind of user, in plain, and with certificates of all kinds; and the ports between brokers. Whoever
may not is refused, and nothing is changed by it."""

import asyncio
import base64
import http.client
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from closed import ROOT, SIZE, Closed, closed_ring
from pretending import GOSSIP_PORT, REPLICATION_PORT, calls, gossips
from reference.calls import CALLS, GRANTS
from reference.certificates import Files, authority, issued
from reference.certificates import broker as certified

from barco.mutual import Mutual
from barco.protocol.link import KINDS

SECONDS = 90.0
"""Generous: it only ends what has failed."""

PORTS = (9250, 9251, 9252, 9253, *range(9300, 9300 + SIZE))
"""For clients: what all speak, and each process of a broker alone."""

ASKS_FOR_CERTIFICATES, OTHER, GONE = 0, 1, 2
"""Brokers: the first one wants certificates of clients; the last one's part is played here."""

ROUTES = {
    **CALLS,
    ("POST", "/v1/topic/{topic}/messages"): ("/v1/topic/t/messages", "", 1, {"produces"}),
    # What would change something if it were let through.
    ("PUT", "/v1/users/{user}"): ("/v1/users/x", "", {"sha256": "a" * 64, "grants": []}, {"names"}),
    ("PUT", "/v1/topics/{topic}"): (
        *("/v1/topics/t", "", {"retentionHours": 7}),
        {"administers", "administers_all"},
    ),
    ("PUT", "/v1/writes/{writer}/{batch}"): (
        *("/v1/writes/w/0", ""),
        {"state": "prepared", "attempts": [], "rows": {}, "note": "a"},
        {"produces", "elsewhere"},  # It names no topic, and a writer is the user's own.
    ),
}
OPEN = {key for key, call in ROUTES.items() if "no token" in call[3]}


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Closed]:
    """It runs, with the users of the matrix, and some events."""
    found = closed_ring(tmp_path_factory.mktemp("closed"), (ASKS_FOR_CERTIFICATES,))
    try:
        for ordinal in range(SIZE):
            found.start(ordinal)
        settle(found)
        yield found
    finally:
        for ordinal in range(SIZE):
            found.kill(ordinal)


def settle(ring: Closed) -> None:
    everything = ["produce:*", "consume:*:*", "admin:*:*", "metrics", "cluster", "users"]
    for broker in range(SIZE):  # Nobody changes places any more.
        ring.wait_in_sync(broker)
    with ring.root_user(OTHER) as root:
        for name, grants in GRANTS.items():
            root.set_user(name, token=f"barco_{name}", grants=grants)
        root.set_user("gone", token="barco_gone", grants=everything)
        root.create_topic("t")
        root.create_topic("u")
    asks = Asking(ring, OTHER)
    until("it is stored", lambda: asks("all", ("POST", MESSAGES), 9251)[0] == 200)
    register = ("PUT", "/v1/consumer/register")
    until("it is registered", lambda: asks("consumes", register, 9252)[0] == 200)
    with ring.root_user(OTHER) as root:
        root.remove_user("gone")
    users = ("GET", "/v1/users")
    for broker in (ASKS_FOR_CERTIFICATES, OTHER):
        asks = Asking(ring, broker)
        for port in PORTS:
            until("it is forgotten", lambda a=asks, p=port: a("gone", users, p)[0] == 401)
            until("it is heard", lambda a=asks, p=port: a("granted_nothing", users, p)[0] == 403)


MESSAGES = "/v1/topic/{topic}/messages"


def until(what: str, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)


class Asking:
    """Calls at the ports of a broker, on connections that stay."""

    def __init__(self, ring: Closed, by: int) -> None:
        self._host = ring.hosts[by]
        shown = ring.made("client-app") if by == ASKS_FOR_CERTIFICATES else None
        self._context = ring.context(shown)
        self._kept: dict[int, http.client.HTTPSConnection] = {}

    def __call__(self, who: str, key: tuple[str, str], port: int) -> tuple[int, bytes]:
        path, query, body, _ = ROUTES[key]
        connection = self._kept.get(port)
        if connection is None:
            connection = self._kept[port] = http.client.HTTPSConnection(
                self._host, port, timeout=20, context=self._context
            )
        headers = {} if who == "no token" else {"Authorization": f"Bearer barco_{who}"}
        if ":" in who:
            headers["Authorization"] = f"Basic {base64.b64encode(who.encode()).decode()}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(
                key[0],
                path + (f"?{query}" if query else ""),
                None if body is None else json.dumps(body),
                headers,
            )
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            return 0, b""


def state(ring: Closed) -> dict[str, Any]:
    """All that a call could have changed, as the administrator sees it."""
    found: dict[str, Any] = {}
    with ring.root_user(OTHER) as root:
        found["target"] = root.topology()["target"]
        found["topics"] = root.topics()
        found["users"] = root.users()
        found["ends"] = {
            topic: [(s["token"], s["index"], s["endOffset"]) for s in root.slices(topic)]
            for topic in ("t", "u")
        }
        found["group"] = root.group("g")["positions"]  # Who is in it goes with time, too.
    return found


def leaders(ring: Closed) -> list[tuple[Any, ...]]:
    """Who leads what, in which generation: what a member could have changed."""
    with ring.root_user(OTHER) as root:
        shards = root.topology()["shards"]
    return [(s["token"], s["ordinal"], s["version"], s["up"]) for s in shards]


@pytest.mark.parametrize("broker", [ASKS_FOR_CERTIFICATES, OTHER])
def test_every_route_at_every_port_for_clients(ring: Closed, broker: int) -> None:
    before, asks = state(ring), Asking(ring, broker)
    strangers = {"no token": 401, "nobody": 401, "gone": 401, "measures:barco_all": 401}
    users = dict.fromkeys((name for name in GRANTS if name != "all"), 403)
    refused = 0
    for port in PORTS:
        for key, (*_, allowed) in ROUTES.items():
            for who, status in (strangers | users).items():
                if who in allowed or key in OPEN:
                    continue
                found = asks(who, key, port)
                deadline = time.monotonic() + SECONDS
                while found[0] in (0, 503) and time.monotonic() < deadline:
                    time.sleep(0.05)  # A machine that is busy: it was not looked at who asks.
                    found = asks(who, key, port)
                assert found[0] == status, (port, key, who, found)
                refused += 1
    assert refused > len(PORTS) * len(ROUTES) * 8
    assert state(ring) == before
    for port in PORTS:  # And it is not that nobody is let in there.
        for who in ("measures", "measures:barco_measures"):
            assert asks(who, ("GET", "/v1/topics"), port)[0] == 200


def every_route(host: str) -> bytes:
    """Each of them in one go, with the administrator's token."""
    said = []
    for (method, _), (path, query, body, _) in ROUTES.items():
        given = b"" if body is None else json.dumps(body).encode()
        target = path + (f"?{query}" if query else "")
        head = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {ROOT}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(given)}\r\n\r\n"
        said.append(head.encode() + given)
    return b"".join(said)


def heard(host: str, port: int, context: ssl.SSLContext | None, said: bytes) -> bytes:
    """All that is answered to who says that, until the end."""
    got = b""
    link = socket.create_connection((host, port), timeout=20)
    try:
        if context is not None:
            link = context.wrap_socket(link, server_hostname=host)
        link.sendall(said)
        while data := link.recv(65536):
            got += data
    except (ssl.SSLError, ConnectionError):
        pass  # It was refused there.
    finally:
        link.close()
    return got


def shown(ring: Closed, path: Path) -> dict[str, Files | None]:
    """What the broker is shown that asks for certificates of clients, and should not believe."""
    clients, others = ring.made("clients-ca"), authority(path, "others")
    purpose = "extendedKeyUsage={}\n".format
    return {
        "nothing": None,
        "another authority's": issued(path, others, "stranger", says=purpose("clientAuth")),
        "expired": issued(path, clients, "old", days=-1, says=purpose("clientAuth")),
        "for serving": issued(path, clients, "server", says=purpose("serverAuth")),
        "a broker's": ring.made("broker-1"),
        "its own": others,
    }


def test_without_tls_or_with_another_s_certificate(ring: Closed, tmp_path: Path) -> None:
    before = state(ring)
    wrong = shown(ring, tmp_path)
    for port in PORTS:
        for broker in range(SIZE):
            host = ring.hosts[broker]
            said = heard(host, port, None, every_route(host))
            assert said.startswith(b"HTTP/1.1 400 ") and said.count(b"HTTP/1.1") == 1, said
        host = ring.hosts[ASKS_FOR_CERTIFICATES]
        for what, files in wrong.items():
            assert heard(host, port, ring.context(files), every_route(host)) == b"", (port, what)
    assert state(ring) == before
    ready = b"GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    for port in PORTS:
        good = ring.context(ring.made("client-app"))
        assert b" 200 OK" in heard(ring.hosts[ASKS_FOR_CERTIFICATES], port, good, ready)


def brokers(ring: Closed, path: Path) -> dict[str, Mutual]:
    """What broker 2 could be said to be, by who knows the cluster's secret."""
    ca, uuid = ring.made("ca"), certified_uuid(ring)
    name = f"barco:{uuid}/{GONE}"
    trusted = ca.certificate.read_text()

    def mutual(files: Files) -> Mutual:
        texts = {"certificate": files.certificate.read_text(), "key": files.key.read_text()}
        return Mutual(uuid, texts | {"ca": trusted})

    return {
        "plain": Mutual(uuid, {}),
        "another authority's": mutual(certified(path, authority(path, "o"), "other2", name)),
        "expired": mutual(certified(path, ca, "old2", name, days=-1)),
        "another broker's": mutual(ring.made("broker-1")),
        "of a place that there is not": mutual(certified(path, ca, "b9", f"barco:{uuid}/9")),
        "another cluster's": mutual(certified(path, ca, "far2", f"barco:{'e' * 32}/{GONE}")),
        "a client's": mutual(ring.made("client-app")),
        "the clients' authority's": mutual(
            certified(path, ring.made("clients-ca"), "guest2", name)
        ),
    }


def certified_uuid(ring: Closed) -> str:
    lines = ring.config(0).read_text().splitlines()
    (uuid,) = (line.split('"')[1] for line in lines if line.startswith("uuid = "))
    return uuid


def test_the_ports_between_brokers(ring: Closed, tmp_path: Path) -> None:
    """The last test of this ring: one broker of it is gone afterwards."""
    host = ring.hosts[ASKS_FOR_CERTIFICATES]
    ports = (GOSSIP_PORT, *range(REPLICATION_PORT, REPLICATION_PORT + SIZE))
    ring.kill(GONE)
    with ring.root_user(OTHER) as root:
        until(
            "others lead",
            lambda: all(
                each["ordinal"] != GONE and each["up"] for each in root.topology()["shards"]
            ),
        )
    before = state(ring)
    for _ in range(4):  # On a busy machine leaders change now and then, and not each time.
        led = leaders(ring)
        try_the_ports(ring, tmp_path, host, ports)
        if leaders(ring) == led:
            break
    assert leaders(ring) == led
    assert state(ring) == before
    good = mutual_of(ring)
    assert asyncio.run(calls(ring, "handoff", good)) == ""  # It is not that nobody is let in.
    assert asyncio.run(gossips(ring, good, lambda: is_seen(ring), SECONDS))


def is_seen(ring: Closed) -> bool:
    """Whether the broker that is gone is taken for alive."""
    with ring.root_user(OTHER) as root:
        return any(
            each["ordinal"] == GONE and each["state"] == "alive"
            for each in root.brokers()["brokers"]
        )


def try_the_ports(ring: Closed, path: Path, host: str, ports: Sequence[int]) -> None:
    """As whoever is no broker."""
    names = ("client-app", "broker-1", "broker-2")
    for port in ports:
        assert b"HTTP" not in heard(host, port, None, every_route(host)), port
        for name in names:  # Not greeted before, whatever is shown.
            context = ring.context(ring.made(name))
            assert heard(host, port, context, every_route(host)) == b"", (port, name)
    strangers = brokers(ring, path)

    def seen() -> bool:
        return is_seen(ring)

    until("its end is seen", lambda: not seen())
    good = mutual_of(ring)
    for what, each in strangers.items():
        for kind in KINDS:
            for process in range(SIZE):
                assert asyncio.run(calls(ring, kind, each, process=process)), (what, kind)
        assert not asyncio.run(gossips(ring, each, seen, 0.5)), what
    for kind in KINDS:  # A certificate that is good, without the secret.
        assert asyncio.run(calls(ring, kind, good, key=bytes(32))), kind
    assert not asyncio.run(gossips(ring, good, seen, 0.5, key=bytes(32)))


def mutual_of(ring: Closed) -> Mutual:
    own, ca = ring.made(f"broker-{GONE}"), ring.made("ca")
    texts = {"certificate": own.certificate, "key": own.key, "ca": ca.certificate}
    return Mutual(certified_uuid(ring), {kind: each.read_text() for kind, each in texts.items()})
