"""Both producers against a broker that stores, counts, and misbehaves on request."""

import asyncio
from collections import defaultdict

import pytest

import barco
from barco import errors
from barco.client.base.errors import BufferFullError, ClosedError, DeliveryError, DiscoveryError
from barco.protocol.batch import TIMESTAMP_US_MIN


def by_key(broker, topic="t"):
    seen = defaultdict(list)
    for event in broker.events(topic):
        seen[event.key].append(event.value)
    return seen


def test_ack_says_where_the_event_is(broker):
    with barco.Producer(broker.endpoint) as producer:
        first = producer.send("t", b"a", key="k").result(60)
        second = producer.send("t", "b", key=b"k", timestamp_us=1_000_000).result(60)
    assert (first.topic, first.epoch, first.offset) == ("t", 7, 0)
    assert (second.slice, second.token, second.offset) == (first.slice, first.token, 1)
    assert broker.events("t")[1].timestamp_us == 1_000_000


def test_events_of_a_key_keep_their_order_and_arrive_once(broker):
    with barco.Producer(broker.endpoint, batch_bytes=300) as producer:
        futures = [
            producer.send("t", f"{number}".encode(), key=f"key-{number % 50}")
            for number in range(5_000)
        ]
    assert all(future.done() for future in futures)
    acks = {(future.result().slice, future.result().offset) for future in futures}
    assert len(acks) == 5_000
    seen = by_key(broker)
    for number in range(50):
        assert seen[b"key-%d" % number] == [b"%d" % n for n in range(number, 5_000, 50)]


def test_retries_after_every_kind_of_trouble_neither_lose_nor_repeat(broker, refusal):
    trouble = iter(
        [
            "drop",
            "lose",
            refusal(500, "internal", "x"),
            "lose",
            refusal(503, "busy", "x"),
            (503, {"Barco-Outcome": "not-written", "Retry-After": "0"}, b""),
            (429, {"Retry-After": "0"}, b""),
            "drop",
            (504, {}, b""),
        ]
        * 3
    )
    broker.fault = lambda asked: next(trouble, None)
    with barco.Producer(broker.endpoint, batch_bytes=2_000, linger_ms=1) as producer:
        futures = [producer.send("t", b"%d" % n, key=b"%d" % (n % 9)) for n in range(3_000)]
    for future in futures:
        future.result(0)
    seen = by_key(broker)
    for key in range(9):
        assert seen[b"%d" % key] == [b"%d" % n for n in range(key, 3_000, 9)]
    assert broker.in_flight_high == 1


def test_a_duplicate_counts_as_success_without_an_offset(broker):
    faults = iter(["lose"])
    broker.fault = lambda asked: next(faults, None)
    with barco.Producer(broker.endpoint) as producer:
        assert producer.send("t", b"v", key=b"k").result(60).offset is None
        assert producer.send("t", b"w", key=b"k").result(60).offset == 1
    assert [event.value for event in broker.events("t")] == [b"v", b"w"]


@pytest.mark.parametrize(
    ("status", "slug", "kind"),
    [
        (400, "bad-request", errors.RequestError),
        (403, "stale-producer", errors.StaleProducerError),
        (404, "topic-not-found", errors.TopicNotFoundError),
        (413, "too-large", errors.TooLargeError),
        (415, "", errors.UnsupportedMediaTypeError),
    ],
)
def test_refusals_are_typed_and_not_retried(broker, refusal, status, slug, kind):
    broker.fault = lambda asked: refusal(status, slug, "because", limit=9)
    with barco.Producer(broker.endpoint) as producer:
        error = producer.send("t", b"v", key=b"k").exception(5)
        assert type(error) is kind
        assert "because" in str(error)
        assert error.fields == {"limit": 9}
        broker.fault = None
        assert producer.send("t", b"w", key=b"k").result(60).offset == 0
    assert len(broker.events("t")) == 1


def test_a_gap_with_an_unknown_past_is_surfaced(broker, refusal):
    faults = iter(["lose", refusal(409, "sequence-gap", "gap", expectedSeq="5")])
    broker.fault = lambda asked: next(faults, None)
    with barco.Producer(broker.endpoint) as producer:
        error = producer.send("t", b"v", key=b"k").exception(5)
        assert isinstance(error, errors.SequenceGapError)
        assert error.fields["expected"] == 5
        # The next batch is in a new epoch, so the lost one cannot come in behind it.
        producer.send("t", b"w", key=b"k").result(60)
    assert broker.requests[-1].headers["producer-epoch"] == "1"


def test_a_broker_that_forgot_the_producer_gets_a_new_epoch(broker):
    with barco.Producer(broker.endpoint) as producer:
        producer.send("t", b"1", key=b"k").result(60)
        broker.sequences.clear()
        producer.send("t", b"2", key=b"k").result(60)
        producer.send("t", b"3", key=b"k").result(60)
    assert [event.value for event in broker.events("t")] == [b"1", b"2", b"3"]


def test_a_deadline_says_what_is_known(broker):
    broker.fault = lambda asked: (503, {"Barco-Outcome": "not-written"}, b"")
    with barco.Producer(broker.endpoint, delivery_timeout_s=2.0) as producer:
        error = producer.send("t", b"v").exception(5)
        assert isinstance(error, DeliveryError)
        assert error.outcome == "not-written"
        broker.fault = lambda asked: "drop"
        error = producer.send("t", b"v").exception(5)
        assert isinstance(error, DeliveryError)
        assert error.outcome == "unknown"


def test_events_without_a_key_spread_over_the_slices(broker):
    with barco.Producer(broker.endpoint, batch_bytes=100) as producer:
        for number in range(400):
            producer.send("t", b"%09d" % number)
    assert len({index for _, index in broker.streams}) == 8
    assert len(broker.events("t")) == 400


def test_a_full_buffer_blocks_until_there_is_room(broker):
    broker.delay_s = 0.02
    with barco.Producer(
        broker.endpoint, batch_bytes=1_000, buffer_bytes=10_000, linger_ms=0
    ) as producer:
        high = 0
        for number in range(600):
            producer.send("t", b"x" * 100, key=b"%d" % number)
            high = max(high, producer._sender.buffered_bytes())
        assert high <= 10_000 + 300
    assert len(broker.events("t")) == 600


def test_a_stuck_broker_frees_the_buffer_at_the_deadline(broker):
    broker.delay_s = 0.6
    refused = []
    with barco.Producer(
        broker.endpoint, batch_bytes=500, buffer_bytes=500, delivery_timeout_s=0.3
    ) as producer:

        def send_again(future):
            try:
                for _ in range(9):
                    producer.send("t", b"x" * 500)
            except BufferFullError as error:
                refused.append(error)

        first = producer.send("t", b"x" * 500)
        first.add_done_callback(send_again)
        assert isinstance(first.exception(5), DeliveryError)
        broker.delay_s = 0
        producer.flush()
    assert len(refused) == 1, "a callback cannot wait for room: it would wait for itself"


def test_send_many_counts_and_keeps_order(broker):
    values = [b"%d" % n for n in range(10_000)]
    keys = [b"%d" % (n % 31) for n in range(10_000)]
    with barco.Producer(broker.endpoint, batch_bytes=4_000) as producer:
        assert producer.send_many("t", values, keys).result(10) == 10_000
        assert producer.send_many("t", []).result(1) == 0
        assert producer.send_many("t", values[:5], [b"0", None, b"0", None, None]).result(60) == 5
        assert producer.send_many("free", values).result(60) == 10_000
    seen = by_key(broker)
    for key in range(1, 31):
        assert seen[b"%d" % key] == values[key::31]
    assert seen[b"0"] == [*values[0::31], b"0", b"2"]
    assert sorted(seen[None]) == [b"1", b"3", b"4"]
    assert {event.value for event in broker.events("free")} == set(values)
    assert len({index for name, index in broker.streams if name == "free"}) == 8


def test_send_many_with_times(broker):
    times = list(range(1, 201))
    values = [b"%d" % n for n in times]
    with barco.Producer(broker.endpoint, batch_bytes=400) as producer:
        keys = [None if n % 3 else b"%d" % (n % 7) for n in times]
        assert producer.send_many("t", values, keys, timestamps_us=times).result(60) == 200
        assert producer.send_many("free", values, timestamps_us=times).result(60) == 200
        with pytest.raises(ValueError, match="200 values but 199 timestamps"):
            producer.send_many("t", values, timestamps_us=times[1:])
        with pytest.raises(ValueError, match="from the year 1 on"):
            producer.send_many("t", [b"x"], timestamps_us=[TIMESTAMP_US_MIN - 1])
    for topic in ("t", "free"):
        found = {event.value: event.timestamp_us for event in broker.events(topic)}
        assert found == dict(zip(values, times, strict=True))


def test_send_many_fails_as_one(broker, refusal):
    broker.fault = lambda asked: refusal(404, "topic-not-found", "no")
    with barco.Producer(broker.endpoint, batch_bytes=100) as producer:
        future = producer.send_many("t", [b"x" * 50] * 20)
        assert isinstance(future.exception(5), errors.TopicNotFoundError)


def test_flush_sends_without_lingering(broker):
    with barco.Producer(broker.endpoint, linger_ms=60_000) as producer:
        future = producer.send("t", b"v")
        assert not future.done()
        producer.flush(5)
        assert future.done()


def test_wide_timestamps_are_split_over_batches(broker):
    stamps = [7, 5_000_000_000_000, 1, None, 2_000_000]
    with barco.Producer(broker.endpoint) as producer:
        for stamp in stamps:
            producer.send("t", b"v", key=b"k", timestamp_us=stamp)
    assert [event.timestamp_us for event in broker.events("t")] == stamps


def test_an_old_broker_gets_everything_on_its_produce_port(broker):
    broker.topology = False
    with barco.Producer(broker.endpoint) as producer:
        producer.send("t", b"v", key=b"k").result(60)
    assert len(broker.events("t")) == 1


def test_wrong_use_is_refused_at_once(broker):
    with barco.Producer(broker.endpoint) as producer:
        with pytest.raises(ValueError, match="not a topic name"):
            producer.send("a/b", b"v")
        with pytest.raises(TypeError, match="bytes or str"):
            producer.send("t", {"a": 1})
        with pytest.raises(ValueError, match="at most 65535 bytes"):
            producer.send("t", b"v", key=b"k" * 65_536)
        with pytest.raises(ValueError, match="microseconds since 1970"):
            producer.send("t", b"v", timestamp_us=TIMESTAMP_US_MIN - 1)
        assert producer.send("t", b"v").cancel() is False
    with pytest.raises(ClosedError):
        producer.send("t", b"v")
    producer.close()
    with pytest.raises(ValueError, match="HOST:PORT"):
        barco.Producer("localhost")
    with pytest.raises(ValueError, match="batch_bytes"):
        barco.Producer(broker.endpoint, batch_bytes=0)


def test_no_broker_is_said_so(unused=None):
    with pytest.raises(DiscoveryError, match="no broker answers at 127.0.0.1:1"):
        barco.Producer("127.0.0.1:1", delivery_timeout_s=0.2)


def test_a_broker_that_restarts_is_waited_for(broker):
    faults = iter(["drop"] * 12)
    broker.fault = lambda asked: next(faults, None)
    with barco.Producer(broker.endpoint) as producer:
        futures = [producer.send("t", b"%d" % n, key=b"k") for n in range(10)]
        assert [future.result(10).offset for future in futures] == list(range(10))


def test_async_face_is_the_same_engine(broker):
    async def main():
        async with barco.AsyncProducer(broker.endpoint, buffer_bytes=200_000) as producer:
            ack = await producer.send("t", b"0", key="k")
            assert ack.offset == 0
            futures = []
            for number in range(1, 3_000):
                futures.append(producer.send("t", b"%d" % number, key="k"))
                await producer.drain()
            await producer.flush()
            assert [future.result().offset for future in futures] == list(range(1, 3_000))
            assert await producer.send_many("t", [b"x"] * 10, [b"k"] * 10) == 10
            broker.delay_s = 0.5
            with pytest.raises(BufferFullError):
                while True:
                    producer.send("t", b"y" * 10_000)
        with pytest.raises(ClosedError):
            producer.send("t", b"v")

    asyncio.run(main())


def test_a_cancelled_wait_does_not_lose_the_event(broker):
    async def main():
        async with barco.AsyncProducer(broker.endpoint) as producer:
            broker.delay_s = 0.5
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.03):
                    await producer.send("t", b"v")

    asyncio.run(main())
    assert len(broker.events("t")) == 1


def test_headers_and_no_value(broker):
    """Both ways to send; what is read has them, in their order, and the rest has none."""
    with barco.Producer(broker.endpoint) as producer:
        producer.send("t", b"1", "k", headers={"Trace": "x", "raw": b"\xff"}).result(60)
        producer.send("t", None, "k", headers=[("a", "1"), ("a", "2")]).result(60)
        producer.send("t", b"3", "k").result(60)
        producer.send_many("t", [b"4", None], [b"k", b"k"], [None, {"b": "y"}]).result(60)
        for wrong in ({"a b": "x"}, {"": "x"}, {"a": "x" * 16384}, [("a", "")] * 65):
            with pytest.raises(ValueError, match="at most 64 headers"):
                producer.send("t", b"5", headers=wrong)
        with pytest.raises(ValueError, match="2 values but headers of 1"):
            producer.send_many("t", [b"4", b"5"], None, [{}])
        with pytest.raises(TypeError):
            producer.send("t", b"5", headers={"a": 5})
    found = [(each.value, each.headers) for each in broker.events("t")]
    assert found == [
        (b"1", (("trace", b"x"), ("raw", b"\xff"))),
        (None, (("a", b"1"), ("a", b"2"))),
        (b"3", ()),
        (b"4", ()),
        (None, (("b", b"y"),)),
    ]
