"""Producers of every kind, a group and a stateless reader, each a thread, all writing history."""

import itertools
import json
import random
import threading
import time
from collections.abc import Callable, Sequence
from urllib.parse import quote

from barco import _native
from barco.model.placement import Placement
from barco.types import Token
from faultlab.broker import Broker
from faultlab.history import History, make_value
from faultlab.wire import Answer, Wire, request

BATCH = "application/vnd.barco.batch"
NDJSON = "application/x-ndjson"


def place_of(placement: Placement, token: str, index: int) -> int:
    """The number of a slice within the whole ring."""
    at = placement.locate(Token(int(token)))[0]
    return at * placement.slices_per_range + index


def slice_path(placement: Placement, topic: str, place: int) -> str:
    """Where the events of a slice are read."""
    at, index = divmod(place, placement.slices_per_range)
    return f"/v1/topic/{topic}/slices/{placement.token(at)}/{index}/events"


class Worker(threading.Thread):
    """A client: goes on until told to stop, connects again whenever it must."""

    def __init__(self, load: "Load", name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.load, self.proc = load, name
        self.random = random.Random(f"{load.seed} {name}")
        self.wire: Wire | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.load.stopping.is_set():
                if self.connect():
                    self.step()
        except BaseException as error:  # noqa: BLE001
            self.error = error
        finally:
            self.hang_up()

    def connect(self) -> bool:
        """Whether there is a connection now; now and then to another listener."""
        if self.wire is not None and self.random.random() < 0.01:
            self.hang_up()
        if self.wire is None:
            try:
                self.wire = Wire(self.random.choice(self.load.broker.ports))
            except OSError:
                time.sleep(0.02)
                return False
        return True

    def hang_up(self) -> None:
        """The next step gets a new connection."""
        if self.wire is not None:
            self.wire.close()
            self.wire = None

    def step(self) -> None:
        """One turn."""
        raise AssertionError

    def pace(self, most_s: float) -> None:
        """A client is not a benchmark."""
        time.sleep(self.random.random() * most_s * self.load.ease)


class Producer(Worker):
    """Writes its own numbers, in order."""

    def __init__(self, load: "Load", name: str) -> None:
        super().__init__(load, name)
        self.numbers = itertools.count()
        self.sequence = 0

    def target(self, key: str | None) -> str:
        """Where its events go."""
        query = "" if key is None else f"?partitionKey={quote(key)}"
        return f"/v1/topic/{self.load.topic}/messages{query}"

    def ask(self, requests: Sequence[bytes]) -> list[Answer | None]:
        """Pipelined: an answer for each, None from where the connection broke."""
        assert self.wire is not None
        answers: list[Answer | None] = []
        try:
            self.wire.send(b"".join(requests))
            for _ in requests:
                answers.append(self.wire.answer())
        except (OSError, EOFError):
            self.hang_up()
        return answers + [None] * (len(requests) - len(answers))

    def record(
        self,
        key: str | None,
        numbers: Sequence[int],
        t0: float,
        answer: Answer | None,
        *,
        attempts: int = 1,
        idempotent: bool = False,
        outcome: str | None = None,
    ) -> None:
        """One operation has ended."""
        self.load.history.add(
            {
                "f": "send",
                "t0": t0,
                "t1": time.monotonic(),
                "proc": self.proc,
                "type": outcome or (answer.outcome if answer is not None else "info"),
                "topic": self.load.topic,
                "key": key,
                "ns": list(numbers),
                "status": answer.status if answer is not None else 0,
                "pid": self.proc if idempotent else None,
                "attempts": attempts,
            }
        )

    def producer_headers(self, sequence: int) -> dict[str, str]:
        """So that a retry is told from a new event."""
        return {
            "Producer-Id": f"{self.load.topic}-{self.proc}",
            "Producer-Epoch": "0",
            "Producer-Seq": str(sequence),
        }


class Single(Producer):
    """Keyed events (or without keys), one at a time or pipelined, never retried."""

    depth, keyed = 1, True

    def step(self) -> None:
        key = f"{self.proc}-{self.random.randrange(3)}" if self.keyed else None
        numbers = [next(self.numbers) for _ in range(self.depth)]
        bodies = [make_value(self.proc, number, key) for number in numbers]
        t0 = time.monotonic()
        target = self.target(key)
        for number, answer in zip(
            numbers, self.ask([request("POST", target, body) for body in bodies]), strict=True
        ):
            self.record(key, [number], t0, answer)
        self.pace(0.006)


class Pipelined(Single):
    """Sixteen at once on a connection."""

    depth = 16


class Keyless(Single):
    """The receiving worker chooses the slice."""

    depth, keyed = 4, False


class Lines(Producer):
    """NDJSON bodies, not retried: stored whole or not at all."""

    def step(self) -> None:
        key = f"{self.proc}-k"
        numbers = [next(self.numbers) for _ in range(self.random.randrange(1, 60))]
        body = b"\n".join(make_value(self.proc, number, key) for number in numbers)
        t0 = time.monotonic()
        (answer,) = self.ask([request("POST", self.target(key), body, {"Content-Type": NDJSON})])
        self.record(key, numbers, t0, answer)
        self.pace(0.02)


class Batches(Producer):
    """Binary batches whose events have many keys, so they are split among slices and workers."""

    def step(self) -> None:
        numbers = [next(self.numbers) for _ in range(self.random.randrange(1, 50))]
        keys = [f"{self.proc}-{self.random.randrange(12)}" for _ in numbers]
        values = [make_value(self.proc, n, k) for n, k in zip(numbers, keys, strict=True)]
        body = _native.batch_encode(values, [key.encode() for key in keys])
        t0 = time.monotonic()
        (answer,) = self.ask([request("POST", self.target(None), body, {"Content-Type": BATCH})])
        for number, key in zip(numbers, keys, strict=True):
            self.record(key, [number], t0, answer)
        self.pace(0.03)


class Idempotent(Producer):
    """A producer id: retries with the same sequence until it knows. `depth` are under way."""

    depth = 1

    def __init__(self, load: "Load", name: str) -> None:
        super().__init__(load, name)
        self.key = f"{name}-id"
        self.waiting: list[tuple[int, list[int], bytes, float]] = []
        self.attempts = 0

    def body(self) -> tuple[list[int], bytes, dict[str, str]]:
        """The next request: its numbers, its body, further headers."""
        number = next(self.numbers)
        return [number], make_value(self.proc, number, self.key), {}

    def step(self) -> None:
        while len(self.waiting) < self.depth:
            numbers, body, headers = self.body()
            headers |= self.producer_headers(self.sequence)
            bytes_ = request("POST", self.target(self.key), body, headers)
            self.waiting.append((self.sequence, numbers, bytes_, time.monotonic()))
            self.sequence += 1
        self.attempts += 1
        answers = self.ask([waiting[2] for waiting in self.waiting])
        first = self.attempts == 1
        done = 0
        for (_, numbers, _, t0), answer in zip(self.waiting, answers, strict=True):
            if answer is None or answer.outcome != "ok":
                if answer is not None and done == 0 and answer.status in (403, 409):
                    # In order and from zero: there is no reason to refuse the oldest of them.
                    self.record(self.key, numbers, t0, answer, idempotent=True, outcome="gap")
                break
            self.record(self.key, numbers, t0, answer, idempotent=True, attempts=1 if first else 2)
            done += 1
        self.waiting = self.waiting[done:]
        if not self.waiting:
            self.attempts = 0
        self.pace(0.005)

    def run(self) -> None:
        super().run()
        for _, numbers, _, t0 in self.waiting:
            self.record(self.key, numbers, t0, None, idempotent=True)


class IdempotentPipelined(Idempotent):
    """Eight sequences under way; after a break all from the first unknown one."""

    depth = 8


class IdempotentLines(Idempotent):
    """NDJSON with a producer id."""

    depth = 2

    def body(self) -> tuple[list[int], bytes, dict[str, str]]:
        numbers = [next(self.numbers) for _ in range(self.random.randrange(1, 40))]
        values = [make_value(self.proc, number, self.key) for number in numbers]
        return numbers, b"\n".join(values), {"Content-Type": NDJSON}


class IdempotentBatches(Idempotent):
    """Binary batches with a producer id: one key, so one slice."""

    depth = 2

    def target(self, key: str | None) -> str:
        return super().target(None)

    def body(self) -> tuple[list[int], bytes, dict[str, str]]:
        numbers = [next(self.numbers) for _ in range(self.random.randrange(1, 80))]
        values = [make_value(self.proc, number, self.key) for number in numbers]
        keys = [self.key.encode()] * len(numbers)
        return numbers, _native.batch_encode(values, keys), {"Content-Type": BATCH}


class Refused(Producer):
    """Requests that must be refused and must never be seen: check C4."""

    def step(self) -> None:
        number = next(self.numbers)
        key = f"{self.proc}-r"
        body = make_value(self.proc, number, key)
        kind = number % 4
        target, headers = self.target(key), {}
        if kind == 0:
            headers = self.producer_headers(1_000_000 + number)  # A gap: 409.
        elif kind == 1:
            target += "&timestamp=never"
        elif kind == 2:
            headers = {"Content-Encoding": "br"}
        else:
            body = body + b"\n" + b"x" * (1 << 17)  # Its second line is over the limit.
            headers = {"Content-Type": NDJSON}
        t0 = time.monotonic()
        (answer,) = self.ask([request("POST", target, body, headers)])
        self.record(key, [number], t0, answer)
        self.hang_up()
        self.pace(0.1)


class Group(Worker):
    """A group of one consumer: polls, commits, and asks what is committed. It goes from broker to
    broker, so it names what it has received: else that comes again from the next one."""

    def __init__(self, load: "Load", name: str) -> None:
        super().__init__(load, name)
        self.session = 0
        self.registered = False
        self.received = ""
        self.group = f"g-{load.topic}"

    def step(self) -> None:
        assert self.wire is not None
        try:
            if not self.registered:
                self.session += 1
                self.received = ""
                target = f"/v1/consumer/register?{self._query()}&group={self.group}"
                target += f"&topic={self.load.topic}&onNewGroup=startFromEarliest"
                self.registered = self.wire.call("PUT", target).status == 200
                time.sleep(0 if self.registered else 0.05)
                return
            answer = self.wire.call(
                "POST",
                f"/v1/consumer/poll?{self._query()}&waitMs=100&maxBytes=300000",
                headers={"Accept": NDJSON},
            )
            if answer.status == 200:
                self._polled(answer)
                self.received = answer.headers["barco-delivery"]
            elif answer.status != 204:
                self.registered = False
                time.sleep(0.02)
            if self.random.random() < 0.3:
                self._committed()
        except (OSError, EOFError):
            self.hang_up()
            self.registered = False

    def _polled(self, answer: Answer) -> None:
        events = []
        for line in answer.body.splitlines():
            event = json.loads(line)
            fields = ("token", "rangeIndex", "version", "offset", "key", "value")
            token, index, epoch, offset, key, value = (event[name] for name in fields)
            place = place_of(self.load.broker.placement, token, index)
            events.append([place, epoch, int(offset), key, value])
        self.load.seen("poll", self, events)

    def _query(self) -> str:
        received = f"&delivery={quote(self.received)}" if self.received else ""
        return f"consumerId={self.proc}{received}"

    def _committed(self) -> None:
        assert self.wire is not None
        t0 = time.monotonic()
        answer = self.wire.call("POST", f"/v1/consumer/commit?{self._query()}")
        if answer.status != 204:
            return
        answer = self.wire.call("GET", f"/v1/groups/{self.group}")
        if answer.status == 200:
            self.load.positions(self.group, t0, answer)


class Reader(Worker):
    """Stateless reads from the start of a slice on: what was seen once must stay."""

    def __init__(self, load: "Load", name: str) -> None:
        super().__init__(load, name)
        placement = load.broker.placement
        places = range(placement.size * placement.slices_per_range)
        self.cursors = dict.fromkeys(places, "earliest")
        self.session = 0

    def step(self) -> None:
        assert self.wire is not None
        slice_ = self.random.choice(list(self.cursors))
        target = slice_path(self.load.broker.placement, self.load.topic, slice_)
        target += f"?from={self.cursors[slice_]}&maxBytes=300000"
        try:
            answer = self.wire.call(
                "GET", target, headers={"Accept": "application/vnd.barco.chunks"}
            )
        except (OSError, EOFError):
            self.hang_up()
            return
        if answer.status == 200:
            slices = self.load.broker.placement.slices_per_range
            self.load.seen("read", self, chunk_events(answer, slice_, slices))
        if answer.status in (200, 204):
            self.cursors[slice_] = answer.headers["barco-next-cursor"]
        elif 400 <= answer.status < 500 and answer.status not in (404, 429):
            raise AssertionError(f"a cursor of the broker's own: {answer.status} {answer.body!r}")
        self.pace(0.03)


def chunk_events(answer: Answer, slice_: int, slices: int) -> list[list[object]]:
    """[slice, epoch, offset, key, value] of an answer in stored chunks."""
    events: list[list[object]] = []
    start = 0
    if skip := answer.headers.get("barco-start"):
        start = int(skip.rpartition("@")[2])
    for at, _, _, found, epoch, *_ in _native.chunks_scan(answer.body):
        assert found % slices == slice_ % slices, "of another slice than was asked for"
        for offset, _, key, value in _native.chunk_events(answer.body, at):
            if offset >= start:
                text = key.decode() if key is not None else None
                events.append([slice_, epoch, offset, text, value.decode("latin-1")])
    return events


PRODUCERS: tuple[type[Producer], ...] = (
    Single,
    Pipelined,
    Keyless,
    Lines,
    Batches,
    Idempotent,
    IdempotentPipelined,
    IdempotentLines,
    IdempotentBatches,
    Refused,
)


class Load:
    """All of them together on one topic."""

    def __init__(
        self,
        broker: Broker,
        history: History,
        *,
        topic: str,
        seed: int,
        turn: int = 0,
        producers: Sequence[type[Producer]] = PRODUCERS,
        ease: float = 1.0,
    ) -> None:
        """`ease`: clients wait so much longer than usual between two requests."""
        self.ease = ease
        self.broker, self.history, self.topic, self.seed = broker, history, topic, seed
        self.stopping = threading.Event()
        make: list[Callable[[], Worker]] = [
            lambda kind=kind: kind(self, f"{kind.__name__}{turn}") for kind in producers
        ]
        make += [lambda: Group(self, "Group"), lambda: Reader(self, f"Reader{turn}")]
        self.workers = [each() for each in make]

    def start(self) -> "Load":
        """Everybody begins."""
        for worker in self.workers:
            worker.start()
        return self

    def stop(self) -> None:
        """Everybody ends; a client's own error is the test's."""
        self.stopping.set()
        for worker in self.workers:
            worker.join(30)
            assert not worker.is_alive(), worker.name
        for worker in self.workers:
            if worker.error is not None:
                raise worker.error

    def seen(self, what: str, reader: "Group | Reader", events: list[list[object]]) -> None:
        """Events were delivered."""
        self.history.add(
            {
                "f": what,
                "t1": time.monotonic(),
                "proc": reader.proc,
                "session": reader.session,
                "topic": self.topic,
                "events": events,
            }
        )

    def positions(self, group: str, t0: float, answer: Answer) -> None:
        """The group's committed offsets, as the broker says."""
        places = json.loads(answer.body)["positions"]
        positions = {
            place_of(self.broker.placement, each["token"], each["rangeIndex"]): int(each["offset"])
            for each in places
        }
        self.history.add(
            {
                "f": "commit",
                "t0": t0,
                "t1": time.monotonic(),
                "group": group,
                "topic": self.topic,
                "positions": positions,
            }
        )
