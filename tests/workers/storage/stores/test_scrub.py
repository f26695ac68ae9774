"""Damage in sealed segments: found by whoever looks, repaired from a member, byte for byte."""

import asyncio
import random

import builder
import pytest

from barco import _native
from barco.errors import CorruptDataError
from barco.workers.storage.files import layout
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.index.catalog import Catalog, SegmentKey
from barco.workers.storage.index.scan import Tags, parse_header
from barco.workers.storage.reading.reader import LogReader
from barco.workers.storage.stores import scrub
from barco.workers.storage.stores.scrub import Scrub

SEGMENTS, GROUPS = 3, 6


def a_log():
    """Groups of one page and of several, some with sectors of zeros."""
    log = builder.Log()
    for segment in range(SEGMENTS):
        log.roll()
        for number in range(GROUPS):
            log.events(("a", number % 2), ("b", 0), count=3 + 400 * (number == 2))
    return log


class Members:
    """Others with the same log; what they say can be changed."""

    def __init__(self, log, members=(1, 2)):
        self.groups = {}
        for gseq, (segment, at, size) in enumerate(log.groups, 1):
            self.groups[gseq] = bytes(log.segments[segment][at : at + size])
        self.answers = dict.fromkeys(members, lambda gseq, group: group)
        self.asked = []

    def members(self, epoch):
        return list(self.answers)

    async def fetch(self, member, epoch, first, last):
        self.asked.append((member, first, last))
        found = []
        for gseq in range(first, last + 1):
            group = self.answers[member](gseq, self.groups.get(gseq))
            if group is None:
                break
            found.append(bytearray(group))
        return found


class Place:
    """A shard with that log, sealed."""

    def __init__(self, shard, bulk):
        self.shard, self.bulk = shard, bulk
        self.log = a_log()
        lineage = Lineage.load(shard)
        lineage.opened(2, builder.SESSION, [(1, 0)])
        self.paths = self.log.write(shard)
        self.whole = [path.read_bytes() for path in self.paths]
        self.tail = len(self.log.groups)
        lineage.sealed(2, self.tail, SEGMENTS - 1, len(self.log.segments[-1]))
        self.errors = []
        self.members = Members(self.log)

    async def open(self, source=True):
        self.lineage = Lineage.load(self.shard)
        self.catalog = Catalog(
            self.shard, self.lineage, cluster_uuid=builder.UUID, token=builder.TOKEN,
            bulk=self.bulk,
        )  # fmt: skip
        self.scrub = Scrub(
            self.shard, self.catalog, self.lineage, self.bulk,
            tags_of=lambda epoch: Tags(builder.UUID, builder.TOKEN, epoch, builder.SESSION),
            committed=lambda epoch: None, on_error=self.errors.append,
        )  # fmt: skip
        self.scrub.bytes_per_second = 1 << 40
        self.scrub.source = self.members if source else None
        await self.catalog.load()
        return self

    def hurt(self, segment, change):
        data = bytearray(self.whole[segment])
        change(data)
        self.paths[segment].write_bytes(data)

    def flip(self, segment, at, bit=0):
        self.hurt(segment, lambda data: data.__setitem__(at, data[at] ^ 1 << bit))

    def is_whole(self):
        return all(
            path.exists() and path.read_bytes()[: len(used)] == used
            for path, used in zip(self.paths, self.log.segments, strict=True)
        )

    async def one_pass(self):
        """What the background does once."""
        self.scrub.start()
        while not self.scrub.passes:
            await asyncio.sleep(0.001)

    async def close(self):
        await self.scrub.close()
        self.catalog.close()


def in_place(test):
    """Runs `test(place)` on a shard of its own."""

    def run(shard, go, *given):
        async def main(bulk):
            place = Place(shard, bulk)
            try:
                await test(place, *given)
            finally:
                await place.close()

        go(main)

    return run


def test_a_sound_shard_is_read_whole_and_left_alone(shard, go):
    async def test(place):
        await place.open()
        await place.one_pass()
        assert place.scrub.bytes >= sum(map(len, place.log.segments))
        assert not place.members.asked and not place.errors
        assert place.scrub.status() == {
            "scrubPasses": 1, "scrubPercent": 100, "damagedSegments": 0, "repairedGroups": 0,
        }  # fmt: skip

    in_place(test)(shard, go)


@pytest.mark.parametrize("which", ["first", "middle", "last"])
@pytest.mark.parametrize("segment", range(SEGMENTS))
def test_every_part_of_a_group_is_repaired(shard, go, segment, which):
    async def test(place):
        rows = [row for row in place.log.groups if row[0] == segment]
        _, start, size = rows[{"first": 0, "middle": 3, "last": -1}[which]]
        used = 128 + parse_header(place.whole[segment], start).body_bytes
        await place.open()
        for at in (0, 5, 60, 123, 127, 128, 200, used - 1, used, size - 1):
            place.flip(segment, start + at, bit=at % 8)
            task = place.scrub.suspect(SegmentKey(2, segment))
            assert await task and place.is_whole(), at
        assert place.scrub.repaired_groups == 10 and not place.errors

    in_place(test)(shard, go)


def test_the_background_finds_what_nobody_reads(shard, go):
    async def test(place):
        spots = random.Random(4)
        for segment in range(SEGMENTS):
            place.flip(segment, spots.randrange(len(place.log.segments[segment])))
        await place.open()
        await place.one_pass()
        assert place.is_whole() and place.scrub.repaired_groups == SEGMENTS
        assert place.scrub.status()["damagedSegments"] == 0

    in_place(test)(shard, go)


def damages(place):
    """Larger damage: name, and what it is."""
    used = [len(data) for data in place.log.segments]

    def zeros(start, end):
        return lambda data: data.__setitem__(slice(start, end), bytes(end - start))

    yield "pages that are gone", lambda: place.hurt(1, zeros(4096, 5 * 4096))
    yield "all of it", lambda: place.hurt(1, zeros(0, used[1]))
    yield (
        "noise",
        lambda: place.hurt(
            0, lambda data: data.__setitem__(slice(0, used[0]), random.Random(1).randbytes(used[0]))
        ),
    )
    yield "cut short", lambda: place.hurt(2, lambda data: data.__delitem__(slice(3 * 4096, None)))
    yield "empty", lambda: place.hurt(0, lambda data: data.clear())
    yield "the end is gone", lambda: place.hurt(0, zeros(used[0] - 4096, used[0]))
    for segment in range(SEGMENTS):
        yield f"no file {segment}", place.paths[segment].unlink
    yield "another's", lambda: place.paths[2].write_bytes(place.whole[1])

    def several():
        place.hurt(0, zeros(0, 4096))
        place.flip(1, 200)
        place.hurt(2, zeros(4096, used[2]))

    yield "several", several
    yield "all files", lambda: [path.unlink() for path in place.paths]


@pytest.mark.parametrize("held", [scrub.HELD_BYTES_MAX, 0])
def test_larger_damage_is_repaired(shard, go, monkeypatch, held):
    monkeypatch.setattr(scrub, "HELD_BYTES_MAX", held)
    monkeypatch.setattr(scrub, "FETCH_GROUPS", 3)

    async def test(place):
        for name, hurt in damages(place):
            hurt()
            await place.open()
            await place.one_pass()
            for _ in range(2):  # One may have to wait for the one before it.
                for key in list(place.scrub._damaged):
                    await place.scrub.suspect(key)
            assert place.is_whole() and not place.scrub._damaged, name
            await place.close()

    in_place(test)(shard, go)


def forged(place, gseq, body=None, upto=0):
    """A member's answers with other bytes for one group: as its own checksums have it, it is good.

    With `upto` all after it are chained to it, up to this one.
    """
    made = {}
    header = parse_header(place.members.groups[gseq])
    prev = header.prev_crc
    for number in range(gseq, max(upto, gseq) + 1):
        old = place.members.groups[number]
        header = parse_header(old)
        content = bytearray(old[128 : 128 + header.body_bytes])
        if number == gseq:
            content[len(content) // 2] ^= 1
        made[number], prev = builder.group(
            number, prev, bytes(content), segment=header.segment_index, flags=header.flags,
            durable=header.durable_upto, chunks=header.chunk_count, wall=header.wall_us,
        )  # fmt: skip
    return lambda number, group: made.get(number, group)


@pytest.mark.parametrize("held", [scrub.HELD_BYTES_MAX, 0])
def test_a_member_with_other_bytes_is_not_believed(shard, go, monkeypatch, held):
    """Its group is sound by itself, but not what the next one here follows on."""
    monkeypatch.setattr(scrub, "HELD_BYTES_MAX", held)

    async def test(place):
        last = GROUPS + 1
        # In the middle; the last of a segment; the last of all, which only a sidecar knows.
        for gseq, upto in ((3, 0), (last, 0), (3, last), (place.tail, 0), (last + 2, last + 4)):
            segment, start, _ = place.log.groups[gseq - 1]
            await place.open()
            await place.catalog.build_missing()
            place.members.answers = {1: forged(place, gseq, upto=upto)}
            place.flip(segment, start + 140)
            damaged = place.paths[segment].read_bytes()
            assert not await place.scrub.suspect(SegmentKey(2, segment)), gseq
            assert place.paths[segment].read_bytes() == damaged, "it was written"
            assert place.scrub.failed_repairs == 1 and place.errors
            place.members.answers[2] = lambda gseq, group: group
            assert await place.scrub.suspect(SegmentKey(2, segment)) and place.is_whole()
            assert place.scrub.status()["damagedSegments"] == 0
            await place.close()

    in_place(test)(shard, go)


def test_what_can_not_be_a_group_of_this_place_is_refused(shard, go):
    async def test(place):
        _, start, _ = place.log.groups[2]
        groups = place.members.groups
        wrong = {
            "cut": lambda gseq, group: group[:100],
            "flipped": lambda gseq, group: group[:200] + bytes([group[200] ^ 1]) + group[201:],
            "another": lambda gseq, group: groups[gseq + 1],
            "none": lambda gseq, group: None,
            "of another session": lambda gseq, group: builder.group(
                gseq, parse_header(group).prev_crc, b"x" * 50, session=5
            )[0],
        }
        await place.open()
        place.flip(0, start + 140)
        for name, answer in wrong.items():
            place.members.answers = {1: answer}
            assert not await place.scrub.suspect(SegmentKey(2, 0)), name
        assert place.scrub.failed_repairs == len(wrong)
        assert len(place.errors) == 1, "told once"

    in_place(test)(shard, go)


def test_a_single_broker_tells_and_does_not_serve(shard, go):
    async def test(place):
        _, start, _ = place.log.groups[2]
        await place.open(source=False)
        place.flip(0, start + 300)
        damaged = place.paths[0].read_bytes()
        await place.one_pass()
        assert place.scrub.status()["damagedSegments"] == 1
        assert [type(error) for error in place.errors] == [CorruptDataError]
        assert "seg-00000000.log" in str(place.errors[0])
        reader = LogReader(place.catalog, place.bulk, open_epoch=0)
        before = place.scrub.bytes
        with pytest.raises(CorruptDataError):
            for slice_ in (0, 1):
                await read_all(place, reader, "a", slice_)
            await read_all(place, reader, "b", 0)
        assert place.scrub.bytes == before, "known already: not looked at for each read"
        assert place.paths[0].read_bytes() == damaged

    in_place(test)(shard, go)


async def read_all(shard, reader, topic, slice_):
    end, offset, found, retries = shard.log.offsets[topic, slice_], 0, [], 1
    while offset < end:
        result = await reader.read(topic, slice_, offset, 1 << 20)
        for run in result.chunks:
            for at, stored, *_ in _native.chunks_scan(run):
                events = _native.chunk_events(bytes(run[at : at + stored]))
                found += [(place, bytes(value)) for place, _, _, value in events]
        if result.next_offset == offset:  # As the service does where there should be more.
            reader.missing(topic, slice_, offset, end)
            assert all([await task for task in [*shard.scrub._looks.values()]])
            retries -= 1
            assert retries >= 0
        offset = result.next_offset
    return found


@pytest.mark.parametrize("index", ["kept", "lost"])
def test_a_reader_gets_what_was_damaged(shard, go, index):
    """It waits for the repair: with a sidecar, and where that is made from the damage."""

    async def test(place):
        rng = random.Random(3)
        await place.open()
        await place.catalog.build_missing()
        reader = LogReader(place.catalog, place.bulk, open_epoch=0)
        streams = [*place.log.offsets]
        whole = {stream: await read_all(place, reader, *stream) for stream in streams}
        assert {len(found) for found in whole.values()} == set(place.log.offsets.values())
        await place.close()
        for segment in range(SEGMENTS):
            for row in [row for row in place.log.groups if row[0] == segment][1:]:
                place.flip(segment, row[1] + rng.choice((60, 130, 170, 250)))
                if index == "lost":
                    layout.sidecar_path(place.paths[segment]).unlink(missing_ok=True)
                await place.open()
                reader = LogReader(place.catalog, place.bulk, open_epoch=0)
                for stream in streams:
                    assert await read_all(place, reader, *stream) == whole[stream]
                await place.close()
                if index == "lost":
                    assert place.is_whole()
                place.paths[segment].write_bytes(place.whole[segment])

    in_place(test)(shard, go)


def test_a_missing_file_is_asked_for_by_a_reader(shard, go):
    async def test(place):
        place.paths[1].unlink()
        await place.open()
        reader = LogReader(place.catalog, place.bulk, open_epoch=0)
        found = await read_all(place, reader, "a", 0)
        assert [at for at, _ in found] == list(range(place.log.offsets["a", 0]))
        assert place.is_whole()

    in_place(test)(shard, go)


def test_a_failed_repair_is_tried_again(shard, go, monkeypatch):
    monkeypatch.setattr(scrub, "RETRY_SECONDS", 0.01)

    async def test(place):
        place.flip(0, 4096 + 200)
        place.members.answers = {1: lambda gseq, group: None}
        await place.open()
        await place.one_pass()
        assert place.scrub.status()["damagedSegments"] == 1
        place.members.answers = {2: lambda gseq, group: group}
        while place.scrub.status()["damagedSegments"]:
            await asyncio.sleep(0.005)
        assert place.is_whole()

    in_place(test)(shard, go)


def test_its_rate_is_bounded(shard, go, monkeypatch):
    """It sleeps for as long as what it has read takes at its rate."""

    async def test(place):
        await place.open()
        place.scrub.bytes_per_second = 1 << 20
        slept = []

        async def sleep(seconds):
            slept.append(seconds)

        monkeypatch.setattr(scrub.asyncio, "sleep", sleep)
        for segment in range(SEGMENTS):
            await place.scrub._check(SegmentKey(2, segment), 1 << 20)
        monkeypatch.undo()
        assert sum(slept) <= place.scrub.bytes / (1 << 20)

    in_place(test)(shard, go)


def test_retention_is_no_damage(shard, go):
    """Behind the mark nothing is missed; a file before it that went without one is."""

    async def test(place):
        first = SEGMENTS - 1
        gseq = first * (GROUPS + 1) + 1
        header = parse_header(place.whole[first])
        place.paths[0].unlink()
        Lineage.load(place.shard).begins(2, 1, GROUPS + 2, parse_header(place.whole[1]).prev_crc)
        await place.open()
        await place.one_pass()
        assert place.scrub.repaired_groups == 0 and not place.paths[0].exists()
        await place.close()
        place.paths[1].unlink()  # But the mark says that it is there.
        await place.open()
        await place.one_pass()
        assert place.scrub.repaired_groups == GROUPS + 1
        assert place.paths[1].read_bytes() == bytes(place.log.segments[1])
        await place.close()
        Lineage.load(place.shard).begins(2, first, gseq, header.prev_crc)
        place.paths[1].unlink()
        await place.open()
        await place.one_pass()
        assert not place.paths[1].exists() and place.scrub.status()["damagedSegments"] == 0

    in_place(test)(shard, go)
