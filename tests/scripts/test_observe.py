"""Rules, board and `make observe`, by a real Prometheus where there is one."""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import barco
from barco.supervisor.tied import start_tied
from barco.workers.http.handlers import measures
from barco.workers.process import metrics

ROOT = Path(__file__).resolve().parents[2]
OBSERVE = ROOT / "packaging" / "observe"
SCRIPT = ROOT / "scripts" / "observe.py"
SECONDS = 90.0

prometheus = pytest.mark.skipif(
    None in (shutil.which("promtool"), shutil.which("prometheus")),
    reason="no Prometheus (Debian: apt-get install prometheus)",
)


def expressions() -> list[str]:
    """What the board asks for, as Grafana would ask for it."""
    board = json.loads((OBSERVE / "board.json").read_text("utf-8"))
    found = [each["expr"] for panel in board["panels"] for each in panel.get("targets", ())]
    return [each.replace("$__rate_interval", "1m").replace("$broker", ".*") for each in found]


def series(text: str) -> set[str]:
    """Names of barco's own series in what somebody asks for, without `barco_`."""
    return set(re.findall(r"\bbarco_(\w+)", text))


def told() -> set[str]:
    """All that a broker may tell."""
    names = {gauge.name or name for name, gauge in metrics.GAUGES.items()}
    names |= {f"{name}_total" for name in metrics.COUNTERS}
    names |= {name.removesuffix("_total") + "_total" for name in metrics.COUNTERS}
    names |= {f"gossip_{name}" for name in metrics.GOSSIP_GAUGES}
    names |= {f"{name}_bucket" for name in (metrics.STAGE, metrics.WHOLE)}
    names |= {*measures.HELP, f"{measures.TOPIC_EVENTS}_total", "workers", "workers_up"}
    return names


def test_rules_and_board_ask_for_what_there_is() -> None:
    rules = (OBSERVE / "rules.yml").read_text("utf-8")
    assert len(expressions()) > 15 and len(re.findall("alert:", rules)) > 10
    assert series(rules + "\n".join(expressions())) <= told()


def test_every_alert_has_a_test_that_sees_it() -> None:
    alerts = re.findall(r"alert: (\w+)", (OBSERVE / "rules.yml").read_text("utf-8"))
    tests = (OBSERVE / "rules.test.yml").read_text("utf-8")
    assert [each for each in alerts if f'alertname="{each}"' not in tests] == []


@prometheus
def test_promtool_takes_rules_their_tests_the_configuration_and_the_board(tmp_path: Path) -> None:
    rules = [{"record": f"r{n}", "expr": each} for n, each in enumerate(expressions())]
    board = tmp_path / "board.yml"  # JSON is YAML, too.
    board.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    for command in (
        ("check", "rules", "rules.yml"),
        ("check", "config", "prometheus.yml"),
        ("test", "rules", "rules.test.yml"),
        ("check", "rules", str(board)),
    ):
        done = subprocess.run(
            ("promtool", *command),
            cwd=OBSERVE,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def free_ports(count: int) -> int:
    """The first of so many that nobody has, one after the other."""
    for first in range(28_000, 32_000, 100):  # Others look elsewhere: see tests/conftest.py.
        try:
            for port in range(first, first + count):
                with socket.create_server(("127.0.0.1", port)):
                    pass
        except OSError:
            continue
        return first
    raise AssertionError("no ports")


def asked(port: int, path: str, **query: str) -> Any:
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)["data"]


def until(port: int, query: str) -> list[Any]:
    deadline = time.monotonic() + SECONDS
    while not (found := asked(port, "query", query=query)["result"]):
        assert time.monotonic() < deadline, query
        time.sleep(0.5)
    result: list[Any] = found
    return result


@prometheus
def test_a_prometheus_sees_a_broker(tmp_path: Path) -> None:
    first = free_ports(100)
    port = first + 99
    command = [sys.executable, str(SCRIPT), "--dir", str(tmp_path), "--port", str(port)]
    child = start_tied(
        [*command, "--ports-from", str(first)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        line = child.stdout.readline().decode()
        assert line.startswith(f"barco {barco.__version__} "), line + child.stdout.read().decode()
        with barco.Producer(f"127.0.0.1:{first}") as producer:
            for number in range(50):
                producer.send("orders", b"x", key=str(number))
            producer.flush()
            assert until(port, 'barco_topic_events_total{topic="orders"} == 50')
            producer.send("orders", b"x")
        assert until(port, "rate(barco_produce_seconds_count[1m]) > 0")
        for query in expressions():
            assert asked(port, "query", query=query)["resultType"] == "vector"
        groups = asked(port, "rules")["groups"]
        health = {each["name"]: each["health"] for group in groups for each in group["rules"]}
        assert len(health) > 15 and set(health.values()) <= {"ok", "unknown"}, health
        (target,) = asked(port, "targets")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")
        about = until(port, "barco_build_info")[0]["metric"]
        assert (about["version"], about["broker"]) == (barco.__version__, "0")
    finally:
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
    for gone in (port, first):
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", gone), timeout=1)


def test_without_a_prometheus_it_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        (sys.executable, str(SCRIPT), "--dir", str(tmp_path / "x")),
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1 and "no Prometheus" in done.stderr
    assert not (tmp_path / "x").exists()
