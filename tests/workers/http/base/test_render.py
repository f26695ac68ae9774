"""Extents as text: nothing beyond their end, whatever they hold, and each generation apart."""

import asyncio
import json
import os

from reference.core import chunk_encode

from barco.model.placement import Placement
from barco.types import KiB
from barco.workers.http.base.messages import JSON, NDJSON
from barco.workers.http.base.render import render
from barco.workers.shard.reads import STRETCH_BYTES, Extent

RING = Placement(1, 8)
VALUE_BYTES = 40 * KiB


def chunks(count: int, base: int = 0, epoch: int = 1) -> list[bytes]:
    """Chunks of one event each, of which a stretch holds some."""
    values = [os.urandom(VALUE_BYTES) for _ in range(count)]
    return [chunk_encode("t", 0, epoch, base + n, [value]) for n, value in enumerate(values)]


def offsets(extent: Extent, budget: int = 2**62) -> list[int]:
    parts = asyncio.run(render(NDJSON, [extent], RING, budget))
    return [int(json.loads(line)["offset"]) for line in b"".join(parts).splitlines()]


def test_an_extent_that_was_cut_ends_where_it_is_to_end() -> None:
    """Also where whole stretches of its chunks are beyond that."""
    held = chunks(20)
    assert sum(map(len, held)) > 2 * STRETCH_BYTES
    for end in (1, 3, 7, 12, 19, 20):
        extent = Extent("t", 0, 0, end, 20, held.copy())
        assert offsets(extent) == list(range(end)) and extent.end == end
    together = Extent("t", 0, 2, 15, 20, [b"".join(held[:9]), b"".join(held[9:])])
    assert offsets(together) == list(range(2, 15))


def test_a_budget_ends_it_earlier() -> None:
    extent = Extent("t", 0, 0, 20, 20, chunks(20))
    found = offsets(extent, 5 * VALUE_BYTES)
    assert found == list(range(extent.end)) and 0 < extent.end < 5


def test_each_generation_is_apart() -> None:
    """PolarStreams' JSON names the generation once for all its events."""
    held = [b"".join(chunks(3)), b"".join(chunks(8, 3, epoch=2)), *chunks(2, 11, epoch=2)]
    parts = asyncio.run(render(JSON, [Extent("t", 0, 1, 12, 13, held)], RING))
    told = json.loads(b"".join(parts))
    assert [(item["version"], item["startOffset"]) for item in told] == [(1, "1"), (2, "3")]
    assert [len(item["values"]) for item in told] == [2, 9]
