"""Which events a query reads, and which task reads which of them."""

import random

import pytest

pytest.importorskip("pyspark", reason="no pyspark: pip install 'barco[spark]'")

from barco.client.wire.access import Access
from barco.spark.base.fetch import DataLossError
from barco.spark.base.options import OptionError, ReadOptions
from barco.spark.read.plan import (
    PIECE_BYTES_MIN,
    Range,
    Slice,
    cut,
    cut_by_count,
    end_of,
    packed,
    piece_bytes,
    piece_bytes_most,
    range_of,
    request_bytes,
    slices_of,
    start_of,
    wanted,
)


def options(**given: str) -> ReadOptions:
    return ReadOptions.parse({"subscribe": "t"} | given, stream=False)


def a_slice(partition: int = 0, *, start: int = 0, end: int = 1000, size: int = 10**6) -> Slice:
    return Slice("t", -(2**63), partition, partition, f"e:{partition % 2 + 1}", (), 2, start, end,
                 size)  # fmt: skip


def described(token: int, index: int, **more: object) -> dict[str, object]:
    fields: dict[str, object] = {"token": str(token), "index": index, "endpoint": "e:1"}
    return fields | {"version": 3, "startOffset": "5", "endOffset": "9"} | more


def test_partitions_are_numbered_in_ring_order() -> None:
    found = slices_of("t", [described(t, i) for t in (50, -10) for i in (1, 0)])
    assert [(s.token, s.index, s.partition) for s in found] == [
        (-10, 0, 0), (-10, 1, 1), (50, 0, 2), (50, 1, 3),
    ]  # fmt: skip
    assert found[0].name == "-10/0"


def test_what_the_brokers_tell() -> None:
    more = {"bytes": 77, "splits": [{"offset": "7", "bytes": 40}], "atOffset": "6"}
    (found,) = slices_of("t", [described(1, 0, **more)])
    assert (found.start, found.end, found.stored_bytes, found.at) == (5, 9, 77, 6)
    assert found.splits == ((7, 40),)


def test_assigned_partitions() -> None:
    given = ReadOptions.parse({"assign": '{"t":[1]}'}, stream=False)
    assert [s.partition for s in wanted([a_slice(0), a_slice(1)], given)] == [1]
    with pytest.raises(OptionError, match="no partition 7"):
        wanted([a_slice(0)], ReadOptions.parse({"assign": '{"t":[7]}'}, stream=False))


def test_offsets_outside_are_data_loss_unless_it_does_not_matter() -> None:
    kept = a_slice(start=100)
    early = options(startingOffsets='{"t":{"0":3}}')
    with pytest.raises(DataLossError, match="100 to 1000"):
        start_of(kept, early, {})
    relaxed = options(startingOffsets='{"t":{"0":3}}', failOnDataLoss="false")
    assert start_of(kept, relaxed, {}) == 100
    late = options(endingOffsets='{"t":{"0":3000}}', failOnDataLoss="false")
    assert end_of(kept, late, {}) == 1000


def test_times() -> None:
    given = options(startingTimestamp="5")
    assert start_of(a_slice(), given, {("t", "timestamp:5000"): {0: 42}}) == 42
    with pytest.raises(OptionError, match="startingOffsetsByTimestampStrategy"):
        start_of(a_slice(), given, {("t", "timestamp:5000"): {0: 1000}})
    empty = a_slice(start=7, end=7)
    assert start_of(empty, given, {("t", "timestamp:5000"): {0: 7}}) == 7


def covers(ranges: list[Range], start: int, end: int) -> bool:
    """Every event once, in order."""
    at = start
    for each in ranges:
        if each.start != at or each.end <= each.start:
            return False
        at = each.end
    return at == end


@pytest.mark.parametrize("seed", range(30))
def test_cutting_loses_nothing(seed: int) -> None:
    rng = random.Random(seed)
    start, end = sorted(rng.sample(range(2000), 2))
    splits = sorted({(rng.randrange(2000), rng.randrange(1, 900)) for _ in range(20)})
    whole = range_of(a_slice(end=2000), start, end, Access.of("e:9"))
    pieces = cut(whole, splits, rng.randrange(1, 2000), rng.randrange(3000))
    assert covers(pieces, start, end)
    given = options(minPartitions=str(rng.randrange(1, 40)), maxRecordsPerPartition="100")
    counted = cut_by_count(pieces, given)
    assert covers(counted, start, end) and all(r.end - r.start <= 100 for r in counted)
    assert len(counted) >= min(given.partitions_min, end - start)


def test_small_slices_of_a_shard_share_a_task_and_shards_take_turns() -> None:
    ranges = [range_of(a_slice(n, size=100), 0, 1000, Access(())) for n in range(8)]
    tasks = packed(ranges, 1000, 1000)
    assert len(tasks) == 2
    assert [{r.source.access.endpoints[0] for r in task.ranges} for task in tasks] == [
        {"e:1"},
        {"e:2"},
    ]
    tasks = packed(ranges, 250, 250)
    first = [task.ranges[0].source.access.endpoints[0] for task in tasks]
    assert first == ["e:1", "e:2", "e:1", "e:2"]
    assert sorted(r.partition for task in tasks for r in task.ranges) == list(range(8))
    assert len(packed(ranges, 1000, 1000, alone=True)) == 8
    assert "t/0[0:1000) at e:1" in repr(tasks[0])


@pytest.mark.parametrize("seed", range(30))
def test_tasks_of_one_shard_are_even(seed: int) -> None:
    rng = random.Random(seed)
    target = rng.randrange(50, 5000)
    most = target + target // 2
    sizes = [rng.randrange(1, target) for _ in range(rng.randrange(1, 40))]
    ranges = [range_of(a_slice(0, size=size), 0, 1000, Access(())) for size in sizes]
    tasks = packed(ranges, target, most)
    assert [r for task in tasks for r in task.ranges] == ranges
    bytes_of = [sum(r.stored_bytes for r in task.ranges) for task in tasks]
    assert max(bytes_of) <= most
    even = [range_of(a_slice(0, size=target // 4), 0, 1000, Access(())) for _ in range(8)]
    assert [len(task.ranges) for task in packed(even, target, most)] == [4, 4]


def test_each_core_of_a_machine_has_as_few_tasks_as_can_be() -> None:
    mib = 1 << 20
    assert piece_bytes(70 * mib, options(), cores=2) == 35 * mib
    assert piece_bytes(70 * mib, options(), cores=64) == PIECE_BYTES_MIN
    assert piece_bytes(300 * mib, options(), cores=2) == 50 * mib  # Six, not five of 60.
    assert piece_bytes(10**12, options(), cores=2) <= 64 * mib
    assert piece_bytes(10**9, options(maxBytesPerPartition="1000000"), cores=2) <= 10**6


def test_sizes_of_partitions() -> None:
    assert piece_bytes(0, options()) == PIECE_BYTES_MIN
    assert piece_bytes(10**12, options()) == 64 << 20
    assert piece_bytes(10**9, options(maxBytesPerPartition="1000000")) == 10**6
    assert piece_bytes_most(1000, options()) == 1500
    assert piece_bytes_most(10**6, options(maxBytesPerPartition="1000000")) == 10**6


def test_what_is_left_of_a_slice_is_no_task_of_its_own() -> None:
    whole = range_of(a_slice(end=100, size=1000), 0, 100, Access.of("e:9"))
    splits = [(n, 100) for n in range(10, 100, 10)]
    assert [p.stored_bytes for p in cut(whole, splits, 400, 600)] == [400, 600]
    assert [p.stored_bytes for p in cut(whole, splits, 400, 599)] == [400, 400, 200]


def test_requests_leave_no_small_rest():
    fetch = 4 << 20
    assert request_bytes(0, fetch) == request_bytes(fetch, fetch) == fetch
    rng = random.Random(3)
    for _ in range(200):
        stored = rng.randrange(fetch + 1, 40 * fetch)
        size = request_bytes(stored, fetch)
        assert fetch * 2 // 3 <= size <= 1.6 * fetch
        chunk = 130_000  # An answer may be short of a chunk.
        assert -(-stored // (size - chunk)) <= max(1, round(stored / fetch))
    assert request_bytes(24 << 20, 16 << 20) <= 16 << 20
