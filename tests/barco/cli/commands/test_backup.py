"""What makes a directory a backup, what is refused in place of one, and what a copy looks at."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barco import cli
from barco.cli.commands.backup import image, manifest
from barco.cli.commands.backup.manifest import BLOCK_BYTES, BlockSums
from barco.cli.commands.dump import claim_on
from barco.cli.shared import known
from barco.cli.shared.known import Answer
from barco.config import Config
from barco.errors import DataDirError, NotReadyError
from barco.supervisor import datadir
from barco.supervisor.files import restored
from barco.workers.storage.files import layout
from barco.workers.storage.files.lineage import Lineage

UUID = "c" * 32


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Of a broker of a cluster that has begun its three journals."""
    path = tmp_path / "data"
    identity = datadir.format_data_dir(
        path, workers=1, slices_per_range=8, ordinal=1, cluster_uuid=UUID, ring_size=3
    )
    for held in datadir.read_table(path, identity):
        claim = claim_on(path, identity, held)
        Lineage.load(layout.range_path(path, held.token), claim).described(2, 5, [(1, 0)])
    return path


def backed_up(data: Path) -> Path:
    to = data.parent / "copy"
    assert cli.main(["backup", str(to), "--data-dir", str(data)]) == 0
    return to


def files_of(path: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in sorted(path.rglob("*"))
        if each.is_file() and each.name not in ("lineage.room", "lock", manifest.NAME)
    }


def test_what_is_copied_comes_back(data: Path, tmp_path: Path) -> None:
    (data / "workers").write_text("1\n")
    before, copy, to = files_of(data), backed_up(data), tmp_path / "again"
    assert files_of(copy) == before
    assert cli.main(["restore", str(copy), "--check"]) == 0
    assert cli.main(["restore", str(copy), "--data-dir", str(to), "--whole-cluster"]) == 0
    after = files_of(to)
    assert json.loads(after.pop(restored.RESTORED))["as_of"]
    assert after.keys() == before.keys() and after["broker.json"] == before["broker.json"]
    assert os.stat(to).st_mode & 0o777 == 0o700
    assert cli.main(["backup", str(tmp_path / "third"), "--data-dir", str(to)]) == 78


def spoil_bit(copy: Path) -> None:
    path = copy / "processes.json"
    path.write_bytes(path.read_bytes().replace(b"a", b"b", 1))


def spoil_length(copy: Path) -> None:
    with (copy / "processes.json").open("ab") as file:
        file.write(b"\n")


def spoil_file(copy: Path) -> None:
    shutil.rmtree(next(copy.glob("range-*")))


def spoil_list(copy: Path) -> None:
    path = copy / manifest.NAME
    path.write_text(path.read_text().replace('"ordinal": 1', '"ordinal": 2'))


def spoil_end(copy: Path) -> None:
    (copy / manifest.NAME).unlink()


@pytest.mark.parametrize(
    ("spoil", "code", "words"),
    [
        (spoil_bit, 1, "is not what it was"),
        (spoil_length, 1, "is not what it was"),
        (spoil_file, 78, "cannot copy"),
        (spoil_list, 78, "is damaged"),
        (spoil_end, 78, "was not ended"),
    ],
)
def test_what_is_not_whole_becomes_no_data_directory(
    data: Path, tmp_path: Path, spoil: Callable[[Path], None], code: int, words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    copy, to = backed_up(data), tmp_path / "again"
    spoil(copy)
    assert cli.main(["restore", str(copy), "--check"]) == code
    assert words in capsys.readouterr().err
    given = ["restore", str(copy), "--data-dir", str(to), "--whole-cluster"]
    assert cli.main(given) == code
    assert not (to / "broker.json").exists(), "nothing can be started with it"


def test_a_list_names_no_file_elsewhere(data: Path) -> None:
    copy = backed_up(data)
    for path in ("../x", "/etc/x", "a//b", "", "a/../b"):
        made = manifest.read(copy)
        wrong = manifest.BackedUp(path=path, bytes=0, sum="")
        target = copy / "wrong"
        target.mkdir(exist_ok=True)
        manifest.write(
            target,
            manifest.Manifest(
                barco="", began="", ended="", cluster="", disk="", ordinal=0, ring_size=1,
                files=[*made.files, wrong],
            ),
        )  # fmt: skip
        with pytest.raises(DataDirError, match="names no file"):
            manifest.read(target)


def test_a_copy_that_no_crash_leaves_is_made_again(data: Path, tmp_path: Path) -> None:
    """And what is damaged in the data directory itself is copied, and told."""
    name = next(data.glob("range-*")).name
    looks: list[Path] = []
    amiss = [["group 3"], ["group 4"], []]

    def look(shard: Path) -> list[str]:
        looks.append(shard)
        return amiss[len(looks) - 1]

    files, found = image.take_range(data, tmp_path / "copy", name, image.Pace(0), look)
    assert not found and len(looks) == 3 and {each.path for each in files}
    _, found = image.take_range(data, tmp_path / "copy", name, image.Pace(0), lambda _: ["rot"])
    assert found == ["rot"]


def test_a_journal_that_never_stays_is_not_copied(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = iter(range(10_000))
    monkeypatch.setattr(image, "_journal", lambda shard: {"lineage.log": b"%d" % next(numbers)})
    monkeypatch.setattr(image, "STILL_SECONDS", 0.0)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(NotReadyError, match="changes all the time"):
        image.take_range(
            data, tmp_path / "copy", next(data.glob("range-*")).name, image.Pace(0), lambda _: []
        )
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_sum_is_the_same_from_either_end() -> None:
    blocks = [b"a" * BLOCK_BYTES, b"b" * BLOCK_BYTES, b"c"]
    one, other = BlockSums(), BlockSums()
    for number, block in enumerate(blocks):
        one.add(number, block)
        other.add(2 - number, blocks[2 - number])
    assert one.hexdigest() == other.hexdigest()
    other.add(1, b"x" * BLOCK_BYTES)
    assert one.hexdigest() != other.hexdigest()


def test_a_file_is_read_from_its_end(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a header says to be stable before it is read after it."""
    shard = next(data.glob("range-*"))
    log = shard / "gen-0000000002" / "seg-00000000.log"
    log.parent.mkdir()
    log.write_bytes(b"x" * (3 * BLOCK_BYTES + 7))
    read: list[int] = []
    block = image._block
    monkeypatch.setattr(
        image, "_block", lambda fd, at, size: (read.append(at), block(fd, at, size))[1]
    )
    image.take_range(data, data.parent / "copy", shard.name, image.Pace(0), lambda _: [])
    assert [at for at in read if at or len(read) < 4] == [3 * BLOCK_BYTES, 2 * BLOCK_BYTES,
                                                          BLOCK_BYTES]  # fmt: skip


def test_a_restored_broker_is_not_started_beside_those_that_went_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def answer(ordinal: int, **told: Any) -> Answer:
        return Answer(
            ordinal=ordinal,
            endpoint=f"b{ordinal}:9250",
            told=told or None,
            same_cluster=True,
        )

    given: list[Answer] = []
    monkeypatch.setattr(known, "answers", lambda config: iter(given))
    monkeypatch.setattr(known, "_ready", lambda config, host: None)  # Nobody is there.
    for given[:], words in (
        ([], []),
        ([answer(1), answer(2)], []),
        ([answer(1, version="0", restored=True)], []),
        ([answer(1, version="0", restored=True), answer(2, version="0")], ["broker 2 at b2:9250"]),
    ):
        assert known.others_went_on(Config()) == words
    restored.check_beside(tmp_path, [])
    with pytest.raises(DataDirError, match=r"broker 2 at b2:9250 of its cluster went on.*replace"):
        restored.check_beside(tmp_path, ["broker 2 at b2:9250"])
    (tmp_path / restored.RESTORED).touch()
    assert restored.is_restored(tmp_path)
    restored.forget(tmp_path)
    restored.forget(tmp_path)
    assert not restored.is_restored(tmp_path)
