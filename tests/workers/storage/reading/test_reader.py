"""Reading stored chunks: every offset, across segments and generations, verified, read ahead."""

import asyncio
import gc
import random
from pathlib import Path
from typing import Any

import builder
import pytest
from single import start

from barco import _native
from barco.workers.shard.reads import split_chunks
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import ENTRY_BYTES
from barco.workers.storage.files.errors import CorruptChunkError
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.index.catalog import Catalog
from barco.workers.storage.index.sidecar import location_at
from barco.workers.storage.reading.reader import LogReader
from barco.workers.storage.stores.retention import Policy, Retention


def two_generations(shard: Path, segments: int = 3, groups: int = 12) -> dict[Any, int]:
    """Two sealed generations with continuing offsets; the end offset of every stream."""
    rng = random.Random(7)
    offsets: dict[Any, int] = {}
    lineage = Lineage.load(shard)
    for epoch in (2, 3):
        lineage.opened(epoch, builder.SESSION, [(epoch - 1, 0)])
        log = builder.Log(epoch=epoch, offsets=offsets)
        for _ in range(segments):
            log.roll()
            for _ in range(groups):
                streams = rng.sample([("a", 0), ("a", 1), ("b.c", 0), ("zz", 3)], 2)
                log.events(*sorted(streams), count=rng.randint(1, 40))
        log.write(shard, capacity=512 * 1024)
        lineage.sealed(epoch, len(log.groups), segments - 1, len(log.segments[-1]))
    return offsets


async def opened(shard: Path, bulk: Any, **options: Any) -> LogReader:
    catalog = Catalog(
        shard, Lineage.load(shard), cluster_uuid=builder.UUID, token=builder.TOKEN, bulk=bulk
    )
    await catalog.load()
    return LogReader(catalog, bulk, open_epoch=9, **options)


def split(pieces: list[memoryview]) -> list[memoryview]:
    """Chunks one by one."""
    return [chunk for piece in pieces for chunk, _ in split_chunks(piece)]


async def read_all(reader: LogReader, topic: str, slice_: int, step: int) -> list[Any]:
    events, offset = [], 0
    while True:
        result = await reader.read(topic, slice_, offset, step)
        if not result.chunks:
            return events
        for chunk in split(result.chunks):
            events += [event for event in _native.chunk_events(chunk) if event[0] >= offset]
        assert result.next_offset > offset
        offset = result.next_offset
        del result, chunk  # Nobody waits for buffers while holding some.


@pytest.mark.parametrize("step", [1, 3000, 1 << 20])
def test_everything_comes_back_in_order(shard, go, engine, step):
    ends = two_generations(shard)

    async def test(bulk):
        reader = await opened(shard, bulk)
        for (topic, slice_), end in ends.items():
            events = await read_all(reader, topic, slice_, step)
            assert [event[0] for event in events] == list(range(end))
            assert all(event[3].startswith(f"{topic}/{slice_}/".encode()) for event in events)
            assert await reader.earliest(topic, slice_) == 0
        assert [(t, s, 0, e) for (t, s), e in sorted(ends.items())] == await reader.streams()
        if step == 1:
            assert reader.read_ahead_hits > 0
        assert (await reader.read("a", 0, ends["a", 0], 100)).chunks == []
        assert (await reader.read("none", 0, 0, 100)).chunks == []
        assert await reader.earliest("none", 0) is None
        reader.close()

    go(test, engine)


def test_where_many_streams_begin_is_found_in_one_walk(shard, go, engine, monkeypatch):
    ends = two_generations(shard)
    wanted = [*ends, ("none", 0), *ends]

    async def test(bulk):
        one_by_one = await opened(shard, bulk)
        begun = [await one_by_one.earliest(*name) for name in wanted]
        one_by_one.close()
        reader = await opened(shard, bulk)
        looked: list[Any] = []
        sidecar = reader._catalog.sidecar
        monkeypatch.setattr(
            reader._catalog, "sidecar", lambda key: (looked.append(key), sidecar(key))[1]
        )
        await reader.look_up(wanted)
        assert len(looked) == len(set(looked)) == 6, "each segment once"
        assert [await reader.earliest(*name) for name in wanted] == begun
        await reader.look_up(wanted)
        assert len(looked) == 6, "all of it is known"
        reader.close()

    go(test, engine)


def test_many_readers_share_a_small_pool(shard, go, engine):
    """Nobody fails for want of buffers, and all are given back."""
    ends = two_generations(shard)

    async def test(bulk):
        bulk.buffers.bytes_max = 256 << 10
        reader = await opened(shard, bulk)
        names = [name for name in ends for _ in range(6)]
        everything = await asyncio.gather(*(read_all(reader, *n, step=6000) for n in names))
        for name, events in zip(names, everything, strict=True):
            assert [event[0] for event in events] == list(range(ends[name]))
        assert bulk.buffers.bytes_out <= 256 << 10
        reader.close()
        await asyncio.sleep(0.05)
        gc.collect()
        assert bulk.buffers.bytes_out == 0

    go(test, engine)


def test_read_ahead_makes_room_for_reads(shard, go):
    two_generations(shard)

    async def test(bulk):
        reader = await opened(shard, bulk)
        offset = 0
        for _ in range(4):
            offset = (await reader.read("a", 0, offset, 1)).next_offset
            await asyncio.sleep(0.02)
        held = bulk.buffers.bytes_out
        assert held and reader.read_ahead_hits
        bulk.buffers.bytes_max = held  # Nothing else is free now.
        again = await asyncio.wait_for(reader.read("zz", 3, 0, 1 << 20), 20)
        assert again.chunks

    go(test)


def test_what_does_not_fit_stays_read_ahead(shard, go):
    """A caller that has chunks already gets no more than it can use, and goes on from there."""
    ends = two_generations(shard)

    async def test(bulk):
        reader = await opened(shard, bulk)
        events: list[int] = []
        while len(events) < ends["a", 0]:
            left, more = 5000, False
            while left > 0:
                result = await reader.read(
                    "a", 0, len(events), 1 << 20, raw_bytes_max=left, more=more
                )
                assert more or result.chunks or len(events) == ends["a", 0]
                for chunk in split(result.chunks):
                    events += [event[0] for event in _native.chunk_events(chunk)]
                    left -= _native.chunk_info(chunk)["raw_bytes"]
                if not result.chunks:
                    break
                more = True
        assert events == list(range(ends["a", 0]))
        assert reader.read_ahead_hits > 4

    go(test)


@pytest.mark.parametrize("columns", [_native.COLUMNS["key"], _native.COLUMNS["value"]])
def test_columns_are_cut_out_where_chunks_are_read(shard, go, columns):
    """Each reader goes on with its own columns, read ahead or not, beside one of whole chunks."""
    two_generations(shard)

    async def follow(reader, columns):
        pieces, offset = [], 0
        while (result := await reader.read("a", 0, offset, 2000, columns=columns)).chunks:
            pieces += [bytes(chunk) for chunk in result.chunks]
            offset = result.next_offset
            del result
            await asyncio.sleep(0.001)
        return b"".join(pieces)

    async def test(bulk):
        reader = await opened(shard, bulk)
        whole, some = await asyncio.gather(follow(reader, -1), follow(reader, columns))
        assert some == _native.chunks_project(whole, columns)
        assert reader.read_ahead_hits > 4
        reader.close()

    go(test)


def test_a_reader_that_stops_leaves_nothing_read_ahead(shard, go):
    ends = two_generations(shard)

    async def test(bulk):
        reader = await opened(shard, bulk)
        stop = ends["a", 0] // 2
        (*_, last) = split((await reader.read("a", 0, 0, 1 << 20, stop=5)).chunks)
        base, count, _ = _native.chunk_place(last)
        assert base < 5 <= base + count
        offset = most = 0
        while offset < stop:
            offset = (await reader.read("a", 0, offset, 1, stop=stop)).next_offset
            await asyncio.sleep(0.002)
            most = max([most, *(replay.fetch_offset for replay in reader._live)])
        assert reader.read_ahead_hits > 4 and most <= offset
        del last
        gc.collect()
        assert not reader._live and bulk.buffers.bytes_out == 0

    go(test)


def test_readers_that_pause_leave_their_share_to_others(shard, go):
    two_generations(shard)

    async def test(bulk):
        bulk.buffers.bytes_max = 4 << 20
        reader = await opened(shard, bulk)
        for slice_ in (0, 1):
            offset = 0
            for _ in range(3):
                offset = (await reader.read("a", slice_, offset, 1)).next_offset
        assert (len(reader._live), reader._window()) == (2, 1 << 20)
        next(iter(reader._live)).used -= 1
        assert reader._window() == 2 << 20
        reader.close()

    go(test)


def test_a_reader_for_whose_rest_no_chunk_is_small_enough_keeps_its_read_ahead(shard, go):
    two_generations(shard)

    async def test(bulk):
        reader = await opened(shard, bulk)
        offset = 0
        for _ in range(3):
            offset = (await reader.read("a", 0, offset, 1)).next_offset
        (key,) = reader._replays
        replay = reader._replays[key]
        while replay.task is not None:
            await asyncio.sleep(0.001)
        replay.fetch_offset = replay.next_offset
        replay.ready.clear()  # As where no buffer was free.
        before = reader.disk_bytes
        result = await reader.read("a", 0, offset, 1, more=True)
        assert result.runs == [] and result.next_offset == offset
        assert reader.disk_bytes == before  # Nothing is read for nothing.
        assert reader._replays[key] is replay and replay in reader._live
        reader.close()

    go(test)


def test_what_clients_do_not_take_does_not_use_up_the_buffers(shard, go):
    """A part of the pool is given out; beyond it answers are copies."""
    two_generations(shard)

    async def test(bulk):
        bulk.buffers.bytes_max = 1 << 20
        reader = await opened(shard, bulk)
        held = [await reader.read("a", 0, 0, 1 << 20) for _ in range(40)]
        async with asyncio.timeout(10):  # A thread lets go of its buffer just after its answer.
            while not 0 < bulk.buffers.bytes_out <= (1 << 20) // 3:
                await asyncio.sleep(0.001)
        assert len({bytes(b"".join(result.chunks)) for result in held}) == 1

    go(test)


def test_index_against_brute_force(shard, go):
    ends = two_generations(shard)

    async def test(bulk):
        reader = await opened(shard, bulk)
        for (topic, slice_), end in ends.items():
            events = await read_all(reader, topic, slice_, 1 << 20)
            for offset in range(0, end, 7):
                result = await reader.read(topic, slice_, offset, 1)
                first = _native.chunk_events(result.chunks[0])
                assert first[0][0] <= offset <= first[-1][0]
            for _, timestamp, _, _ in events[::5]:
                expected = next(event[0] for event in events if event[1] >= timestamp)
                assert await reader.by_timestamp(topic, slice_, timestamp) == expected
            assert await reader.by_timestamp(topic, slice_, 0) == 0
            assert await reader.by_timestamp(topic, slice_, 1 << 60) is None

    go(test)


def test_a_flipped_bit_is_told_and_never_served(shard, go):
    two_generations(shard, segments=1)

    async def test(bulk):
        reader = await opened(shard, bulk)
        await reader.streams()  # The sidecars are made while all is well.
        part = (await reader._catalog.parts("a", 0))[0]
        sidecar = await reader._catalog.sidecar(part.key)
        stream = sidecar.find("a", 0)
        bad = location_at(sidecar.entries(stream, 0), 2 * ENTRY_BYTES)
        path = layout.segment_path(shard, *part.key)
        data = bytearray(path.read_bytes())
        data[bad.file_offset + bad.stored_bytes - 9] ^= 0x10
        path.write_bytes(data)
        good = await reader.read("a", 0, 0, 1 << 20)
        assert len(split(good.chunks)) == 2 and good.next_offset == bad.base_offset
        with pytest.raises(CorruptChunkError) as caught:
            await reader.read("a", 0, good.next_offset, 1 << 20)
        assert caught.value.first == bad.base_offset and str(path) in str(caught.value)
        assert reader.corrupt_chunks == 1
        after = await reader.read("a", 0, caught.value.end, 1 << 20)
        assert _native.chunk_events(after.chunks[0])[0][0] == caught.value.end

    go(test)


@pytest.mark.parametrize("damage", ["missing", "flipped", "cut", "lies"])
def test_sidecars_are_rebuilt(shard, go, damage):
    ends = two_generations(shard)

    async def first(bulk):
        reader = await opened(shard, bulk)
        assert await reader._catalog.build_missing() == 6

    go(first)
    for number, path in enumerate(sorted(shard.glob("gen-*/*.idx"))):
        data = bytearray(path.read_bytes())
        if damage == "missing":
            path.unlink()
        elif damage == "flipped":
            data[(0, 20, 60, 130, 150, -1)[number]] ^= 4
            path.write_bytes(data)
        elif damage == "cut":
            path.write_bytes(data[: number * 50])
        else:  # Valid, but of other content: all positions are off by one unit.
            entries = int.from_bytes(data[132:136], "little")
            for entry in range(entries):
                data[len(data) - 32 * entry - 32 + 8] ^= 1
            data[12:16] = _native.crc32c(data[128:]).to_bytes(4, "little")
            data[8:12] = bytes(4)
            data[8:12] = _native.crc32c(data[:128]).to_bytes(4, "little")
            path.write_bytes(data)

    async def test(bulk):
        reader = await opened(shard, bulk)
        for (topic, slice_), end in ends.items():
            events = await read_all(reader, topic, slice_, 1 << 20)
            assert [event[0] for event in events] == list(range(end))
        assert reader._catalog.rebuilt == 6

    go(test)


def test_reads_the_open_generation_through_the_core(shard, go):
    log = builder.simple(5, segments=2, epoch=9)
    log.write(shard)
    rows = []
    for segment, data in enumerate(log.segments):
        for number, offset, size in log.groups:
            body = bytes(data[offset + 128 : offset + size])
            if number == segment and body[:4] == b"BCHK":
                at = 0
                while body[at : at + 4] == b"BCHK":
                    info = _native.chunk_info(body, at)
                    if (info["topic"], info["slice"]) == ("b.c", 0):
                        rows.append(
                            (
                                segment,
                                offset + 128 + at,
                                info["stored_bytes"],
                                info["base_offset"],
                                3,
                            )
                        )
                    at += info["stored_bytes"]

    def locate(topic, slice_, from_offset, count, _=0):
        if (topic, slice_) != ("b.c", 0):
            return []
        return [row for row in rows if row[3] + row[4] > from_offset][:count]

    async def test(bulk):
        reader = await opened(shard, bulk, locate=locate)
        events = await read_all(reader, "b.c", 0, 1 << 20)
        assert [event[0] for event in events] == list(range(30))
        assert await reader.earliest("b.c", 0) == 0

    go(test)


def test_retention_while_a_reader_reads(shard, go):
    ends = two_generations(shard)

    async def test(bulk):
        reader = await opened(shard, bulk)
        catalog = reader._catalog
        truncated = {}
        retention = Retention(
            catalog, catalog._lineage, bulk, Policy(0, 1), open_epoch=9, continued=lambda _: True,
            on_truncate=lambda t, s, o: truncated.__setitem__((t, s), o),
        )  # fmt: skip
        first = await reader.read("a", 0, 0, 1)
        deleted = await retention.run(0)
        assert deleted == 5 and len(catalog.segments()) == 1
        assert not layout.generation_path(shard, 2).exists()
        assert not list((shard / "trash").iterdir())
        later = await reader.read("a", 0, first.next_offset, 1)
        start = await reader.earliest("a", 0)
        assert start is not None and start >= truncated["a", 0]
        assert _native.chunk_events(later.chunks[0])[0][0] == start
        events = await read_all(reader, "a", 0, 1 << 20)
        assert events[-1][0] == ends["a", 0] - 1

    go(test)
    again = Lineage.load(shard)
    assert again.get(2).expired and not again.get(3).expired

    assert start(shard, go).parent == (3, 39)
