"""How many connections the limit on files allows, and what is said when they run out."""

import logging

import pytest

from barco import limits
from barco.supervisor.crowding import Crowding, connections_max


@pytest.mark.parametrize(
    ("files", "peers", "most"),
    [
        (1 << 20, 2, limits.CONNECTIONS_MAX),
        (65_536, 48, limits.CONNECTIONS_MAX),
        (4096, 2, 4096 - 512 - 64 - 6),
        (256, 2, 256 - 32 - 64 - 6),
        (256, 18, 256 - 32 - 64 - 54),
        (64, 2, limits.CONNECTIONS_FLOOR),
    ],
)
def test_what_the_limit_leaves(files: int, peers: int, most: int) -> None:
    assert connections_max(files, peers) == most


def test_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "barco.supervisor")
    crowding = Crowding(1 << 20, limits.CONNECTIONS_MAX)
    assert not caplog.messages
    crowding.look([{"connections_refused": 0}, {}], 5.0)
    assert not caplog.messages
    for second in range(10, 130):
        two = [{"connections_idle_closed": 2 * second}, {"connections_refused": second}]
        crowding.look(two, float(second))
    assert len(caplog.messages) == 2
    assert "20 idle ones were closed for others, 10 new ones refused" in caplog.messages[0]
    assert "120 idle ones were closed for others, 60 new ones refused" in caplog.messages[1]


def test_a_start_below_the_usual_number_is_told(caplog: pytest.LogCaptureFixture) -> None:
    Crowding(256, 150)
    assert "open files (256) leaves a worker 150 connections, not 10000" in caplog.text
