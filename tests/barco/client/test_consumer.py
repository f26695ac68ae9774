"""Consumers and readers against a broker that stores, commits, and misbehaves on request."""

import asyncio
import json
from collections import defaultdict
from itertools import islice

import pytest

import barco
from barco.client.base.errors import BadAnswerError, ClosedError
from barco.errors import NotFoundError, RequestError


@pytest.fixture
def filled(broker):
    """A broker with 1,000 events of 20 keys in topic t."""
    with barco.Producer(broker.endpoint) as producer:
        producer.send_many(
            "t", [b"%d" % n for n in range(1_000)], [b"%d" % (n % 20) for n in range(1_000)]
        ).result(10)
    return broker


def check_order(events):
    seen = defaultdict(list)
    for event in events:
        seen[event.key].append(event.value)
    for key in range(20):
        assert seen[b"%d" % key] == [b"%d" % n for n in range(key, 1_000, 20)]


def test_a_group_gets_every_event_once_and_in_order(filled):
    with barco.Consumer("t", group="g", endpoint=filled.endpoint) as consumer:
        events = consumer.poll(5)
        assert consumer.poll(0) == []
    check_order(events)
    event = events[0]
    assert (event.topic, event.epoch, event.timestamp_us) == ("t", 7, 1_000)
    assert sum(filled.group.committed.values()) == 1_000
    assert filled.group.members == {}


def test_iteration_commits_to_the_event(filled):
    taken = []
    for size in (1, 333, 666):
        with barco.Consumer("t", group="g", endpoint=filled.endpoint) as consumer:
            for event in consumer:
                taken.append(event)
                if len(taken) == sum((1, 333, 666)[: (1, 333, 666).index(size) + 1]):
                    break
    check_order(taken)


def test_an_exception_commits_nothing_of_the_batch(filled):
    with (
        pytest.raises(ZeroDivisionError),
        barco.Consumer("t", group="g", endpoint=filled.endpoint) as consumer,
    ):
        for _ in consumer:
            raise ZeroDivisionError
    assert filled.group.committed == {}


def test_a_commit_in_the_middle_of_a_batch_is_of_what_was_taken(filled):
    with barco.Consumer("t", group="g", endpoint=filled.endpoint) as consumer:
        taken = list(islice(consumer, 321))
        assert consumer.commit() is False
        ends = {(event.topic, event.slice): event.offset + 1 for event in taken}
        assert filled.group.committed == ends
        assert sum(ends.values()) == 321
        assert len(consumer.poll()) == 1_000 - 321
        assert consumer.commit() is True
        assert sum(filled.group.committed.values()) == 1_000


def test_events_that_are_named_are_committed_with_all_before_them_in_their_slices(filled):
    with barco.Consumer("t", group="g", endpoint=filled.endpoint) as consumer:
        events = consumer.poll(5)
        slices = sorted({event.slice for event in events})
        one = [event for event in events if event.slice == slices[0]]
        other = [event for event in events if event.slice == slices[1]]
        consumer.commit_to(one[3], one[2], other[0])
        assert filled.group.committed == {("t", slices[0]): 4, ("t", slices[1]): 1}
        consumer.close(commit=False)


def test_a_commit_of_positions_goes_to_the_next_broker_while_one_does_not_answer(filled):
    faults = iter(["drop", "drop"])
    filled.fault = lambda asked: next(faults, None) if asked.path.endswith("/commit") else None
    with barco.Consumer("t", group="g", endpoint=filled.endpoint) as consumer:
        first = consumer.poll(5)[0]
        consumer.commit_to(first)
        assert filled.group.committed == {("t", first.slice): 1}
        consumer.close(commit=False)


def test_a_lost_answer_is_given_again(filled):
    faults = iter(["lose", "drop"])
    filled.fault = lambda asked: next(faults, None) if asked.path.endswith("/poll") else None
    with barco.Consumer("t", group="g", endpoint=filled.endpoint) as consumer:
        check_order(consumer.poll(5))


def test_what_never_arrived_is_never_committed(filled):
    filled.fault = lambda asked: "lose" if asked.path.endswith("/poll") else None
    consumer = barco.Consumer("t", group="g", endpoint=filled.endpoint)
    assert consumer.poll(0.2) == []
    assert consumer.commit() is True
    consumer.close()
    assert filled.group.committed == {}
    filled.fault = None
    with barco.Consumer("t", group="g", endpoint=filled.endpoint) as consumer:
        check_order(consumer.poll(5))


def test_closing_during_a_poll_commits_what_was_taken(filled):
    async def main():
        consumer = barco.AsyncConsumer("t", group="g", endpoint=filled.endpoint)
        await consumer.start()
        check_order(await consumer.poll(5))
        filled.fault = lambda asked: "hold" if asked.path.endswith("/poll") else None
        waiting = asyncio.ensure_future(consumer.poll(5))
        await asyncio.sleep(0.05)
        assert filled.group.committed == {}
        await consumer.close()
        with pytest.raises((asyncio.CancelledError, ClosedError)):
            await waiting
        assert sum(filled.group.committed.values()) == 1_000

    asyncio.run(main())


def test_of_several_brokers_one_is_registered_with_and_all_commit_before_the_goodbye(
    filled, monkeypatch
):
    status, headers, body = filled._brokers()
    named = json.loads(body)
    named["names"] = named["names"] * 2  # As if it were two, which know the same.
    answer = (status, headers, json.dumps(named).encode())
    monkeypatch.setattr(filled, "_brokers", lambda: answer)
    with barco.Consumer("t", group="g", endpoint=filled.endpoint) as consumer:
        assert consumer.poll(5)
    asked = [a.path.rsplit("/", 1)[1] for a in filled.requests if "/consumer/" in a.path]
    assert asked.count("register") == 1
    # The second broker's poll may arrive late, or not at all once the first had events.
    assert asked.count("poll") in (1, 2)
    assert [a for a in asked if a in ("commit", "goodbye")] in (
        ["commit", "commit", "goodbye", "goodbye"],
        ["commit", "goodbye", "goodbye"],  # The other one's events came too late to be seen.
    )


def test_a_forgotten_consumer_registers_again(filled):
    with barco.Consumer("t", group="g", endpoint=filled.endpoint) as consumer:
        filled.group.members.clear()
        check_order(consumer.poll(5))


def test_a_busy_broker_is_waited_for(filled, refusal):
    faults = iter([refusal(503, "not-ready", "wait"), refusal(429, "busy", "wait"), (504, {}, b"")])
    filled.fault = lambda asked: next(faults, None) if asked.path.endswith("/poll") else None
    with barco.Consumer("t", group="g", endpoint=filled.endpoint) as consumer:
        check_order(consumer.poll(5) or consumer.poll(5))


def test_a_refusal_is_raised(filled, refusal):
    with barco.Consumer("t", group="g", endpoint=filled.endpoint) as consumer:
        filled.fault = lambda asked: refusal(400, "bad-request", "because")
        with pytest.raises(RequestError, match="because"):
            consumer.poll(5)
        filled.fault = None


def test_a_damaged_chunk_is_never_delivered(filled):
    good = filled.chunks("t", 0, 0)
    for body in (good[:-1], good[:90] + bytes([good[90] ^ 1]) + good[91:], b"x" * 100):
        filled.fault = lambda asked, body=body: (
            (200, {}, body) if asked.path.endswith("/poll") else None
        )
        consumer = barco.Consumer("t", group="g", endpoint=filled.endpoint)
        with pytest.raises(BadAnswerError):
            consumer.poll(1)
        filled.fault = None
        consumer.close(commit=False)


def test_closing_wakes_a_waiting_poll_and_ends_the_consumer(broker):
    async def main():
        consumer = await barco.AsyncConsumer("t", endpoint=broker.endpoint).start()
        waiting = asyncio.ensure_future(anext(aiter(consumer)))
        await asyncio.sleep(0.05)
        await consumer.close()
        with pytest.raises((asyncio.CancelledError, ClosedError)):
            await waiting
        with pytest.raises(ClosedError):
            await consumer.poll()

    asyncio.run(main())


def test_wrong_use_is_refused_at_once(broker):
    with pytest.raises(ValueError, match="at least one topic"):
        barco.Consumer([], endpoint=broker.endpoint)
    with pytest.raises(ValueError, match="from 5 to 600"):
        barco.Consumer("t", session_seconds=4.0)
    with pytest.raises(ValueError, match="latest"):
        barco.Consumer("t", endpoint=broker.endpoint, start="yesterday")
    with pytest.raises(ValueError, match="not a topic"):
        barco.Consumer("a b", endpoint=broker.endpoint)
    with pytest.raises(ValueError, match="not a cursor"):
        next(barco.read("t", broker.endpoint, start={0: "abc"}))
    with pytest.raises(ValueError, match="'yesterday' is none of"):
        next(barco.read("t", broker.endpoint, start="yesterday"))


def test_reading_without_a_group(filled):
    events = list(barco.read("t", filled.endpoint))
    check_order(events)
    assert list(barco.read("t", filled.endpoint, start="latest")) == []
    middle = next(event for event in events if event.offset == 50)
    rest = list(barco.read("t", filled.endpoint, start={middle.slice: middle.next_cursor}))
    assert rest == [event for event in events if event.slice == middle.slice and event.offset > 50]


def test_a_reader_follows(filled):
    with barco.Producer(filled.endpoint) as producer:
        following = barco.read("t", filled.endpoint, start="latest", follow=True)
        with pytest.raises(StopIteration):
            next(barco.read("t", filled.endpoint, start="latest", follow=True, quiet_s=0.1))
        producer.send("t", b"new", key=b"0").result(60)
        assert [event.value for event in barco.read("t", filled.endpoint)].count(b"new") == 1
        following.close()


def test_administration(filled):
    with barco.Admin(filled.endpoint) as admin:
        assert admin.status()["status"] == "ready"
        assert admin.topics() == [{"topic": "t"}]
        assert len(admin.slices("t")) == 8
        assert "ranges" in admin.topology()


@pytest.mark.parametrize("kind", [barco.AsyncConsumer, barco.Consumer])
def test_events_that_are_taken_are_signs_of_life(filled, kind):
    """A batch may take longer than a program may be busy, and lost its slices half-way."""

    async def two_of(consumer):
        async with consumer:
            taken = aiter(consumer)
            await anext(taken)
            consumer._beats._called = 0.0
            await anext(taken)
            assert consumer._beats._called > 0

    given = {"group": "g", "endpoint": filled.endpoint}
    if kind is barco.AsyncConsumer:
        asyncio.run(two_of(kind("t", **given)))
        return
    with kind("t", **given) as consumer:
        taken = iter(consumer)
        next(taken)
        consumer._consumer._beats._called = 0.0
        next(taken)
        assert consumer._consumer._beats._called > 0


@pytest.mark.parametrize("old", [1, 2])
def test_a_broker_that_is_too_old_for_heartbeats_is_passed_over(old):
    """As in a ring that is being upgraded: others of it know them."""
    beats = []

    class Member:
        def __init__(self, too_old):
            self.too_old = too_old

        async def heartbeat(self):
            if self.too_old:
                raise NotFoundError("There is nothing at this path.")
            beats.append(self)

    async def main():
        consumer = barco.AsyncConsumer("t")
        consumer._members = [Member(number < old) for number in range(2)]
        for _ in range(20):
            await consumer._beat()

    if old == 2:
        with pytest.raises(NotFoundError):
            asyncio.run(main())
    else:
        asyncio.run(main())
        assert len(beats) == 20
