"""What a consumer is told of the slices that it reads, and when."""

import asyncio
import json

import pytest

import barco

T = "t"


@pytest.fixture
def placed(broker):
    """A broker with 100 events, that gives a consumer these slices: `placed.give(...)`."""
    with barco.Producer(broker.endpoint) as producer:
        values = [b"%d" % n for n in range(100)]
        producer.send_many(T, values, [b"%d" % (n % 20) for n in range(100)]).result(10)
    honest = broker._consumer
    mine: list[int] = []
    broker.log = []

    def name() -> str:
        return "p" + "-".join(map(str, mine))

    async def consumer(asked):
        action, who = asked.path.rsplit("/", 1)[1], asked.query["consumerId"][0]
        broker.log.append((action, asked.query.get("placement", [None])[0]))
        if action == "assignment":
            if who not in broker.group.members:
                return await honest(asked)
            body = {"placement": name(), "slices": {T: list(mine)}}
            return 200, {}, json.dumps(body).encode()
        if action == "poll" and asked.query.get("placement", [name()]) != [name()]:
            return 204, {"Barco-Placement": name()}, b""
        whole = dict(broker.streams)
        if action == "poll":
            for stream in whole:
                if stream[1] not in mine:
                    del broker.streams[stream]
        try:
            status, headers, body = await honest(asked)
        finally:
            broker.streams.update(whole)
        return status, headers | {"Barco-Placement": name()}, body

    def give(*slices: int) -> None:
        mine[:] = slices

    broker._consumer, broker.give = consumer, give
    give(*range(8))
    return broker


def slices(*numbers: int) -> list[barco.TopicSlice]:
    return [barco.TopicSlice(T, number) for number in numbers]


def test_told_of_all_before_the_first_events_and_at_the_end(placed):
    told = []
    with barco.Consumer(
        T,
        group="g",
        endpoint=placed.endpoint,
        on_assigned=lambda some: told.append(("assigned", some)),
        on_revoked=lambda some: told.append(("revoked", some)),
    ) as consumer:
        assert told == [] and consumer.assignment == frozenset()
        assert len(consumer.poll(5)) == 100
        assert told == [("assigned", slices(*range(8)))]
        assert consumer.assignment == set(slices(*range(8)))
        assert consumer.poll(0) == []
    assert told[1:] == [("revoked", slices(*range(8)))]


def test_told_in_order_after_what_was_returned_and_before_the_broker_parts_with_it(placed):
    told = []
    consumer = barco.Consumer(
        T,
        group="g",
        endpoint=placed.endpoint,
        on_assigned=lambda some: told.append(("assigned", some)),
        on_revoked=lambda some: told.append(("revoked", some, len(placed.log))),
    )
    placed.give(0, 1, 2, 3)
    first = consumer.poll(5)
    assert {event.slice for event in first} <= {0, 1, 2, 3}
    placed.give(2, 3, 4)
    second = consumer.poll(5)
    assert [each[:2] for each in told] == [
        ("assigned", slices(0, 1, 2, 3)),
        ("revoked", slices(0, 1)),
        ("assigned", slices(4)),
    ]
    assert {event.slice for event in second} <= {2, 3, 4}
    known = [placement for action, placement in placed.log if action == "poll"]
    assert known[0] == "p0-1-2-3" and known[-1] == "p2-3-4"
    before = [placement for _, placement in placed.log[: told[1][2]]]
    assert "p2-3-4" not in before, "no poll says that it knows before it was told"
    consumer.close()


def test_what_it_returns_may_be_committed_when_a_slice_is_revoked(placed):
    consumer = None

    def revoked(some):
        assert consumer.commit() is True

    consumer = barco.Consumer(T, group="g", endpoint=placed.endpoint, on_revoked=revoked)
    assert consumer.poll(5)
    consumer.close(commit=False)
    assert sum(placed.group.committed.values()) == 100


def test_a_function_that_fails_is_called_again_and_nothing_is_parted_with(placed):
    calls = []

    def revoked(some):
        calls.append(some)
        if len(calls) == 1:
            raise ZeroDivisionError

    consumer = barco.Consumer(T, group="g", endpoint=placed.endpoint, on_revoked=revoked)
    consumer.poll(5)
    placed.give(1)
    with pytest.raises(ZeroDivisionError):
        consumer.poll(5)
    assert ("poll", "p1") not in placed.log
    consumer.poll(0)
    assert calls == [slices(0, 2, 3, 4, 5, 6, 7)] * 2
    consumer.close()


def test_who_was_forgotten_hears_that_all_is_gone_and_then_what_it_has(placed):
    told = []
    with barco.Consumer(
        T,
        group="g",
        endpoint=placed.endpoint,
        on_assigned=lambda some: told.append(("assigned", some)),
        on_revoked=lambda some: told.append(("revoked", some)),
    ) as consumer:
        consumer.poll(5)
        placed.group.members.clear()
        placed.give(5)
        consumer.poll(1)
        assert told[1:] == [("revoked", slices(*range(8))), ("assigned", slices(5))]


def test_events_of_a_slice_that_it_was_not_told_of_are_not_returned(placed):
    """Of a broker that is behind: it gives them again, to whoever reads the slice."""
    honest = placed._consumer
    ahead = [0]

    async def behind(asked):
        if asked.path.endswith("/assignment") and ahead:
            body = {"placement": "p" + "-".join(map(str, range(8))), "slices": {T: [0]}}
            return 200, {}, json.dumps(body).encode()
        return await honest(asked)

    placed._consumer = behind
    with barco.Consumer(
        T, group="g", endpoint=placed.endpoint, on_assigned=lambda some: None
    ) as consumer:
        assert consumer.poll(0.2) == []
        assert placed.group.committed == {}
        consumer.close(commit=True)
    assert placed.group.committed == {}


def test_coroutine_functions_are_awaited(placed):
    async def main():
        told = []

        async def assigned(some):
            await asyncio.sleep(0)
            told.append(some)

        async with barco.AsyncConsumer(
            T, group="g", endpoint=placed.endpoint, on_assigned=assigned, on_revoked=assigned
        ) as consumer:
            assert len(await consumer.poll(5)) == 100
            assert told == [slices(*range(8))]
        assert told == [slices(*range(8))] * 2

    asyncio.run(main())

    async def never(some): ...

    with pytest.raises(ValueError, match="coroutine"):
        barco.Consumer(T, endpoint=placed.endpoint, on_revoked=never)


def test_who_does_not_ask_sends_no_placement(placed):
    with barco.Consumer(T, group="g", endpoint=placed.endpoint) as consumer:
        assert len(consumer.poll(5)) == 100 and consumer.assignment == frozenset()
    assert {placement for _, placement in placed.log} == {None}
    assert "assignment" not in {action for action, _ in placed.log}


def test_the_weight_is_a_part_of_the_registration(placed):
    with barco.Consumer(T, group="g", endpoint=placed.endpoint, weight=7):
        (asked,) = (each for each in placed.requests if each.path.endswith("/register"))
        assert asked.query["weight"] == ["7"]
    for wrong in (0, 101):
        with pytest.raises(ValueError, match="weight"):
            barco.Consumer(T, endpoint=placed.endpoint, weight=wrong)
