"""Bits flip on one of three disks: what is read is right, and the copies are the same again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from replicas import Member, Shard, same_everywhere, until

from barco.limits import GROUP_HEADER_BYTES
from barco.workers.storage.files import layout
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.index.scan import GroupHeader, parse_header

MENDED_SECONDS_MAX = 60.0

Row = tuple[Path, int, GroupHeader]


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    with Shard(tmp_path) as made:
        made.start()
        yield made


def rows(member: Member, epoch: int, upto: int) -> list[Row]:
    """The groups of a generation as they are on this disk."""
    found = []
    for index in layout.segment_indexes(member.directory, epoch):
        path = layout.segment_path(member.directory, epoch, index)
        data, at = path.read_bytes(), 0
        while (header := parse_header(data, at)) is not None and header.gseq <= upto:
            found.append((path, at, header))
            at += header.group_bytes
    return found


def history(member: Member, epoch: int, upto: int) -> bytes:
    """The bytes of the groups."""
    found = b""
    for path, at, header in rows(member, epoch, upto):
        found += path.read_bytes()[at : at + header.group_bytes]
    return found


def flip(row: Row, at: int) -> None:
    path, start, _ = row
    with path.open("r+b", buffering=0) as file:
        file.seek(start + at)
        byte = file.read(1)[0] ^ 4
        file.seek(start + at)
        file.write(bytes([byte]))


def sealed_epoch(shard: Shard) -> tuple[int, int]:
    """(epoch, T) of the newest generation that is sealed on all three, with groups in it."""

    def find() -> tuple[int, int] | None:
        known = [
            {
                g.epoch: g.tail
                for g in Lineage.load(member.directory, repair=False).generations()
                if g.tail
            }
            for member in shard.members
        ]
        epochs = set.intersection(*map(set, known))
        return (max(epochs), known[0][max(epochs)]) if epochs else None

    return until("a sealed generation", find)  # type: ignore[no-any-return]


def hurt(member: Member, found: list[Row]) -> None:
    """Flips in three groups; broker 2 loses the whole file, and its index."""
    for row in (found[0], found[len(found) // 2], found[-1]):
        flip(row, 60)
        flip(row, GROUP_HEADER_BYTES + row[2].body_bytes // 2)
    if member.ordinal == 2:
        layout.sidecar_path(found[0][0]).unlink(missing_ok=True)
        found[0][0].unlink()


def test_damage_of_all_kinds_in_a_sealed_generation(shard: Shard) -> None:
    """Each member in turn, leader or not: its readers get what was written, at once."""
    leader = shard.leader()
    values = [f"{number} " + "x" * 2000 for number in range(60)]
    for value in values:
        shard.store(value)
    leader.kill()
    leader.start()
    shard.leader()
    assert same_everywhere(shard) == values
    epoch, tail = sealed_epoch(shard)
    whole = history(shard.members[0], epoch, tail)
    for member in shard.members:
        member.kill()  # It has nothing of it in memory, then.
        hurt(member, [row for row in rows(member, epoch, tail) if row[2].chunk_count])
        member.start()
        assert same_everywhere(shard) == values
        until(
            "the same bytes again",
            lambda m=member: history(m, epoch, tail) == whole,
            MENDED_SECONDS_MAX,
        )
        until("it is told", lambda m=member: m.stats.get("storage_repaired_groups", 0) >= 3)
        assert "--accept-data-loss" not in member.log
        assert member.stats["storage_damaged_segments"] == 0


def test_rot_of_the_last_groups_while_it_was_down(shard: Shard) -> None:
    """They were acknowledged; no header on this disk says so. It comes back as a whole copy."""
    leader = shard.leader()
    others = [member for member in shard.members if member is not leader]
    for number in range(20):
        shard.store(f"before {number}")
    for count, member in enumerate(others):
        member.kill()
        epoch = max(layout.generation_epochs(member.directory))
        last = rows(member, epoch, 1 << 60)[-1]
        flip(last, 60 if count else GROUP_HEADER_BYTES + 5)
        member.start()
        until("it was seen", lambda m=member: "though it was whole once" in m.log)
        assert "It is repaired from the other brokers" in member.log
        assert "--accept-data-loss" not in member.log  # Nobody has to give anything up.
        gseq = last[2].gseq
        until(
            "the same bytes again",
            lambda m=member, e=epoch, g=gseq: history(m, e, g) == history(leader, e, g),
            MENDED_SECONDS_MAX,
        )
        shard.leader()
    found = same_everywhere(shard)
    assert found == [f"before {number}" for number in range(20)]
