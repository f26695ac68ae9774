"""`barco dump` and `barco recover` on real directories, through the command line's own entry."""

import json
import os
import shutil

import builder
import pytest
from single import start

from barco.cli import main
from barco.model.generation import Generation, Gid, Identity, Parent
from barco.model.token import TOKEN_MIN
from barco.protocol.replication import OpenedRecord
from barco.protocol.replication_codec import to_map
from barco.supervisor import datadir
from barco.supervisor.files.lock import open_lock
from barco.types import Epoch, Ordinal, Token
from barco.workers.storage.files import layout
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.files.records import Claim, Home


@pytest.fixture
def data_dir(root):
    """Two sealed generations and an open one, for the identity of broker.json."""
    path = root / "data"
    identity = datadir.format_data_dir(path, workers=1, slices_per_range=8)
    shard = layout.range_path(path, TOKEN_MIN)
    uuid = bytes.fromhex(identity.cluster_uuid)
    home = Home(identity.disk_uuid, TOKEN_MIN)
    lineage = Lineage.load(shard, Claim(home=home, ordinal=0, named=True))
    for epoch in (2, 3, 4):
        lineage.opened(epoch, builder.SESSION, [(epoch - 1, 0)])
        log = builder.Log(epoch=epoch)
        log.roll = _rolling(log, uuid)  # type: ignore[method-assign]
        for _ in range(2):
            log.roll()
            for number in range(4):
                log.append(builder.chunk("a", 0, number * 3, 3, epoch), uuid=uuid)
        log.write(shard)
        if epoch < 4:
            lineage.sealed(epoch, 10, 1, 5 * 4096)
    return path


def _rolling(log, uuid):
    def roll():
        log.segments.append(bytearray())
        log.append(b"state", flags=3 if len(log.segments) == 1 else 2, uuid=uuid)

    return roll


def records(capsys, *arguments):
    code = main(["dump", *map(str, arguments), "--json"])
    return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def damage(data_dir, epoch, segment, at):
    path = layout.segment_path(layout.range_path(data_dir, TOKEN_MIN), epoch, segment)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    return path


def test_dump_of_a_sound_directory(data_dir, capsys):
    code, found = records(capsys, data_dir)
    assert code == 0
    generations = [r for r in found if r["type"] == "generation"]
    assert [(g["epoch"], g["tail"], g["end"]) for g in generations] == [
        (2, 10, "sealed"), (3, 10, "sealed"), (4, 10, "end"),
    ]  # fmt: skip
    segments = [r for r in found if r["type"] == "segment"]
    assert [(s["first_gseq"], s["last_gseq"]) for s in segments] == [(1, 5), (6, 10)] * 3
    assert found[0]["running"] is False


def test_dump_takes_no_other_range_s_generation_for_one_that_is_here(data_dir, capsys):
    """A journal speaks of those that were split from it, or taken in, at the same epochs."""
    member = Identity(Ordinal(0), bytes(16))
    theirs, before = Gid(Token(40), Epoch(3)), Gid(Token(40), Epoch(2))
    other = Generation(theirs, 2**63 - 1, member, 77, (member,), (Parent(before, 32),))
    lineage = Lineage.load(layout.range_path(data_dir, TOKEN_MIN), token=TOKEN_MIN)
    lineage.add_journal([(3, to_map(OpenedRecord(other)))])
    _, found = records(capsys, data_dir)
    (here,) = [r for r in found if r["type"] == "generation" and r["epoch"] == 3]
    assert here["parents"] == [[2, 0]] and int(here["session"], 16) == builder.SESSION


def test_dump_says_everything_that_is_asked_for(data_dir, capsys):
    code, found = records(
        capsys, data_dir, "--groups", "--chunks", "--events", "--verify", "--hash"
    )
    assert code == 0
    count = {kind: sum(r["type"] == kind for r in found) for kind in ("group", "chunk", "event")}
    assert count == {"group": 30, "chunk": 24, "event": 72}
    hashes = [r["hash"] for r in found if r["type"] == "generation" and r["sealed"]]
    assert len(hashes) == 2 and all(len(digest) == 64 for digest in hashes)
    assert next(r for r in found if r["type"] == "event")["value"] == "a/0/0" * 3
    _, found = records(capsys, data_dir, "--events", "--topic", "none")
    assert not [r for r in found if r["type"] == "event"]
    assert main(["dump", str(data_dir), "--groups", "--chunks", "--events", "--verify"]) == 0
    text = capsys.readouterr().out
    assert "generation 3: 10 group(s)" in text and "chunk a/0 offsets 0 to 2" in text


def test_dump_names_the_damaged_place(data_dir, capsys):
    path = damage(data_dir, 2, 1, 2 * 4096 + 200)
    code, found = records(capsys, data_dir, "--verify")
    assert code == 1
    (place,) = [r for r in found if r["type"] == "corruption"]
    assert (place["path"], place["offset"], place["gseq"]) == (str(path), 2 * 4096, 8)
    assert main(["dump", str(data_dir), "--verify"]) == 1
    captured = capsys.readouterr()
    assert f"CORRUPT {path} at byte 8,192, group 8" in captured.out
    assert "1 corrupt place" in captured.err


def test_dump_counts_the_damaged_files_of_a_lineage(data_dir, capsys):
    """Files, not frames: of one file three frames are damaged, the other has them all."""
    first, second = (
        layout.range_path(data_dir, TOKEN_MIN) / name
        for name in (layout.LINEAGE_NAME, layout.LINEAGE_COPY_NAME)
    )
    with first.open("r+b") as file:
        for frame in (1, 2, 3):
            file.seek(frame * 512 + 40)
            file.write(b"rot")
    code, found = records(capsys, data_dir)
    assert code == 1 and [r["lineage_damaged_files"] for r in found if r["type"] == "shard"] == [1]
    assert main(["dump", str(data_dir)]) == 1
    shown = capsys.readouterr()
    assert "1 of 2 files of its lineage DAMAGED" in shown.out and "neither" not in shown.out
    assert "1 corrupt place" in shown.err
    first.unlink()
    second.unlink()
    assert main(["dump", str(data_dir)]) == 1
    shown = capsys.readouterr()
    assert "2 of 2 files of its lineage DAMAGED, and records are in neither" in shown.out


def test_dump_of_a_torn_tail(data_dir, capsys):
    path = layout.segment_path(layout.range_path(data_dir, TOKEN_MIN), 4, 1)
    with path.open("r+b") as file:
        file.seek(4 * 4096)
        file.write(bytes(512) + b"its second sector")
    code, found = records(capsys, data_dir, "--verify")
    assert code == 0
    last = [r for r in found if r["type"] == "generation"][-1]
    assert (last["end"], last["tail"], last["torn_bytes"]) == ("torn", 9, 4096)


def test_dump_of_something_else(root, capsys):
    assert main(["dump", str(root)]) != 0
    assert "not a data directory of barco" in capsys.readouterr().err


def test_dump_tells_that_a_broker_runs(data_dir, capsys):
    lock = open_lock(data_dir)

    try:
        assert records(capsys, data_dir)[1][0]["running"] is True
        assert main(["recover", str(data_dir)]) != 0
        assert "is in use" in capsys.readouterr().err
    finally:
        os.close(lock)


def test_a_range_of_another_disk_is_told_and_not_recovered(data_dir, tmp_path, capsys):
    other, uuid = tmp_path / "other", datadir.load(data_dir).cluster_uuid
    datadir.format_data_dir(other, workers=1, slices_per_range=8, cluster_uuid=uuid)
    shard = layout.range_path(other, TOKEN_MIN)
    shutil.copytree(layout.range_path(data_dir, TOKEN_MIN), shard, dirs_exist_ok=True)
    before = {path: path.read_bytes() for path in shard.rglob("*") if path.is_file()}
    _, found = records(capsys, data_dir)
    assert [r["lineage_stranger"] for r in found if r["type"] == "shard"] == [None]
    code, found = records(capsys, other)
    (told,) = [r["lineage_stranger"] for r in found if r["type"] == "shard"]
    assert code == 1 and told.startswith("is the journal of disk ")
    assert main(["dump", str(other)]) == 1
    assert "lineage.log is the journal of disk" in capsys.readouterr().out
    for more in ([], ["--accept-data-loss"]):
        assert main(["recover", str(other), *more]) == 78
        assert capsys.readouterr().err.count("put the directory back") == 1
    assert before == {path: path.read_bytes() for path in shard.rglob("*") if path.is_file()}


def test_recover_asks_first(data_dir, capsys, go, monkeypatch):
    assert main(["recover", str(data_dir)]) == 0
    assert "nothing is damaged" in capsys.readouterr().out
    damage(data_dir, 4, 0, 3 * 4096 + 200)
    before = (layout.range_path(data_dir, TOKEN_MIN) / "lineage.log").read_bytes()
    assert main(["recover", str(data_dir)]) == 1
    assert "nothing was changed" in capsys.readouterr().out
    shard = layout.range_path(data_dir, TOKEN_MIN)
    assert (shard / "lineage.log").read_bytes() == before
    assert main(["recover", str(data_dir), "--accept-data-loss", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lost_groups"] == [4, 10]
    uuid = bytes.fromhex(datadir.load(data_dir).cluster_uuid)

    monkeypatch.setattr(builder, "UUID", uuid)
    assert start(shard, go).parent == (4, 3)
    assert main(["recover", str(data_dir)]) == 0
