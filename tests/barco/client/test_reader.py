"""A reader of the whole topic, and replicas that do not have all of it yet."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from barco.client.reader import ReaderOptions, _SliceReader
from barco.client.wire.http1 import Request, Response
from barco.errors import NotReadyError
from barco.protocol.cursor import Cursor
from barco.types import Epoch, Offset

PLACE = {
    "token": "-9223372036854775808",
    "index": "0",
    "endpoint": "a:1",
    "replicaEndpoints": ["a:1", "b:1"],
    "endOffset": "5",
}


class Replicas:
    """Answers like brokers: 204 and a cursor."""

    def __init__(self, offsets: Callable[[str, int], int]) -> None:
        self.offsets = offsets
        self.asked: list[str] = []

    async def request(self, endpoint: str, request: Request, *, timeout_s: float) -> Response:
        self.asked.append(endpoint)
        offset = self.offsets(endpoint, len(self.asked))
        return Response(204, {"barco-next-cursor": str(Cursor(Epoch(2), Offset(offset)))}, b"")


def reader(replicas: Any, timeout_s: float = 30.0) -> _SliceReader:
    return _SliceReader(replicas, "t", PLACE, None, ReaderOptions(timeout_s=timeout_s))


def test_a_replica_that_is_behind_is_not_the_end() -> None:
    replicas = Replicas(lambda endpoint, _: 0 if endpoint == "a:1" else 5)
    reading = reader(replicas)
    assert asyncio.run(reading.next()) == []
    assert reading.done
    assert replicas.asked == ["a:1", "b:1"]


def test_nobody_has_it() -> None:
    reading = reader(Replicas(lambda *_: 3), timeout_s=1.5)
    with pytest.raises(NotReadyError, match="is behind"):
        asyncio.run(reading.next())
    assert not reading.done


def test_retention_may_have_taken_all_of_it() -> None:
    reading = reader(Replicas(lambda *_: 7))
    assert asyncio.run(reading.next()) == []
    assert reading.done
