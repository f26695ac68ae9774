"""Brokers whose clients call them by other addresses than those at which they listen."""

import http.client
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster

SECONDS = 90.0
"""Generous: it only ends what has failed."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers, on addresses that nobody else has; they advertise names."""
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    hosts = tuple(f"{net}.{number + 1}" for number in range(3))
    found = LocalCluster(tmp_path, hosts=hosts, tied=True)
    found.write()
    try:
        for ordinal in range(3):
            text = found.config(ordinal).read_text()
            more = f'[broker]\nadvertise = "b{ordinal}.example"\n'
            found.config(ordinal).write_text(text.replace("[broker]\n", more))
            found.start(ordinal)
        found.wait_ready()
        yield found
    finally:
        for ordinal in range(3):
            found.kill(ordinal)


def ask(host: str, port: int, method: str, target: str, **more: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(host, port, timeout=30)
    try:
        connection.request(method, target, b"1" if method == "POST" else None, more)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_clients_are_told_the_advertised_names(cluster: LocalCluster) -> None:
    names = [f"b{ordinal}.example" for ordinal in range(3)]
    deadline = time.monotonic() + SECONDS
    for host in cluster.hosts:
        while (told := ask(host, 9250, "GET", "/v1/brokers")[1])["names"] != names:
            assert time.monotonic() < deadline, told
            time.sleep(0.1)
        topology = ask(host, 9250, "GET", "/v1/topology")[1]
        text = json.dumps([told, topology])
        assert not any(address in text for address in cluster.hosts), text
        slices = [each["endpoint"] for part in topology["ranges"] for each in part["slices"]]
        assert {endpoint.rpartition(":")[0] for endpoint in slices} == set(names)
    owners = set()
    for key in range(40):
        target = f"/v1/topic/called/messages?partitionKey={key}"
        status, answer = ask(cluster.hosts[0], 9300, "POST", target, **{"Barco-No-Forward": "1"})
        assert status in (200, 421), answer
        owners |= {answer["owner"]} if status == 421 else set()
    assert owners == {f"{name}:9300" for name in names[1:]}
