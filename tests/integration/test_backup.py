"""`barco backup` of brokers that run, `barco restore`: what was acknowledged before is there."""

import os
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from running import RunningBroker

import barco
from barco.cli import main
from barco.cluster.replica.doubt import KEEP_SECONDS
from barco.errors import BarcoError

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster


class Writes:
    """Numbers by key, one after the other, and what was acknowledged of them."""

    def __init__(self, endpoint: Any, topic: str = "t") -> None:
        self.acked: list[int] = []
        self._endpoint, self._topic = endpoint, topic
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(60)

    def _run(self) -> None:
        with barco.Producer(self._endpoint) as producer:
            number = 0
            while not self._stopping.is_set():
                many = range(number, number + 50)
                sent = [producer.send(self._topic, b"%d" % n, key=b"k%d" % (n % 7)) for n in many]
                for n, each in zip(many, sent, strict=True):
                    try:
                        each.result(60)
                    except BarcoError:
                        continue
                    self.acked.append(n)
                number += 50

    def at_least(self, count: int) -> list[int]:
        """What was acknowledged by now, when that is so much."""
        for _ in range(6000):
            if len(self.acked) >= count:
                return list(self.acked)
            self._stopping.wait(0.01)
        raise AssertionError(f"{len(self.acked)} of {count} are acknowledged")


def stored(endpoint: Any, topic: str = "t") -> list[int]:
    """All that can be read; in order for each key, and each once."""
    events = list(barco.read(topic, endpoint))
    by_key: dict[bytes | None, list[int]] = {}
    for each in events:
        by_key.setdefault(each.key, []).append(int(each.value))
    for numbers in by_key.values():
        assert numbers == sorted(set(numbers)), "in order, and each once"
    return [n for numbers in by_key.values() for n in numbers]


def test_a_broker_that_is_written_to_is_copied_and_restored(
    start_broker: Callable[..., RunningBroker], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker(storage_segment_bytes=2 << 20, limits_request_bytes_max=1 << 19,
                          limits_event_bytes_max=1 << 16)  # fmt: skip
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    copies = []
    with Writes(endpoint) as writes:
        for number in range(2):
            before = writes.at_least(2000 * (number + 1))
            to = tmp_path / f"copy-{number}"
            given = ["--data-dir", str(broker.data_dir), "--json", "--rate", "0"]
            assert main(["backup", str(to), *given]) == 0
            copies.append((to, before))
    assert main(["backup", str(copies[0][0]), "--data-dir", str(broker.data_dir)]) == 78
    assert "is not empty" in capsys.readouterr().err
    broker.stop()
    for to, before in copies:
        assert main(["restore", str(to), "--check"]) == 0
        shutil.rmtree(broker.data_dir)
        assert main(["restore", str(to), "--data-dir", str(broker.data_dir)]) == 0
        assert main(["dump", str(broker.data_dir), "--verify"]) == 0
        broker.restart()
        found = stored(f"127.0.0.1:{broker.port('discovery')}")
        assert set(before) <= set(found) and len(found) < len(writes.acked) + 50
        assert broker.stop() == 0
    assert main(["restore", str(copies[0][0]), "--data-dir", str(broker.data_dir)]) == 78
    assert "is not empty" in capsys.readouterr().err


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three brokers, on addresses that nobody else has."""
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    hosts = tuple(f"{net}.{number + 1}" for number in range(3))
    made = LocalCluster(tmp_path, hosts=hosts, tied=True)
    made.write()
    for ordinal in range(3):
        made.start(ordinal)
    made.wait_ready()
    yield made
    made.stop()


def given(cluster: LocalCluster, ordinal: int, *words: str) -> int:
    """The exit code of a command beside a broker."""
    return main([*words, "--config", str(cluster.config(ordinal))])


def ended(cluster: LocalCluster, ordinal: int) -> str:
    """The last line of a broker that does not start."""
    process = cluster._started[ordinal]
    assert process.wait(60) == 78
    return cluster.log(ordinal).read_text().splitlines()[-1]


def give_up_asides(cluster: LocalCluster, ordinal: int, lost: Path) -> None:
    """What a later backup had beyond the two others is exported, and removed by who did that."""
    for _ in range(600):
        told = cluster.status(ordinal)
        degraded = "; ".join(told.get("degraded", []))
        if told.get("inSync") or degraded.count("broker") == degraded.count("set aside") > 0:
            break
        time.sleep(0.1)
    asides = list(cluster.data(ordinal).glob("range-*/aside"))
    if asides:
        assert main(["recover", str(cluster.data(ordinal)), "--export", str(lost)]) == 0
        assert any(lost.iterdir())
    for each in asides:
        shutil.rmtree(each)


@pytest.mark.chaos
def test_a_cluster_is_restored_from_backups_of_different_moments(
    cluster: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Leaders change between them, and after them more is written. What was acknowledged before the
    oldest began is there. One restored broker beside others that went on does not start."""
    copies = [tmp_path / f"copy-{ordinal}" for ordinal in range(3)]
    with Writes(cluster.endpoints) as writes:
        before = writes.at_least(2000)
        for ordinal in range(3):
            assert given(cluster, ordinal, "backup", str(copies[ordinal]), "--rate", "0") == 0
            writes.at_least(len(writes.acked) + 1000)
            cluster.kill((ordinal + 1) % 3)
            writes.at_least(len(writes.acked) + 1000)
            cluster.start((ordinal + 1) % 3)
            cluster.wait_in_sync((ordinal + 1) % 3)
            time.sleep(2 * KEEP_SECONDS)  # Each journal has then how far the others' are.
    assert given(cluster, 2, "restore", str(copies[2])) == 78
    assert "barco replace" in capsys.readouterr().err

    cluster.stop([2])
    cluster.data(2).rename(tmp_path / "kept")
    assert given(cluster, 2, "restore", str(copies[2]), "--whole-cluster") == 0
    cluster.start(2)
    assert "went on" in ended(cluster, 2) and "barco replace" in ended(cluster, 2)

    cluster.stop()
    for ordinal in range(3):
        shutil.rmtree(cluster.data(ordinal))
        assert given(cluster, ordinal, "restore", str(copies[ordinal]), "--whole-cluster") == 0
    for ordinal in range(3):
        cluster.start(ordinal)
    cluster.wait_ready()
    for ordinal in range(3):
        give_up_asides(cluster, ordinal, tmp_path / f"lost-{ordinal}")
    for ordinal in range(3):
        cluster.wait_in_sync(ordinal)
        assert not (cluster.data(ordinal) / "restored").exists()
    found = stored(cluster.endpoints)
    assert set(before) <= set(found)
    with Writes(cluster.endpoints, "after") as writes:
        writes.at_least(500)
    assert set(writes.acked) <= set(stored(cluster.endpoints, "after"))
