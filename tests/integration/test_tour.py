"""`barco tour` on a real broker: all of it is run, nothing of it is left."""

import os
import re
import shutil
import subprocess
import sys

import pytest
from running import RunningBroker


def tour(broker: RunningBroker, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-m", "barco", "tour", *options],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env={**os.environ, "BARCO_ENDPOINT": f"127.0.0.1:{broker.port('discovery')}"},
        timeout=240,
        check=False,
    )


def left(broker: RunningBroker) -> tuple[set[str], set[str]]:
    topics = broker.request("GET", "/v1/topics").json["topics"]
    groups = broker.request("GET", "/v1/groups").json["groups"]
    return {each["topic"] for each in topics}, {each["group"] for each in groups}


def test_from_the_ring_to_a_dead_letter(broker: RunningBroker) -> None:
    before = left(broker)
    done = tour(broker, "--yes")
    assert done.returncode == 0, done
    shown = done.stdout
    (topic,) = set(re.findall(r"tour-[0-9a-f]{6}\b", shown))
    assert re.findall(r"\n(\d)/7  ", shown) == list("1234567")
    # What it says, came about: order, lag, the live event, the dead letter.
    read = re.search(rf"\$ barco consume {topic}\n(.*?)\n\n", shown, re.DOTALL)
    assert read is not None
    for door in ("cellar", "attic"):
        assert re.findall(rf'"{door}","n":(\d)', read[1]) == ["1", "2", "3"]
    assert re.search(r"\nlag +4\n", shown), shown
    followed = shown.partition("--follow --count 8\n")[2].partition("\n\n")[0].splitlines()
    assert len(followed) == 8 and followed[-1].endswith('"the bell"')
    assert re.search(rf"\n *\d+ +0 +{topic}-menders +{topic} .* exit code 1\n", shown), shown
    assert '{"door":"gate","jammed":true}' in shown.partition("$ barco dead show")[2]
    for place in ("ring", f"topic/{topic}", f"group/{topic}-menders", f"topic/{topic}.dead"):
        assert f"http://127.0.0.1:{broker.port('discovery')}/console#{place}\n" in shown
    assert left(broker) == before, "something of the tour is still there"


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_what_it_shows_of_http_can_be_typed(broker: RunningBroker) -> None:
    done = tour(broker, "--yes", "--keep", "--topic", "kept")
    assert done.returncode == 0 and "Kept: topics kept and kept.dead" in done.stdout, done
    topics, groups = left(broker)
    assert {"kept", "kept.dead"} <= topics and {"kept-readers", "kept-menders"} <= groups
    lines = re.findall(r"\nBy HTTP: (.*)", done.stdout)
    assert len(lines) == 6
    said, lease = [], ""
    for line in lines:
        line = line.replace('"ID"', f'"{lease}"').replace("curl ", "curl -fsS ", 1)
        if "curl -fsS -N" in line:  # It has no end of its own.
            line = f"{line.replace('-N', '-N -m 5')} || test $? = 28"
        ran = subprocess.run(
            ["sh", "-c", line], capture_output=True, text=True, timeout=60, check=False
        )
        assert ran.returncode == 0, (line, ran)
        said.append(ran.stdout)
        if found := re.search(r'"id":"([^"]+)"', ran.stdout):
            lease = found[1]
    stored, slices, group, heard, leased, acked = said
    assert '"startOffset"' in stored and '"endOffset"' in slices and '"lag":' in group
    assert heard.startswith("id:") and lease in leased and acked == ""
    again = tour(broker, "--yes", "--topic", "kept")
    assert again.returncode == 1 and "is there already" in again.stderr
    assert {"kept", "kept.dead"} <= left(broker)[0], "another one's topic is not removed"


def test_who_has_no_broker_is_told_how_to_start_one() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "barco", "tour", "--endpoint", "127.0.0.1:1"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "barco serve --dev" in done.stderr


def test_a_pause_without_a_terminal(broker: RunningBroker) -> None:
    before = left(broker)
    done = tour(broker)
    assert done.returncode == 1 and "--yes" in done.stderr
    assert left(broker) == before
