"""The room that fail-overs take: what they have written, not what was made for it."""

from functools import partial
from pathlib import Path

from replicas import Member, Shard, same_everywhere, until

from barco.types import MiB

SEGMENT = 8 * MiB
KILLS = 6


def taken(member: Member) -> int:
    """Bytes on the disk, trash included."""
    return sum(
        path.stat().st_blocks * 512
        for path in member.data_dir.glob("range-*/**/*")
        if path.is_file()
    )


def fits(member: Member, bound: int) -> bool:
    try:
        return taken(member) <= bound
    except FileNotFoundError:
        return False  # It was just renamed.


def test_fail_overs_do_not_keep_what_was_made_ahead(tmp_path: Path) -> None:
    """docs/promises.md: the events, and three segments for each shard that is held."""
    shard = Shard(tmp_path, segment_bytes=SEGMENT)
    try:
        shard.start()
        number = 0
        for turn in range(KILLS):
            leader = shard.leader()
            for _ in range(5):
                shard.store(str(number))
                number += 1
            leader.kill()
            shard.leader([member for member in shard.members if member is not leader])
            if turn < KILLS - 1:
                leader.start()
        leader.start()
        shard.leader([leader])
        assert same_everywhere(shard) == [str(each) for each in range(number)]
        held = [
            {path.name for path in member.data_dir.glob("range-*/gen-*")}
            for member in shard.members
        ]
        assert len(set.union(*held)) > KILLS  # Not each on each disk: a member was away for some.
        for member, names in zip(shard.members, held, strict=True):
            # 64 KiB for each generation: its groups, and what the file system adds.
            bound = 3 * SEGMENT + len(names) * 64 * 1024
            until("no more than that", partial(fits, member, bound), seconds=60.0)
    finally:
        for member in shard.members:  # Shown when the test fails.
            print(f"--- broker {member.ordinal}: {taken(member)}\n{member.log[-2000:]}")
        shard.end()
