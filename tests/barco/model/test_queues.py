"""Settings of queues, and the names of what they hand out."""

import pytest

from barco.errors import RequestError
from barco.model.queues import (
    DELAY_MS_MAX,
    NAMED_EVENTS_MAX,
    NAMED_RUNS_MAX,
    Leased,
    QueueSettings,
    by_slice,
    parse_leased,
    parse_leases,
)


@pytest.mark.parametrize(
    ("run", "name"),
    [(Leased(3, 2, 17, 18, 1), "3.2.17.1"), (Leased(0, 1, 5, 105, 16), "0.1.5.16.100")],
)
def test_names(run: Leased, name: str) -> None:
    assert run.name == name and parse_leased(name) == run


@pytest.mark.parametrize(
    "name",
    ["", "1.2.3", "1.2.3.4.5.6", "1.2.3.-4", "1.2.3.4.0", "1.2.3.4.16385", "a.2.3.4", "1.2.3.4 ",
     "1.2.٣.4", f"1.2.{2**63}.1", f"1.{2**32}.1.1", "1.2.3.4\n", 5, None, "1" * 99],
)  # fmt: skip
def test_what_is_no_name(name: object) -> None:
    with pytest.raises(RequestError):
        parse_leased(name)


def test_how_many_are_named_at_once() -> None:
    assert len(parse_leases(["0.1.2.3"] * NAMED_RUNS_MAX)) == NAMED_RUNS_MAX
    assert parse_leases([f"0.1.0.1.{NAMED_EVENTS_MAX}"])
    for wrong in (
        [],
        ["0.1.2.3"] * (NAMED_RUNS_MAX + 1),
        [f"0.1.0.1.{NAMED_EVENTS_MAX}", "0.1.0.1"],
    ):
        with pytest.raises(RequestError):
            parse_leases(wrong)


def test_by_slice() -> None:
    runs = parse_leases(["3.1.0.1", "2.1.0.1", "3.1.7.1"])
    assert by_slice(runs) == {3: [runs[0], runs[2]], 2: [runs[1]]}


def test_settings() -> None:
    settings = QueueSettings(5, 1000, True, 3, 10, "t.dead")
    assert QueueSettings.read(settings.packed()) == settings
    assert [settings.pause_ms(count) for count in (0, 1, 2, 3, 99)] == [0, 10, 20, 40, DELAY_MS_MAX]
    for wrong in ([], settings.packed()[:-1], [0, 1000, True, 3, 10, ""], [5, 0, True, 3, 10, ""],
                  [5, 1000, 1, 3, 10, ""], [5, 1000, True, -1, 10, ""], [5, 1000, True, 3, 10, 7],
                  [5, 1000, True, 3, DELAY_MS_MAX + 1, ""], [5, 1000, True, 3, 10, "t" * 128],
                  [10_001, 1000, True, 3, 10, ""], None):  # fmt: skip
        with pytest.raises((ValueError, TypeError)):
            QueueSettings.read(wrong)  # type: ignore[arg-type]
