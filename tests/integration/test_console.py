"""The console in a real browser beside a ring of three: what it shows, also when a broker dies."""

import http.client
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
from running import RunningBroker

import barco

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[JoinedCluster]:
    yield from three(tmp_path)


def get(cluster: JoinedCluster, path: str) -> Any:
    with urllib.request.urlopen(f"http://{cluster.endpoints[0]}{path}", timeout=60) as answer:
        return json.load(answer)


def metrics(cluster: JoinedCluster) -> str:
    with urllib.request.urlopen(f"http://{cluster.endpoints[0]}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def until(cluster: JoinedCluster, path: str, seen: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + SECONDS
    while not seen(told := get(cluster, path)):
        assert time.monotonic() < deadline, told
        time.sleep(0.2)
    return told


def page(endpoint: str, place: str, tmp_path: Path) -> str:
    """What a browser has made of the page after some seconds of its own time."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
            *(f"--user-data-dir={tmp_path / 'browser'}", "--virtual-time-budget=6000"),
            f"http://{endpoint}/console#{place}",
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

    def answered(*workers: int) -> Callable[[Any], bool]:
        """So many of each broker's, and none of those is silent."""
        wanted = [(at, count, 3 - count) for at, count in enumerate(workers)]
        return lambda told: (
            wanted
            == [(each["ordinal"], each["workers"], each["silent"]) for each in told["brokers"]]
        )

    told = until(cluster, "/v1/figures", answered(3, 3, 3))["brokers"]
    assert sum(each["figures"]["events"] for each in told) == 300
    assert all(each["figures"]["process_cpu_seconds"] > 0 for each in told)
    for stages in (get(cluster, "/v1/figures")["stages"], *(each["stages"] for each in told)):
        assert list(stages) == ["receive", "gather", "write", "replicate", "answer", "whole"]
        assert all(each["count"] > 0 for each in stages.values()), stages
        assert all(each["p50"] <= each["p99"] < 60 for each in stages.values()), stages
    text = metrics(cluster)
    counts = dict(re.findall(r'stage_seconds_count\{stage="(\w+)"\} (\d+)', text))
    assert counts.keys() == {"receive", "gather", "write", "replicate", "answer"}
    assert all(int(count) > 0 for count in counts.values()), counts
    cluster.kill(1)
    until(
        *(cluster, "/v1/health"),
        lambda told: any(each.startswith("broker 1 (") for each in told["wrong"]),
    )
    until(cluster, "/v1/figures", answered(3, 0, 3))


def test_what_was_told_before_is_told_again_to_who_says_that_it_will_do(
    broker: RunningBroker,
) -> None:
    link = http.client.HTTPConnection("127.0.0.1", broker.port("discovery"), timeout=30)

    def ask(path: str, **headers: str) -> tuple[int, bytes, str]:  # By one process.
        link.request("GET", path, headers={n.replace("_", "-"): v for n, v in headers.items()})
        answer = link.getresponse()
        return answer.status, answer.read(), answer.headers.get("ETag", "")

    for _ in range(10):
        first = ask("/v1/figures", Cache_Control="max-age=5")
        if (again := ask("/v1/figures", Cache_Control="max-age=5")) == first:
            break  # Else it was asked 5 s later, by a busy machine.
    assert again == first
    assert ask("/v1/figures")[1] != first[1]
    status, page, mark = ask("/console/console.js")
    assert (status, len(page) > 1000) == (200, True)
    assert ask("/console/console.js", If_None_Match=mark) == (304, b"", mark)
    assert ask("/console/console.js", If_None_Match='"another"')[:2] == (200, page)
    link.close()


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
    shown = page(cluster.endpoints[0], "ring", tmp_path)
    assert "✓ All slices are written to three disks" in shown
    assert "replicate: on a follower's disk, p99" in shown and "broker 2</option>" in shown
    assert shown.count("leads, members") == 3, "a part of the ring for each range"
    assert all(f"<td>{host}</td>" in shown for host in cluster.hosts)
    shown = page(cluster.endpoints[0], "topic/t", tmp_path)
    assert "30 of 30 events" in shown and "key-17" in shown
    assert "&lt;b&gt;bold" in shown and "<b>bold" not in shown, "no text becomes markup"
    assert '<td class="number">30</td>' in page(cluster.endpoints[0], "topics", tmp_path)
    assert ">g</a>" in page(cluster.endpoints[0], "groups", tmp_path)
    shown = page(cluster.endpoints[0], "group/g", tmp_path)
    assert "Move its positions" in shown and "Nobody reads in this group now." in shown
    assert shown.count("<td>t</td>") >= 3, "a line for each slice"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium (Debian: apt-get install chromium)")
def test_what_a_browser_shows_of_events_that_are_out_of_the_ordinary(
    broker: RunningBroker, tmp_path: Path
) -> None:
    endpoint = f"127.0.0.1:{broker.port('discovery')}"
    key = b"\xff\xfe"
    with barco.Producer(endpoint) as producer:
        producer.send("constructor", b"1").result(30)  # What every object of JavaScript has.
        producer.send("odd", b'{"id": 12345678901234567890}', key, headers={"h": "<b>x</b>"})
        producer.send("odd", b'"far"', key)
        for number in range(12):
            producer.send("large", b"%06d" % number + b"x" * 100_000, key)
    shown = page(endpoint, "topics", tmp_path)
    assert "constructor</a>" in shown and "3 topics" in shown
    shown = page(endpoint, "topic/odd", tmp_path)
    assert "2 of 2 events" in shown
    assert '{"id":12345678901234567890}' in shown, "as it is stored, not rounded"
    assert '{"base64":"//4="}' in shown and "[object" not in shown
    assert "h: &lt;b&gt;x&lt;/b&gt;" in shown and "<b>x" not in shown
    # More than one answer holds: the newest are there, whatever is left out.
    shown = page(endpoint, "topic/large", tmp_path)
    assert "000011x" in shown and "000000x" not in shown
    # A cursor of digits is no day of the year 2001.
    shown = page(endpoint, "topic/odd?from=00000001-0000000000000001&n=500", tmp_path)
    assert '"far"' not in shown and ">far<" in shown and "12345678901234567890" not in shown
