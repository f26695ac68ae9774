"""A member that says, by gossip, of which brokers the cluster shall consist."""

import asyncio
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster
from test_gossip_ring import CUT, PORT, cluster, liar, until

import barco
from barco.cluster.gossip.facts import TargetInfo
from barco.cluster.ring.target import Target, TargetBroker
from barco.errors import BarcoError
from barco.protocol import frame
from barco.protocol.gossip import Push, to_frame

__all__ = ["cluster"]

LIED_SECONDS = 6.0
LAST_VERSION = 2**63 - 1


@pytest.fixture(autouse=True)
def _unharmed() -> None:
    """No broker of the neighbours' is needed here."""


def lie() -> bytes:
    """Processes for all slices, for good."""
    brokers = tuple(TargetBroker(ordinal=each, workers=8) for each in range(3))
    packed = Target(LAST_VERSION, CUT, brokers).packed()
    return TargetInfo(version=LAST_VERSION, packed=packed).fact().packed


async def _say(cluster: LocalCluster, ended: threading.Event, said: list[int]) -> None:
    node = liar(cluster, 5)
    await node.start(socket.create_server((cluster.hosts[2], PORT)))
    told = frame.encode(to_frame(Push(facts=(lie(),))))
    try:
        while not ended.is_set():
            for victim in (0, 1):
                for link in node._peers[victim].links[-1:]:
                    if not link.writer.transport.is_closing():
                        link.writer.write(told)
                        said.append(victim)
            await asyncio.sleep(0.5)
    finally:
        await node.close(depart=False)


@contextmanager
def lying(cluster: LocalCluster) -> Iterator[list[int]]:
    """Broker 2 is the liar's, which says it twice a second."""
    ended, said = threading.Event(), list[int]()
    thread = threading.Thread(target=lambda: asyncio.run(_say(cluster, ended, said)))
    thread.start()
    try:
        yield said
    finally:
        ended.set()
        thread.join()


def topology(cluster: LocalCluster, ordinal: int) -> dict[str, Any]:
    try:
        with barco.Admin(cluster.endpoints[ordinal], timeout_s=10.0) as admin:
            return admin.topology()
    except BarcoError:
        return {}


def versions(cluster: LocalCluster) -> list[int | None]:
    """Of the target, as brokers 0 and 1 know it."""
    return [topology(cluster, each).get("target", {}).get("version") for each in (0, 1)]


def change(cluster: LocalCluster, ordinals: int) -> None:
    """So many brokers shall be there."""
    told = topology(cluster, 0)
    brokers = [{"ordinal": each, "workers": 1} for each in range(ordinals)]
    body = {"cluster": told["cluster"], "version": told["target"]["version"]}
    with barco.Admin(cluster.endpoints[0], timeout_s=10.0) as admin:
        admin.set_target(body | {"brokers": brokers})


def started(cluster: LocalCluster) -> list[str]:
    logs = [cluster.log(each).read_text() for each in (0, 1)]
    return [line for log in logs for line in log.splitlines() if "a process is started" in line]


def test_a_lie_about_the_target_starts_nothing_and_does_not_stay(cluster: LocalCluster) -> None:
    cluster.kill(2)
    until("a leader for slice 0", lambda: versions(cluster) == [0, 0])
    with lying(cluster) as said:
        until("it is said", lambda: {0, 1} <= set(said))
        before, end = len(said), time.monotonic() + LIED_SECONDS
        while time.monotonic() < end:
            assert not started(cluster)
            time.sleep(0.2)
        assert len(said) > before + LIED_SECONDS
        change(cluster, 4)
        until("the true one", lambda: versions(cluster) == [1, 1])
        cluster.kill(1)
        cluster.start(1)
        until("the true one after a start", lambda: versions(cluster) == [1, 1])
    until("the true one afterwards", lambda: versions(cluster) == [1, 1])
    change(cluster, 5)
    until("a newer one", lambda: versions(cluster) == [2, 2])
