"""docs/library/: its programs run as they stand there, and each page names all that there is."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from reference.typed import complaints
from running import RunningBroker

import barco
from barco.client.base.settings import ConsumerSettings, ProducerSettings, ReaderSettings

PAGES = Path(__file__).parents[2] / "docs" / "library"
NAMES = sorted(path.stem for path in PAGES.glob("*.md"))
WRITTEN_HERE = "127.0.0.1:9250"


def text(name: str) -> str:
    return (PAGES / f"{name}.md").read_text("utf-8")


def program(name: str) -> str:
    (found,) = re.findall(r"^```python\n(.*?)^```", text(name), re.DOTALL | re.MULTILINE)
    assert isinstance(found, str) and WRITTEN_HERE in found
    return found


def run(name: str, broker: RunningBroker) -> str:
    """What it prints."""
    there = program(name).replace(WRITTEN_HERE, f"127.0.0.1:{broker.port('discovery')}")
    done = subprocess.run(
        [sys.executable, "-c", there], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_all_programs_are_typed(tmp_path: Path) -> None:
    assert NAMES == ["admin", "consumer", "producer", "queue", "reader"]
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(program(name), "utf-8")
    said = complaints([tmp_path / f"{name}.py" for name in NAMES], tmp_path / "cache")
    assert not said, said


def test_the_programs_run(start_broker: Callable[..., RunningBroker]) -> None:
    broker = start_broker()
    where = f"127.0.0.1:{broker.port('discovery')}"
    assert "2 at once" in run("producer", broker)
    with barco.Producer(where) as producer:
        for n in range(300):
            producer.send("trips", json.dumps({"taxi": n % 9}), key=f"{n % 9}")
        for n in range(5):
            producer.send("orders", b'{"poison": true}' if n == 2 else b"{}", key=f"{n}")
    told = run("consumer", broker)
    assert "slices to read" in told and "200 events, and again True" in told
    assert "304 events" in run("reader", broker)
    assert "4 done, 1 dead: no such card" in run("queue", broker)
    assert "billing" in run("admin", broker)


@pytest.mark.parametrize(
    ("name", "settings", "options"),
    [
        ("producer", ProducerSettings, barco.ProducerOptions),
        ("consumer", ConsumerSettings, barco.ConsumerOptions),
        ("reader", ReaderSettings, barco.ReaderOptions),
    ],
)
def test_each_option_has_its_line(name: str, settings: Any, options: Any) -> None:
    told = dict(
        re.findall(
            r"`(\w+)=([^`]*)`", "\n".join(re.findall(r"^\| (.*?) \|", text(name), re.MULTILINE))
        )
    )
    assert told.keys() == settings.__annotations__.keys()
    units = {"KiB": 1024, "MiB": 1024**2}
    for field in fields(options):
        number, _, unit = told[field.name].partition(" ")
        value = float(number) * units[unit] if unit else json_like(number)
        assert value == field.default, field.name


def json_like(text: str) -> Any:
    words = {"None": None, "True": True, "False": False}
    return words[text] if text in words else json.loads(text)


def test_each_call_of_the_administration_has_its_line() -> None:
    calls = {name for name in vars(barco.Admin) if not name.startswith("_")} - {"close"}
    first = "\n".join(re.findall(r"^\| (`.*?) \|", text("admin"), re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", first)) == calls
