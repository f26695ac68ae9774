"""What a program that uses the library looks like to a type checker. Never run."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, assert_type

import barco


def produce() -> None:
    """From a thread."""
    with barco.Producer("127.0.0.1:9250", linger_ms=10) as producer:
        assert_type(producer, barco.Producer)
        delivery = producer.send("trips", b"{}", key="taxi", timestamp_us=1)
        ack = delivery.result(5.0)
        assert_type(ack, barco.Ack)
        assert_type(ack.topic, str)
        assert_type(ack.slice, int)
        assert_type(ack.offset, int | None)
        assert_type(producer.send_many("trips", [b"a"], [None]).result(), int)
        producer.send("trips", None, "taxi", headers={"trace": "7"}).result()
        producer.send_many("trips", [b"a", None], headers=[[("trace", b"7")], None])


def consume() -> None:
    """From a thread."""
    with barco.Consumer(["trips"], group="g", start="earliest") as consumer:
        assert_type(consumer, barco.Consumer)
        assert_type(consumer.poll(1.0), list[barco.Event])
        assert_type(consumer.commit(), bool)
        for event in consumer:
            assert_type(event, barco.Event)
            assert_type(event.value, bytes | None)
            assert_type(event.headers, tuple[tuple[str, bytes], ...])
            assert_type(event.key, bytes | None)
            assert_type(event.timestamp_us, int)
            assert_type(event.next_cursor, str)


def steer() -> None:
    """Where a consumer reads, and values of a type."""
    trips = barco.TypedTopic("trips", serialize=str, deserialize=int, key=lambda n: str(n % 7))
    assert_type(trips, barco.TypedTopic[int])
    with barco.Producer() as producer, barco.Consumer("trips") as consumer:
        assert_type(trips.send(producer, 3).result(), barco.Ack)
        assert_type(trips.send_many(producer, [1, 2]).result(), int)
        assert_type([trips.value(each) for each in consumer.poll()], list[int | None])
        producer.send_many("trips", [b"a"], timestamps_us=[1])
        some = barco.TopicSlice("trips", 3)
        consumer.pause(some)
        assert_type(consumer.paused, frozenset[barco.TopicSlice])
        consumer.resume()
        consumer.seek("trips", "earliest")
        consumer.seek("trips", datetime.now(UTC))
        consumer.seek("trips", {some: "1.0"})
        trips.send(producer, "three")  # type: ignore[call-overload]
        consumer.seek("trips", "ealiest")  # type: ignore[arg-type]
        consumer.pause(3)  # type: ignore[arg-type]
        producer.send_many("trips", [b"a"], timestamps_us=["now"])  # type: ignore[list-item]


def queue() -> None:
    """Events that are acknowledged one by one."""
    with barco.Queue("trips", "g", lease_seconds=10) as queue:
        assert_type(queue, barco.Queue)
        assert_type(queue.make(ordered="key", max_deliveries=3), dict[str, Any])
        assert_type(queue.lease(10, wait_s=1), list[barco.QueueEvent])
        for job in queue:
            assert_type(job.event, barco.Event)
            assert_type(job.deliveries, int)
            queue.extend(job, seconds=5)
            queue.nack(job, delay_s=1, reason="busy")
            queue.ack(job)


async def in_a_loop() -> None:
    """With asyncio."""
    async with barco.AsyncProducer() as producer:
        future = producer.send("trips", "text")
        assert_type(future, asyncio.Future[barco.Ack])
        assert_type(await future, barco.Ack)
    async with barco.AsyncConsumer("trips") as consumer:
        assert_type(await consumer.poll(), list[barco.Event])
        assert_type(aiter(consumer), AsyncIterator[barco.Event])
        async for event in consumer:
            assert_type(event, barco.Event)


def look() -> None:
    """Reading without a group, and administration."""
    for event in barco.read("trips", start="earliest"):
        assert_type(event, barco.Event)
    with barco.Admin() as admin:
        assert_type(admin.status(), dict[str, Any])
    assert_type(barco.__version__, str)


def refused() -> None:
    """Each of these is an error; a line that is none is one itself (warn_unused_ignores)."""
    with barco.Producer() as producer:
        producer.send("trips", 1)  # type: ignore[arg-type]
        producer.send(b"trips", b"1")  # type: ignore[arg-type]
    with barco.Consumer("trips") as consumer:
        consumer.poll("soon")  # type: ignore[arg-type]
    barco.Consumer("trips", start="ealiest")  # type: ignore[arg-type]
    barco.Consumer("trips", sesion_seconds=5)  # type: ignore[call-arg]
    barco.AsyncConsumer("trips", session_seconds="5")  # type: ignore[arg-type]
    barco.Producer(linger_s=0.01)  # type: ignore[call-arg]
    barco.AsyncProducer(compress=None)  # type: ignore[arg-type]
    barco.read("trips", start="tomorrow")  # type: ignore[arg-type]
    barco.AsyncReader("trips", folow=True)  # type: ignore[call-arg]
    barco.Pipeline("a", "b", "p", start="ealiest")  # type: ignore[arg-type]
    barco.AsyncPipeline("a", "b", "p", batch_second=1)  # type: ignore[call-arg]


def pipe() -> None:
    """From a thread."""

    def function(event: barco.Event) -> barco.Output | None:
        return barco.Output(event.value or b"", key=event.key, timestamp_us=event.timestamp_us)

    pipeline = barco.Pipeline("a", "b", "p", batch_seconds=1.0, start="latest")
    assert_type(pipeline.run(function, to_end=True), barco.PipelineProgress)
    pipeline.run(lambda event: [barco.Output(event.value or b"")])


async def pipe_in_a_loop() -> None:
    """With asyncio."""

    async def function(event: barco.Event) -> list[barco.Output]:
        return [barco.Output(event.value or b"", topic="c")]

    progress = await barco.AsyncPipeline(["a", "b"], "c", "p").run(function)
    assert_type(progress.written, int)
