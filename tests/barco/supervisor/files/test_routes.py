"""The file of routes: a hint, which nothing depends on."""

import logging
from pathlib import Path

import pytest

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.routes import RangeRoute, RouteTable
from barco.supervisor.files.routes import NEW, ROUTES, store_routes, stored_routes

CUT = Cut(3, 8)
CLUSTER, OTHER = "c" * 32, "d" * 32
TABLE = RouteTable(
    CUT,
    [
        RangeRoute(0, 4, CUT.token(0), 6, 0, (0, 3, 1)),
        RangeRoute(4, 4, CUT.token(4), 7, 3, (3, 1, 2), handed=True),
    ],
)


def test_what_was_stored_comes_back(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert list(stored_routes(tmp_path, CLUSTER, CUT)) == [] and not caplog.records
    store_routes(tmp_path, CLUSTER, TABLE)
    assert list(stored_routes(tmp_path, CLUSTER, CUT)) == list(TABLE)
    more = TABLE.copy()
    more.merge(RangeRoute(8, 8, CUT.token(8), 2, 1, (1, 2, 0)))
    store_routes(tmp_path, CLUSTER, more)
    assert list(stored_routes(tmp_path, CLUSTER, CUT)) == list(more)
    assert [each.name for each in tmp_path.iterdir()] == [ROUTES]


def test_any_damage_is_ignored_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store_routes(tmp_path, CLUSTER, TABLE)
    file = tmp_path / ROUTES
    sound = file.read_bytes()
    for number in range(len(sound)):
        for wrong in (
            sound[:number],
            sound[:number] + bytes([sound[number] ^ 1]) + sound[number + 1 :],
        ):
            caplog.clear()
            file.write_bytes(wrong)
            assert list(stored_routes(tmp_path, CLUSTER, CUT)) == []
            assert "is ignored, the routes are learned anew" in caplog.text
    file.write_bytes(sound + b"x")
    assert list(stored_routes(tmp_path, CLUSTER, CUT)) == []


def test_another_clusters_is_ignored_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store_routes(tmp_path, OTHER, TABLE)
    assert list(stored_routes(tmp_path, CLUSTER, CUT)) == []
    assert f"it is of cluster {OTHER}" in caplog.text
    store_routes(tmp_path, CLUSTER, TABLE)
    assert list(stored_routes(tmp_path, CLUSTER, Cut(6, 8))) == []
    assert "another format or cut" in caplog.text
    (tmp_path / ROUTES).unlink()
    (tmp_path / ROUTES).mkdir()
    assert list(stored_routes(tmp_path, CLUSTER, CUT)) == []


def test_what_can_not_be_written_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    (tmp_path / (ROUTES + NEW)).mkdir()
    store_routes(tmp_path, CLUSTER, TABLE)
    assert "is not written" in caplog.text
