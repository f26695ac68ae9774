"""docs/pipelines.md: its programs run as they stand there, and do what the page says."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from running import RunningBroker
from test_pipeline import endpoint

import barco

PAGE = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text("utf-8")
LIBRARY, PLAIN = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def run(
    program: str, broker: RunningBroker, tmp_path: Path, dies: str = ""
) -> "subprocess.CompletedProcess[str]":
    """`dies`: the line before which it kills itself."""
    text = program.replace("127.0.0.1:9250", endpoint(broker))
    assert text != program
    if dies:
        (line,) = [each for each in text.splitlines() if each.strip() == dies]
        indent = line[: len(line) - len(line.lstrip())]
        kill = f"{indent}__import__('os').kill(__import__('os').getpid(), 9)\n"
        text = text.replace(line + "\n", kill + line + "\n")
    file = tmp_path / "program.py"
    file.write_text(text, "utf-8")
    return subprocess.run(
        [sys.executable, str(file)], capture_output=True, text=True, timeout=120, check=False
    )


def test_the_program_with_the_library(broker: RunningBroker, tmp_path: Path) -> None:
    with barco.Producer(endpoint(broker)) as producer:
        for n in range(100):
            producer.send("trips", json.dumps({"minutes": n}), key=f"taxi-{n % 7}")
    for _ in range(2):
        done = run(LIBRARY, broker, tmp_path)
        assert done.returncode == 0, done.stderr
    found = [json.loads(each.value)["hours"] for each in barco.read("long-trips", endpoint(broker))]
    assert sorted(found) == [n / 60 for n in range(60, 100)]


def test_the_program_with_plain_http(
    start_broker: Callable[..., RunningBroker], tmp_path: Path
) -> None:
    broker = start_broker()
    with barco.Admin(endpoint(broker)) as admin:
        admin.create_topic("shouted")
    sent = 0
    for dies in (
        "",
        "for holder in holders:  # Staged, not prepared.",
        "decide(batch, state)",
        "commit(batch, state)  # Decided.",
        'call("PUT", share["leader"], f"/v1/writes/{NAME}/{batch}", told)',
        "return after",
        "",
    ):
        with barco.Producer(endpoint(broker)) as producer:
            for n in range(sent, sent + 50):
                producer.send("words", json.dumps(f"word-{n}"), key=f"k{n % 11}")
        sent += 50
        done = run(PLAIN, broker, tmp_path, dies)
        assert done.returncode == (-9 if dies else 0), (dies, done.stderr)
    said = [json.loads(each.value) for each in barco.read("shouted", endpoint(broker))]
    assert sorted(said) == sorted(f"WORD-{n}" for n in range(sent))
