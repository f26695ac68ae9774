"""lineage.log of a live shard: damaged in one copy, in both, or an old copy of the directory."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from replicas import Member, RefusedError, Shard, check_history, same_everywhere, until
from test_replicas import Writer

from barco.workers.storage.files import layout
from barco.workers.storage.files.frames import SECTOR_BYTES

NAMES = layout.LINEAGE_NAME, layout.LINEAGE_COPY_NAME


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    with Shard(tmp_path) as made:
        made.start()
        yield made


def hurt(member: Member, names: tuple[str, ...]) -> None:
    """A bit of the last frame flips; its decisions and votes are in there."""
    (shard,) = member.data_dir.glob("range-*")
    for name in names:
        data = bytearray((shard / name).read_bytes())
        data[-SECTOR_BYTES + 40] ^= 1
        (shard / name).write_bytes(data)


def says(member: Member, name: str) -> int | None:
    """A figure of its own; None: it does not answer yet."""
    try:
        return member.call("stats").get(name)
    except (OSError, RefusedError):
        return None


@pytest.mark.parametrize("which", ["leader", "follower"])
def test_damage_in_both_copies_is_told_and_outlived(shard: Shard, which: str) -> None:
    """It counts as lost until others have followed the generations that were open; then it is one
    of two again, and the third may go."""
    with Writer(shard) as writer:
        writer.until_more(20)
        leader = shard.leader()
        member = leader if which == "leader" else shard.members[(leader.ordinal + 1) % 3]
        third = next(m for m in shard.members if m not in (leader, member))
        member.kill()
        hurt(member, NAMES)
        member.start()
        until("the word on it", lambda: "in neither copy" in member.log)
        writer.until_more(20)
        until("its return", lambda: says(member, "replicas_suspect") == 0)
        third.kill()
        writer.until_more(20)
        third.start()
    check_history(same_everywhere(shard), writer)
    assert says(member, "storage_doubtful_lineage") == 1


def test_damage_in_one_copy_is_mended(shard: Shard) -> None:
    with Writer(shard) as writer:
        writer.until_more(5)
        for member, name in zip(shard.members, NAMES, strict=False):
            member.kill()
            hurt(member, (name,))
            member.start()
            until("the word on it", lambda member=member: "the other copy had" in member.log)
            writer.until_more(5)
            one, other = (next(member.data_dir.glob("range-*")) / each for each in NAMES)
            until("equal copies", lambda a=one, b=other: a.read_bytes() == b.read_bytes())
    check_history(same_everywhere(shard), writer)
    assert says(shard.members[0], "storage_damaged_lineage_files") == 1


def test_an_old_copy_of_a_directory_has_no_voice(shard: Shard) -> None:
    """The second one's directory is an old copy, the third is away: what only the first one has
    besides must not be voted away when that dies. It was, and 300 events with it."""
    first, second, third = shard.members
    until("the first leads", lambda: first.produce("0", "probe") == 200)
    with Writer(shard) as writer:
        writer.until_more(5)
        second.kill()
        old = second.data_dir.with_suffix(".old")
        shutil.copytree(second.data_dir, old, ignore=shutil.ignore_patterns("run"))
        second.start()
        # What it voted and took since, it will not know.
        first.kill()
        writer.until_more(10)
        first.start()
        until("the owner's return", lambda: says(first, "replicas_leading") == 1)
        writer.until_more(20)
        third.kill()
        writer.until_more(50)
        second.kill()
        shutil.rmtree(second.data_dir)
        old.rename(second.data_dir)
        second.start()
        until("the word on it", lambda: "is an old copy" in second.log)
        first.kill()
        third.start()
        until("the third", lambda: says(third, "replication_links_up") == 1)
        assert third.produce("x", timeout=2.0) != 200 and second.produce("x", timeout=2.0) != 200
        first.start()
        writer.until_more(20)
    found = [value for value in same_everywhere(shard) if value != "x"]
    check_history(found, writer)
