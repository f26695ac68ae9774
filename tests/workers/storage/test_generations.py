"""lineage.log: what it remembers, and what becomes of it when it is damaged."""

import msgpack
import pytest
from crc32c import crc32c

from barco.errors import DataDirError
from barco.model.generation import Generation, Gid, Identity, Kind, Parent, Successor
from barco.protocol.replication import DecidedRecord, OpenedRecord
from barco.protocol.replication_codec import to_map
from barco.types import Epoch, Ordinal, Token
from barco.workers.storage.files import layout
from barco.workers.storage.files.lineage import Lineage


def filled(shard, count=5):
    lineage = Lineage.load(shard)
    for epoch in range(2, 2 + count):
        lineage.opened(epoch, epoch * 10, [(epoch - 1, epoch)])
        lineage.sealed(epoch, epoch + 1, 0, 4096)
    return shard / layout.LINEAGE_NAME


def test_lineage_remembers(shard):
    filled(shard)
    lineage = Lineage.load(shard)
    lineage.expired(2)
    lineage.lost(6, 3, 9)
    again = Lineage.load(shard)
    assert [g.epoch for g in again.generations()] == [2, 3, 4, 5, 6]
    assert again.get(4).parents == ((3, 4),) and again.get(4).session == 40
    assert again.get(2).expired and again.get(6).lost == (3, 9) and again.get(6).tail == 2
    assert again.damaged == 0


def test_an_unknown_directory_is_a_generation(shard):
    filled(shard)
    layout.generation_path(shard, 40).mkdir()
    assert Lineage.load(shard).generations()[-1].epoch == 40


def both(shard):
    return shard / layout.LINEAGE_NAME, shard / layout.LINEAGE_COPY_NAME


def test_a_damaged_copy_is_mended_and_told(shard):
    filled(shard)
    for path in both(shard):
        data = path.read_bytes()
        for at in range(0, len(data), 61):
            changed = bytearray(data)
            changed[at] ^= 1 << (at % 8)
            path.write_bytes(changed)
            lineage = Lineage.load(shard)
            assert lineage.damaged == 1 and not lineage.doubtful and str(path) in lineage.hurt[0]
            assert len(lineage.generations()) == 5 and not lineage.journal
            assert [each.read_bytes() for each in both(shard)] == [data, data]
    assert Lineage.load(shard).damaged == 0


def test_damage_in_both_is_doubt_for_ever(shard):
    filled(shard)
    lineage = Lineage.load(shard)
    lineage.add_journal([(6, {"t": "promised"})])
    lineage.add_journal([(6, {"t": "accepted"})])
    for path in both(shard):
        data = bytearray(path.read_bytes())
        data[-1024 + 40] ^= 1  # In the promise.
        path.write_bytes(data)
    lineage = Lineage.load(shard)
    assert lineage.doubtful and lineage.damaged == 2
    doubt = {"t": "doubt", "upto": 2**63 - 1, "beyond": 0}
    assert lineage.journal == [{"t": "accepted"}, doubt], "what is left, then that it is not all"
    assert len(lineage.generations()) == 5
    lineage.add_journal([(6, {"t": "more"})])
    again = Lineage.load(shard)
    assert not again.doubtful and again.damaged == 0
    assert again.journal == [{"t": "accepted"}, doubt, {"t": "more"}]


def test_a_directory_of_an_older_version_is_refused(shard):
    body = msgpack.packb({"t": "opened", "e": 2, "s": 7, "p": []})
    head = len(body).to_bytes(4, "little") + crc32c(body).to_bytes(4, "little")
    (shard / layout.LINEAGE_NAME).write_bytes((head + body) * 3)
    with pytest.raises(DataDirError, match="older version of barco"):
        Lineage.load(shard)


def test_offline_reading_changes_nothing(shard):
    path = filled(shard)
    whole = path.read_bytes()
    for path in both(shard):
        path.write_bytes(whole[:-512] + bytes(512))
    before = [path.read_bytes() for path in both(shard)]
    assert Lineage.load(shard, repair=False).torn_bytes > 0
    assert [path.read_bytes() for path in both(shard)] == before


def test_what_the_journal_says_of_other_ranges_makes_no_generation_here(shard):
    """Both children of a split have one epoch; and of a parent elsewhere there is no log here."""
    here, there = 0, 2**61
    member = Identity(Ordinal(0), bytes(16))
    parent = Parent(Gid(Token(here), Epoch(5)), 40)
    first, second = (
        Generation(Gid(Token(token), Epoch(6)), end, member, session, (member,), (parent,))
        for token, end, session in ((here, there, 71), (there, 2**62, 72))
    )
    split = DecidedRecord(parent.gid, Successor(40, Kind.SPLIT, (first, second)))
    opened = OpenedRecord(Generation(parent.gid, 2**62, member, 9, (member,), ()))
    for token, known in ((here, {5: 9, 6: 71}), (there, {6: 72})):
        directory = shard / str(token)
        directory.mkdir()
        lineage = Lineage.load(directory, token=token)
        records = [(5, opened), (5, split), (6, OpenedRecord(second))]
        lineage.add_journal([(epoch, to_map(each)) for epoch, each in records])
        for each in (lineage, Lineage.load(directory, token=token)):
            assert {g.epoch: g.session for g in each.generations()} == known
            parents = each.get(6).parents
            assert parents == (((5, 40),) if token == here else ())
