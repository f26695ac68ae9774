"""Shards and processes: every shard is held by three brokers, and both directions agree."""

import pytest

from barco.model.placement import Placement
from barco.model.replicas import Replicas
from barco.types import Ordinal


@pytest.mark.parametrize("size", [1, 3, 6, 12])
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_both_directions_agree(size: int, workers: int) -> None:
    replicas = Replicas(Placement(size, 8), workers)
    seen: dict[int, set[tuple[int, int]]] = {}
    for ordinal in range(size):
        for number in range(replicas.processes):
            process = (Ordinal(ordinal), number)
            shard = replicas.shard_of(process)
            assert process in replicas.holders(shard)
            seen.setdefault(shard, set()).add(process)
    assert sorted(seen) == list(range(replicas.shards))
    assert all(set(replicas.holders(shard)) == found for shard, found in seen.items())
    assert all(len(found) == min(3, size) for found in seen.values())


def test_the_order_of_succession() -> None:
    replicas = Replicas(Placement(6, 8), 2)
    # Ring order of six: 0 3 1 4 2 5. Range 1 is the one of broker 3; then come 1 and 4.
    assert replicas.holders(1 * 2 + 1) == ((3, 1), (1, 3), (4, 5))
    assert replicas.shard_of((Ordinal(4), 5)) == 3


def test_slices() -> None:
    replicas = Replicas(Placement(3, 8), 2)
    assert replicas.slices_of(3) == range(4, 8) and replicas.slices_of(2) == range(4)
    assert [replicas.numbers_of(shard) for shard in (0, 3, 5)] == [
        range(4),
        range(12, 16),
        range(20, 24),
    ]
