"""Idempotent producers, a pipeline that is killed again and again, brokers that are: and what is at
the other end."""

import random
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import barco
from barco.errors import BarcoError
from barco.supervisor.tied import start_tied

PROGRAM = Path(__file__).resolve().parents[2] / "integration" / "piped.py"
SOURCE, SINK, NAME = "pipe-a", "pipe-b", "storm"
KEYS = 24
RATE = 400
"""Events a second, about, of both producers together."""

PATIENCE_S = 240.0


class Producers(threading.Thread):
    """Numbers for each key, in order, through whatever happens."""

    def __init__(self, endpoints: list[str], first_key: int) -> None:
        super().__init__(name=f"producer-{first_key}", daemon=True)
        self.sent: dict[bytes, list[int]] = defaultdict(list)
        self.failed: list[str] = []
        self.ended = threading.Event()
        self._endpoints = endpoints
        self._keys = [b"key-%d" % n for n in range(first_key, KEYS, 2)]

    def run(self) -> None:
        with barco.Producer(self._endpoints, delivery_timeout_s=PATIENCE_S) as producer:
            number = 0
            while not self.ended.wait(2 * len(self._keys) / RATE):
                asked = []
                for key in self._keys:
                    self.sent[key].append(number)
                    asked.append(producer.send(SOURCE, b"%d" % number, key=key))
                number += 1
                if number % 8 == 0:
                    for each in asked:
                        try:
                            each.result(PATIENCE_S)
                        except (BarcoError, TimeoutError) as error:
                            self.failed.append(str(error))


class PipeStorm:
    """Some time of it, on a cluster of scripts/cluster.py that runs."""

    def __init__(self, cluster: Any, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.producers = [Producers(cluster.endpoints, first) for first in (0, 1)]
        self.log = cluster.root / "pipelines.log"
        self.killed: Counter[str] = Counter()
        self._pipelines: list[subprocess.Popen[bytes]] = []

    def run(self, seconds: float) -> dict[str, int]:
        """Figures; AssertionError if something was lost, came twice or out of order."""
        for each in self.producers:
            each.start()
        self._wait_for_the_first()
        until = time.monotonic() + seconds
        away: tuple[int, float] | None = None
        self._start()
        while time.monotonic() < until:
            time.sleep(self.random.uniform(0.2, 1.2))
            self._hurt_a_pipeline()
            if away is not None and time.monotonic() > away[1]:
                self.cluster.start(away[0])
                away = None
            elif away is None and self._whole() and self.random.random() < 0.3:
                ordinal = self.random.randrange(3)
                self.cluster.kill(ordinal)
                self.killed["broker"] += 1
                away = (ordinal, time.monotonic() + self.random.uniform(0.5, 4.0))
        if away is not None:
            self.cluster.start(away[0])
        for producer in self.producers:
            producer.ended.set()
            producer.join(PATIENCE_S)
        self._end_pipelines()
        return self._check()

    def _wait_for_the_first(self) -> None:
        until = time.monotonic() + PATIENCE_S
        with barco.Admin(self.cluster.endpoints) as admin:
            while True:
                try:
                    admin.slices(SOURCE)
                    return
                except BarcoError:
                    assert time.monotonic() < until
                    time.sleep(0.1)

    def _whole(self) -> bool:
        return all(self.cluster.status(n).get("inSync") for n in range(3))

    def _start(self) -> None:
        """One more; some kill themselves at a step."""
        arguments = [",".join(self.cluster.endpoints), SOURCE, SINK, NAME]
        if self.random.random() < 0.5:
            step = self.random.choice(["stage", "prepare", "decide", "decided", "commit"])
            arguments += [step, str(self.random.randrange(1, 12))]
        with self.log.open("ab") as log:
            program = [sys.executable, str(PROGRAM), *arguments]
            self._pipelines.append(start_tied(program, stdout=log, stderr=log))

    def _hurt_a_pipeline(self) -> None:
        """The one that runs is killed, or fenced by another, or left alone."""
        for each in [each for each in self._pipelines if each.poll() is not None]:
            self._pipelines.remove(each)
            self.killed["fenced" if each.returncode == 1 else "itself"] += 1
        if self._pipelines and self.random.random() < 0.3:
            victim = self._pipelines.pop(0)
            victim.kill()
            victim.wait()
            self.killed["pipeline"] += 1
        if not self._pipelines or self.random.random() < 0.15:
            self._start()

    def _end_pipelines(self) -> None:
        for each in self._pipelines:
            each.kill()
            each.wait()
        self.cluster.wait_ready()
        pipeline = barco.Pipeline(SOURCE, SINK, NAME, self.cluster.endpoints, timeout_s=PATIENCE_S)
        pipeline.run(lambda event: barco.Output(event.value, event.key), to_end=True)

    def _check(self) -> dict[str, int]:
        sent = {key: each for one in self.producers for key, each in one.sent.items()}
        failed = [each for one in self.producers for each in one.failed]
        assert not failed, failed[:3]
        found: dict[bytes | None, list[int]] = defaultdict(list)
        for event in barco.read(SINK, self.cluster.endpoints):
            found[event.key].append(int(event.value))
        lost = sum(len(set(each) - set(found[key])) for key, each in sent.items())
        twice = sum(len(each) - len(set(each)) for each in found.values())
        turned = sum(each != sorted(each) for each in found.values())
        events = sum(map(len, sent.values()))
        assert (lost, twice, turned) == (0, 0, 0), f"of {events}: {lost}, {twice}, {turned}"
        assert dict(found) == sent
        return {"events": events, **self.killed}
