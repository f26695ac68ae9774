"""Three real supervisors with fake workers: their gossip, as an operator and a worker see it."""

import json
import os
import secrets
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import Fake, wait_until

SECONDS = 60.0


@pytest.fixture
def cluster(tmp_path: Path, start: Callable[..., Fake]) -> Callable[..., Fake]:
    """Starts a broker of three by its ordinal, on addresses that nobody else has."""
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    brokers = [f"{net}.{each + 1}" for each in range(3)]

    def starter(ordinal: int, name: str = "", **values: Any) -> Fake:
        path = tmp_path / f"{name or ordinal}.toml"
        more = "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        path.write_text(
            f"[broker]\nordinal = {ordinal}\nworkers = 1\n"
            f"[cluster]\nbrokers = {json.dumps(brokers)}\n{more}"
        )
        arguments = ("--config", str(path), "--ports-from", "9250")
        return start(*arguments, name=name or f"data{ordinal}")

    return starter


def sees(broker: Fake, *states: str) -> bool:
    """Whether every worker has been told of brokers in these states."""
    return all(broker.state(worker)["brokers"] == list(states) for worker in range(3))


def test_workers_learn_of_brokers_and_of_consumers_at_other_brokers(
    cluster: Callable[..., Fake],
) -> None:
    brokers = [cluster(ordinal) for ordinal in range(3)]
    for broker in brokers:
        broker.wait_ready()
    for broker in brokers:
        wait_until(lambda broker=broker: sees(broker, "alive", "alive", "alive"), SECONDS)
    brokers[0].ask("register ann", shard=0)
    wait_until(lambda: brokers[0].state(0)["replies"], SECONDS)
    assert brokers[0].state(0)["replies"][0]["ok"]
    for broker in brokers[1:]:
        wait_until(lambda broker=broker: broker.state(2)["consumers"] == ["ann"], SECONDS)
    # Killed, and all its workers with it.
    brokers[1].stop(signal.SIGKILL)
    for broker in (brokers[0], brokers[2]):
        wait_until(lambda broker=broker: sees(broker, "alive", "down", "alive"), SECONDS)
        assert "broker is down" in broker.messages()
    again = cluster(1).wait_ready()
    wait_until(lambda: sees(brokers[0], "alive", "alive", "alive"), SECONDS)
    wait_until(lambda: again.state(0)["consumers"] == ["ann"], SECONDS)
    # Stopped, as for an upgrade.
    assert brokers[2].stop(signal.SIGTERM) == 0
    wait_until(lambda: sees(brokers[0], "alive", "alive", "left"), SECONDS)


def test_a_broker_of_another_cluster_is_refused_and_both_say_so(
    cluster: Callable[..., Fake],
) -> None:
    first = cluster(0).wait_ready()
    stranger = cluster(1, uuid="ab" * 16).wait_ready()
    for broker, words in ((first, "is refused"), (stranger, "refuses this one")):

        def told(broker: Fake = broker, words: str = words) -> bool:
            return any(words in m and "wrong cluster" in m for m in broker.messages())

        wait_until(told, SECONDS)
    assert sees(first, "alive")


def test_a_new_disk_under_a_known_ordinal_is_refused(cluster: Callable[..., Fake]) -> None:
    first, second = cluster(0).wait_ready(), cluster(1).wait_ready()
    wait_until(lambda: sees(first, "alive", "alive"), SECONDS)
    second.stop(signal.SIGKILL)
    wait_until(lambda: sees(first, "alive", "down"), SECONDS)
    wiped = cluster(1, name="wiped").wait_ready()
    wait_until(lambda: any("run barco replace" in m for m in wiped.messages()), SECONDS)
    assert sees(first, "alive", "down")
