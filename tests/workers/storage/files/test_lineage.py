"""Whose a journal is: said in it once, and held against who opens it."""

import uuid
from pathlib import Path

import pytest
from msgspec.structs import replace

from barco.model.generation import Ballot, Generation, Gid, Identity, Kind, Parent, Successor
from barco.protocol.replication import DecidedRecord, HeardRecord, PromisedRecord
from barco.protocol.replication_codec import to_map
from barco.types import Epoch, Ordinal, Token
from barco.workers.storage.files import layout, records, twofold
from barco.workers.storage.files.errors import ForeignJournalError
from barco.workers.storage.files.frames import SECTOR_BYTES
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.files.records import Claim, Home

DISK, OTHER = uuid.uuid4().hex, uuid.uuid4().hex
NAMES = (layout.LINEAGE_NAME, layout.LINEAGE_COPY_NAME)
CLAIM = Claim(home=Home(DISK, -7), ordinal=0, named=True)
BALLOT = Ballot(1, 2, 3)
FIRST = replace(CLAIM, named=False)
"""Of a start after an earlier version."""


def both(shard: Path) -> list[bytes]:
    return [(shard / name).read_bytes() for name in NAMES]


def heard(shard: Path, ordinal: int) -> None:
    """Its member has heard of that broker's journal, as it does within a second."""
    told = HeardRecord(Identity(Ordinal(ordinal), bytes.fromhex(OTHER)), 5, 21)
    Lineage.load(shard).add_journal([(1, to_map(told))])


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """With a journal that an earlier version has begun."""
    Lineage.load(tmp_path).described(2, 5, [(1, 0)])
    return tmp_path


def test_a_new_one_says_whose_it_is_and_goes_on_saying_it(tmp_path: Path) -> None:
    made = Lineage.load(tmp_path, CLAIM)
    assert made.home == CLAIM.home and not made.adopted
    made.opened(2, 5, [(1, 0)])
    again = Lineage.load(tmp_path, CLAIM)
    assert again.home == CLAIM.home and again.generations()[0].session == 5
    names = bytes.fromhex(DISK), DISK.encode()
    assert not any(name in data for data in both(tmp_path) for name in names), "no member"


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    ("home", "words"),
    [
        (Home(OTHER, -7), f"is the journal of disk {DISK}, and this one is {OTHER}"),
        (Home(DISK, -8), "is the journal of range--7: put the directory back"),
    ],
)
def test_another_ones_is_refused_and_left_as_it_is(
    tmp_path: Path, home: Home, words: str, named: bool
) -> None:
    Lineage.load(tmp_path, CLAIM).opened(2, 5, [(1, 0)])
    (tmp_path / layout.LINEAGE_COPY_NAME).write_bytes(both(tmp_path)[0][:SECTOR_BYTES])
    before = both(tmp_path)
    for repair in (True, False):
        with pytest.raises(ForeignJournalError, match=words):
            Lineage.load(tmp_path, replace(CLAIM, home=home, named=named), repair=repair)
    assert both(tmp_path) == before


def test_one_of_an_earlier_version_is_taken_once(shard: Path) -> None:
    looked = Lineage.load(shard, FIRST, repair=False)
    assert looked.home is None and looked.stranger(CLAIM)
    made = Lineage.load(shard, FIRST)
    assert made.adopted and made.home == CLAIM.home
    assert not Lineage.load(shard, FIRST).adopted
    again = Lineage.load(shard, CLAIM)
    assert again.generations()[0].session == 5 and not again.hurt
    with pytest.raises(ForeignJournalError):
        Lineage.load(shard, replace(FIRST, home=Home(OTHER, -7)))


def test_and_never_where_all_have_said_whose_they_are(shard: Path) -> None:
    """A copy of an earlier version's directory, brought when this one's did say it."""
    before = both(shard)
    with pytest.raises(ForeignJournalError, match="does not say whose journal it is"):
        Lineage.load(shard, CLAIM)
    assert both(shard) == before


def test_nor_if_it_has_heard_of_this_broker_as_of_another(shard: Path) -> None:
    heard(shard, 1)
    assert Lineage.load(shard, FIRST, repair=False).stranger(FIRST) is None
    heard(shard, 0)
    with pytest.raises(ForeignJournalError, match="it has heard of broker 0's"):
        Lineage.load(shard, FIRST)


def test_nor_if_all_it_speaks_of_are_generations_of_another_range(shard: Path) -> None:
    """Swapped, it would be written into both, and stand there when they are put back."""
    before = both(shard)
    Lineage.load(shard).add_journal([(2, to_map(PromisedRecord(Gid(Token(9), Epoch(2)), BALLOT)))])
    with pytest.raises(ForeignJournalError, match=r"is the journal of range-9: put"):
        Lineage.load(shard, FIRST)
    Lineage.load(shard).add_journal([(2, to_map(PromisedRecord(Gid(Token(-7), Epoch(2)), BALLOT)))])
    assert Lineage.load(shard, FIRST).adopted and both(shard) != before


@pytest.mark.parametrize("gone", ["damaged", "gone"])
def test_what_is_lost_in_both_copies_may_have_said_it(tmp_path: Path, gone: str) -> None:
    """Who has lost a part of its journal has no vote anyhow, and has to start."""
    Lineage.load(tmp_path, CLAIM)
    (tmp_path / "gen-0000000002").mkdir()
    for name in NAMES:
        data = bytearray((tmp_path / name).read_bytes())
        assert len(data) == 2 * SECTOR_BYTES, "the second frame says it"
        data[-SECTOR_BYTES + 40] ^= 1
        (tmp_path / name).write_bytes(data)
        if gone == "gone":
            (tmp_path / name).unlink()
    made = Lineage.load(tmp_path, CLAIM)
    assert made.doubtful and made.home == CLAIM.home
    again = Lineage.load(tmp_path, CLAIM)
    assert not again.doubtful and again.home == CLAIM.home


def test_a_start_that_is_cut_off_says_it_with_the_rest_or_not_at_all(shard: Path) -> None:
    """Both files are replaced, one after the other: after the first one the power goes."""
    before = both(shard)
    Lineage.load(shard, FIRST)
    after = both(shard)
    for cut in range(len(before[0]), len(after[0]), SECTOR_BYTES):
        (shard / NAMES[0]).write_bytes(after[0][:cut])
        (shard / NAMES[1]).write_bytes(before[1])
        made = Lineage.load(shard, FIRST)
        assert made.home == CLAIM.home and not made.doubtful, cut
        assert both(shard) == after


def test_of_the_parents_of_a_join_its_own_log_has_one(tmp_path: Path) -> None:
    """The other one's epoch says nothing of what is here, and may be that of another log here."""
    member = Identity(Ordinal(0), bytes.fromhex(DISK))
    parents = (Parent(Gid(Token(-7), Epoch(3)), 9), Parent(Gid(Token(40), Epoch(4)), 0))
    joined = Generation(Gid(Token(-7), Epoch(5)), 99, member, 8, (member,), parents)
    value = Successor(9, Kind.RELEAD, (joined,))
    Lineage.load(tmp_path, CLAIM, token=-7).add_journal(
        [(3, to_map(DecidedRecord(parents[0].gid, value)))]
    )
    found = Lineage.load(tmp_path, CLAIM, token=-7).get(5)
    assert found is not None and found.parents == ((3, 9),) and found.session == 8


def test_a_journal_is_blank_until_anything_was_recorded(tmp_path: Path) -> None:
    """Then its process holds nothing, and may end."""
    assert Lineage.load(tmp_path, token=7).blank
    again = Lineage.load(tmp_path, token=7)
    # A vote on another range's generation is none of its own, and is no less there.
    again.add_journal([(2, {"t": "promised", "gid": [9, 2]})])
    assert again.generations() == [] and not again.blank
    assert not Lineage.load(tmp_path, token=7).blank


def test_what_was_heard_of_other_journals_goes_and_all_else_stays(shard: Path) -> None:
    """Of a cluster that was restored as a whole: nobody is blamed for what it can not have."""
    Lineage.load(shard, FIRST).opened(3, 6, [(2, 0)])
    heard(shard, 1)
    heard(shard, 2)
    Lineage.load(shard).expired(2)
    before = Lineage.load(shard, FIRST, repair=False)
    assert len(before.journal) == 2
    twofold.rewrite(shard, records.without_positions)
    after = Lineage.load(shard, CLAIM, repair=False)
    assert after.journal == [] and after.home == CLAIM.home and not after.hurt
    assert after.generations() == before.generations()
    Lineage.load(shard, CLAIM).opened(4, 7, [(3, 0)])
    assert Lineage.load(shard, CLAIM, repair=False).get(4) is not None, "it goes on"


def test_a_damaged_journal_is_not_made_a_sound_one(shard: Path) -> None:
    heard(shard, 1)
    for name in NAMES:
        data = bytearray((shard / name).read_bytes())
        data[SECTOR_BYTES + 40] ^= 1
        (shard / name).write_bytes(data)
    before = both(shard)
    twofold.rewrite(shard, records.without_positions)
    assert both(shard) == before
    assert Lineage.load(shard, repair=False).doubtful
