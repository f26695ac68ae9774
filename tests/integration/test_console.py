"""The console in a real browser beside a ring of three: what it shows, also when a broker dies."""

import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from joining import SECONDS, JoinedCluster, three

import barco

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[JoinedCluster]:
    yield from three(tmp_path)


def get(cluster: JoinedCluster, path: str) -> Any:
    with urllib.request.urlopen(f"http://{cluster.endpoints[0]}{path}", timeout=10) as answer:
        return json.load(answer)


def metrics(cluster: JoinedCluster) -> str:
    with urllib.request.urlopen(f"http://{cluster.endpoints[0]}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def until(cluster: JoinedCluster, path: str, seen: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not seen(told := get(cluster, path)):
        assert time.monotonic() < deadline, told
        time.sleep(0.2)
    return told


def page(cluster: JoinedCluster, place: str, tmp_path: Path) -> str:
    """What a browser has made of the page after some seconds of its own time."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
            *(f"--user-data-dir={tmp_path / 'browser'}", "--virtual-time-budget=6000"),
            f"http://{cluster.endpoints[0]}/console#{place}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_health_and_figures_of_all_brokers(cluster: JoinedCluster) -> None:
    health = until(cluster, "/v1/health", lambda told: not told["wrong"])
    assert health["headline"] == "All slices are written to three disks"
    with barco.Producer(cluster.endpoints[0]) as producer:
        for number in range(300):
            producer.send("t", b"x", key=str(number))
    told = get(cluster, "/v1/figures")["brokers"]
    assert [(each["ordinal"], each["workers"], each["silent"]) for each in told] == [
        (0, 3, 0), (1, 3, 0), (2, 3, 0),
    ]  # fmt: skip
    assert sum(each["figures"]["events"] for each in told) == 300
    assert all(each["figures"]["process_cpu_seconds"] > 0 for each in told)
    for stages in (get(cluster, "/v1/figures")["stages"], *(each["stages"] for each in told)):
        assert list(stages) == ["receive", "gather", "write", "replicate", "answer", "whole"]
        assert all(each["count"] > 0 for each in stages.values()), stages
        assert all(each["p50"] <= each["p99"] < 10 for each in stages.values()), stages
    text = metrics(cluster)
    counts = dict(re.findall(r'stage_seconds_count\{stage="(\w+)"\} (\d+)', text))
    assert counts.keys() == {"receive", "gather", "write", "replicate", "answer"}
    assert all(int(count) > 0 for count in counts.values()), counts
    cluster.kill(1)
    until(
        *(cluster, "/v1/health"),
        lambda told: any(each.startswith("broker 1 (") for each in told["wrong"]),
    )
    told = until(cluster, "/v1/figures", lambda told: told["brokers"][1]["silent"] == 3)
    assert [each["workers"] for each in told["brokers"]] == [3, 0, 3]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium (Debian: apt-get install chromium)")
def test_what_a_browser_shows(cluster: JoinedCluster, tmp_path: Path) -> None:
    until(cluster, "/v1/health", lambda told: not told["wrong"])
    with barco.Producer(cluster.endpoints[0]) as producer:
        for number in range(30):
            producer.send("t", b'{"html": "<b>bold</b>"}', key=f"key-{number}")
    with barco.Consumer(
        "t", group="g", start="earliest", endpoint=cluster.endpoints[0]
    ) as consumer:
        read = 0
        while read < 30:
            read += len(consumer.poll(5.0))
    shown = page(cluster, "ring", tmp_path)
    assert "✓ All slices are written to three disks" in shown
    assert "replicate: on a follower's disk, p99" in shown and "broker 2</option>" in shown
    assert shown.count("leads, members") == 3, "a part of the ring for each range"
    assert all(f"<td>{host}</td>" in shown for host in cluster.hosts)
    shown = page(cluster, "topic/t", tmp_path)
    assert "30 of 30 events" in shown and "key-17" in shown
    assert "&lt;b&gt;bold" in shown and "<b>bold" not in shown, "no text becomes markup"
    assert '<td class="number">30</td>' in page(cluster, "topics", tmp_path)
    assert ">g</a>" in page(cluster, "groups", tmp_path)
    assert "Move its positions" in page(cluster, "group/g", tmp_path)
