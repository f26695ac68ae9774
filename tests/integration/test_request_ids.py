"""What a client calls its request is said in each answer to it, and in lines about it; what is
refused has an id in any case. By real brokers, byte by byte where a client's library would help."""

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from running import RunningBroker

import barco

ROOT = "barco_root"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-00"
PRODUCE = "/v1/topic/t/messages"
OWN = re.compile(r"[0-9a-f]{12}-[0-9a-f]+")


def said(broker: RunningBroker, *requests: str, listener: str = "produce") -> list[tuple[int, str]]:
    """Status and id of each answer on one connection; "": it has none. More than one is a fault."""
    with socket.create_connection(("127.0.0.1", broker.port(listener)), 30) as link:
        link.sendall("".join(requests).encode("latin-1"))
        link.shutdown(socket.SHUT_WR)
        whole = b""
        while more := link.recv(65536):
            whole += more
    found = []
    for head in re.findall(rb"HTTP/1\.1 (\d+ .*?)\r\n\r\n", whole, re.DOTALL):
        lines = head.decode("latin-1").split("\r\n")
        ids = [line.partition(": ")[2] for line in lines if line.startswith("Barco-Request-Id:")]
        assert len(ids) <= 1, head
        found.append((int(lines[0][:3]), ids[0] if ids else ""))
    return found


def ask(path: str, *fields: str, method: str = "POST", body: str = "1") -> str:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, *fields, "", body])


def test_what_a_client_calls_its_request_is_said(broker: RunningBroker) -> None:
    own = "X-Request-Id: Root=1-67/a+b"
    assert (
        said(
            broker,
            ask(PRODUCE),
            ask(PRODUCE, own),
            ask(PRODUCE, own, "Prefer: return=minimal"),
            ask(PRODUCE, own, "Idempotency-Key: k"),
            ask(PRODUCE, own, "Idempotency-Key: k"),  # Once more, where it is a duplicate.
            ask(PRODUCE, f"traceparent: {PARENT}"),
            ask(PRODUCE, own, f"traceparent: {PARENT}"),
            ask(PRODUCE, "X-Request-Id: " + "x" * 129),
            ask(PRODUCE, "X-Request-Id: a b"),
            ask(PRODUCE, own, own),
            ask(PRODUCE),  # The one before it has nothing to do with it.
        )
        == [
            (200, ""),
            (200, own[14:]),
            (204, own[14:]),
            (200, own[14:]),
            (204, own[14:]),
            (200, TRACE),
            (200, own[14:]),
            *[(200, "")] * 4,
        ]
    )
    for path in ("/v1/topics", "/v1/brokers", "/metrics"):  # Of Python.
        for fields, expected in (([], ""), ([own], own[14:]), ([f"Traceparent: {PARENT}"], TRACE)):
            asked = ask(path, *fields, method="GET", body="")
            assert said(broker, asked, listener="discovery") == [(200, expected)]


def test_what_is_refused_has_an_id_of_its_own(broker: RunningBroker) -> None:
    wrong = [
        ask(PRODUCE + "?nothing=1"),
        ask("/v1/topic/a%20b/messages"),
        ask(PRODUCE, "Content-Encoding: br"),
        ask("/v1/nothing", method="GET", body=""),
        ask("/v1/topics?nothing=1", method="GET", body=""),
        ask("/v1/consumer/poll?consumerId=none"),
        ask("/v1/topics", "Origin: http://elsewhere.example", method="GET", body=""),
    ]
    answers = [said(broker, each, listener="discovery")[0] for each in wrong]
    answers += [said(broker, "no HTTP\r\n\r\n")[0]]
    assert all(status >= 400 for status, _ in answers), answers
    assert all(OWN.fullmatch(request) for _, request in answers), answers
    assert len({request for _, request in answers}) == len(answers)
    for each in wrong:
        named = each.replace("Host: localhost\r\n", "Host: localhost\r\nX-Request-Id: mine\r\n")
        assert said(broker, named, listener="discovery")[0][1] == "mine"


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[RunningBroker]:
    broker = RunningBroker.closed(tmp_path / "data", ROOT)
    broker.start()
    yield broker
    broker.end()


def test_lines_of_the_log_have_it(closed: RunningBroker) -> None:
    with barco.Admin(f"127.0.0.1:{closed.port('discovery')}", token=ROOT) as root:
        root.set_user("bob", token="bob-token", grants=["produce:t", "metrics"])
    bob, root_shown = "Authorization: Bearer bob-token", f"Authorization: Bearer {ROOT}"
    closed.knows("Bearer bob-token")
    for number, (request, status) in enumerate(
        (
            (ask(PRODUCE, "Authorization: Bearer nobody"), 401),  # Of the core, by its head;
            (ask("/v1/topic/other/messages", bob), 403),
            (ask("/v1/topics/t", bob, method="DELETE", body=""), 403),  # and of Python.
            (ask("/v1/topics/t", root_shown, method="PUT", body="{}"), 201),
        )
    ):
        given = f"X-Request-Id: mine-{number}"
        named = request.replace("Host: localhost", f"Host: localhost\r\n{given}")
        assert said(closed, named, listener="discovery") == [(status, f"mine-{number}")]
        line = closed.line_about(f"mine-{number}")
        assert (line["request"], line["status"]) == (f"mine-{number}", status)
        ((_, made),) = said(closed, request, listener="discovery")  # And without.
        assert OWN.fullmatch(made) and closed.line_about(made)["request"] == made
    assert '"' not in json.dumps(closed.line_about("mine-0")["request"])[1:-1]
