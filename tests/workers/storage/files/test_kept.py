"""Groups that are written together because they are kept first: whatever is torn comes back."""

import os

import builder
import pytest
from replica_files import Loading, make

from barco.limits import PAGE_BYTES
from barco.workers.storage.files import kept, layout
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.index.scan import Tags
from barco.workers.storage.stores import inspect
from barco.workers.storage.stores.copied import CopiedLog, Position

TAGS = Tags(builder.UUID, builder.TOKEN, 2, builder.SESSION)
GROUPS = 40


def groups_of_a_generation():
    log = builder.Log()
    log.roll()
    for number in range(GROUPS):
        log.append(builder.chunk("t", 0, 3 * number))
    (data,) = log.segments
    return [bytes(data[at : at + size]) for _, at, size in log.groups]


async def written(shard, bulk):
    """A log of which all but the first group was written in one row."""
    groups = groups_of_a_generation()
    log = CopiedLog(shard, bulk, TAGS, Position())
    assert (await log.append(groups)).tail == len(groups)
    return groups


def tear(shard, groups, lost):
    """The power went while they were written to their places."""
    path = layout.segment_path(shard, 2, 0)
    data = bytearray(path.read_bytes())
    at = 0
    for number, group in enumerate(groups):
        if number in lost:
            data[at : at + len(group)] = bytes(len(group))
        at += len(group)
    path.write_bytes(data)


@pytest.mark.parametrize("lost", [{1}, {5, 6, 30}, {40}, set(range(1, 41))])
def test_what_is_torn_comes_back(shard, go, lost):
    async def test(bulk):
        groups = await written(shard, bulk)
        whole = layout.segment_path(shard, 2, 0).read_bytes()
        tear(shard, groups, lost)
        assert kept.restore(shard, 2) == len(whole) - len(groups[0])
        assert layout.segment_path(shard, 2, 0).read_bytes() == whole
        kept.forget(shard, 2)
        assert kept.restore(shard, 2) == 0

    go(test)


@pytest.mark.parametrize("lost", [{1}, {5, 6, 30}, {40}, set(range(1, 41))])
def test_a_start_puts_it_back_before_anybody_looks(shard, go, lost):
    """Else the log would end where it was torn, or count as rotten: headers behind it say that all
    of it was stable."""

    async def test(bulk):
        Lineage.load(shard).opened(2, builder.SESSION, [])
        groups = await written(shard, bulk)
        whole = layout.segment_path(shard, 2, 0).read_bytes()
        tear(shard, groups, lost)
        errors = []
        store = make(shard, bulk, errors)
        found = (await store.recover(Loading()))[2]
        assert (found.tail, found.suspect, errors) == (len(groups), False, [])
        assert layout.segment_path(shard, 2, 0).read_bytes()[: len(whole)] == whole
        await store.close()

    go(test)


@pytest.mark.parametrize("lost", [{1}, {5, 6, 30}, set(range(1, 41)), "the size"])
def test_dump_sees_what_a_start_would_put_in_its_place(shard, go, lost):
    async def test(bulk):
        Lineage.load(shard)
        groups = await written(shard, bulk)
        path = layout.segment_path(shard, 2, 0)
        if lost == "the size":
            os.truncate(path, len(groups[0]) + 5 * PAGE_BYTES)
        else:
            tear(shard, groups, lost)
        before, found = path.read_bytes(), []
        wishes = inspect.Wishes(verify=True)
        assert inspect.inspect_shard(shard, 0, builder.UUID, wishes, False, found.append) == 0
        (generation,) = (each for each in found if each["type"] == "generation")
        assert generation["tail"] == len(groups)
        assert path.read_bytes() == before
        kept.forget(shard, 2)
        inspect.inspect_shard(shard, 0, builder.UUID, wishes, False, found.append)
        assert found[-1]["type"] == "corruption" or found[-2]["tail"] < len(groups)

    go(test)


def test_what_was_not_kept_whole_is_not_put_anywhere(shard, go):
    async def test(bulk):
        groups = await written(shard, bulk)
        tear(shard, groups, {7})
        torn = layout.segment_path(shard, 2, 0).read_bytes()
        path = layout.generation_path(shard, 2) / kept.NAME
        data = path.read_bytes()
        for damaged in (data[:-1], data[:4096], b"", data[:5000] + b"x" + data[5001:], b"y" + data):
            path.write_bytes(damaged)
            assert kept.restore(shard, 2) == 0
            assert layout.segment_path(shard, 2, 0).read_bytes() == torn

    go(test)


def test_a_row_ends_where_a_segment_or_the_sense_does(shard, go):
    async def test(bulk):
        log = builder.Log()
        log.roll()
        for number in range(5):
            log.append(builder.chunk("t", 0, 3 * number))
        log.roll()
        log.append(builder.chunk("t", 0, 15))
        groups = [bytes(log.segments[s][at : at + size]) for s, at, size in log.groups]
        copied = CopiedLog(shard, bulk, TAGS, Position())
        assert copied.row(groups)[0] == []  # It opens a segment.
        await copied.append(groups[:2])
        row, end = copied.row(groups[2:])
        assert row == groups[2:6] and (end.tail, end.segment) == (6, 0)
        wrong = groups[3][:200] + b"!" + groups[3][201:]
        assert copied.row([groups[2], wrong, groups[4]])[0] == groups[2:3]
        with pytest.raises(ValueError, match="checksum"):
            await copied.append([groups[2], wrong])
        assert copied.position.tail == 3
        assert (await copied.append(groups[3:])).tail == len(groups)
        assert layout.segment_path(shard, 2, 0).read_bytes() == bytes(log.segments[0])
        assert layout.segment_path(shard, 2, 1).read_bytes() == bytes(log.segments[1])

    go(test)
