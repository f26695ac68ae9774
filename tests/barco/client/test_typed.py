"""A topic of a program's own type."""

import asyncio
import concurrent.futures
from typing import Any

import pytest

import barco
from barco.client.base.errors import DeserializeError


class Taking:
    """In place of a producer: what it was given."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, *given: Any, **more: Any) -> Any:
        self.sent.append((*given, more))
        return concurrent.futures.Future()

    def send_many(self, *given: Any) -> Any:
        self.sent.append(given)
        return concurrent.futures.Future()


NUMBERS = barco.TypedTopic("n", serialize=hex, deserialize=lambda raw: int(raw, 16))
KEYED = barco.TypedTopic("n", serialize=hex, deserialize=int, key=lambda n: str(n % 3))


def event(value: bytes | None) -> barco.Event:
    return barco.Event("n", 3, 1, 41, 0, None, value)


def test_values_become_bytes() -> None:
    taking: Any = Taking()
    NUMBERS.send(taking, 255)
    KEYED.send(taking, 5, headers={"a": "b"})
    KEYED.send_many(taking, [1, 2])
    NUMBERS.send_many(taking, [1])
    assert taking.sent == [
        ("n", "0xff", None, {"headers": None}),
        ("n", "0x5", "2", {"headers": {"a": "b"}}),
        ("n", [b"0x1", b"0x2"], [b"1", b"2"]),
        ("n", [b"0x1"], None),
    ]
    with pytest.raises(TypeError):
        NUMBERS.send_many(taking, [1, "two"])  # type: ignore[list-item]
    assert len(taking.sent) == 4, "none of them was sent"


def test_bytes_become_values() -> None:
    assert NUMBERS.value(event(b"0xff")) == 255
    assert NUMBERS.value(event(None)) is None
    poison = event(b"\xff")
    with pytest.raises(DeserializeError, match="n/3 at 41: .*invalid") as told:
        NUMBERS.value(poison)
    assert told.value.fields["event"] is poison
    assert isinstance(told.value.__cause__, ValueError)


def test_a_topic_has_a_name_that_brokers_take() -> None:
    with pytest.raises(ValueError, match="not a topic name"):
        barco.TypedTopic("no/name", serialize=str, deserialize=int)


def test_the_loop_of_a_producer_is_its_own() -> None:
    """An AsyncProducer's future is asyncio's: nothing is wrapped."""

    async def main() -> None:
        taking: Any = Taking()
        taking.send = lambda *_, **__: asyncio.get_running_loop().create_future()
        assert asyncio.isfuture(NUMBERS.send(taking, 1))

    asyncio.run(main())
