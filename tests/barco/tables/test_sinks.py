"""Rows and places are kept in one step, wherever whoever writes them is killed."""

import os
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="no pyarrow: pip install 'barco[export]'")
import pyarrow.parquet as pq

from barco.errors import BarcoError, InUseError, OperatorError
from barco.tables.folder import Folder
from barco.tables.sink import Reached

ENDED = 9


def progress(n: int, **more: Any) -> Reached:
    return Reached("t", "none", {"0.1": f"00000001-{n:016x}"}, **more)


def rows(*numbers: int) -> pa.Table:
    return pa.table({"n": list(numbers)})


def kept(path: Path) -> list[int]:
    """As a reader of the directory sees it."""
    files = sorted(path.glob("*.parquet"))
    return [n for file in files for n in pq.read_table(file).column("n").to_pylist()]


def test_goes_on_behind_what_is_there(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "a/b"), "t")
    assert folder.progress() is None and folder.kind() is None
    folder.commit(rows(0, 1), progress(2))
    folder.commit(rows(2), progress(3))
    folder.close()
    again = Folder(str(tmp_path / "a/b"), "t")
    assert again.progress() == progress(3)
    assert again.kind().names == ["n"]
    again.commit(rows(3), progress(4))
    assert kept(tmp_path / "a/b") == [0, 1, 2, 3]
    again.close()


def test_one_at_a_time(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), "t")
    with pytest.raises(InUseError, match="another export"):
        Folder(str(tmp_path), "t")
    folder.close()
    Folder(str(tmp_path), "t").close()


def test_files_may_be_moved_away_and_the_hidden_one_lost(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), "t")
    folder.commit(rows(0), progress(1))
    folder.commit(rows(1), progress(2))
    folder.close()
    (tmp_path / ".barco-export").unlink()
    assert reopened(tmp_path) == progress(2)
    (tmp_path / "t-00000001.parquet").unlink()
    assert reopened(tmp_path) == progress(2)
    folder = Folder(str(tmp_path), "t")
    folder.commit(rows(2), progress(3))
    folder.close()
    for file in tmp_path.glob("*.parquet"):
        file.unlink()
    assert reopened(tmp_path) == progress(3)


def reopened(path: Path) -> Reached | None:
    folder = Folder(str(path), "t")
    try:
        return folder.progress()
    finally:
        folder.close()


def test_what_is_there_is_never_written_over(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path), "t")
    (tmp_path / "t-00000001.parquet").write_bytes(b"somebody else's")
    with pytest.raises(FileExistsError):
        folder.commit(rows(0), progress(1))
    folder.close()
    with pytest.raises((BarcoError, pa.ArrowInvalid)):
        Folder(str(tmp_path), "t")
    assert (tmp_path / "t-00000001.parquet").read_bytes() == b"somebody else's"


def test_a_file_that_no_export_made(tmp_path: Path) -> None:
    pq.write_table(rows(0), tmp_path / "t-00000001.parquet")
    with pytest.raises(OperatorError, match="not of an export"):
        Folder(str(tmp_path), "t")


@pytest.mark.parametrize("text", ["", "1", "x\n{}", "1\n{}", '1\n{"format":2}', "1\n[]"])
def test_a_hidden_file_that_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / ".barco-export").write_text(text)
    with pytest.raises(OperatorError):
        Folder(str(tmp_path), "t")


CALLS = ("open", "fsync", "link", "unlink", "replace")


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("after", [False, True])
def test_killed_at_each_step(tmp_path: Path, call: str, after: bool) -> None:
    """A child ends at the n-th call of each kind, before it or after it; whoever comes next goes
    on as the places say, and each row is there once."""
    steps = 0
    for at in range(40):
        path = tmp_path / f"{at}"
        child = os.fork()
        if child == 0:
            commit_until(path, call, at, after)
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        assert code in (0, ENDED)
        folder = Folder(str(path), "t")
        done = folder.progress()
        begin = 0 if done is None else int(done.cursors["0.1"][9:], 16)
        assert kept(path) == list(range(begin)), "what is told is there, and nothing else"
        for n in range(begin, 4):
            folder.commit(rows(n), progress(n + 1))
        folder.close()
        assert kept(path) == [0, 1, 2, 3]
        if code == 0:
            break
        steps += 1
    else:
        raise AssertionError("the child always ends")
    assert steps >= 3, "there were such calls"


def commit_until(path: Path, call: str, last: int, after: bool) -> None:
    """In a child: three commits, and the end at one call."""
    left = last
    real = getattr(os, call)

    def ending(*args: Any, **given: Any) -> Any:
        nonlocal left
        if left == 0 and not after:
            os._exit(ENDED)
        result = real(*args, **given)
        if left == 0:
            os._exit(ENDED)
        left -= 1
        return result

    try:
        setattr(os, call, ending)
        folder = Folder(str(path), "t")
        for n in range(3):
            folder.commit(rows(n), progress(n + 1))
        folder.close()
        os._exit(0)
    finally:
        os._exit(1)


iceberg = pytest.importorskip("barco.tables.iceberg", reason="no pyiceberg: barco[export]")


def table(path: Path) -> Any:
    return iceberg.Iceberg("raw.t", f"sqlite:///{path}/c.db", str(path / "lake"))


def scanned(path: Path) -> list[dict[str, Any]]:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{path}/c.db")
    found: list[dict[str, Any]] = catalog.load_table("raw.t").scan().to_arrow().to_pylist()
    return sorted(found, key=lambda each: each["n"])


def test_iceberg_goes_on_and_gets_new_columns(tmp_path: Path) -> None:
    first = table(tmp_path)
    assert first.progress() is None and first.kind() is None
    first.commit(rows(0, 1), progress(2))
    again = table(tmp_path)
    assert again.progress() == progress(2) and again.kind().names == ["n"]
    again.commit(pa.table({"n": [2], "s": ["x"]}), progress(3))
    again.commit(rows(3), progress(4))
    assert table(tmp_path).progress() == progress(4)
    assert scanned(tmp_path) == [
        {"n": 0, "s": None},
        {"n": 1, "s": None},
        {"n": 2, "s": "x"},
        {"n": 3, "s": None},
    ]


def test_iceberg_refuses_the_later_of_two(tmp_path: Path) -> None:
    table(tmp_path).commit(rows(0), progress(1))
    one, other = table(tmp_path), table(tmp_path)
    one.commit(rows(1), progress(2))
    with pytest.raises(InUseError, match="another export"):
        other.commit(rows(1), progress(2))
    assert [each["n"] for each in scanned(tmp_path)] == [0, 1]


def test_iceberg_after_somebody_elses_work(tmp_path: Path) -> None:
    """Rows are committed again if the table changed, but not its places."""
    mine = table(tmp_path)
    mine.commit(rows(0), progress(1))
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{tmp_path}/c.db")
    catalog.load_table("raw.t").append(rows(100))
    mine.commit(rows(1), progress(2))
    assert [each["n"] for each in scanned(tmp_path)] == [0, 1, 100]
    again = table(tmp_path)
    assert again.progress() == progress(2)
    assert "commit.retry.num-retries" not in again._table.properties, "others retry as they like"


@pytest.mark.parametrize("name", ["t", ".t", "a.", "a..b"])
def test_iceberg_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(OperatorError, match=r"NAMESPACE\.TABLE"):
        iceberg.Iceberg(name, f"sqlite:///{tmp_path}/c.db", "")
