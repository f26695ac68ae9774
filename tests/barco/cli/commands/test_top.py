"""`barco top`: rates between two looks, and the screen that is made of them."""

import io
from typing import Any

import pytest
from rich.console import Console

from barco.cli import main
from barco.cli.commands.top.rates import (
    Glance,
    GroupLook,
    broker_rows,
    group_of,
    rate,
    stages_of,
    totals,
    values_of,
)
from barco.cli.commands.top.screen import screen
from barco.cli.shared.asked import Reports

from .rings import one_down, topology
from .test_status import FINE


def text(**values: float) -> str:
    """As GET /metrics gives them."""
    return "".join(f"# HELP x y\nbarco_{name} {value}\n" for name, value in values.items())


def look(at: float, ring: dict[str, Any], counts: dict[int, float], **more: Any) -> Glance:
    """Brokers that have each so many events; who is not in `counts` gives no answer."""
    for each in ring["brokers"]:
        each["ports"] = {"discovery": 9250}
    said: dict[str, Any] = {}
    metrics = {}
    for number in range(3):
        name = f"b{number}.test:9250"
        if number in counts:
            said[name] = dict(FINE)
            metrics[name] = text(
                events_total=counts[number], connections_open=7, storage_free_bytes=3 * 2**30
            )
        else:
            said[name] = "connection refused"
    return Glance(at, Reports(FINE, ring, said, metrics), **more)


def shown(before: Glance | None, now: Glance) -> str:
    """The screen without colours."""
    console = Console(width=160, highlight=False, record=True, file=io.StringIO())
    console.print(screen(before, now, "12:00:00", unicode=True))
    return console.export_text()


def test_a_rate_is_by_the_time_between_looks() -> None:
    assert rate(100, 300, 2.0) == 100.0
    assert rate(None, 300, 2.0) is rate(100, None, 2.0) is rate(1, 2, 0.0) is None


def test_a_counter_that_fell_began_anew() -> None:
    assert rate(1_000, 50, 1.0) == 50.0


def test_only_plain_series_are_read() -> None:
    told = 'barco_build_info{version="1"} 1\n# TYPE barco_x counter\nbarco_x 2.5\nbarco_y no\nz 1\n'
    assert values_of(told) == {"x": 2.5}


def test_an_event_counts_once_where_it_was_led() -> None:
    told = text(events_total=10, events_followed_total=6)
    assert values_of(told)["events_total"] == 4


def test_rows_and_totals() -> None:
    before = look(10.0, topology(), {0: 100, 1: 50, 2: 0})
    now = look(12.0, topology(), {0: 300, 1: 50, 2: 10})
    rows = broker_rows(before, now)
    assert [(row.ordinal, row.leads, row.rates["events"]) for row in rows] == [
        (0, 8, 100.0), (1, 8, 0.0), (2, 8, 5.0),
    ]  # fmt: skip
    assert totals(rows)["events"] == 105.0
    assert totals(rows)["cpu"] is None, "no broker tells it"


def test_one_that_is_down_has_a_row_and_no_rates() -> None:
    now = look(12.0, one_down(), {0: 300, 2: 10})
    rows = broker_rows(look(10.0, topology(), {0: 1, 1: 1, 2: 1}), now)
    assert [(row.ordinal, row.state, row.leads) for row in rows] == [
        (0, "alive", 8), (1, "down", 0), (2, "alive", 16),
    ]  # fmt: skip
    assert rows[1].rates["events"] is None
    silent = broker_rows(None, look(1.0, topology(), {0: 1, 2: 1}))
    assert silent[1].state == "no answer"


def test_the_screen() -> None:
    first = {"topics": {"t": 10, "u": 5}, "groups": {"g": GroupLook(2, 1_000, 5)}}
    then = {"topics": {"t": 10, "u": 25}, "groups": {"g": GroupLook(2, 900, 105)}}
    before = look(10.0, one_down(), {0: 100, 2: 0}, **first)
    lines = shown(before, look(12.0, one_down(), {0: 300, 2: 10}, **then)).splitlines()
    assert "105 events/s" in lines[0] and lines[0].rstrip().endswith("12:00:00")
    assert lines[1].startswith("✗ All slices are written to two disks or more")
    assert lines[2].startswith("✗ broker 1 (b1.test) is down")
    table = [line.split() for line in lines]
    assert ["u", "25", "10"] in table and table.index(["u", "25", "10"]) < table.index(
        ["t", "10", "0"]
    )
    assert ["g", "2", "900", "50"] in table
    row = next(line for line in table if line[:3] == ["0", "b0.test", "alive"])
    assert row[4] == "100" and row[-2:] == ["3.0", "GiB"]
    assert next(line for line in table if line[:2] == ["1", "b1.test"])[2] == "down"


def test_the_first_screen_has_no_rates() -> None:
    lines = shown(None, look(10.0, topology(), {0: 100, 1: 1, 2: 2})).splitlines()
    assert "- events/s" in lines[0] and lines[1].startswith("✓ All slices")


def test_a_name_that_controls_a_terminal_is_shown_harmless() -> None:
    now = look(1.0, topology(), {0: 1, 1: 1, 2: 1}, topics={"\x1b[2Jt[bold]x": 1})
    assert "\x1b" not in shown(None, now) and "t[bold]x" in shown(None, now)


def test_many_topics_are_cut() -> None:
    topics = {f"t{n:03}": n for n in range(100)}
    out = shown(None, look(1.0, topology(), {0: 1, 1: 1, 2: 1}, topics=topics))
    assert "t099" in out and "t010" not in out and "and 88 more" in out


def test_a_group_is_the_sum_of_its_slices() -> None:
    told = {"members": ["a"], "positions": [{"lag": 3, "offset": "7"}, {"lag": 0, "offset": "5"}]}
    assert group_of(told) == GroupLook(1, 3, 12)


def told(p99: float) -> dict[str, dict[str, float | None]]:
    return {"write": {"count": 9, "p50": 5e-5, "p99": p99}, "whole": {"p50": None, "p99": p99}}


def test_stages_the_slowest_broker_first() -> None:
    brokers = [{"ordinal": n, "stages": told(p99)} for n, p99 in enumerate((0.002, 2.0, 0.0))]
    stages = stages_of({"stages": told(1.25), "brokers": brokers})
    assert list(stages) == ["all", "0", "1", "2"]
    lines = shown(None, look(1.0, topology(), {0: 1, 1: 1, 2: 1}, stages=stages)).splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("produces p50/p99"))
    assert lines[at].split()[2:] == ["write", "whole"]
    assert [line.split() for line in lines[at + 1 : at + 5]] == [
        ["all", "50us/1.25s", "-/1.25s"],
        ["broker", "1", "50us/2s", "-/2s"],
        ["broker", "0", "50us/2ms", "-/2ms"],
        ["broker", "2", "50us/0us", "-/0us"],
    ]


def test_one_broker_is_all_of_them_and_an_older_one_tells_no_stages() -> None:
    only = {"stages": told(1.0), "brokers": [{"ordinal": 0, "stages": told(1.0)}]}
    assert list(stages_of(only)) == ["all"]
    assert stages_of({"brokers": [{"ordinal": 0}]}) == {}


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--endpoint", "127.0.0.1:1", "--timeout", "0.1"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0.1", "-1", "x"])
def test_it_does_not_look_too_often(seconds: str) -> None:
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(["top", "--every", seconds]))
    assert ended.value.code == 2
