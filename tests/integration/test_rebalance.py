"""Consumers that are told of their slices, at three real brokers, while others come and go."""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import barco

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster
from joining import three, undisturbed

SECONDS = 120.0
"""Generous: it only ends what has failed."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    yield from three(tmp_path)


class Watch:
    """What all consumers are told and get, under one lock."""

    def __init__(self, endpoint: str, topic: str) -> None:
        self.endpoint, self.topic = endpoint, topic
        self.lock = threading.Lock()
        self.reads: dict[str, set[barco.TopicSlice]] = {}
        self.seen: Counter[int] = Counter()
        self.wrong: list[str] = []
        self.holder: dict[barco.TopicSlice, str] = {}
        """Who got the last event of each."""
        self.moves = 0

    def assigned(self, name: str, some: list[barco.TopicSlice]) -> None:
        with self.lock:
            self.moves += len(some)
            if self.reads[name] & set(some):
                self.wrong.append(f"{name} was told twice of {some}")
            self.reads[name] |= set(some)

    def revoked(self, name: str, some: list[barco.TopicSlice]) -> None:
        with self.lock:
            if not self.reads[name] >= set(some):
                self.wrong.append(f"{name} never had {some}")
            self.reads[name] -= set(some)

    def got(self, name: str, events: list[barco.Event]) -> None:
        with self.lock:
            for event in events:
                self.seen[int(event.value or b"")] += 1
                of = barco.TopicSlice(event.topic, event.slice, event.token)
                if of not in self.reads[name]:
                    self.wrong.append(f"{name} got an event of {of}, and was not told of it")
                before = self.holder.get(of, name)
                if before != name and of in self.reads.get(before, ()):
                    self.wrong.append(f"{name} got an event of {of}, which {before} still reads")
                self.holder[of] = name


class Reading(threading.Thread):
    """One consumer, until it is asked to stop."""

    def __init__(self, watch: Watch, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.watch, self.ending = watch, threading.Event()
        watch.reads[name] = set()
        self.consumer = barco.Consumer(
            watch.topic,
            group=f"g-{watch.topic}",
            endpoint=watch.endpoint,
            start="earliest",
            consumer_id=f"{watch.topic}-{name}",
            on_assigned=lambda some: watch.assigned(name, some),
            on_revoked=lambda some: watch.revoked(name, some),
        )

    def run(self) -> None:
        with self.consumer:
            while not self.ending.is_set():
                self.watch.got(self.name, self.consumer.poll(0.5))

    def stop(self) -> None:
        self.ending.set()
        self.join(SECONDS)
        assert not self.is_alive()


def until(what: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.1)


def test_nobody_gets_events_of_a_slice_before_who_had_it_was_told(cluster: LocalCluster) -> None:
    undisturbed(cluster, lambda topic: comes_and_goes(Watch(f"{cluster.hosts[0]}:9250", topic)))


@contextmanager
def ended(readers: list[Reading]) -> Iterator[None]:
    """Whatever fails meanwhile, nobody goes on."""
    try:
        yield
    finally:
        for each in readers:
            each.ending.set()


def comes_and_goes(watch: Watch) -> None:
    made = 0
    readers: list[Reading] = []
    with barco.Producer(watch.endpoint) as producer, ended(readers):

        def produce() -> None:
            nonlocal made
            futures = [
                producer.send(watch.topic, str(number), key=f"k{number}")
                for number in range(made, made + 240)
            ]
            made += 240
            for future in futures:
                future.result(SECONDS)

        produce()
        for step in ("+a", "+b", "+c", "-a", "+d", "-c"):
            name = step[1]
            if step[0] == "+":
                readers.append(Reading(watch, name))
                readers[-1].start()
            else:
                gone = next(each for each in readers if each.name == name)
                readers.remove(gone)
                gone.stop()
            produce()
            until(lambda: len(watch.seen) == made)
            until(lambda: sum(map(len, watch.reads.values())) == 24)
        moves = watch.moves
        for each in readers:
            each.stop()
    assert not watch.wrong, watch.wrong[:5]
    assert watch.seen == Counter(dict.fromkeys(range(made), 1)), "each once, for all lived"
    # Joins move a share, 24, 12, 8 and 8 slices; leaves two at most.
    assert moves <= 24 + 12 + 8 + 2 * 8 + 8 + 2 * 8
