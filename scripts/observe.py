#!/usr/bin/env python3
"""`make observe`: a broker, and a Prometheus that looks at it by the rules of packaging/observe.

    scripts/observe.py                              the broker on 127.0.0.1:9250, or a new one there
    scripts/observe.py --endpoint H:9250,I:9250     these brokers, and none is started

It goes on until Ctrl-C, which ends what it has started. Everything is in .observe/: the broker's
data and log, Prometheus' configuration, data and log. Prometheus is that of the system.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import barco
from barco.errors import BarcoError
from barco.supervisor.tied import start_tied

ROOT = Path(__file__).resolve().parents[1]
OBSERVE = ROOT / "packaging" / "observe"
START_SECONDS, STOP_SECONDS, STEP_SECONDS = 60.0, 30.0, 0.2
SCRAPE_SECONDS = 2
TARGETS = '- targets: ["127.0.0.1:9253"]'
"""In prometheus.yml, of a broker as it is installed."""

NO_PROMETHEUS = """\
There is no Prometheus on this machine (Debian: apt-get install prometheus). Without it the console
of a broker, http://BROKER:9250/, has charts of the last hour, and `barco top` shows how it is now.
"""


class ObserveError(Exception):
    """It can not go on; the text says why."""


@dataclass
class Started:
    """What was started here, and is to end with this."""

    root: Path
    children: "list[tuple[str, subprocess.Popen[Any]]]" = field(default_factory=list)

    def start(self, name: str, command: Sequence[str]) -> None:
        """In the background, with a log of its own."""
        with (self.root / f"{name}.log").open("ab") as log:
            child = start_tied(command, stdout=log, stderr=subprocess.STDOUT)
        self.children.append((name, child))

    def check(self) -> None:
        """ObserveError: one of them has ended."""
        for name, child in self.children:
            if child.poll() is not None:
                last = (self.root / f"{name}.log").read_text("utf-8", "replace").splitlines()[-3:]
                raise ObserveError(f"{name} ended with {child.returncode}:\n" + "\n".join(last))

    def stop(self) -> None:
        """Asks each to end, the last one first, and waits."""
        for _, child in reversed(self.children):
            if child.poll() is None:
                child.terminate()
                try:
                    child.wait(STOP_SECONDS)
                except subprocess.TimeoutExpired:
                    child.kill()
                    child.wait()


def configuration(endpoints: Sequence[str]) -> str:
    """packaging/observe/prometheus.yml for these brokers, looked at more often."""
    text = (OBSERVE / "prometheus.yml").read_text("utf-8")
    assert TARGETS in text
    text = text.replace(TARGETS, f"- targets: {json.dumps(list(endpoints))}")
    text = text.replace("_interval: 15s", f"_interval: {SCRAPE_SECONDS}s")
    return text.replace("rules.yml", str(OBSERVE / "rules.yml"))


def answers(url: str) -> bool:
    """Whether somebody answers there, with 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def until(started: Started, what: str, url: str) -> None:
    """Waits for it; ObserveError: it does not come, or something ended."""
    deadline = time.monotonic() + START_SECONDS
    while not answers(url):
        started.check()
        if time.monotonic() > deadline:
            raise ObserveError(f"{what} does not answer at {url} after {START_SECONDS:g} s")
        time.sleep(STEP_SECONDS)


def begin(args: argparse.Namespace, started: Started, prometheus: str) -> str:
    """Starts what is missing; what somebody has to know who looks."""
    endpoints = [each for each in args.endpoint.split(",") if each]
    if not endpoints:
        endpoints = [f"127.0.0.1:{args.ports_from}"]
        if not answers(f"http://{endpoints[0]}/ready"):
            serve = [sys.executable, "-P", "-m", "barco", "serve"]
            serve += ["--data-dir", str(started.root / "data")]
            started.start("broker", [*serve, "--ports-from", str(args.ports_from)])
            until(started, "The broker", f"http://{endpoints[0]}/ready")
    config = started.root / "prometheus.yml"
    config.write_text(configuration(endpoints))
    command = [prometheus, f"--config.file={config}", "--log.level=warn"]
    command += [f"--storage.tsdb.path={started.root / 'prometheus'}"]
    command += ["--storage.tsdb.retention.time=1d"]
    started.start("prometheus", [*command, f"--web.listen-address=127.0.0.1:{args.port}"])
    own = f"http://127.0.0.1:{args.port}"
    until(started, "Prometheus", f"{own}/-/ready")
    with barco.Admin(endpoints[0]) as admin:
        version = admin.status().get("version", "")
    return f"""\
barco {version}   http://{endpoints[0]}/console
Prometheus      {own}/graph, alerts at {own}/alerts
The board       {OBSERVE / "board.json"}: in Grafana, Dashboards, New, Import;
                its source is a Prometheus at {own}
Ctrl-C ends {" and ".join(name for name, _ in started.children)}.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Until it is told to end: 0; 1: something is missing, or ended."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--endpoint", default="", help="brokers that run, with commas")
    parser.add_argument("--ports-from", type=int, default=9250, help="of a broker to be started")
    parser.add_argument("--port", type=int, default=9090, help="of Prometheus")
    parser.add_argument("--dir", type=Path, default=ROOT / ".observe", help="where everything is")
    args = parser.parse_args(arguments)
    prometheus = shutil.which("prometheus")
    if prometheus is None:
        print(NO_PROMETHEUS, end="", file=sys.stderr)
        return 1
    args.dir.mkdir(parents=True, exist_ok=True)
    started, end = Started(args.dir.resolve()), threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: end.set())
    try:
        print(begin(args, started, prometheus), end="", flush=True)
        while not end.wait(1.0):
            started.check()
    except (ObserveError, BarcoError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        started.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
