"""Where a time or an amount of bytes begins: against brute force over what was written."""

import random
import struct

import builder
import pytest

from barco import _native
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.index.catalog import Catalog
from barco.workers.storage.reading.extents import StreamExtents, _Cuts, newest_within

SLOT = ("a", 0)


def written(shard, open_groups=10):
    """[(base, stored, count, appended)]: all chunks of SLOT; those of the open generation."""
    rng = random.Random(11)
    offsets = {}
    lineage = Lineage.load(shard)
    chunks = []
    clock = 1_700_000_000
    for epoch in (2, 3):
        lineage.opened(epoch, builder.SESSION, [(epoch - 1, 0)])
        log = builder.Log(epoch=epoch, offsets=offsets, pace=7, clock=clock)
        for _ in range(3):
            log.roll()
            for _ in range(8):
                log.events(SLOT, ("b.c", 0), count=rng.randint(1, 40))
        clock = log.clock
        log.write(shard, capacity=512 * 1024)
        lineage.sealed(epoch, len(log.groups), 2, len(log.segments[-1]))
        for segment, at, _ in log.groups:
            data = log.segments[segment]
            (appended,) = struct.unpack_from("<Q", data, at + 80)
            body_bytes, count = struct.unpack_from("<II", data, at + 88)
            body = bytes(data[at + 128 : at + 128 + body_bytes]) if count else b""
            for _, stored, topic, _, _, base, events, _, _ in _native.chunks_scan(body):
                if topic == SLOT[0]:
                    chunks.append((base, stored, events, appended))
    for n in range(open_groups):
        base, _, count, appended = chunks[-1]
        chunks.append((base + count, 100 + n, 5, appended + 7_000_000))
    return chunks, chunks[len(chunks) - open_groups :]


async def opened(shard, bulk, rows):
    catalog = Catalog(
        shard, Lineage.load(shard), cluster_uuid=builder.UUID, token=builder.TOKEN, bulk=bulk
    )
    await catalog.load()

    def locate(topic, slice_, from_offset, max_chunks):
        if (topic, slice_) != SLOT:
            return []
        fitting = [(0, 0, s, b, n) for b, s, n, _ in rows if b + n > from_offset]
        return fitting[:max_chunks]

    def locate_appended(topic, slice_, time_us):
        late = [b for b, _, _, at in rows if at >= time_us and (topic, slice_) == SLOT]
        return late[0] if late else None

    return StreamExtents(catalog, locate=locate, locate_appended=locate_appended)


def kept(chunks, bytes_max):
    """The start of the newest chunks that fit; the last one always does."""
    start = chunks[-1][0]
    for base, stored, _, _ in reversed(chunks):
        bytes_max -= stored
        if bytes_max < 0:
            break
        start = base
    return start


@pytest.mark.parametrize("open_groups", [0, 1, 10])
def test_sizes_against_brute_force(shard, go, open_groups):
    chunks, rows = written(shard, open_groups)
    total = sum(chunk[1] for chunk in chunks)

    async def test(bulk):
        extents = await opened(shard, bulk, rows)
        for _ in range(2):  # The second time from what is remembered.
            for share in range(110):
                bytes_max = max(1, total * share // 100)
                assert await extents.within(*SLOT, bytes_max) == kept(chunks, bytes_max), share
        for edge in (total - 1, total, total + 1):
            assert await extents.within(*SLOT, edge) == kept(chunks, edge)
        assert await extents.within("none", 0, 10) is None

    go(test)


def test_times_against_brute_force(shard, go):
    chunks, rows = written(shard)

    async def test(bulk):
        extents = await opened(shard, bulk, rows)
        for _, _, _, appended in chunks:
            for moment in (appended - 3_000_000, appended, appended + 3_000_000):
                late = [base for base, _, _, at in chunks if at >= moment]
                assert await extents.since(*SLOT, moment) == (late[0] if late else None)
        assert await extents.since("none", 0, 0) is None

    go(test)


def test_what_is_remembered_goes_with_its_segment(shard, go):
    _, rows = written(shard)

    async def test(bulk):
        extents = await opened(shard, bulk, rows)
        await extents.within(*SLOT, 1 << 30)
        assert len(extents._totals) == 6
        first = extents._catalog.segments()[0].key
        extents._catalog.remove(first)
        extents.forget()
        assert len(extents._totals) == 5 and first not in {key[0] for key in extents._totals}

    go(test)


def test_the_newest_that_fit():
    sizes = [(0, 10), (5, 20), (9, 30)]
    assert newest_within(sizes, 29) == (None, 29)
    assert newest_within(sizes, 49) == (9, 19)
    assert newest_within(sizes, 60) == (0, 0)
    assert newest_within([], 60) == (None, 60)


@pytest.mark.parametrize("piece_bytes", [1, 400, 5000, 1 << 30])
def test_where_to_cut(shard, go, piece_bytes):
    chunks, rows = written(shard)
    starts = [base for base, *_ in chunks]

    async def test(bulk):
        extents = await opened(shard, bulk, rows)
        for start in (0, starts[7], starts[-1]):
            wanted = [chunk for chunk in chunks if chunk[0] >= start]
            total, cuts = await extents.splits(*SLOT, start, piece_bytes)
            assert total == sum(stored for _, stored, _, _ in wanted)
            at = start
            for offset, size in cuts:
                assert offset in starts
                assert size == sum(stored for base, stored, _, _ in wanted if at <= base < offset)
                assert size >= piece_bytes
                at = offset
        assert await extents.splits("none", 0, 0, piece_bytes) == (0, [])

    go(test)


def test_cuts_are_few(monkeypatch):
    monkeypatch.setattr("barco.workers.storage.reading.extents.SPLITS_MAX", 10)
    cuts = _Cuts(100)
    for n in range(1000):
        cuts.add(n, 100)
    assert cuts.total == 100_000 and len(cuts.found) <= 10
    ends = [offset for offset, _ in cuts.found]
    starts = [0, *ends[:-1]]
    assert [size for _, size in cuts.found] == [
        100 * (end - start) for start, end in zip(starts, ends, strict=True)
    ]
