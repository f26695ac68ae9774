"""A consumer that pauses slices and goes to other places, at one broker and at three."""

import asyncio
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from running import RunningBroker

import barco

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from cluster import LocalCluster
from joining import three

SECONDS = 60.0
"""Generous: it only ends what has failed."""


def endpoint(broker: RunningBroker) -> str:
    return f"127.0.0.1:{broker.port('discovery')}"


def send(where: str, *numbers: int) -> dict[int, barco.TopicSlice]:
    """Each with its number as value and key; the slice of each."""
    with barco.Producer(where) as producer:
        sent = {n: producer.send("t", b"%d" % n, b"%d" % n) for n in numbers}
        acks = {n: future.result(SECONDS) for n, future in sent.items()}
    return {n: barco.TopicSlice("t", ack.slice, ack.token) for n, ack in acks.items()}


def of(event: barco.Event) -> barco.TopicSlice:
    return barco.TopicSlice(event.topic, event.slice, event.token)


def number(event: barco.Event) -> int:
    return int(event.value or b"")


def take(consumer: barco.Consumer, count: int) -> list[barco.Event]:
    """So many events; fewer if they do not come."""
    found: list[barco.Event] = []
    end = time.monotonic() + SECONDS
    while len(found) < count and time.monotonic() < end:
        found += consumer.poll(1.0)
    return found


def reads(consumer: barco.Consumer, wanted: set[int]) -> set[int]:
    """What it reads until it has all of these; some may come twice when leaders change."""
    found: set[int] = set()
    end = time.monotonic() + SECONDS
    while not found >= wanted and time.monotonic() < end:
        found |= set(map(number, consumer.poll(1.0)))
    return found


def test_paused_slices_wait_and_lose_nothing(broker: RunningBroker) -> None:
    where = endpoint(broker)
    slices = send(where, *range(40))
    one = slices[0]
    others = {n for n, at in slices.items() if at != one}
    assert 0 < len(others) < 40
    with barco.Consumer("t", "g", where, start="earliest") as consumer:
        consumer.pause(one)
        assert consumer.paused == {one}
        assert {number(each) for each in take(consumer, len(others))} == others
        # A poll waits while only paused slices have something.
        began = time.monotonic()
        assert consumer.poll(1.0) == [] and time.monotonic() - began > 0.9
        consumer.resume(one)
        assert {number(each) for each in take(consumer, 40 - len(others))} == set(slices) - others
        assert consumer.paused == frozenset()
    with barco.Consumer("t", "g", where) as consumer:
        assert consumer.poll(1.0) == [], "all of it was committed, and nothing twice"


def test_what_iteration_has_not_taken_comes_when_it_is_resumed(broker: RunningBroker) -> None:
    where = endpoint(broker)
    slices = send(where, *range(40))
    seen: list[int] = []
    with barco.Consumer("t", "g", where, start="earliest") as consumer:
        paused: barco.TopicSlice | None = None
        for event in consumer:
            assert of(event) != paused, "it is paused"
            seen.append(number(event))
            if paused is None:
                paused = of(event)
                consumer.pause(paused)
            if len(seen) == 1 + sum(at != paused for at in slices.values()):
                break
        consumer.resume()
        seen += [number(each) for each in take(consumer, 40 - len(seen))]
    assert sorted(seen) == list(range(40)), "nothing twice, nothing lost"


def test_going_back_and_ahead(broker: RunningBroker) -> None:
    where = endpoint(broker)
    slices = send(where, *range(20))
    with barco.Consumer("t", "g", where, start="earliest") as consumer:
        first = take(consumer, 20)
        noon = datetime.now(UTC)
        consumer.seek("t", "earliest")
        assert sorted(map(number, take(consumer, 20))) == list(range(20))
        time.sleep(0.002)
        send(where, *range(20, 30))
        consumer.seek("t", noon)
        assert sorted(map(number, take(consumer, 10))) == list(range(20, 30))
        consumer.seek("t", "latest")
        assert consumer.poll(0.5) == []
        # One slice alone; what it goes to is the first of its events.
        mine = next(each for each in first if sum(at == of(each) for at in slices.values()) > 1)
        consumer.seek("t", {of(mine): mine.next_cursor})
        wanted = [each for each in first if of(each) == of(mine) and each.offset > mine.offset]
        got = take(consumer, len(wanted))
        assert [each.offset for each in got][: len(wanted)] == [each.offset for each in wanted]
        with pytest.raises(ValueError, match="does not read"):
            consumer.seek("t", {barco.TopicSlice("t", 77): "1.0"})
        consumer.seek("other", "earliest")  # It reads none of it.
    with barco.Admin(where) as admin:
        assert admin.group("g")["lag"] == 0


def test_a_seek_in_the_middle_of_a_batch(broker: RunningBroker) -> None:
    where = endpoint(broker)
    send(where, *range(10))

    async def main() -> None:
        consumer = barco.AsyncConsumer("t", "g", where, start="earliest")
        async with consumer:
            seen: list[int] = []
            async for event in consumer:
                seen.append(number(event))
                if len(seen) == 3:
                    await consumer.seek("t", "earliest")
                if len(seen) == 13:
                    break
        assert sorted(seen[3:]) == list(range(10)) and len(set(seen[:3])) == 3

    asyncio.run(asyncio.wait_for(main(), SECONDS))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    yield from three(tmp_path)


def test_at_three_brokers(cluster: LocalCluster) -> None:
    where = cluster.endpoints[0]
    slices = send(where, *range(60))
    paused = {slices[0], slices[1], slices[2]}
    assert len({each.token for each in slices.values()}) == 3
    others = {n for n, at in slices.items() if at not in paused}
    with barco.Consumer("t", "g", where, start="earliest") as consumer:
        consumer.pause(*paused)
        assert reads(consumer, others) == others
        consumer.seek("t", "earliest")
        assert reads(consumer, others) == others
        consumer.resume()
        left = set(slices) - others
        assert reads(consumer, left) >= left
