"""Every connection of the library and of Spark's processes is made by the access that a user gave:
what a setting of all connections (TLS) will need."""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass

import pytest

import barco
from barco.client.wire.access import Access, ProtocolT
from barco.client.wire.http1 import split_endpoint
from barco.spark.base.fetch import Brokers, SliceFetch, Source
from barco.spark.write.commit import WriteOptions, ring_of

MADE: list[str] = []


@dataclass(frozen=True, slots=True)
class Noting(Access):
    """As a setting would be."""

    async def connect(self, endpoint: str, protocol: Callable[[], ProtocolT]) -> ProtocolT:
        MADE.append(endpoint)
        loop = asyncio.get_running_loop()
        return (await loop.create_connection(protocol, *split_endpoint(endpoint)))[1]

    def connect_blocking(self, endpoint: str, timeout_s: float) -> socket.socket:
        MADE.append(endpoint)
        return socket.create_connection(split_endpoint(endpoint), timeout=timeout_s)


@pytest.fixture
def access(broker, monkeypatch):
    """Of a broker that nobody reaches in any other way."""
    MADE.clear()

    def lost(*_):
        raise AssertionError("a connection without the setting")

    monkeypatch.setattr(Access, "connect", lost)
    monkeypatch.setattr(Access, "connect_blocking", lost)
    return Noting.of(f"127.0.0.1:{broker.port('discovery')}")


def test_a_setting_reaches_every_connection(access):
    with barco.Producer(access) as producer:
        for value in (b"x", b"y"):
            producer.send("t", value, key=b"k").result(30)
    with barco.Consumer("t", group="g", endpoint=access, start="earliest") as consumer:
        for event in consumer:
            assert event.value == b"x"
            break  # What was taken of what was polled is committed by another request.
    assert [event.value for event in barco.read("t", access)] == [b"x", b"y"]
    with barco.Admin(access) as admin:
        (shown,) = [each for each in admin.slices("t") if each["endOffset"] == "2"]
    assert len(set(MADE)) >= 3, "the public ports, and a shard endpoint"

    MADE.clear()
    assert len(Brokers(access, 30).slices("t")) == 8
    places = access.to(shown["endpoint"])
    source = Source("t", int(shown["token"]), int(shown["index"]), places)
    fetch = SliceFetch(source, ("value",), fetch_bytes=1 << 20, timeout_s=30)
    assert fetch.get(0, 2)[1] == 2
    fetch.close()
    ring_of(WriteOptions(access=access, topic="t"))
    assert MADE == [*access.endpoints, shown["endpoint"], *access.endpoints]
