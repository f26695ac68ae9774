"""A storm of group consumers on a ring: they die, come back, poll, commit and leave all the time,
while brokers are killed and single processes stand still.

Consumers speak HTTP by hand, as plain clients do (most name no deliveries), or are processes with
barco's own client, and end by kill -9. `ledger.py` holds deliveries against acknowledgements.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from barco.supervisor.tied import start_tied
from faultlab.ledger import Batch, Ledger
from faultlab.load import place_of
from faultlab.ring import Node, Ring
from faultlab.wire import Answer, Wire, call

TOPIC = "storm"
STILL_S = 5.4
"""Longer than a worker waits for its siblings."""
PATIENCE_S = 3.0
"""A plain client gives up an answer after so long beyond its wait, and polls anew."""
KEYS = [f"key-{number}" for number in range(48)]
TROUBLE = (OSError, EOFError)


class Actor(threading.Thread, ABC):
    """Does one thing again and again, until it is told to stop."""

    def __init__(self, name: str, seed: int) -> None:
        super().__init__(name=name, daemon=True)
        self.random = random.Random(seed)
        self.stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.turn()
        except BaseException as error:
            self.failure = error
            raise

    @abstractmethod
    def turn(self) -> None:
        """Once."""

    def stop(self) -> None:
        """Returns when it has ended."""
        self.stopping.set()
        self.join(60)
        if self.failure is not None:
            raise AssertionError(f"{self.name} failed") from self.failure
        assert not self.is_alive(), self.name


class Writer(Actor):
    """Sends events, one after the other, each once."""

    def __init__(self, number: int, seed: int, ring: Ring, ledger: Ledger) -> None:
        super().__init__(f"writer-{number}", seed)
        self._ring, self._ledger, self._number = ring, ledger, 0

    def turn(self) -> None:
        self._number += 1
        key = self.random.choice(KEYS)
        value = f"{key}/{self.name} {self._number}"
        node = self.random.choice(self._ring.nodes)
        target = f"/v1/topic/{TOPIC}/messages?partitionKey={key}"
        with contextlib.suppress(*TROUBLE):
            if call(node.port, "POST", target, json.dumps(value).encode(), timeout=4).status == 200:
                self._ledger.was_acked(value)
        self.stopping.wait(0.02)


class Plain(Actor):
    """A consumer that polls every broker in turn over plain HTTP, and ends without a word."""

    def __init__(
        self, number: int, seed: int, ring: Ring, ledger: Ledger, session_s: float
    ) -> None:
        super().__init__(f"plain-{number}", seed)
        self._ring, self._ledger, self._session_s = ring, ledger, session_s
        self.group = ledger.groups[number % len(ledger.groups)]
        self.immortal = number < len(ledger.groups)
        """One of each group is always there, so that there is somebody to deliver to."""
        self._lives = 0
        self._id = ""
        self._wires: dict[int, Wire] = {}
        self._delivery: dict[int, str] = {}
        self._ends: dict[int, dict[int, int]] = {}
        self.hurried = False
        """It waits at no broker: what another one has meanwhile is not to be late for that."""
        self._names = self.random.random() < 0.25
        self._scope = self.random.choice(("", "&scope=broker"))
        """With none a broker also asks the others, which the consumer asks besides."""

    def turn(self) -> None:
        """One life."""
        self._lives += 1
        if self._lives == 1 or self.random.random() < 0.5:
            self._id = f"{self.group}-{self.name}-{self._lives}"  # Else the same name again.
        self._ends.clear()
        self._delivery.clear()
        if not self._register():
            return
        left = self.random.randrange(5, 60)
        while not self.stopping.is_set() and (self.immortal or left > 0):
            left -= 1
            for at, node in enumerate(self._ring.nodes):
                if not self._poll(at, node):
                    return
        if self.stopping.is_set() or self.random.random() < 0.3:
            self._goodbye()
        else:
            self._ledger.count("killed")
        self._hang_up()
        self.stopping.wait(self.random.random() * 2)

    def _hang_up(self) -> None:
        for wire in self._wires.values():
            wire.close()
        self._wires.clear()

    def _ask(self, at: int, method: str, target: str, patience_s: float) -> Answer | None:
        """None if there was no answer, or not all of it."""
        try:
            if at not in self._wires:
                self._wires[at] = Wire(self._ring.nodes[at].port, patience_s)
            wire = self._wires[at]
            wire._socket.settimeout(patience_s)
            answer = wire.call(method, target, headers={"Accept": "application/json"})
        except TROUBLE:
            if at in self._wires:
                self._wires.pop(at).close()
            return None
        if self.random.random() < 0.3:  # The next one is a worker of the kernel's choice.
            self._wires.pop(at).close()
        return answer

    def _register(self) -> bool:
        query = f"consumerId={self._id}&group={self.group}&topic={TOPIC}"
        query += f"&onNewGroup=startFromEarliest&sessionMs={int(self._session_s * 1000)}"
        while not self.stopping.is_set():
            at = self.random.randrange(len(self._ring.nodes))
            answer = self._ask(at, "PUT", f"/v1/consumer/register?{query}", 8.0)
            if answer is not None and answer.status == 200:
                self._ledger.count("registered")
                return True
            assert answer is None or answer.status >= 500, answer
            self.stopping.wait(0.2)
        return False

    def _poll(self, at: int, node: Node) -> bool:
        """False when this life is over: it died in the middle."""
        wait_s = 0.0 if self.hurried else self.random.choice((0.0, 0.1, 0.3))
        target = f"/v1/consumer/poll?consumerId={self._id}&waitMs={int(wait_s * 1000)}{self._scope}"
        if self._names:
            target += f"&delivery={self._delivery.get(at, '')}"
        asked = time.monotonic()
        answer = self._ask(at, "POST", target, wait_s + PATIENCE_S)
        if answer is None:
            self._ends.pop(at, None)  # Nobody knows what of it was committed.
            self.stopping.wait(0.05)
            return True
        if answer.status == 409:
            self._ledger.count("not registered")
            return self._register()
        assert answer.status in (200, 204, 503), answer
        if answer.status != 200:
            self._ends.pop(at, None)
            self.stopping.wait(0.05)
            return True
        if not self.immortal and self.random.random() < 0.03:
            self._ledger.count("killed with an answer")
            self._hang_up()
            return False
        batches = [
            Batch(
                place_of(node.placement, e["token"], e["rangeIndex"]),
                int(e["startOffset"]),
                e["values"],
            )
            for e in json.loads(answer.body)
        ]
        self._delivery[at] = answer.headers["barco-delivery"]
        self._ledger.was_given(self.group, self._id, asked, batches)
        self._ends[at] = {batch.place: batch.start + len(batch.values) for batch in batches}
        if self.random.random() < 0.15:
            self._commit(at)
        return True

    def _commit(self, at: int) -> None:
        """Of what this broker has given; now and then long after the consumer's slices went."""
        if self.random.random() < 0.05:
            self.stopping.wait(self._session_s + 1)
            self._ledger.count("stale commits")
        target = f"/v1/consumer/commit?consumerId={self._id}"
        if self._names:
            target += f"&delivery={self._delivery.get(at, '')}"
        answer = self._ask(at, "POST", target, 12.0)
        ends = self._ends.pop(at, {})
        if answer is not None and answer.status == 204:
            self._ledger.was_committed(self.group, ends)

    def _goodbye(self) -> None:
        self._ledger.count("goodbyes")
        at = self.random.randrange(len(self._ring.nodes))
        commit = self.random.choice(("true", "false"))
        self._ask(at, "POST", f"/v1/consumer/goodbye?consumerId={self._id}&commit={commit}", 12.0)


class Own(Actor):
    """barco's client in a process of its own, which dies by kill -9 and is started again."""

    SCRIPT = """
import json, sys, barco
topic, group, name, session_s, *endpoints = sys.argv[1:]
consumer = barco.Consumer(topic, group, endpoints, start="earliest", consumer_id=name,
                          session_seconds=float(session_s))
while True:
    if events := consumer.poll(1.0):
        print(json.dumps([event.value.decode() for event in events]), flush=True)
"""

    def __init__(
        self, number: int, seed: int, ring: Ring, ledger: Ledger, session_s: float
    ) -> None:
        super().__init__(f"own-{number}", seed)
        self._ring, self._ledger, self._session_s = ring, ledger, session_s
        self.group = ledger.groups[number % len(ledger.groups)]
        self._lives = 0

    def turn(self) -> None:
        """One life."""
        self._lives += 1
        name = f"{self.group}-{self.name}-{self._lives // 2}"
        endpoints = [f"{host}:{port}" for host, port in (node.port for node in self._ring.nodes)]
        arguments = [TOPIC, self.group, name, str(self._session_s), *endpoints]
        process = start_tied(
            [sys.executable, "-c", self.SCRIPT, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        reader = threading.Thread(target=self._read, args=(process, name), daemon=True)
        reader.start()
        self.stopping.wait(self.random.uniform(2, 15))
        process.kill()
        process.wait()
        reader.join()
        self._ledger.count("killed")

    def _read(self, process: "subprocess.Popen[bytes]", name: str) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.endswith(b"\n"):
                values = [json.loads(value) for value in json.loads(line)]
                by_key = [Batch(-1, 0, values)]
                self._ledger.was_given(self.group, name, 0.0, by_key)
        process.stdout.close()


class Storm:
    """All of it. `run` hurts for so long, lets it calm down, and returns what it came to."""

    def __init__(
        self, root: Path, seed: int, *, consumers: int = 55, owners: int = 3, session_s: float = 5.0
    ) -> None:
        self.random = random.Random(seed)
        self.ledger = Ledger(["g0", "g1", "g2"])
        self.session_s = session_s
        self.ring = Ring(root)
        seeds = iter([self.random.getrandbits(32) for _ in range(consumers + owners + 2)])
        self._writers = [Writer(n, next(seeds), self.ring, self.ledger) for n in range(2)]
        given = (self.ring, self.ledger, session_s)
        self._consumers: list[Actor] = [Plain(n, next(seeds), *given) for n in range(consumers)]
        self._consumers += [Own(n, next(seeds), *given) for n in range(owners)]

    # --- Faults ---------------------------------------------------------------------------------

    def _kill_broker(self) -> None:
        node = self.random.choice(self.ring.nodes)
        node.kill()
        time.sleep(self.random.choice((0.0, 0.5, 2.0)))
        node.begin()
        node.await_ready()

    def _kill_all(self) -> None:
        self.ring.kill()
        self.ring.restart()

    def _stop_worker(self) -> None:
        node = self.random.choice(self.ring.nodes)
        pid = self.random.choice(node.pids)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(STILL_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def _stop_broker(self) -> None:
        node = self.random.choice(self.ring.nodes)
        node.signal(signal.SIGSTOP)
        time.sleep(self.random.uniform(0.5, STILL_S))
        node.signal(signal.SIGCONT)

    # --- The whole --------------------------------------------------------------------------------

    def run(self, seconds: float) -> dict[str, float]:
        """Figures; `ledger.wrong` says what broke."""
        self.ring.start()
        for actor in [*self._writers, *self._consumers]:
            actor.start()
        faults: list[tuple[str, Callable[[], None]]] = [
            ("kill a broker", self._kill_broker),
            ("stop a worker", self._stop_worker),
            ("stop a worker", self._stop_worker),
            ("stop a broker", self._stop_broker),
            ("kill all", self._kill_all),
        ]
        until = time.monotonic() + seconds
        number = 0
        while time.monotonic() < until:
            name, inflict = faults[number % len(faults)]
            number += 1
            inflict()
            self.ledger.count(name)
            time.sleep(self.random.uniform(0.5, 2.0))
        return self._calm_down()

    def _calm_down(self) -> dict[str, float]:
        """The last fault is that most consumers die at once."""
        for writer in self._writers:
            writer.stop()
        self.ring.wait_ready()
        mortal = [c for c in self._consumers if not getattr(c, "immortal", False)]
        for consumer in self._consumers:
            if consumer not in mortal:
                consumer.hurried = True  # type: ignore[attr-defined]
        first = time.monotonic()
        self._drop(mortal)
        last = time.monotonic()
        worst = self._await_all(last)
        self.ledger.check_log()
        for consumer in self._consumers:
            if consumer not in mortal:
                consumer.stop()
        figures = {"seconds to the last": worst, "seconds of dying": last - first}
        return figures | dict(self.ledger.counts)

    def _drop(self, consumers: list[Actor]) -> None:
        """They end without goodbye, all at once."""
        for consumer in consumers:
            consumer._goodbye = lambda: None  # type: ignore[attr-defined]
            consumer.stopping.set()
        for consumer in consumers:
            consumer.stop()

    def _await_all(self, since: float) -> float:
        """How long it took until nothing was missing, as consumers have it and not as it is looked
        at here; what is after the time for it is wrong."""
        limit = self.session_s + 5
        while time.monotonic() < since + limit:
            if not any(self.ledger.missing(group) for group in self.ledger.groups):
                return max(
                    0.0, *(self.ledger.latest(group) - since for group in self.ledger.groups)
                )
            time.sleep(0.1)
        for group in self.ledger.groups:
            if missing := self.ledger.missing(group):
                self.ledger.wrong.append(
                    f"{group}: {len(missing)} of {len(self.ledger.acked)} are not delivered "
                    f"{limit:.0f} s after the last fault, such as {missing[:3]}"
                )
                self.ledger.wrong += self._views(group)
        return float("inf")

    def _views(self, group: str) -> list[str]:
        """What each broker says of a group."""
        found = []
        for node in self.ring.nodes:
            try:
                found.append(call(node.port, "GET", f"/v1/groups/{group}").body.decode())
            except TROUBLE as error:
                found.append(repr(error))
        return found

    def close(self) -> None:
        """Whatever still runs ends."""
        for actor in [*self._writers, *self._consumers]:
            actor.stopping.set()
        self.ring.close()
