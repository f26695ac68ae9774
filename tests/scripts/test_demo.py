"""The demo's own arithmetic: what it reads, and that it notices what it is there to notice."""

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("barco_demo", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["barco_demo"] = module  # Dataclasses look themselves up.
    spec.loader.exec_module(module)
    return module


def test_the_flights_are_what_the_package_has(demo: ModuleType) -> None:
    first, second = itertools.islice(demo.rows(), 2)
    assert first["row"] == 0 and second["row"] == 1
    assert (first["carrier"], first["tailnum"], first["distance"]) == ("UA", "N14228", 1400)
    assert first["time_hour"] == "2013-01-01T10:00:00Z"


def test_the_row_of_an_event(demo: ModuleType) -> None:
    assert demo.row_of(b'{"row":336775,"year":2013}') == 336775


@pytest.mark.parametrize(
    ("text", "value"),
    [("NA", None), ("", None), ("5", 5), ("-3.0", -3), ("1.5", 1.5), ("N14228", "N14228")],
)
def test_fields(demo: ModuleType, text: str, value: object) -> None:
    assert demo.typed(text) == value


def test_it_notices_what_is_wrong(demo: ModuleType) -> None:
    whole = demo.Reading(rows=list(range(demo.FLIGHTS)))
    assert demo.check([whole, demo.Reading()], demo.FLIGHTS) == []
    part = demo.Reading(rows=[*range(1, demo.FLIGHTS), 7], out_of_order=2)
    assert demo.check([part, demo.Reading()], demo.FLIGHTS - 3) == [
        "3 events were not acknowledged",
        "1 events were not read",
        "1 events were read more than once",
        "2 events came out of order for their key",
    ]


def test_only_our_own_broker_is_stopped(demo: ModuleType) -> None:
    assert not demo.is_demo_broker(1)
    assert not demo.is_demo_broker(2**22 + 1)
