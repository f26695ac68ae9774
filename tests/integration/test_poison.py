"""One event that nobody can process does not stop its slice: ordinary groups, a real broker."""

import asyncio

import pytest
from running import RunningBroker

import barco
from barco.errors import ConflictError

TRIES = 3


class Enough(BaseException):
    """All that a test waits for has come."""


class Handler:
    """Fails with one of the events."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.tried: list[bytes] = []
        self.done: list[bytes] = []

    def __call__(self, event: barco.Event) -> None:
        assert event.value is not None
        self.tried.append(event.value)
        if event.value == b"7":
            raise ValueError("seven")
        self.done.append(event.value)
        if len(self.done) == self.wanted:
            raise Enough

    async def later(self, event: barco.Event) -> None:
        self(event)


def endpoint(broker: RunningBroker) -> str:
    return f"127.0.0.1:{broker.port('discovery')}"


def fill(broker: RunningBroker) -> None:
    with barco.Producer(endpoint(broker)) as producer:
        for number in range(20):  # All of one slice.
            producer.send("t", b"%d" % number, b"key", headers=[("kept", b"x")]).result(30)


def check(broker: RunningBroker, handler: Handler) -> None:
    """Nothing was lost, nothing was done twice, and the one that failed is a dead letter."""
    values = [b"%d" % number for number in range(20)]
    assert handler.done == [each for each in values if each != b"7"], "in order"
    assert handler.tried.count(b"7") == TRIES
    broker.kill()
    broker.restart()
    (letter,) = barco.read("t.dead", endpoint(broker))
    told = dict(letter.headers)
    assert (letter.value, letter.key, told["kept"]) == (b"7", b"key", b"x")
    assert told["barco-dead-reason"] == b"ValueError: seven" and told["barco-dead-count"] == b"3"
    assert told["barco-dead-group"] == b"g" and told["barco-dead-topic"] == b"t"
    with barco.Consumer("t", "g", endpoint(broker)) as consumer:
        again = {each.value for each in consumer.poll(2.0)}
    assert not again.intersection(values[:8]), "up to it all is committed, with it"


def test_a_handler_that_fails(broker: RunningBroker) -> None:
    fill(broker)
    handler = Handler(19)
    with pytest.raises(Enough), barco.Consumer("t", "g", endpoint(broker), start="earliest") as c:
        c.handle(handler, max_deliveries=TRIES, retry_seconds=0.01)
    check(broker, handler)


def test_in_a_loop(broker: RunningBroker) -> None:
    fill(broker)
    handler = Handler(19)

    async def main() -> None:
        at = endpoint(broker)
        async with barco.AsyncConsumer("t", "g", at, start="earliest") as consumer:
            await consumer.handle(handler.later, max_deliveries=TRIES, retry_seconds=0.01)

    with pytest.raises(Enough):
        asyncio.run(main())
    check(broker, handler)


def test_without_a_limit_it_is_tried_for_ever(broker: RunningBroker) -> None:
    fill(broker)
    tried: list[bytes | None] = []

    def fails(event: barco.Event) -> None:
        tried.append(event.value)
        if len(tried) == 10:
            raise Enough
        raise ValueError

    with pytest.raises(Enough), barco.Consumer("t", "g", endpoint(broker), start="earliest") as c:
        c.handle(fails, retry_seconds=0)
    assert tried == [b"0"] * 10


def test_an_event_that_is_with_nobody_is_not_given_up(broker: RunningBroker) -> None:
    fill(broker)
    with barco.Consumer("t", "g", endpoint(broker), start="earliest") as consumer:
        events: list[barco.Event] = []
        while not events:
            events = consumer.poll()
        other = barco.Consumer("t", "other", endpoint(broker), start="earliest")
        with other, pytest.raises(ConflictError):
            other.reject(events[0])
        consumer.reject(events[0], reason="x" * 1000)
    (letter,) = barco.read("t.dead", endpoint(broker))
    assert dict(letter.headers)["barco-dead-reason"] == b"x" * 256


@pytest.mark.parametrize(
    "terms", [{"max_deliveries": -1}, {"max_deliveries": 1001}, {"retry_seconds": -1.0}]
)
def test_terms_that_make_no_sense(broker: RunningBroker, terms: dict[str, int]) -> None:
    with barco.Consumer("t", "g", endpoint(broker)) as consumer, pytest.raises(ValueError):
        consumer.handle(print, **terms)  # type: ignore[arg-type]
