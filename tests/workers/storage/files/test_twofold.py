"""The journal in two copies: what was told is found, or it is told that it is not.

Every region of every frame of one copy and of the other, flipped, cut, gone, and both at once.
"""

import errno
import itertools
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from barco.errors import DiskFullError
from barco.workers.storage.files import frames, layout, twofold
from barco.workers.storage.files.errors import DiskError
from barco.workers.storage.files.frames import SECTOR_BYTES, make_frame, merge, read_copies
from barco.workers.storage.files.twofold import Twofold

BODIES = [b"a" * 10, b"b" * 100, bytes(700), b"d" * 3000, b"e" * 40]
DOUBT = b"doubt"
NAMES = layout.LINEAGE_NAME, layout.LINEAGE_COPY_NAME
HEADER = (0, 4, 8, 16, 20, 24, 28)
"""Where magic, turn, serial, length, prev, the body's crc and the header's begin."""


def chain(bodies):
    made = [make_frame(1, 1, 0, b"")]
    for body in bodies:
        made.append(make_frame(1, made[-1].serial + 1, made[-1].crc, body))
    return made


FRAMES = chain(BODIES)
WHOLE = b"".join(frame.data for frame in FRAMES)
NEXT = make_frame(1, FRAMES[-1].serial + 1, FRAMES[-1].crc, b"f" * 1200)


def regions():
    """One byte of every region of every frame."""
    start = 0
    for frame in FRAMES:
        inner = 32, 32 + len(frame.body) // 2, 31 + len(frame.body), 32 + len(frame.body)
        for at in sorted({*HEADER, *inner, len(frame.data) - 1}):
            yield start + at
        start += len(frame.data)


def flips():
    for at in regions():
        changed = bytearray(WHOLE)
        changed[at] ^= 1 << at % 8
        yield f"flip at {at}", bytes(changed)


def cuts():
    for at in range(0, len(WHOLE), 128):
        yield f"cut at {at}", WHOLE[:at]


HURTS = [*flips(), *cuts(), ("gone", None)]
CUTS = {name for name, _ in cuts()}
SECTORS = {name for name, data in cuts() if len(data) % SECTOR_BYTES == 0 and data}


def put(shard, first, second):
    for name, data in zip(NAMES, (first, second), strict=True):
        if data is None:
            (shard / name).unlink(missing_ok=True)
        else:
            (shard / name).write_bytes(data)


def bodies_of(merged):
    return [frame.body for frame in merged.frames[1:]]


def copy_of(data, made={}):  # noqa: B006 - kept on purpose.
    """As `read_copies` has it; from memory, for there are many."""
    if data not in made:
        made[data] = frames.read_copy("x", data)
    return made[data]


@pytest.mark.parametrize("which", [0, 1])
def test_one_copy_may_be_hurt_in_any_way(which):
    for name, data in HURTS:
        copies = [copy_of(data if which == each else WHOLE) for each in (0, 1)]
        merged = merge(copies)
        assert bodies_of(merged) == BODIES and not merged.doubtful, name
        # A copy that lacks the last append alone may be one that was interrupted.
        assert (
            merged.hurt
            or WHOLE.startswith(data)
            and len(data) >= sum(len(frame.data) for frame in FRAMES[:-1])
        ), name


def test_both_may_be_hurt_and_nothing_is_forgotten_in_silence():
    """But for two files that were both cut, the longer one between sectors: it looks as it once
    did, as in a directory that was rolled back, and only a peer can know (`Ping.position`)."""
    silent = 0
    nothing = {name for name, data in HURTS if not copy_of(data).turn}  # As good as gone.
    for (one, first), (other, second) in itertools.product(HURTS, HURTS):
        merged = merge([copy_of(first), copy_of(second)])
        if not merged.turn:
            assert merged.doubtful or (one, other) == ("gone", "gone"), (one, other)
        elif bodies_of(merged) != BODIES and not merged.doubtful:
            assert {one, other} <= CUTS | nothing and {one, other} & SECTORS, (one, other)
            silent += 1
        if merged.doubtful:
            assert merged.hurt
    assert silent < len(HURTS) ** 2 / 20


def test_different_frames_may_be_damaged_in_the_two():
    flipped = dict(flips())
    starts = list(itertools.accumulate((len(f.data) for f in FRAMES), initial=0))
    for a, b in itertools.permutations(range(len(FRAMES)), 2):
        data = [flipped[f"flip at {starts[frame] + 16}"] for frame in (a, b)]
        merged = merge([copy_of(each) for each in data])
        assert bodies_of(merged) == BODIES and not merged.doubtful and len(merged.hurt) == 2


def at_frame(number, change):
    """WHOLE, of which these bytes of a frame (from 0) are changed."""
    start = sum(len(frame.data) for frame in FRAMES[:number])
    end = start + len(FRAMES[number].data)
    return WHOLE[:start] + change(WHOLE[start:end]) + WHOLE[end:]


def flip(data):
    return data[:16] + bytes([data[16] ^ 1]) + data[17:]


def half(data):
    return data[: len(data) // SECTOR_BYTES // 2 * SECTOR_BYTES]


def test_the_last_frame_is_damaged_in_both_and_each_has_lost_another():
    """It was forgotten in silence: only what is wrong first was looked at in each."""
    last = len(FRAMES) - 1
    one, other = at_frame(1, flip), at_frame(2, flip)
    start = len(WHOLE) - len(FRAMES[last].data)
    one, other = (each[:start] + flip(each[start:]) for each in (one, other))
    merged = merge([copy_of(one), copy_of(other)])
    assert bodies_of(merged) == BODIES[:-1] and merged.doubtful


def test_a_copy_that_ends_earlier_says_nothing_of_a_torn_one():
    """The last frame was told: one copy has lost a sector of it, the other is an older one."""
    long = WHOLE[: -len(FRAMES[-1].data)]
    assert len(FRAMES[-2].data) > SECTOR_BYTES
    torn = long[: -len(FRAMES[-2].data)] + half(FRAMES[-2].data)
    for ends in range(1, len(FRAMES) - 2):
        older = b"".join(frame.data for frame in FRAMES[:ends])
        assert merge([copy_of(torn), copy_of(older)]).doubtful
        assert merge([copy_of(older), copy_of(torn)]).doubtful


def test_an_append_that_never_ended_beside_damage_that_is_elsewhere():
    """The other copy goes as far, and has nothing of it, whatever else it has lost."""
    torn = WHOLE + half(NEXT.data)
    for other in [at_frame(number, flip) for number in range(len(FRAMES) - 1)]:
        merged = merge([copy_of(torn), copy_of(other)])
        assert bodies_of(merged) == BODIES and not merged.doubtful and merged.hurt


def appended():
    """What a power cut can leave of an append: any of its sectors, and the file as long as any."""
    sectors = [NEXT.data[at : at + SECTOR_BYTES] for at in range(0, len(NEXT.data), SECTOR_BYTES)]
    for length in range(len(sectors) + 1):
        for there in itertools.product((True, False), repeat=length):
            yield WHOLE + b"".join(
                sectors[index] if kept else bytes(SECTOR_BYTES) for index, kept in enumerate(there)
            )


def test_an_append_that_never_ended_is_no_damage():
    left = list(appended())
    assert len(left) == 15
    for first, second in itertools.product(left, left):
        merged = merge([copy_of(first), copy_of(second)])
        assert not merged.doubtful and not merged.hurt
        whole = WHOLE + NEXT.data in (first, second)
        assert bodies_of(merged) == BODIES + [NEXT.body] * whole


def test_it_is_all_there_after_a_start_and_both_are_whole(tmp_path):
    for first, second in [(WHOLE, None), (None, WHOLE), (WHOLE, WHOLE[:-512]), (WHOLE, b"")]:
        put(tmp_path, first, second)
        made = Twofold.load(tmp_path, repair=True, doubt=DOUBT)
        assert list(made.bodies()) == BODIES
        made.append(b"more")
        assert list(Twofold.load(tmp_path, repair=False, doubt=DOUBT).bodies()) == [
            *BODIES,
            b"more",
        ]
        assert (tmp_path / NAMES[0]).read_bytes() == (tmp_path / NAMES[1]).read_bytes()
        one, other = read_copies(NAMES, tuple((tmp_path / name).read_bytes() for name in NAMES))
        assert len(one.frames) == len(BODIES) + 2 and not one.hurt and not other.hurt


def test_what_is_the_same_in_both_is_taken_apart_once(monkeypatch):
    parsed = []

    def parse(copy, data, inner=frames._parse):
        parsed.append(data)
        inner(copy, data)

    monkeypatch.setattr(frames, "_parse", parse)
    for name, data in [("whole", WHOLE), *HURTS]:
        expected = copy_of(data)
        parsed.clear()
        copies = read_copies(NAMES, (data, data))
        assert len(parsed) == (data is not None), name
        assert [copy.name for copy in copies] == list(NAMES)
        assert [replace(copy, name=expected.name) for copy in copies] == [expected] * 2, name


def test_doubt_is_part_of_the_journal_that_begins_anew(tmp_path):
    put(tmp_path, WHOLE[:-512] + b"x" * 512, WHOLE[:-512] + b"y" * 512)
    made = Twofold.load(tmp_path, repair=True, doubt=DOUBT)
    assert made.doubtful and list(made.bodies()) == [*BODIES[:-1], DOUBT]
    made.append(b"more")
    again = Twofold.load(tmp_path, repair=True, doubt=DOUBT)
    assert not again.doubtful and list(again.bodies()) == [*BODIES[:-1], DOUBT, b"more"]
    # One of the files is as it was before: the newer one is right.
    (tmp_path / NAMES[0]).write_bytes(WHOLE)
    again = Twofold.load(tmp_path, repair=True, doubt=DOUBT)
    assert list(again.bodies()) == [*BODIES[:-1], DOUBT, b"more"]
    assert not again.doubtful and "older than the other copy" in again.hurt[0]


def test_both_gone_is_doubt_where_something_was(tmp_path):
    assert not Twofold.load(tmp_path, repair=False, doubt=DOUBT).doubtful
    lost = Twofold.load(tmp_path, repair=True, doubt=DOUBT, expected=True)
    assert lost.doubtful and list(lost.bodies()) == [DOUBT]
    assert list(Twofold.load(tmp_path, repair=True, doubt=DOUBT).bodies()) == [DOUBT]


class Stability:
    """Which bytes of which file, and which names, are on the disk: fsync is what makes them so."""

    def __init__(self, monkeypatch, root):
        self.root = root
        self.stable = {}
        self.names = {}
        fsync, rename = os.fsync, os.rename

        def synced(fd):
            fsync(fd)
            path = Path(os.readlink(f"/proc/self/fd/{fd}"))
            if path.is_dir():
                self.names = {each.name: each.stat().st_ino for each in root.iterdir()}
            else:
                self.stable[os.fstat(fd).st_ino] = path.read_bytes()

        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "rename", lambda a, b: rename(a, b))

    def cut(self):
        """The power goes: bodies that are found then."""
        copies = []
        for name in NAMES:
            inode = self.names.get(name)
            copies.append(copy_of(self.stable.get(inode) if inode is not None else None))
        return bodies_of(merge(copies))


def test_what_is_told_survives_a_power_cut(tmp_path, monkeypatch):
    """Killed between the write and the fsync, or after an fsync that failed: what a start finds is
    in the page cache, and has to be made stable before it is told."""
    put(tmp_path, WHOLE, WHOLE[:-512])  # Not synced by anybody.
    disk = Stability(monkeypatch, tmp_path)
    made = Twofold.load(tmp_path, repair=True, doubt=DOUBT)
    assert list(made.bodies()) == disk.cut() == BODIES
    made.append(b"more")
    assert disk.cut() == [*BODIES, b"more"]
    for name in NAMES:  # Both have it: one may be lost.
        assert b"more" in disk.stable[(tmp_path / name).stat().st_ino]


@pytest.mark.parametrize("which", NAMES)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("call", ["fsync", "pwrite"])
def test_an_append_that_fails_is_the_last(tmp_path, monkeypatch, which, number, call):
    made = Twofold.load(tmp_path, repair=True, doubt=DOUBT)
    made.append(b"told")
    real = getattr(os, call)

    def fail(fd, *args):
        if os.readlink(f"/proc/self/fd/{fd}").endswith(which):
            raise OSError(number, os.strerror(number))
        return real(fd, *args)

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(Exception, match=r"cannot append to .*lineage"):
        made.append(b"not told")
    monkeypatch.undo()
    with pytest.raises(DiskError, match="an append before this one failed"):
        made.append(b"later")
    again = Twofold.load(tmp_path, repair=True, doubt=DOUBT)
    assert not again.doubtful and not again.hurt
    assert list(again.bodies()) == [b"told"]


# --- Mutants ------------------------------------------------------------------------------------


def test_mutant_journal_without_fsync(tmp_path, monkeypatch):
    """Lineage without fsync: seen by the very check of the power cut."""
    disk = Stability(monkeypatch, tmp_path)
    made = Twofold.load(tmp_path, repair=True, doubt=DOUBT)
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    made.append(b"told")
    assert disk.cut() != [b"told"]


def test_mutant_not_made_stable_at_a_start(tmp_path, monkeypatch):
    put(tmp_path, WHOLE, WHOLE)
    disk = Stability(monkeypatch, tmp_path)
    monkeypatch.setattr(Twofold, "_write_anew", lambda self: None)
    made = Twofold.load(tmp_path, repair=True, doubt=DOUBT)
    assert list(made.bodies()) != disk.cut()


def test_mutant_corruption_taken_for_torn(monkeypatch):
    monkeypatch.setattr(frames, "_is_torn", lambda rest, last: True)
    with pytest.raises(AssertionError):
        check_last_frame(lambda data: _parsed(data))


def test_mutant_one_copy_alone():
    with pytest.raises(AssertionError):
        for _, data in HURTS:
            merged = merge([copy_of(data), copy_of(None)])
            assert bodies_of(merged) == BODIES or merged.doubtful


def _parsed(data):
    return frames.read_copy("x", data)


def check_last_frame(parsed=copy_of):
    """Flipped in both copies."""
    start = len(WHOLE) - len(FRAMES[-1].data)
    for at in regions():
        if at >= start:
            changed = bytearray(WHOLE)
            changed[at] ^= 1
            merged = merge([parsed(bytes(changed)), parsed(bytes(changed))])
            assert merged.doubtful, at


def test_the_last_frame_flipped_in_both_is_no_torn_append():
    check_last_frame()


def test_the_journal_goes_on_when_the_disk_is_full(tmp_path, monkeypatch):
    """Into the room that was kept for it; without that room a full disk is an error."""
    room = tmp_path / layout.LINEAGE_ROOM_NAME
    journal = Twofold.load(tmp_path, repair=True, doubt=DOUBT)
    assert room.stat().st_blocks * 512 >= twofold.ROOM_BYTES
    append = twofold._append

    def full(*args):
        if room.exists():
            raise DiskFullError("no space is left")
        append(*args)

    monkeypatch.setattr(twofold, "_append", full)
    journal.append(b"a vote")
    assert not room.exists()
    again = Twofold.load(tmp_path, repair=False, doubt=DOUBT)
    assert list(again.bodies()) == [b"a vote"] and not again.hurt
