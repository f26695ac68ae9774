"""What is believed after a crash: every kind of damage, in every place that matters."""

import random

import builder
import pytest

from barco.workers.storage.files.errors import CorruptLogError, ForeignLogError
from barco.workers.storage.index import scan
from barco.workers.storage.index.scan import SegmentSource, SegmentSummary, Tags

CAPACITY = 64 * 1024


def walk(files, epoch=2, summaries=(), session=builder.SESSION, **options):
    """Scans in-memory files; the result and the (gseq, segment, position) of accepted groups."""
    summaries = {summary.index: summary for summary in summaries}
    sources = [
        SegmentSource(index, len(data), f"seg-{index}", summaries.get(index))
        for index, data in files.items()
    ]
    seen = []

    def read_at(wish):
        return files[sources[wish.which].index][wish.offset : wish.offset + wish.length]

    def on_group(header, group, segment, position):
        assert len(group) == header.group_bytes
        seen.append((header.gseq, segment, position))

    tags = Tags(builder.UUID, builder.TOKEN, epoch, session)
    result = scan.run(scan.scan_generation(sources, tags, on_group, **options), read_at)
    return result, seen


def numbered(log, spare=0):
    return dict(enumerate(log.files(CAPACITY, spare)))


def flip(data, at, bit=3):
    changed = bytearray(data)
    changed[at] ^= 1 << bit
    return bytes(changed)


def tear(data, start, body_bytes, lost=-1):
    """A sector of the group at `start` was never stored: the last one, or the `lost`-th."""
    last = (128 + body_bytes - 1) // 512
    at = start + 512 * (last if lost < 0 else lost)
    return data[:at] + bytes(512) + data[at + 512 :]


def test_a_clean_log_ends_at_its_zeros():
    log = builder.simple(6, segments=3)
    result, seen = walk(numbered(log, spare=2))
    assert (result.tail, result.stop, result.torn_bytes) == (21, "end", 0)
    assert [gseq for gseq, _, _ in seen] == list(range(1, 22))
    assert (result.end_segment, result.end_bytes) == (2, len(log.segments[2]))
    assert result.session == builder.SESSION and result.last_crc == log.crc
    assert [s.last_gseq for s in result.segments] == [7, 14, 21]


def test_no_segments_and_only_zeros():
    assert walk({})[0].tail == 0
    result, _ = walk({0: bytes(CAPACITY), 1: bytes(CAPACITY)})
    assert (result.tail, result.stop) == (0, "end")


def test_a_log_that_fills_its_segments_to_the_last_page():
    log = builder.simple(3, segments=2)
    files = {index: bytes(data) for index, data in enumerate(log.segments)}
    assert walk(files)[0].tail == 8


def test_large_groups_cross_the_window():
    log = builder.Log()
    log.roll()
    for size in (5 << 20, 100, 9 << 20):
        log.append(random.Random(size).randbytes(size), chunks=1)
    data = bytes(log.segments[0])
    result, seen = walk({0: data.ljust(32 << 20, b"\0")})
    assert result.tail == 4 and len(seen) == 4 and result.stop == "end"


@pytest.mark.parametrize("in_flight", [1, 2, 3])
def test_truncation_at_every_512_bytes_of_the_last_group(in_flight):
    log = builder.simple(3, in_flight=in_flight)
    log.append(random.Random(1).randbytes(19_000), chunks=1)
    data = bytes(log.segments[0])
    _, start, size = log.groups[-1]
    last = len(log.groups)
    for cut in range(start, start + size, 512):
        result, seen = walk({0: data[:cut]})
        assert result.tail == last - 1 == len(seen)
        assert result.stop == ("end" if cut == start else "torn")
        # In a preallocated file zeros follow, which is what the padding is made of.
        whole = cut - start >= 128 + 19_000
        result, seen = walk({0: data[:cut].ljust(CAPACITY, b"\0")})
        assert result.tail == last - (not whole) == len(seen)
        assert result.stop == ("end" if cut == start or whole else "torn")


@pytest.mark.parametrize("where", ["header", "body", "body end"])
@pytest.mark.parametrize("which", ["first", "middle", "before last", "last"])
def test_bit_flips(where, which):
    log = builder.simple(9)
    total = len(log.groups)
    gseq = {"first": 1, "middle": total // 2, "before last": total - 1, "last": total}[which]
    _, start, _ = log.groups[gseq - 1]
    at = {"header": start + 60, "body": start + 130, "body end": start + 128 + 18}[where]
    files = {0: flip(log.files(CAPACITY)[0], at)}
    # Nothing after the last says that it was stable; but it lacks no sector.
    with pytest.raises(CorruptLogError) as caught:
        walk(files)
    error = caught.value
    assert (error.gseq, error.offset, error.path) == (gseq, start, "seg-0")
    assert error.durable == (total if which == "last" else total - 1)
    assert "--accept-data-loss" in str(error)
    result, seen = walk(files, accept_loss=True)
    assert (result.tail, result.stop) == (gseq - 1, "lost")
    assert result.lost == (gseq, total) and len(seen) == gseq - 1


def test_padding_is_not_data():
    log = builder.simple(4)
    _, start, size = log.groups[2]
    files = {0: flip(log.files(CAPACITY)[0], start + size - 1)}
    assert walk(files)[0].tail == 5


def test_a_torn_tail_with_later_groups_that_were_in_flight():
    """n torn, n+1 and n+2 whole: with three in flight nobody was told about n."""
    log = builder.simple(8, in_flight=3)
    _, start, _ = log.groups[6]
    result, _ = walk({0: tear(log.files(CAPACITY)[0], start, 300, lost=0)})
    assert (result.tail, result.stop, result.torn_bytes) == (6, "torn", 3 * 4096)
    _, start, _ = log.groups[5]  # One earlier: group 9 says that 6 was stable.
    with pytest.raises(CorruptLogError):
        walk({0: tear(log.files(CAPACITY)[0], start, 300, lost=0)})


def pipelined(*, natural):
    """Three groups in flight, each of several sectors, one of which is zeros anyway if `natural`.

    The file, and where each of the three begins.
    """
    log = builder.simple(8, in_flight=3)
    for seed in range(3):
        body = bytearray(random.Random(seed).randbytes(2500))
        if natural:
            body[512 - 128 : 1024 - 128] = bytes(512)
        log.append(bytes(body), chunks=1)
    return log.files(CAPACITY)[0], [start for _, start, _ in log.groups[-3:]]


@pytest.mark.parametrize("natural", [False, True])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_rot_at_the_end_of_a_pipelined_log_is_not_taken_for_torn(which, natural):
    """All three were acknowledged; no header says so, but a torn group would lack sectors."""
    data, starts = pipelined(natural=natural)
    start, tail = starts[which], 9 + which
    for at in (0, 5, 60, 127, 128, 300, 511, 512, 700, 1600, 2627):
        for bit in range(8):
            with pytest.raises(CorruptLogError, match="whole once") as caught:
                walk({0: flip(data, start + at, bit)})
            assert (caught.value.gseq, caught.value.durable) == (tail + 1, tail + 1)
    result, _ = walk({0: flip(data, start + 60)}, accept_loss=True)
    assert (result.tail, result.stop) == (tail, "lost")
    assert result.lost == (tail + 1, tail + 1 if which == 2 else 12)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_every_tear_of_a_pipelined_log_is_its_end(which):
    """Any of the sectors may be missing: nobody was told of it, and nobody is made to repair it."""
    data, starts = pipelined(natural=False)
    for lost in range(1, 1 << 6):
        image = data
        for sector in range(6):
            if lost >> sector & 1:
                image = tear(image, starts[which], 2500, sector)
        result, _ = walk({0: image})
        gone = which == 2 and lost == 63  # All of the last one: nothing is there.
        assert (result.tail, result.stop) == (9 + which, "end" if gone else "torn"), lost


def test_without_a_count_of_zeros_doubt_is_for_torn():
    """Groups of an older version: one that has a sector of zeros may be torn."""
    for natural, corrupt in ((False, True), (True, False)):
        log = builder.simple(3)
        body = random.Random(1).randbytes(1500)
        body = body[:384] + bytes(512) * natural + body[384:]
        log.append(body, chunks=1, blank_sectors=0)
        data = flip(log.files(CAPACITY)[0], log.groups[-1][1] + 300)
        if corrupt:
            with pytest.raises(CorruptLogError):
                walk({0: data})
        else:
            assert walk({0: data})[0].stop == "torn"


def test_a_lost_write_in_the_middle_is_corruption():
    log = builder.simple(8)
    _, start, size = log.groups[4]
    data = bytearray(log.files(CAPACITY)[0])
    data[start : start + size] = bytes(size)
    with pytest.raises(CorruptLogError, match="zeros") as caught:
        walk({0: bytes(data)})
    assert caught.value.gseq == 5


@pytest.mark.parametrize("tag", ["epoch", "segment", "session", "token", "uuid"])
def test_valid_groups_of_something_else_in_the_tail(tag):
    """A recycled file, or a block in the wrong place: not ours, whatever durable_upto it has."""
    log = builder.simple(5)
    data = log.files(CAPACITY)[0]
    end = len(log.segments[0])
    other = {"epoch": 1, "segment": 7, "session": 99, "token": 5, "uuid": bytes(16)}[tag]
    stale = b""
    for number in range(5):
        piece, _ = builder.group(
            len(log.groups) + 1 + number, log.crc, builder.chunk("a", 0, 1), durable=10_000,
            **({"segment": 0} | {tag: other}),
        )  # fmt: skip
        stale += piece
    data = data[:end] + stale + data[end + len(stale) :]
    result, _ = walk({0: data})
    assert (result.tail, result.stop, result.durable) == (6, "torn", 5)
    assert result.torn_bytes == len(stale)


@pytest.mark.parametrize("wrong", ["gseq", "prev_crc"])
def test_own_groups_out_of_the_chain(wrong):
    log = builder.simple(5)
    gseq = len(log.groups) + (2 if wrong == "gseq" else 1)
    crc = log.crc ^ (wrong == "prev_crc")
    piece, _ = builder.group(gseq, crc, builder.chunk("a", 0, 1), durable=6)
    data = bytes(log.segments[0]) + piece
    result, _ = walk({0: data.ljust(CAPACITY, b"\0")})
    assert (result.tail, result.stop) == (6, "torn")
    piece, _ = builder.group(gseq + 1, crc, builder.chunk("a", 0, 1), durable=gseq)
    with pytest.raises(CorruptLogError):
        walk({0: (data + piece).ljust(CAPACITY, b"\0")})


def test_garbage_tail():
    log = builder.simple(5)
    end = len(log.segments[0])
    for seed in range(20):
        garbage = bytes(512) + random.Random(seed).randbytes(CAPACITY - end - 512)
        result, _ = walk({0: bytes(log.segments[0]) + garbage})
        assert (result.tail, result.stop) == (6, "torn")
        assert result.torn_bytes == CAPACITY - end


def test_a_bit_that_flips_where_nothing_was_written_yet():
    """It is no group, and never was one: no reason to refuse a start."""
    log = builder.simple(5)
    for at in (0, 3, 511, 4095):
        result, _ = walk({0: flip(log.files(CAPACITY)[0], len(log.segments[0]) + at)})
        assert (result.tail, result.stop) == (6, "torn")


def test_an_event_that_looks_like_a_header():
    """Bytes of a client must not make a shard refuse to start: they lack the session."""
    log = builder.simple(3)
    fake, _ = builder.group(50, 0, b"", durable=49, session=builder.SESSION ^ 1)
    body = bytes(4096 - 128) + fake + bytes(4096)
    log.append(body, chunks=1)
    _, start, _ = log.groups[-1]
    files = {0: tear(log.files(CAPACITY)[0], start, 0)}
    result, _ = walk(files)
    assert (result.tail, result.stop) == (4, "torn")


def test_the_first_group_of_the_next_segment():
    log = builder.simple(4, segments=3)
    files = numbered(log)
    files[1] = flip(files[1], 300 - 170)
    with pytest.raises(CorruptLogError) as caught:
        walk(files)
    assert (caught.value.path, caught.value.offset, caught.value.gseq) == ("seg-1", 0, 6)
    files = numbered(builder.simple(4, segments=2))  # The last one: it was torn by the crash.
    files[1] = tear(files[1], 0, 0)[:4096].ljust(CAPACITY, b"\0")
    result, _ = walk(files)
    assert (result.tail, result.stop, result.end_segment) == (5, "end", 0)


def test_a_missing_segment():
    files = numbered(builder.simple(4, segments=3))
    del files[1]
    with pytest.raises(CorruptLogError, match="segment 1 is missing"):
        walk(files)
    assert walk(files, accept_loss=True)[0].lost == (6, 15)


def test_retention_has_removed_the_first_segments():
    files = numbered(builder.simple(4, segments=4))
    before = summaries_of(builder.simple(4, segments=4))[1]
    del files[0], files[1]
    result, seen = walk(files, first=(11, before.last_header_crc))
    assert (result.tail, seen[0]) == (20, (11, 2, 0))


def test_missing_first_segments_without_a_mark_of_retention_are_damage():
    log = builder.simple(4, segments=4)
    for gone in ((0,), (0, 1), (0, 1, 2)):
        files = numbered(log)
        for index in gone:
            del files[index]
        for summaries in ((), summaries_of(log)):
            known = [each for each in summaries if each.index in files]
            with pytest.raises(CorruptLogError, match="stands here"):
                walk(files, summaries=known)
            with pytest.raises(CorruptLogError, match="stands here"):
                walk(files, summaries=known, tail=20)
    del files[3]
    with pytest.raises(CorruptLogError):
        walk(files, tail=20)


def summaries_of(log):
    return walk(numbered(log))[0].segments


def test_sealed_segments_are_skipped():
    log = builder.simple(4, segments=4)
    result, seen = walk(numbered(log, spare=1), summaries=summaries_of(log))
    assert result.tail == 20 and [gseq for gseq, _, _ in seen] == list(range(16, 21))
    assert result.groups == 5 and len(result.segments) == 4
    result, seen = walk(numbered(log, spare=1), summaries=summaries_of(log)[:2])
    assert seen[0][0] == 11


@pytest.mark.parametrize("lie", ["last_gseq", "last_header_crc", "first_gseq", "end_bytes"])
def test_sidecars_that_lie_are_not_believed(lie):
    log = builder.simple(4, segments=4)
    for index in range(3):
        known = summaries_of(log)
        fields = {name: getattr(known[index], name) for name in SegmentSummary.__slots__}
        fields[lie] += 1 << 20
        known[index] = SegmentSummary(**fields)
        result, seen = walk(numbered(log), summaries=known)
        assert result.tail == 20 and seen[-1][0] == 20, (lie, index)


def test_the_state_comes_from_before_a_torn_first_group():
    """Segment 2 has a sidecar, segment 3 begins with a torn group: 2 has to be walked after all."""
    log = builder.simple(4, segments=4)
    files = numbered(log)
    files[3] = b"BGRP".ljust(CAPACITY, b"\0")
    result, seen = walk(files, summaries=summaries_of(log)[:3])
    assert (result.tail, result.stop) == (15, "torn")
    assert [gseq for gseq, _, _ in seen] == list(range(11, 16))


def test_a_sealed_generation_ends_at_its_tail():
    log = builder.simple(4, segments=3)
    for tail in (15, 14, 11, 10, 6, 5, 1):
        result, seen = walk(numbered(log), tail=tail)
        assert (result.tail, result.stop, seen[-1][0]) == (tail, "sealed", tail)
        known = summaries_of(log)
        result, seen = walk(numbered(log), tail=tail, summaries=known)
        assert (result.tail, result.stop, seen[-1][0]) == (tail, "sealed", tail)
    assert walk(numbered(log), tail=0)[0].tail == 0
    with pytest.raises(CorruptLogError):
        walk(numbered(log), tail=16)


def test_unknown_session_is_taken_from_the_first_group():
    result, _ = walk(numbered(builder.simple(4)), session=None)
    assert result.tail == 5 and result.session == builder.SESSION


def test_every_subset_of_unstable_pages():
    """A crash image: of the last three groups, not known to be stable, any pages may be missing."""
    log = builder.simple(6, in_flight=3)
    log.append(random.Random(5).randbytes(9_000), chunks=1)
    data = log.files(CAPACITY)[0]
    stable = len(log.groups) - 3
    _, start, _ = log.groups[stable]
    pages = range(start, len(log.segments[0]), 4096)
    for mask in range(1 << len(pages)):
        image = bytearray(data)
        for number, at in enumerate(pages):
            if not mask >> number & 1:
                image[at : at + 4096] = bytes(4096)
        result, seen = walk({0: bytes(image)})
        assert stable <= result.tail <= len(log.groups) and len(seen) == result.tail
        whole = mask == (1 << len(pages)) - 1
        assert (result.tail == len(log.groups)) == whole


def test_the_first_group_tells_the_session():
    """lineage.log is never needed: a session that it has wrong must not make a log look empty."""
    result, seen = walk(numbered(builder.simple(4)), session=123)
    assert (result.tail, len(seen), result.session) == (5, 5, builder.SESSION)


@pytest.mark.parametrize("tag", ["token", "uuid"])
def test_a_segment_of_another_shard_is_refused(tag):
    other = {"token": 5, "uuid": bytes(16)}[tag]
    piece, _ = builder.group(1, 0, b"state", flags=3, **{tag: other})
    with pytest.raises(ForeignLogError, match="another shard"):
        walk({0: piece.ljust(CAPACITY, b"\0")})
