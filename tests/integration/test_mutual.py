"""A ring of three whose brokers speak TLS to one another, with the files that `barco certs` makes;
and who comes without such files, or with others."""

import asyncio
import contextlib
import http.client
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from reference.certificates import Files, authority, broker

from barco import config as configuration
from barco.mutual import Mutual
from barco.protocol.link import KINDS

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster
from joining import epochs
from pretending import calls

SECONDS = 90.0
"""Generous: it only ends what has failed."""

EVENTS = 30
STARTED = "is alive"
NOT_SO = ("not believed", "do not come to terms", "TLS and", "TLS, and", "certificate is that of")
"""In lines of a log, where TLS between brokers does not work. Calls that are given up while a
broker starts are "refused", too, and mean nothing."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers, on addresses that nobody else has."""
    with brokers(tmp_path, mutual=True) as found:
        yield found


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[LocalCluster]:
    """Without TLS."""
    with brokers(tmp_path, mutual=False) as found:
        yield found


@contextlib.contextmanager
def brokers(tmp_path: Path, *, mutual: bool) -> Iterator[LocalCluster]:
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    hosts = tuple(f"{net}.{number + 1}" for number in range(3))
    found = LocalCluster(tmp_path, hosts=hosts, tied=True, mutual=mutual)
    found.write()
    try:
        for ordinal in range(3):
            found.start(ordinal)
        found.wait_ready()
        yield found
    finally:
        for ordinal in range(3):
            found.kill(ordinal)


def until(what: str, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)


def ask(cluster: LocalCluster, by: int, method: str, target: str, body: bytes = b"") -> Any:
    """(status, answer) of one broker; (0, None): nobody is there."""
    port = 9251 if method == "POST" else 9250
    connection = http.client.HTTPConnection(cluster.hosts[by], port, timeout=20)
    try:
        connection.request(method, target, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text[:1] in b"[{" else text
    except OSError:
        return 0, None
    finally:
        connection.close()


def produce(cluster: LocalCluster, by: int, first: int) -> None:
    """Events with keys of all ranges, by one broker, which hands two of three over."""
    for number in range(first, first + EVENTS):
        put_event(cluster, by, number)


def put_event(cluster: LocalCluster, by: int, number: int) -> None:
    target = f"/v1/topic/t/messages?partitionKey=key{number}"
    until("it is stored", lambda: ask(cluster, by, "POST", target, b"%d" % number)[0] == 200)


def until_stored(cluster: LocalCluster, by: int, all_of: set[int]) -> None:
    until("copies are everywhere", lambda: stored(cluster, by) == all_of)


def stored(cluster: LocalCluster, by: int) -> set[int]:
    """What one broker has of all ranges: its own, and the copies of the others'."""
    _, told = ask(cluster, by, "GET", "/v1/topic/t/slices")
    found = set[int]()
    for each in told["slices"] if told else ():
        if each["endOffset"] != "0":
            target = f"/v1/topic/t/slices/{each['token']}/{each['index']}/events?from=earliest"
            status, values = ask(cluster, by, "GET", target)
            found |= {value for part in values for value in part["values"]} if status == 200 else ()
    return found


def line_count(cluster: LocalCluster, ordinal: int, *words: str) -> int:
    lines = cluster.log(ordinal).read_text().splitlines()
    return sum(any(word in line for word in words) for line in lines)


def test_a_ring(cluster: LocalCluster) -> None:
    assert ask(cluster, 2, "PUT", "/v1/topics/t", b'{"retentionHours": 5}')[0] in (200, 201)
    produce(cluster, 1, 0)
    all_of = set(range(EVENTS))
    for ordinal in range(3):
        until_stored(cluster, ordinal, all_of)
        told = ask(cluster, ordinal, "GET", "/status")[1]
        assert told["mutualTls"]["expires"] > "2026" and told["clusterSecret"]
        assert line_count(cluster, ordinal, *NOT_SO) == 0, cluster.log(ordinal).read_text()
    cluster.kill(2)
    produce(cluster, 0, EVENTS)
    renewed = cluster.root / "certs" / "broker-0.crt"
    before, told = renewed.read_bytes(), ask(cluster, 0, "GET", "/status")[1]["mutualTls"]
    pid = cluster.pid(0)
    assert pid is not None
    renewed.write_bytes(renewed.with_name("broker-1.crt").read_bytes())
    os.kill(pid, signal.SIGHUP)
    until("it is refused", lambda: line_count(cluster, 0, "cluster.certificate = "))
    renewed.write_bytes(before)
    assert ask(cluster, 0, "GET", "/status")[1]["mutualTls"] == told
    command = [sys.executable, "-P", "-m", "barco", "certs", "renew", "broker-0", "--days", "200"]
    subprocess.run([*command, "--dir", str(renewed.parent)], check=True, capture_output=True)
    assert renewed.read_bytes() != before
    os.kill(pid, signal.SIGHUP)
    until("it is read", lambda: line_count(cluster, 0, "another certificate between brokers"))
    until("it is taken", lambda: ask(cluster, 0, "GET", "/status")[1]["mutualTls"] != told)
    cluster.start(2)  # It is shown the new one.
    cluster.wait_in_sync(2)
    all_of |= set(range(EVENTS, 2 * EVENTS))
    until("it has what it has missed", lambda: stored(cluster, 2) == all_of)
    produce(cluster, 2, 2 * EVENTS)
    all_of |= set(range(2 * EVENTS, 3 * EVENTS))
    for ordinal in range(3):
        until_stored(cluster, ordinal, all_of)


def written(
    cluster: LocalCluster, done: threading.Event, told: list[int], gaps: list[float]
) -> None:
    """Events until it is done, by whoever answers; which were acknowledged, how long each took."""
    number = 0
    while not done.is_set():
        begun, target = time.monotonic(), f"/v1/topic/t/messages?partitionKey=key{number}"
        while True:
            for by in range(3):
                with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                    if ask(cluster, by, "POST", target, b"%d" % number)[0] == 200:
                        break
            else:
                if time.monotonic() - begun > SECONDS:
                    return
                continue
            break
        told.append(number)
        gaps.append(time.monotonic() - begun)
        number += 1
        time.sleep(0.02)


@pytest.mark.chaos
def test_a_ring_goes_over_to_tls_and_back_broker_by_broker(plain: LocalCluster) -> None:
    """As docs/operations.md says it, while somebody writes."""
    cluster, done = plain, threading.Event()
    told, gaps = list[int](), list[float]()
    assert ask(cluster, 0, "PUT", "/v1/topics/t", b'{"retentionHours": 5}')[0] in (200, 201)
    writer = threading.Thread(target=written, args=(cluster, done, told, gaps))
    writer.start()
    first, second = page_says()
    steps: tuple[tuple[Callable[[int], None], bool | None], ...] = (
        (lambda ordinal: run_as_said(first, cluster, ordinal), False),
        (lambda ordinal: run_as_said(second, cluster, ordinal), True),
        (lambda ordinal: lax_again(cluster, ordinal), False),
        (lambda ordinal: without_them(cluster, ordinal), None),
    )
    made = [sys.executable, "-P", "-m", "barco", "certs", "init", "--dir", "certs"]
    made += ["--config", str(cluster.config(0))]
    subprocess.run(made, check=True, capture_output=True, cwd=cluster.root)
    try:
        for step, refuses in steps:
            for ordinal in range(3):
                step(ordinal)
                cluster.stop([ordinal])
                cluster.start(ordinal)
                cluster.wait_in_sync(ordinal)
            for ordinal in range(3):
                between = ask(cluster, ordinal, "GET", "/status")[1]["mutualTls"]
                assert (between and between["refusesPlain"]) is refuses
                assert line_count(cluster, ordinal, *NOT_SO) == 0
    finally:
        done.set()
        writer.join()
    assert len(told) > 50 and max(gaps) < 10, max(gaps)
    for ordinal in range(3):
        until_stored(cluster, ordinal, set(told))


PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


def page_says() -> list[str]:
    """The commands that change a broker's file, in their order."""
    _, _, after = PAGE.read_text("utf-8").partition("\n## From plain to TLS between brokers")
    section = after.partition("\n## ")[0]
    found = [line for line in section.splitlines() if line.startswith("sed -i ")]
    assert len(found) == 2
    return found


def run_as_said(command: str, cluster: LocalCluster, ordinal: int) -> None:
    """With this broker's file, and certificates that are in a folder of the test."""
    command = command.replace("/etc/barco/barco.toml", str(cluster.config(ordinal)))
    command = command.replace("credential:", f"{cluster.root}/certs/")
    command = command.replace("broker-0", f"broker-{ordinal}")
    subprocess.run(["sh", "-ec", command], check=True)


def lax_again(cluster: LocalCluster, ordinal: int) -> None:
    file = cluster.config(ordinal)
    file.write_text(file.read_text().replace("[cluster]", "[cluster]\ntls_required = false"))


def without_them(cluster: LocalCluster, ordinal: int) -> None:
    file = cluster.config(ordinal)
    lines = r"(?m)^(ca|certificate|key|tls_required) = .*\n"
    file.write_text(re.sub(lines, "", file.read_text()))


@pytest.mark.chaos
def test_who_knows_the_secret_and_shows_no_certificate_of_the_broker_that_it_says_it_is(
    cluster: LocalCluster,
) -> None:
    produce(cluster, 0, 0)
    cluster.kill(2)
    until("others lead", lambda: all(each[1] in (0, 1) and each[3] for each in epochs(cluster)))
    produce(cluster, 0, EVENTS)
    made, uuid = cluster.root / "certs", configuration.load(cluster.config(0)).cluster.uuid
    ca, path = Files(made / "ca.crt", made / "ca.key"), cluster.root
    name = f"barco:{uuid}/2"

    def mutual(certificate: Path) -> Mutual:
        texts = {"certificate": certificate, "key": certificate.with_suffix(".key")}
        texts["ca"] = ca.certificate
        return Mutual(uuid, {kind: each.read_text() for kind, each in texts.items()})

    strangers = {
        "plain": Mutual(uuid, {}),
        "another authority": mutual(
            broker(path, authority(path, "other"), "other2", name).certificate
        ),
        "expired": mutual(broker(path, ca, "old2", name, days=-1).certificate),
        "broker 1": mutual(made / "broker-1.crt"),
        "another cluster": mutual(broker(path, ca, "far2", f"barco:{'e' * 32}/2").certificate),
    }
    before, lines = epochs(cluster), line_count(cluster, 0, "refused a connection")
    for what, each in strangers.items():
        for kind in KINDS:
            assert asyncio.run(calls(cluster, kind, each)), (what, kind)
    assert epochs(cluster) == before
    said = line_count(cluster, 0, "refused a connection") - lines
    assert 1 <= said <= len(strangers) + 1, "each reason once, not each attempt"
    produce(cluster, 1, 2 * EVENTS)
    assert asyncio.run(calls(cluster, "handoff", mutual(made / "broker-2.crt"))) == ""
    cluster.start(2)
    cluster.wait_in_sync(2)
    until("all is there", lambda: stored(cluster, 2) == set(range(3 * EVENTS)))
