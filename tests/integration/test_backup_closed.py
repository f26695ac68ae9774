"""`barco backup` and `barco restore` of a ring with TLS everywhere and users, as a whole."""

import http.client
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from closed import SIZE, Closed, closed_ring

import barco
from barco.cli import main
from barco.errors import BarcoError, UnauthorizedError

pytestmark = pytest.mark.chaos

SECONDS = 90.0
"""Generous: it only ends what has failed."""

EVERY = range(SIZE)
APP, LATER, LEFT = "barco_app", "barco_later", "barco_left"
GRANTS = ["produce:t", "consume:t:g"]


@pytest.fixture(params=[False, True], ids=["tokens", "certificates"])
def ring(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Closed]:
    """It runs, with an administrator; maybe clients need certificates as well."""
    found = closed_ring(tmp_path, EVERY if request.param else (), among=True)
    try:
        for ordinal in EVERY:
            found.start(ordinal)
        found.wait_ready()
        yield found
    finally:
        for ordinal in EVERY:
            found.kill(ordinal)


def until(what: str, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)


def put(ring: Closed, first: int, count: int) -> None:
    """Events of the application, acknowledged all."""
    with barco.Producer(ring.access(*EVERY, token=APP)) as producer:
        sent = [
            producer.send("t", b"%d" % number, key=b"k%d" % (number % 7))
            for number in range(first, first + count)
        ]
        for each in sent:
            each.result(60)


def taken(ring: Closed, count: int) -> set[int]:
    """So many events by the application's group, committed."""
    found = set[int]()
    with barco.Consumer("t", "g", ring.access(*EVERY, token=APP), start="earliest") as consumer:
        for event in consumer:
            found.add(int(event.value or b""))
            if len(found) >= count:
                break
        consumer.commit()
    return found


def heard(ring: Closed, token: str) -> bool:
    """Whether each broker takes that token."""
    for ordinal in EVERY:
        try:
            with barco.Admin(ring.access(ordinal, token=token), timeout_s=5.0) as admin:
                admin.brokers()
        except BarcoError:
            return False
    return True


def answers(ring: Closed, ordinal: int) -> bool:
    """Whether that broker is there, ready or not."""
    link = http.client.HTTPSConnection(
        ring.hosts[ordinal], 9250, context=ring.context(ring.made("client-app"))
    )
    try:
        link.request("GET", "/ready")
        return link.getresponse().status in (200, 503)
    except OSError:
        assert ring.pid(ordinal) is not None, ring.log(ordinal).read_text()[-2000:]
        return False
    finally:
        link.close()


def test_a_ring_with_users_and_tls_is_restored_as_a_whole(ring: Closed, tmp_path: Path) -> None:
    copies = [tmp_path / f"copy-{ordinal}" for ordinal in EVERY]
    with ring.root_user(*EVERY) as root:
        root.create_topic("t", retention_hours=5)
        root.set_user("app", token=APP, grants=GRANTS)
        root.set_user("left", token=LEFT, grants=GRANTS)
        until("it is heard", lambda: heard(ring, APP) and heard(ring, LEFT))
        put(ring, 0, 500)
        first = taken(ring, 100)
        for ordinal in EVERY:
            given = ["--config", str(ring.config(ordinal)), "--rate", "0"]
            assert main(["backup", str(copies[ordinal]), *given]) == 0
        root.remove_user("left")
        root.set_user("later", token=LATER, grants=GRANTS)
        until("it is heard", lambda: heard(ring, LATER) and not heard(ring, LEFT))
        put(ring, 500, 100)
    look_at(copies)
    ring.stop()
    for ordinal in EVERY:
        shutil.rmtree(ring.data(ordinal))
        given = ["--config", str(ring.config(ordinal)), "--whole-cluster"]
        assert main(["restore", str(copies[ordinal]), *given]) == 0
    for ordinal in EVERY:  # Whoever starts sees one that was restored, too, and has no token.
        ring.start(ordinal)
        until("it answers", lambda ordinal=ordinal: answers(ring, ordinal))
    ring.wait_ready()
    for ordinal in EVERY:
        ring.wait_in_sync(ordinal)
        assert not (ring.data(ordinal) / "restored").exists()
        assert ring.status(ordinal)["mutualTls"]["refusesPlain"]
    # Users are of the moment of the backup, as the page says.
    until("users are heard", lambda: heard(ring, APP) and heard(ring, LEFT))
    for token in (LATER, "barco_nobody"):
        with (
            pytest.raises(UnauthorizedError),
            barco.Admin(ring.access(0, token=token), timeout_s=5.0) as nobody,
        ):
            nobody.brokers()
    with ring.root_user(*EVERY) as root:
        assert [each["name"] for each in root.users()] == ["app", "left", "root"]
        assert root.topic("t")["retentionHours"] == 5
    with ring.root_user(*EVERY) as root:
        root.remove_user("left")
        until("it is gone again", lambda: not heard(ring, LEFT))
    found = [int(each.value or b"") for each in barco.read("t", ring.access(*EVERY, token=APP))]
    assert sorted(found) == list(range(500))
    assert first.isdisjoint(rest := taken(ring, 400)) and len(rest) == 400
    put(ring, 500, 100)


def look_at(copies: list[Path]) -> None:
    """Nobody else reads a backup, and no token, key or secret is in it."""
    for copy in copies:
        assert stat.S_IMODE(copy.stat().st_mode) == 0o700
        for path in copy.rglob("*"):
            if not path.is_file():
                continue
            text = path.read_bytes()
            for word in (APP, LEFT, "PRIVATE KEY", "BEGIN CERTIFICATE"):
                assert word.encode() not in text, path
