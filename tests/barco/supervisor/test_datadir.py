"""The data directory: written once, refused when it is not ours, held by one broker."""

import json
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.growing import wanted_ranges
from barco.cluster.ring.target import Target, TargetBroker, first_target
from barco.config import Config
from barco.errors import ConfigError, DataDirError, InUseError
from barco.model.ranges import ProcessTable, directory_of
from barco.supervisor import datadir
from barco.supervisor.files.lock import open_lock
from barco.supervisor.files.lock import refusal as refused_because
from barco.types import Ordinal


def test_format_and_load(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "data"
    assert datadir.load(path) is None
    identity = datadir.format_data_dir(path, workers=2, slices_per_range=8)
    assert datadir.load(path) == identity
    written = json.loads((path / "broker.json").read_text())
    assert list(written) == [
        "format",
        "cluster_uuid",
        "disk_uuid",
        "ordinal",
        "workers",
        "slices_per_range",
        "ring_size",
        "replaces",
    ]
    assert len(written["cluster_uuid"]) == len(written["disk_uuid"]) == 32
    ranges = [f"range-{held.token}" for held in identity.first_table()]
    assert sorted(entry.name for entry in path.iterdir()) == [
        "broker.json",
        "processes.json",
        *sorted(ranges),
    ]


def test_a_directory_that_was_refused_is_given_up_and_no_other(tmp_path: Path) -> None:
    """Made by serve while nobody answered; the others then named another disk."""
    lost, again = "cd" * 16, "ef" * 16
    identity = datadir.format_data_dir(tmp_path, workers=1, slices_per_range=8, ring_size=3)
    log = tmp_path / f"range-{identity.first_table().at(1).token}" / "lineage.log"
    for named in (bytes.fromhex(identity.disk_uuid), identity.disk_uuid.encode()):
        log.write_bytes(b"some" + named + b"more")
        with pytest.raises(DataDirError, match="may hold copies that count"):
            datadir.clear_stranger(tmp_path, identity, lost)
    log.write_bytes(b"somebody else: " + bytes.fromhex(lost))
    with pytest.raises(DataDirError, match="start the broker with it"):
        datadir.clear_stranger(tmp_path, identity, identity.disk_uuid)
    assert log.exists() and datadir.load(tmp_path) == identity
    datadir.clear_stranger(tmp_path, identity, lost)
    assert datadir.load(tmp_path) is None and not log.parent.exists()
    made = datadir.format_data_dir(
        tmp_path, workers=1, slices_per_range=8, ring_size=3, replaces=lost
    )
    with pytest.raises(DataDirError, match="already formatted"):
        datadir.clear_stranger(tmp_path, made, again)


def test_one_from_before_there_were_rings(tmp_path: Path) -> None:
    identity = datadir.format_data_dir(tmp_path, workers=2, slices_per_range=8)
    written = json.loads((tmp_path / "broker.json").read_text())
    del written["ring_size"], written["replaces"]
    (tmp_path / "broker.json").write_text(json.dumps(written))
    assert datadir.load(tmp_path) == identity and identity.ring_size == 1


def test_each_directory_is_another(tmp_path: Path) -> None:
    one = datadir.format_data_dir(tmp_path / "1", workers=1, slices_per_range=8)
    two = datadir.format_data_dir(tmp_path / "2", workers=1, slices_per_range=8)
    assert one.disk_uuid != two.disk_uuid and one.cluster_uuid != two.cluster_uuid


def test_format_overwrites_nothing(tmp_path: Path) -> None:
    datadir.format_data_dir(tmp_path / "a", workers=1, slices_per_range=8)
    with pytest.raises(DataDirError, match="is already formatted"):
        datadir.format_data_dir(tmp_path / "a", workers=1, slices_per_range=8)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").touch()
    with pytest.raises(DataDirError, match=r"is not empty .*'thesis.tex'"):
        datadir.format_data_dir(tmp_path / "b", workers=1, slices_per_range=8)


def test_a_cut_off_format_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "broker.json.new").write_text('{"form')
    (tmp_path / "processes.json").write_text("of another cut")
    (tmp_path / "range-0").mkdir()
    (tmp_path / "lost+found").mkdir()
    datadir.format_data_dir(tmp_path, workers=1, slices_per_range=8)
    assert datadir.load(tmp_path) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"workers": 0},
        {"workers": "2"},
        {"workers": True},
        {"workers": 9},
        {"slices_per_range": 6},
        {"cluster_uuid": "x" * 32},
        {"disk_uuid": "a"},
        {"ordinal": -1},
        {"ring_size": 4},
        {"replaces": "x"},
        {"more": 1},
    ],
)
def test_a_damaged_identity_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    datadir.format_data_dir(tmp_path, workers=2, slices_per_range=8)
    path = tmp_path / "broker.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataDirError, match="is damaged: restore it from a backup"):
        datadir.load(tmp_path)


def table_of(path: Path, **shape: int) -> tuple[datadir.Identity, Path]:
    """A directory that was formatted, and the file of its table."""
    identity = datadir.format_data_dir(path, **{"workers": 2, "slices_per_range": 8} | shape)
    return identity, path / "processes.json"


def test_the_table_is_made_once_and_read_again(tmp_path: Path) -> None:
    identity, file = table_of(tmp_path, ring_size=3, ordinal=1)
    first = datadir.adopt_table(tmp_path, identity)
    assert first == identity.first_table() and first.numbers == (0, 1, 2, 3, 4, 5)
    more = first.without(first.at(4).token)
    datadir.write_table(tmp_path, identity, more)
    assert datadir.adopt_table(tmp_path, identity) == more, "not made from the cut again"
    assert not file.with_name("processes.json.new").exists()


def from_before(path: Path) -> datadir.Identity:
    """A directory as a version wrote it that named directories by processes."""
    made, file = table_of(path)
    file.unlink()
    for held in made.first_table():
        (path / f"range-{held.token}").rmdir()
    for number in range(2):
        (path / f"shard-{number:04d}").mkdir()
        (path / f"shard-{number:04d}" / "lineage.log").write_text(str(number))
    whole = path / "broker.json"
    whole.write_text(whole.read_text().replace('"format": 2', '"format": 1'))
    identity = datadir.load(path)
    assert identity is not None and identity.format == 1
    return identity


def test_a_directory_from_before_there_was_a_table(tmp_path: Path) -> None:
    """Its directories are named by processes; cut off, the change of names is done again."""
    identity = from_before(tmp_path)
    file = tmp_path / "processes.json"
    assert datadir.read_table(tmp_path, identity) == identity.first_table()
    assert not file.exists() and len(datadir.numbered(tmp_path)) == 2, "nothing is changed by that"
    table = datadir.adopt_table(tmp_path, identity)
    os.rename(tmp_path / f"range-{table.at(1).token}", tmp_path / "shard-0001")
    assert datadir.adopt_table(tmp_path, identity) == table
    for held in table:
        log = tmp_path / f"range-{held.token}" / "lineage.log"
        assert log.read_text() == str(held.number)
    assert datadir.numbered(tmp_path) == []


def test_an_earlier_version_is_kept_away_before_the_first_name_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads format 1 and nothing else. With that it would begin empty logs, and answer."""
    identity = from_before(tmp_path)
    formats = []

    def stopped(old: Path, new: Path) -> None:
        formats.append(json.loads((tmp_path / "broker.json").read_text())["format"])
        raise InterruptedError

    with monkeypatch.context() as patched, pytest.raises(DataDirError):
        patched.setattr(datadir, "_rename", stopped)
        datadir.adopt_table(tmp_path, identity)
    assert formats == [2] and len(datadir.numbered(tmp_path)) == 2
    again = datadir.load(tmp_path)
    assert again is not None and again.disk_uuid == identity.disk_uuid
    datadir.adopt_table(tmp_path, again)
    assert datadir.numbered(tmp_path) == []


def test_no_log_is_begun_in_the_place_of_one_that_is_gone(tmp_path: Path) -> None:
    """Half of all events were not there, in silence; in a ring it had a vote on the rest."""
    three, _ = table_of(tmp_path / "three", ring_size=3)
    first = datadir.adopt_table(tmp_path / "three", three)
    (tmp_path / "three" / f"range-{first.at(2).token}").rmdir()
    with pytest.raises(DataDirError, match="this disk is lost: .* run barco replace"):
        datadir.adopt_table(tmp_path / "three", three)
    path = tmp_path / "one"
    identity, _ = table_of(path)
    table = datadir.adopt_table(path, identity)
    gone = path / f"range-{table.at(1).token}"
    gone.rename(path / "range-77")
    with pytest.raises(
        DataDirError, match=r"range-0 is not there: .* slices 4 to 7\. Bring it back"
    ):
        datadir.adopt_table(path, identity)
    gone.mkdir()
    assert datadir.adopt_table(path, identity) == table, "on an operator's word"
    before = from_before(tmp_path / "before")
    assert datadir.adopt_table(tmp_path / "before", before) == table
    never = from_before(tmp_path / "never")
    for number in range(2):
        (tmp_path / "never" / f"shard-{number:04d}" / "lineage.log").unlink()
        (tmp_path / "never" / f"shard-{number:04d}").rmdir()
    assert datadir.adopt_table(tmp_path / "never", never) == table, "formatted and never started"


def test_two_logs_of_one_range_are_somebody_elses_to_judge(tmp_path: Path) -> None:
    """As a version leaves it that has begun anew beside what it did not find."""
    identity = from_before(tmp_path)
    table = datadir.adopt_table(tmp_path, identity)
    (tmp_path / "shard-0001").mkdir()
    words = f"shard-0001 and range-{table.at(1).token} are both there, .* move it out of"
    with pytest.raises(DataDirError, match=words):
        datadir.adopt_table(tmp_path, identity)
    assert (tmp_path / f"range-{table.at(1).token}" / "lineage.log").read_text() == "1"


def test_a_table_that_is_gone_is_not_made_anew(tmp_path: Path) -> None:
    """Who holds what would be a guess."""
    identity, file = table_of(tmp_path)
    file.unlink()
    with pytest.raises(DataDirError, match="is not there: .*; restore it from a backup"):
        datadir.adopt_table(tmp_path, identity)


def test_logs_of_a_later_version_are_refused(tmp_path: Path) -> None:
    """In words: an earlier version finds 2 where events may have headers, as this one a 4."""
    identity, file = table_of(tmp_path)
    file.write_text(file.read_text().replace('"format": 3', '"format": 4', 1))
    words = "logs have format 4, this version of barco reads 1 to 3: use the version that wrote"
    with pytest.raises(DataDirError, match=words):
        datadir.adopt_table(tmp_path, identity)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('"number": 1', '"number": 7', "its checksum is another"),
        ('"number": 1', '"number": 0', "two processes have one number"),
        ('"check": "', '"check": "0', "its checksum is another"),
        ('"token": "0"', '"token": 0', "a token is a decimal number, as text"),
        ('"genesis": true', '"genesis": 1', "and a genesis or none"),
        ('"processes": [', '"processes": [[],', "an entry of a table has"),
        ('"format": 3', '"form": 3', "'format'"),
        ("{", "[" * 99_999, "recursion"),
        ("{", "", "Extra data|Expecting"),
    ],
)
def test_a_damaged_table_is_refused(tmp_path: Path, before: str, after: str, words: str) -> None:
    identity, file = table_of(tmp_path)
    text = file.read_text()
    assert before in text
    file.write_text(text.replace(before, after, 1))
    with pytest.raises(DataDirError, match=f"is damaged \\(.*({words}).*: restore it"):
        datadir.adopt_table(tmp_path, identity)


def test_a_bit_that_flips_in_a_table_is_found(tmp_path: Path) -> None:
    """A digit that became another one is a plausible port, or the start of another range."""
    identity, file = table_of(tmp_path)
    good, first = file.read_bytes(), identity.first_table()
    for at in range(len(good)):
        file.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        try:
            assert datadir.read_table(tmp_path, identity) == first, "only a space has changed"
        except DataDirError as error:
            assert "is damaged" in error.detail or "has format" in error.detail, error.detail


def test_the_table_of_another_broker_is_refused(tmp_path: Path) -> None:
    """Its checksum is right, and it is not this one's."""
    six = {"ring_size": 6, "workers": 1}
    identity, file = table_of(tmp_path / "1", ordinal=1, **six)
    _, other = table_of(tmp_path / "2", ordinal=2, **six)
    file.write_bytes(other.read_bytes())
    with pytest.raises(DataDirError, match="do not belong together: one of them is damaged"):
        datadir.read_table(tmp_path / "1", identity)
    whole = datadir.load(tmp_path / "2")
    assert whole is not None
    datadir.write_table(tmp_path / "1", identity, whole.first_table())
    with pytest.raises(DataDirError, match=r"has members \[2, 5, 0\]"):
        datadir.read_table(tmp_path / "1", identity)


def test_a_bit_that_flips_in_broker_json_is_found(tmp_path: Path) -> None:
    """A disk of another name is a stranger to its own log: it would wait for ever, in silence, and
    `barco replace` would clear it away."""
    identity, _ = table_of(tmp_path, ring_size=3)
    file = tmp_path / "broker.json"
    good, refused = file.read_bytes(), 0
    for at in range(len(good)):
        file.write_bytes(good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :])
        try:
            found = datadir.load(tmp_path)
            assert found is not None
            assert datadir.read_table(tmp_path, found) == identity.first_table()
            assert found == identity, "only a space has changed"
        except DataDirError as error:
            refused += 1
            words = ("is damaged", "has format", "do not belong together")
            assert any(each in error.detail for each in words), error.detail
    assert refused > len(good) - 20
    file.write_bytes(good.replace(identity.disk_uuid.encode(), b"f" * 32))
    found = datadir.load(tmp_path)
    assert found is not None
    with pytest.raises(DataDirError, match="do not belong together"):
        datadir.clear_stranger(tmp_path, found, "ab" * 16)


def test_a_table_from_before_it_named_its_broker_is_written_anew(tmp_path: Path) -> None:
    """As of format 1, where it could not: the same start that changes the format writes it."""
    identity, file = table_of(tmp_path)
    whole = json.loads(file.read_text())
    del whole["broker"]
    whole["check"] = datadir._check(whole["processes"])
    file.write_text(json.dumps(whole))
    with pytest.raises(DataDirError, match="do not belong together"):
        datadir.read_table(tmp_path, identity)
    json_file = tmp_path / "broker.json"
    json_file.write_text(json_file.read_text().replace('"format": 2', '"format": 1'))
    before = datadir.load(tmp_path)
    assert before is not None
    datadir.adopt_table(tmp_path, before)
    assert datadir.load(tmp_path) == identity
    assert datadir.read_table(tmp_path, identity) == identity.first_table()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", "\x00", "[" * 99_999])
def test_something_else_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "broker.json").write_text(text)
    with pytest.raises(DataDirError, match="is damaged"):
        datadir.load(tmp_path)


def test_another_format_is_named(tmp_path: Path) -> None:
    datadir.format_data_dir(tmp_path, workers=2, slices_per_range=8)
    path = tmp_path / "broker.json"
    path.write_text(path.read_text().replace('"format": 2', '"format": 3'))
    with pytest.raises(DataDirError, match="has format 3, this version of barco reads 2: use the"):
        datadir.load(tmp_path)


def test_the_lock_is_held_by_every_copy_of_its_descriptor(tmp_path: Path) -> None:
    first = open_lock(tmp_path)
    copy = os.dup(first)  # As a worker inherits it.
    os.close(first)
    with pytest.raises(InUseError, match=f"is in use by process {os.getpid()}"):
        open_lock(tmp_path, wait_seconds=0.1)
    os.close(copy)
    os.close(open_lock(tmp_path, wait_seconds=0.1))


def test_nothing_is_put_into_a_directory_that_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(DataDirError, match="is not empty"):
        datadir.claim(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere: run as a user")
def test_a_directory_of_somebody_else(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(DataDirError, match="Permission denied: give it to user"):
        datadir.format_data_dir(tmp_path / "data", workers=1, slices_per_range=8)


def test_refusals_say_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(DataDirError, match="pass another --data-dir"):
        datadir.format_data_dir(file, workers=1, slices_per_range=8)
    with pytest.raises(DataDirError, match="is not a directory"):
        datadir.prepare(file)
    refusal = refused_because(tmp_path, PermissionError(13, "Permission denied"))
    assert f"give it to user {os.geteuid()} (chown)" in refusal.detail


def test_that_all_journals_say_whose_they_are_is_kept_with_the_table(tmp_path: Path) -> None:
    """A new directory has none that does not; of an earlier version nobody knows, until it is
    noted. Outside of the checksum, as that version has to be able to read the table."""
    assert not datadir.journals_named(tmp_path)
    identity = datadir.format_data_dir(tmp_path, workers=2, slices_per_range=8)
    assert datadir.journals_named(tmp_path)
    table = datadir.adopt_table(tmp_path, identity)
    assert datadir.journals_named(tmp_path)
    named = (tmp_path / datadir.PROCESSES).read_text()
    datadir.write_table(tmp_path, identity, table)
    assert not datadir.journals_named(tmp_path)
    earlier = json.loads((tmp_path / datadir.PROCESSES).read_text())
    assert json.loads(named) == earlier | {"journals": "named"}
    datadir.write_table(tmp_path, identity, table, named=True)
    assert (tmp_path / datadir.PROCESSES).read_text() == named
    for damaged in ("", "[]", "{", named.replace('"named"', '"nameb"'), named.replace("j", "J")):
        (tmp_path / datadir.PROCESSES).write_text(damaged)
        assert not datadir.journals_named(tmp_path)


def listing(brokers: int, ordinal: int) -> Config:
    addresses = tuple(f"127.0.0.{each + 1}" for each in range(brokers))
    return Config().override("cluster", brokers=addresses).override("broker", ordinal=ordinal)


def test_a_list_may_be_longer_than_the_ring_was_and_not_shorter(tmp_path: Path) -> None:
    six = datadir.format_data_dir(
        tmp_path / "six", workers=1, slices_per_range=8, ordinal=1, ring_size=6
    )
    for listed in (6, 7, 12):
        config = listing(listed, 1).override("cluster", uuid=six.cluster_uuid)
        datadir.check_membership(tmp_path, config, six)
    with pytest.raises(DataDirError, match=r"of 6 brokers, and cluster.brokers lists 3"):
        datadir.check_membership(tmp_path, listing(3, 1), six)


def test_no_new_ring_has_four(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="joins the others with barco format --join"):
        datadir.identify(tmp_path / "new", listing(4, 3), lambda config: None)
    assert not (tmp_path / "new" / "broker.json").exists()


def test_who_joins_has_the_processes_that_it_was_given(tmp_path: Path) -> None:
    target = first_target(Cut(3, 8), 1)
    four = (*target.brokers, TargetBroker(ordinal=3, workers=1))
    wanted = Target(1, target.cut, four).wanted()
    table = ProcessTable(wanted_ranges(wanted, Ordinal(3)))
    path = tmp_path / "fourth"
    fourth = datadir.format_data_dir(
        path, workers=1, slices_per_range=8, ordinal=3, ring_size=3, table=table
    )
    assert fourth.joined and datadir.load(path) == fourth
    assert datadir.adopt_table(path, fourth) == table
    (path / "processes.json").unlink()
    for each in path.glob("range-*"):
        each.rmdir()
    with pytest.raises(DataDirError, match=r"processes.json is not there"):
        datadir.read_table(path, fourth)  # No first cut says what it held.


def test_a_range_of_the_first_cut_is_that_again_where_its_journal_is(tmp_path: Path) -> None:
    """Its process was ended, and is wanted once more: its journal begins with the first cut."""
    identity = datadir.format_data_dir(tmp_path, workers=1, slices_per_range=8, ring_size=3)
    first = identity.first_table().entries[0]
    asked = replace(first, genesis=False)
    assert datadir.as_before(tmp_path, identity, asked).genesis
    later = replace(asked, token=first.token + 4096)
    (tmp_path / directory_of(later.token)).mkdir()
    assert not datadir.as_before(tmp_path, identity, later).genesis, "it was made later"
    (tmp_path / directory_of(first.token)).rmdir()
    assert not datadir.as_before(tmp_path, identity, asked).genesis, "nothing of it is left"
    (tmp_path / directory_of(first.token)).mkdir()
    joined = replace(identity, ordinal=3)
    assert not datadir.as_before(tmp_path, joined, asked).genesis, "it is no broker of the first"
