"""A topic whose values are a program's own type: how they become bytes, and become values again."""

import asyncio
import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, overload

from barco.client.base.errors import DeserializeError
from barco.client.base.names import Bytes, Headers, check_topic
from barco.client.producer import AsyncProducer, Producer
from barco.client.wire.batching import Ack
from barco.client.wire.codec import Event

T = TypeVar("T")


class TypedTopic(Generic[T]):
    """The topic's name, and functions that every program that uses it shares.

        trips = barco.TypedTopic("trips", serialize=dump, deserialize=load, key=lambda t: t.taxi)
        trips.send(producer, Trip("taxi-7", 3.2))
        trip = trips.value(event)

    serialize, deserialize: of one value. key: by which values are kept in order, of a value; None:
    they have none. They are called in the thread that sends or asks.
    """

    def __init__(
        self,
        name: str,
        *,
        serialize: Callable[[T], Bytes],
        deserialize: Callable[[bytes], T],
        key: Callable[[T], Bytes] | None = None,
    ) -> None:
        self.name = check_topic(name)
        self._serialize, self._deserialize, self._key = serialize, deserialize, key

    @overload
    def send(
        self, producer: Producer, value: T, *, headers: Headers | None = None
    ) -> concurrent.futures.Future[Ack]: ...
    @overload
    def send(
        self, producer: AsyncProducer, value: T, *, headers: Headers | None = None
    ) -> asyncio.Future[Ack]: ...
    def send(
        self, producer: Producer | AsyncProducer, value: T, *, headers: Headers | None = None
    ) -> concurrent.futures.Future[Ack] | asyncio.Future[Ack]:
        """Takes one value, as the producer's `send`. What `serialize` or `key` raises comes out of
        this call, and nothing is sent."""
        key = None if self._key is None else self._key(value)
        return producer.send(self.name, self._serialize(value), key, headers=headers)

    @overload
    def send_many(
        self, producer: Producer, values: Sequence[T]
    ) -> concurrent.futures.Future[int]: ...
    @overload
    def send_many(self, producer: AsyncProducer, values: Sequence[T]) -> asyncio.Future[int]: ...
    def send_many(
        self, producer: Producer | AsyncProducer, values: Sequence[T]
    ) -> concurrent.futures.Future[int] | asyncio.Future[int]:
        """Takes many values, as the producer's `send_many`: all of them or, where one cannot be
        serialized, none."""
        keys = None if self._key is None else [_bytes(self._key(each)) for each in values]
        return producer.send_many(
            self.name, [_bytes(self._serialize(each)) for each in values], keys
        )

    def value(self, event: Event) -> T | None:
        """An event's value; None: it has none. DeserializeError: `deserialize` has refused it, as
        its `__cause__` says; it names the event's place, and has the event."""
        if event.value is None:
            return None
        try:
            return self._deserialize(event.value)
        except Exception as error:
            where = f"{event.topic}/{event.slice} at {event.offset}"
            raise DeserializeError(f"{where}: {error!r}", event=event) from error


def _bytes(given: Bytes) -> bytes:
    return given.encode() if isinstance(given, str) else bytes(given)
