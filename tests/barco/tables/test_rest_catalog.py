"""Rows and places in a real REST catalogue of Iceberg: once, whatever is killed or lost."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="no pyarrow: pip install 'barco[export]'")
iceberg = pytest.importorskip("barco.tables.iceberg", reason="no pyiceberg: barco[export]")

import requests
from reference import restcatalog

from barco.errors import InUseError, OperatorError
from barco.tables.sink import Reached

HERE = Path(__file__).parent
UPDATE = "/tables/"
"""In the address of what changes a table."""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[restcatalog.RestCatalog]:
    with restcatalog.running(tmp_path_factory.mktemp("catalog")) as found:
        yield found


def progress(n: int) -> Reached:
    return Reached("t", "none", {"0.1": f"00000001-{n:016x}"})


def rows(*numbers: int) -> Any:
    return pa.table({"n": list(numbers)})


def table(catalog: restcatalog.RestCatalog, name: str) -> Any:
    return iceberg.Iceberg(name, catalog.uri, "", str(catalog.token_file))


def scanned(catalog: restcatalog.RestCatalog, name: str) -> list[dict[str, Any]]:
    """As another program reads it."""
    from pyiceberg.catalog import load_catalog

    given = {"type": "rest", "uri": catalog.uri, "token": restcatalog.TOKEN}
    found = load_catalog("other", **given).load_table(name).scan().to_arrow().to_pylist()
    return sorted(found, key=lambda each: each["n"])


def test_goes_on_and_gets_new_columns(catalog: restcatalog.RestCatalog) -> None:
    name = "made.for.columns"
    first = table(catalog, name)
    assert first.progress() is None and first.kind() is None
    first.commit(rows(0, 1), progress(2))
    again = table(catalog, name)
    assert again.progress() == progress(2) and again.kind().names == ["n"]
    again.commit(pa.table({"n": [2], "s": ["x"]}), progress(3))
    assert table(catalog, name).progress() == progress(3)
    assert scanned(catalog, name) == [
        {"n": 0, "s": None},
        {"n": 1, "s": None},
        {"n": 2, "s": "x"},
    ]


def test_the_later_of_two_is_refused(catalog: restcatalog.RestCatalog) -> None:
    table(catalog, "raw.two").commit(rows(0), progress(1))
    one, other = table(catalog, "raw.two"), table(catalog, "raw.two")
    one.commit(rows(1), progress(2))
    with pytest.raises(InUseError, match="another export"):
        other.commit(rows(1), progress(2))
    assert [each["n"] for each in scanned(catalog, "raw.two")] == [0, 1]


def test_after_somebody_elses_work(catalog: restcatalog.RestCatalog) -> None:
    mine = table(catalog, "raw.shared")
    mine.commit(rows(0), progress(1))
    table(catalog, "raw.shared")._table.append(rows(100))
    mine.commit(rows(1), progress(2))
    assert [each["n"] for each in scanned(catalog, "raw.shared")] == [0, 1, 100]
    again = table(catalog, "raw.shared")
    assert again.progress() == progress(2)
    assert iceberg.RETRIES not in again._table.properties, "others retry as they like"


@pytest.mark.parametrize("stored", ["never", "at once", "late"])
def test_an_answer_is_lost(
    catalog: restcatalog.RestCatalog, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection ends before the catalogue has a commit, or when it has stored it, or it stores
    it while the same rows are committed again."""
    name = f"raw.lost-{stored[:2]}"
    mine = table(catalog, name)
    mine.commit(rows(0), progress(1))
    real, lost, sent = requests.Session.send, [], []

    def send(self: Any, request: Any, **given: Any) -> Any:
        if request.method != "POST" or UPDATE not in request.url:
            return real(self, request, **given)
        sent.append(request)
        if len(sent) == 1:
            lost.append(request)
            if stored == "at once":
                assert real(self, request, **given).status_code == 200
            raise requests.ConnectionError("reset by peer")
        if stored == "late" and lost:
            assert real(self, lost.pop(), **given).status_code == 200
        return real(self, request, **given)

    monkeypatch.setattr(requests.Session, "send", send)
    mine.commit(rows(1), progress(2))
    mine.commit(rows(2), progress(3))
    assert len(sent) == (2 if stored == "at once" else 3)
    assert [each["n"] for each in scanned(catalog, name)] == [0, 1, 2]


def test_a_lost_commit_of_another_is_none_of_mine(
    catalog: restcatalog.RestCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = (table(catalog, "raw.third") for _ in range(2))
    mine.commit(rows(0), progress(1))
    other = table(catalog, "raw.third")
    real, lost = requests.Session.send, []

    def send(self: Any, request: Any, **given: Any) -> Any:
        if request.method != "POST" or UPDATE not in request.url or lost:
            return real(self, request, **given)
        lost.append(request.url)
        other.commit(rows(1, 2), progress(3))
        raise requests.ConnectionError("reset by peer")

    monkeypatch.setattr(requests.Session, "send", send)
    with pytest.raises(InUseError, match="another export"):
        mine.commit(rows(1), progress(2))
    assert [each["n"] for each in scanned(catalog, "raw.third")] == [0, 1, 2]


def test_killed_at_each_request(catalog: restcatalog.RestCatalog) -> None:
    """A process ends at its n-th request, before or after it; whoever comes next goes on as the
    table says, and each row is there once."""
    command = [sys.executable, str(HERE / "rest_commits.py"), catalog.uri, str(catalog.token_file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    killed = [each["table"] for each in told if each["code"]]
    assert all(each["code"] in (0, 9) for each in told), told
    assert len(killed) >= 8, "of asking, making and committing, before and after"
    for name in killed:
        mine = table(catalog, name)
        done_before = mine.progress()
        begin = 0 if done_before is None else int(done_before.cursors["0.1"][9:], 16)
        if begin:
            found = [each["n"] for each in scanned(catalog, name)]
            assert found == list(range(begin)), "what is told is there, and nothing else"
        for n in range(begin, 2):
            mine.commit(rows(n), progress(n + 1))
        assert [each["n"] for each in scanned(catalog, name)] == [0, 1]


def test_a_warehouse_is_what_the_catalogue_calls_it() -> None:
    """A REST catalogue's is a name; that of a catalogue in a file is a directory."""
    from barco.tables import catalogs

    assert catalogs.properties("http://h:1", "lake", "")["warehouse"] == "lake"
    there = catalogs.properties("sqlite:///c.db", "lake", "")["warehouse"]
    assert there == f"file://{Path('lake').resolve()}"


def test_who_shows_no_token_or_a_wrong_one(
    catalog: restcatalog.RestCatalog, tmp_path: Path
) -> None:
    with pytest.raises(OperatorError, match="--catalog-token-file"):
        iceberg.Iceberg("raw.t", catalog.uri, "")
    wrong = tmp_path / "token"
    wrong.write_text("not-this-one")
    with pytest.raises(OperatorError, match="--catalog-token-file") as told:
        iceberg.Iceberg("raw.t", catalog.uri, "", str(wrong))
    assert "not-this-one" not in told.value.detail


def test_a_token_that_is_made_anew_is_read_anew(
    catalog: restcatalog.RestCatalog, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text(restcatalog.TOKEN)
    mine = iceberg.Iceberg("raw.anew", catalog.uri, "", str(file))
    mine.commit(rows(0), progress(1))
    file.write_text("expired")
    with pytest.raises(OperatorError, match="--catalog-token-file"):
        mine.commit(rows(1), progress(2))
    file.write_text(restcatalog.TOKEN)
    mine.commit(rows(1), progress(2))
    assert [each["n"] for each in scanned(catalog, "raw.anew")] == [0, 1]
