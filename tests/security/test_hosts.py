"""Names that are not the broker's, and pages of other origins: what a browser would lend them."""

import pytest
from attacked import AttackedBroker
from wire import Response

GOOD = (
    "localhost", "LocalHost:9252", "127.0.0.1", "127.0.0.1:9252", "10.1.2.3:80", "[::1]",
    "[::1]:9252", "[fe80::1]", "localhost.", "localhost.:80", "",
)  # fmt: skip
FOREIGN = (
    "evil.example", "evil.example:9252", "localhost.evil.example", "127.0.0.1.evil.example",
    "1.2.3", "1.2.3.4.5", "[evil]", "x", "2130706433", "localhost-", "127.0.0.1:80:80", "*",
)  # fmt: skip


def ask(attacked: AttackedBroker, host: str, origin: str | None = None, times: int = 1) -> Response:
    more = "" if origin is None else f"Origin: {origin}\r\n" * times
    request = f"POST /v1/topic/hosts/messages HTTP/1.1\r\nHost: {host}\r\n{more}Content-Length: 1"
    with attacked.wire() as wire:
        wire.send(request.encode() + b"\r\n\r\nx")
        answer = wire.response()
        wire.send(f"GET /v1/topics HTTP/1.1\r\nHost: {host}\r\n{more}\r\n".encode())
        read = wire.response()
    assert (answer.status == 200) == (read.status == 200), (answer, read)
    return answer


@pytest.mark.parametrize("host", GOOD)
def test_addresses_and_localhost_are_ours(attacked: AttackedBroker, host: str) -> None:
    assert ask(attacked, host).status == 200
    assert ask(attacked, host, f"http://{host}" if host else None).status == 200


@pytest.mark.parametrize("host", FOREIGN)
def test_other_names_are_not(attacked: AttackedBroker, host: str) -> None:
    answer = ask(attacked, host)
    assert answer.status in (400, 403), answer  # 400: no host name at all.
    if answer.status == 403:
        assert b"foreign-host" in answer.body
        assert answer.headers["barco-outcome"] == "not-written"


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_host_of_a_whole_target_counts(attacked: AttackedBroker, scheme: str) -> None:
    """And not the header beside it (RFC 9112, 3.2.2)."""
    cases = (("evil.example", "localhost", 403), ("localhost", "evil.example", 200))
    for named, host, status in cases:
        for method, path in (("GET", "/v1/topics"), ("POST", "/v1/topic/hosts/messages")):
            with attacked.wire() as wire:
                head = f"{method} {scheme}://{named}:9252{path} HTTP/1.1\r\nHost: {host}\r\n"
                wire.send(head.encode() + b"Content-Length: 1\r\n\r\nx")
                answer = wire.response()
            assert answer.status == status, (answer, named, method)
            assert status == 200 or b"foreign-host" in answer.body


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://localhost:1", "http://localhost.evil.example", "", "x",
     "http://127.0.0.1:9252", "file://", "https://localhost:9252/path"],
)  # fmt: skip
def test_pages_of_other_origins_may_not(attacked: AttackedBroker, origin: str) -> None:
    answer = ask(attacked, "localhost:9252", origin)
    assert answer.status == 403 and b"foreign-origin" in answer.body, answer


def test_the_brokers_own_pages_may(attacked: AttackedBroker) -> None:
    for host in ("localhost:9252", "127.0.0.1:9252", "[::1]:9252"):
        assert ask(attacked, host, f"http://{host}").status == 200
        assert ask(attacked, host, f"https://{host.upper()}").status == 200
        assert ask(attacked, host, f"http://{host}", times=2).status == 403


def test_a_name_once_known_is_looked_at_again(attacked: AttackedBroker) -> None:
    """What is remembered of a connection is the whole name, not its start."""
    with attacked.wire() as wire:
        for host, status in (("localhost", 200), ("localhos", 403), ("localhost.evil", 403)) * 2:
            wire.send(f"GET /v1/topics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert wire.response().status == status, host


def test_http_1_0_needs_no_host(attacked: AttackedBroker) -> None:
    assert attacked.exchange(b"GET /v1/topics HTTP/1.0\r\n\r\n").status == 200


def test_configured_names(
    attacked: AttackedBroker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = "events.example.org,https://pages.example.org:8443"
    other = AttackedBroker(tmp_path_factory.mktemp("named") / "data", clients_hosts=names)
    other.begin()
    try:
        assert ask(other, "Events.Example.org:9252").status == 200
        assert ask(other, "events.example.org.").status == 200
        assert ask(other, "other.example.org").status == 403
        assert ask(other, "localhost", "https://pages.example.org:8443").status == 200
        assert ask(other, "localhost", "https://pages.example.org").status == 403
    finally:
        other.end()
