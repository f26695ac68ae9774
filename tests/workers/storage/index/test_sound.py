"""How a scrub walks a segment: all of it, whatever its groups are like, and not much at a time."""

import itertools

import builder
import pytest

from barco.workers.storage.index import sound
from barco.workers.storage.index.scan import Tags

TAGS = Tags(builder.UUID, builder.TOKEN, 2, builder.SESSION)
SMALL, LARGE = b"x" * 1000, b"y" * 300_000
SHAPES = {
    "small": [SMALL] * 300,
    "large": [LARGE] * 12,
    "large, then small": [LARGE] * 5 + [SMALL] * 200,
    "small, then large": [SMALL] * 100 + [LARGE] * 5,
    "longer than all that is read at a time": [SMALL, b"z" * 2_500_000, SMALL],
    "one": [],
}


def segment_of(bodies):
    """A whole segment of a snapshot and a group for each body, and where each begins."""
    log = builder.Log()
    log.roll()
    for body in bodies:
        log.append(body)
    return bytes(log.segments[0]), [at for _, at, _ in log.groups]


def walk(data, last, checked=None):
    """(what is said, the reads, the groups that were checked between two of them)."""
    walking = sound.check_segment(len(data), 0, TAGS, (1, 0), last)
    reads, stays, answer = [], [], None
    try:
        while True:
            wish = walking.send(answer)
            reads.append((wish.offset, wish.length))
            stays.append(len(checked) if checked is not None else 0)
            answer = memoryview(data)[wish.offset : wish.offset + wish.length]
            assert len(reads) < 2_000, "it does not come to an end"
    except StopIteration as end:
        stays.append(len(checked) if checked is not None else 0)
        return end.value, reads, [b - a for a, b in itertools.pairwise(stays)]


@pytest.fixture
def checked(monkeypatch):
    """The place in the chain of each group that was looked into."""
    seen, real = [], sound.check_group

    def check(tags, group, link, segment=None):
        seen.append(link[0])
        return real(tags, group, link, segment)

    monkeypatch.setattr(sound, "check_group", check)
    return seen


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("last_known", [True, False])
def test_every_group_is_looked_into_once_and_few_in_one_stay(shape, last_known, checked):
    data, starts = segment_of(SHAPES[shape])
    verdict, reads, stays = walk(data, len(starts) if last_known else None, checked)
    assert verdict == ((len(starts) + 1, verdict.next[1]), len(data), "")
    assert checked == list(range(1, len(starts) + 1))
    assert max(stays) <= 32
    # What is read is not much more than what there is.
    assert sum(length for _, length in reads) <= 2 * len(data) + sound.FIRST_BYTES
    assert max(length for _, length in reads) <= max(sound.WINDOW_BYTES, 2_504_000)


def test_short_groups_are_read_sixteen_at_a_time():
    data, starts = segment_of([SMALL] * 300)
    _, reads, _ = walk(data, len(starts))
    assert {length for _, length in reads[1:-1]} == {16 * 4096}
    assert [at for at, _ in reads] == list(range(0, len(data), 16 * 4096))


def test_long_groups_are_read_a_window_at_a_time():
    data, starts = segment_of([LARGE] * 12)
    _, reads, _ = walk(data, len(starts))
    assert len(reads) < 12
    assert max(length for _, length in reads) == sound.WINDOW_BYTES


@pytest.mark.parametrize("shape", SHAPES)
def test_a_rotten_bit_of_any_group_is_found_where_it_is(shape):
    data, starts = segment_of(SHAPES[shape])
    for number, start in enumerate(starts[:: max(1, len(starts) // 40)]):
        changed = bytearray(data)
        changed[start + 128 + 5] ^= 4
        verdict, _, _ = walk(bytes(changed), len(starts))
        assert verdict.damage == "the body's checksum is wrong", (shape, number)
        assert verdict.end == start


def test_a_segment_that_ends_in_a_group_is_cut_off():
    data, starts = segment_of([SMALL] * 40)
    verdict, _, _ = walk(data[: starts[-1] + 2048], len(starts))
    assert verdict.damage == "the group is longer than its file"
    assert verdict.end == starts[-1]
    verdict, _, _ = walk(data[: starts[-1]], len(starts))
    assert (verdict.damage, verdict.end) == ("the file is shorter than it was", starts[-1])


def test_zeros_end_a_segment_only_where_nobody_knows_more():
    data, starts = segment_of([SMALL] * 40)
    spare = data + bytes(512 * 1024)
    assert walk(spare, None)[0].damage == ""
    assert walk(spare, len(starts) + 1)[0].damage == "zeros"
