"""The demo's own arithmetic: what it reads, and that it notices what it is there to notice."""

import importlib.util
import json
import os
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
    sys.path.append(str(SCRIPT.parent))  # Where it finds its other half.
    spec.loader.exec_module(module)
    return module


def test_the_flights_are_what_the_package_has(demo: ModuleType) -> None:
    lines = next(demo.flights()).splitlines()
    first, second = map(json.loads, lines[:2])
    assert first["id"] == 1 and second["id"] == 2
    assert (first["carrier"], first["tailnum"], first["distance"]) == ("UA", "N14228", 1400)
    assert first["time_hour"] == "2013-01-01T10:00:00Z"
    for line in lines:
        event = json.loads(line)
        key = demo.tail_number(line.encode())
        assert demo.flight_id(line.encode()) == event["id"]
        assert (None if key is None else key.decode()) == event["tailnum"]
    assert any(json.loads(line)["dep_time"] is None for line in lines)


def test_it_notices_what_is_wrong(demo: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "FLIGHTS", 6)
    source = {b"a": [1, 3, 5], b"b": [2, 4], None: [6]}
    demo.compare(source, [{b"a": [1, 3, 5]}, {b"b": [2, 4], None: [6]}])
    wrong: list[tuple[str, list[dict[bytes | None, list[int]]]]] = [
        ("5 events were read", [{b"a": [1, 3, 5]}, {b"b": [2, 4]}]),
        ("flights of a are not in", [{b"a": [1, 5, 3]}, {b"b": [2, 4], None: [6]}]),
        ("flights of a are not in", [{b"a": [1, 3, 3]}, {b"b": [2, 4], None: [6]}]),
        ("flights of a are not in", [{b"a": [1, 3]}, {b"a": [5], b"b": [2, 4], None: [6]}]),
        ("flights of unknown", [{b"a": [1, 3, 5]}, {b"b": [2, 4], None: [7]}]),
    ]
    for text, parts in wrong:
        with pytest.raises(demo.DemoError, match=text):
            demo.compare(source, parts)


def test_only_our_own_broker_is_stopped(demo: ModuleType, tmp_path: Path) -> None:
    place = demo.Place(tmp_path)
    for pid in (1, os.getpid(), 2**22 + 1):
        assert not demo.is_ours(pid, place)
        place.pid.write_text(f"{pid}\n")
        assert demo.stop_previous(place) is False
        assert not place.pid.exists()
    assert demo.stop_previous(place) is False
    place.pid.write_text("garbage")
    assert demo.stop_previous(place) is False


def test_a_damaged_file_is_made_anew(demo: ModuleType, tmp_path: Path) -> None:
    place = demo.Place(tmp_path)
    place.flights.write_text('{"id":1,"tailnum":"N1"}\n')
    with pytest.raises(demo.DemoError, match="1 flights instead of"):
        demo.prepare(place)
    assert not place.flights.exists()
