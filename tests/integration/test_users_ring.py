"""Who may do what in a ring of three: told to all by who leads slice 0, and kept when it dies."""

import http.client
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import barco
from barco.errors import UnauthorizedError
from barco.model.access import hash_of
from barco.supervisor.files.first_users import NAME, add

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster

pytestmark = pytest.mark.chaos

ROOT = "barco_root"
SECONDS = 90.0
"""Generous: it only ends what has failed."""

LIVE_SECONDS = 1.0
"""In which a change is to be live everywhere, from its answer on."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers that ask who it is, on addresses that nobody else has."""
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    hosts = tuple(f"{net}.{number + 1}" for number in range(3))
    found = LocalCluster(tmp_path, hosts=hosts, tied=True)
    found.write()
    try:
        for ordinal in range(3):
            with found.config(ordinal).open("a") as file:
                file.write("\n[access]\nrequired = true\n")
            found.data(ordinal).mkdir(mode=0o700, parents=True, exist_ok=True)
            add(found.data(ordinal) / NAME, "root", hash_of(ROOT).hex())
            found.start(ordinal)
        for ordinal in range(3):
            until(lambda ordinal=ordinal: produce(found, ordinal, ROOT) == 200)
        yield found
    finally:
        for ordinal in range(3):
            found.kill(ordinal)


def until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def produce(cluster: LocalCluster, ordinal: int, token: str) -> int:
    """The status; 0: nobody is there."""
    connection = http.client.HTTPConnection(cluster.hosts[ordinal], 9251, timeout=10)
    try:
        headers = {"Authorization": f"Bearer {token}"}
        connection.request("POST", "/v1/topic/t/messages", b"1", headers)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def test_a_change_is_live_at_each_broker_and_outlives_its_keeper(cluster: LocalCluster) -> None:
    endpoints = [f"{host}:9250" for host in cluster.hosts]
    with barco.Admin(endpoints[1], token=ROOT) as root:  # Any broker passes it on.
        root.set_user("app", token="one", grants=["produce:t"])
        for ordinal in range(3):
            until(lambda ordinal=ordinal: produce(cluster, ordinal, "one") == 200, LIVE_SECONDS)
        root.set_user("app", token="two")
        for ordinal in range(3):
            until(lambda ordinal=ordinal: produce(cluster, ordinal, "one") == 401, LIVE_SECONDS)
        cluster.kill(0)  # It leads slice 0.
        for ordinal in (1, 2):  # What was heard goes on to count.
            until(lambda ordinal=ordinal: produce(cluster, ordinal, "two") == 200)
            assert produce(cluster, ordinal, "one") == 401
        root.set_user("app", token="three")  # As soon as somebody else leads it.
        for ordinal in (1, 2):
            until(lambda ordinal=ordinal: produce(cluster, ordinal, "two") == 401, LIVE_SECONDS)
        cluster.start(0)
        until(lambda: produce(cluster, 0, "three") == 200)
        assert produce(cluster, 0, "one") == produce(cluster, 0, "two") == 401
        assert [each["name"] for each in root.users()] == ["app", "root"]
    with pytest.raises(UnauthorizedError), barco.Admin(endpoints[2], token="two") as nobody:
        nobody.brokers()


def test_the_supervisor_is_no_user_and_adds_a_broker(cluster: LocalCluster) -> None:
    """A longer list in the configuration, with SIGHUP: asked for inside of the broker."""
    net = cluster.hosts[1].rsplit(".", 1)[0]
    config, before = cluster.config(1), cluster.config(1).read_text()
    listed = json.dumps([*cluster.hosts, f"{net}.4"])
    lines = [
        f"brokers = {listed}" if line.startswith("brokers = ") else line
        for line in before.splitlines()
    ]
    config.write_text("\n".join(lines) + "\n")
    assert config.read_text() != before
    pid = cluster.pid(1)
    assert pid is not None
    os.kill(pid, signal.SIGHUP)
    with barco.Admin(f"{cluster.hosts[2]}:9250", token=ROOT) as root:

        def hosts() -> list[str]:
            target = root.topology()["target"]["brokers"]
            return [each.get("host", "") for each in target]

        until(lambda: hosts()[3:] == [f"{net}.4"])


def test_a_broker_without_the_key_asks_as_the_others_do(cluster: LocalCluster) -> None:
    """Else whoever comes in there would be let in by all of them."""
    cluster.kill(1)
    config = cluster.config(1)
    config.write_text(config.read_text().replace("required = true", "required = false"))
    cluster.start(1)
    until(lambda: produce(cluster, 1, "nobody's") == 200)  # Nobody has added anybody yet.
    with barco.Admin(f"{cluster.hosts[0]}:9250", token=ROOT) as root:
        until(lambda: produce(cluster, 0, ROOT) == 200)
        root.set_user("app", token="one", grants=["produce:t"])
    until(lambda: produce(cluster, 1, "nobody's") == 401, 10.0)
    until(lambda: produce(cluster, 1, "one") == 200)
    assert "Set access.required = true" in cluster.log(1).read_text()
