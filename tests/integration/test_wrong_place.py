"""Directories of ranges in places that are not theirs, with real brokers."""

import importlib.util
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from replicas import until
from running import RunningBroker

import barco
from barco.supervisor import datadir
from barco.workers.storage.files import frames, layout
from barco.workers.storage.files.lineage import Lineage


def swap(one: Path, other: Path) -> None:
    """By hand, while the broker is stopped."""
    aside = one.with_name("swapping")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def serve(*options: str) -> str:
    """The last line of a start that ends at once, with 78."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "barco", "serve", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 78, done
    assert "restart_in" not in done.stderr and "times within" not in done.stderr, done
    return done.stderr.splitlines()[-1]


def refused(broker: RunningBroker) -> str:
    where = ["--data-dir", str(broker.data_dir), "--workers", str(broker.workers)]
    return serve("--dev", "--ports-from", "0", *where)


def forget(path: Path) -> None:
    """A range's journal as an earlier version would have it, which does not say whose it is."""
    names = [path / layout.LINEAGE_NAME, path / layout.LINEAGE_COPY_NAME]
    data = names[0].read_bytes()
    found = frames.merge(frames.read_copies(("", ""), (data, data)))
    left: list[frames.Frame] = []
    for each in found.frames:
        if not each.body or msgpack.unpackb(each.body)[0]["t"] != "home":
            before = left[-1].crc if left else 0
            left.append(frames.make_frame(each.turn, len(left) + 1, before, each.body))
    assert len(left) == len(found.frames) - 1, "one frame says it"
    for name in names:
        name.write_bytes(frames.bytes_of(left))


def heard_of(path: Path) -> set[int]:
    """Whose journals a range's journal speaks of, which is written with the next record behind."""
    data = (path / layout.LINEAGE_NAME).read_bytes()
    found = frames.merge(frames.read_copies(("", ""), (data, data)))
    told = (each for frame in found.frames if frame.body for each in msgpack.unpackb(frame.body))
    records = (each["r"] for each in told if each["t"] == "journal")
    return {record["disk"][0] for record in records if record.get("t") == "heard"}


def forget_table(data_dir: Path) -> None:
    """processes.json as an earlier version writes it."""
    file = data_dir / datadir.PROCESSES
    given = json.loads(file.read_text())
    assert given.pop(datadir.JOURNALS) == datadir.NAMED
    file.write_text(json.dumps(given, indent=1))
    assert not datadir.journals_named(data_dir)


def filled(tmp_path: Path) -> RunningBroker:
    """A single broker of two workers, with events in both ranges, stopped."""
    broker = RunningBroker(tmp_path / "data")
    broker.start()
    for number in range(40):
        query = {"partitionKey": f"k{number}"}
        answer = broker.request("POST", "/v1/topic/t/messages", query, body=b"%d" % number)
        assert answer.status == 200
    assert broker.stop() == 0
    return broker


def test_swapped_directories_are_refused_once(tmp_path: Path) -> None:
    """The end came after five deaths, with 1: a service would have tried it again for ever."""
    broker = filled(tmp_path)
    ranges = sorted(broker.data_dir.glob("range-*"))
    assert len(ranges) == 2
    swap(*ranges)
    told = {
        f"{one.name}/lineage.log is the journal of {other.name}: put the directory back"
        for one, other in (ranges, ranges[::-1])
    }
    last = refused(broker)
    assert last.startswith("barco: /") and any(each in last for each in told), last
    for path in ranges:  # As an earlier version has left them.
        forget(path)
    forget_table(broker.data_dir)
    last = refused(broker)
    assert any(each in last for each in told), last
    swap(*ranges)
    broker.start()
    try:
        told = broker.request("GET", "/v1/topics/t").json
        assert told["events"] == 40, told
    finally:
        broker.end()


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Any]:
    """Three brokers on addresses that nobody else has, not started."""
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    hosts = tuple(f"{net}.{number + 1}" for number in range(3))
    script = Path(__file__).resolve().parents[2] / "scripts" / "cluster.py"
    spec = importlib.util.spec_from_file_location("barco_cluster_misplaced", script)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.START_SECONDS = 240.0
    made = module.LocalCluster(tmp_path, hosts=hosts, tied=True)
    made.write()
    yield made
    made.stop()


def start(ring: Any, *ordinals: int) -> None:
    for ordinal in ordinals:
        ring.start(ordinal)
    ring.wait_ready()


def write(ring: Any, ordinals: list[int], first: int) -> set[int]:
    """A hundred events, over all ranges, acknowledged."""
    with barco.Producer([ring.endpoints[each] for each in ordinals]) as producer:
        sent = {
            number: producer.send("t", b"%d" % number, key=b"k%d" % number)
            for number in range(first, first + 100)
        }
        for future in sent.values():
            future.result(120)
    return set(sent)


def replace_by(path: Path, source: Path) -> Path:
    """Puts a copy of `source` in the place of a range's directory; where that is now."""
    kept = path.parents[1] / f"kept-{path.name}"
    path.rename(kept)
    shutil.copytree(source, path)
    return kept


def put_back(path: Path, kept: Path) -> None:
    shutil.rmtree(path)
    kept.rename(path)


def test_a_copy_of_another_brokers_range_has_no_vote(ring: Any) -> None:
    """The third was away, the first one's range is lost, and there is a copy of the third's: with
    the second down the two had a majority, and what the first and second had acknowledged went."""
    start(ring, 0, 1, 2)
    acknowledged = write(ring, [0, 1, 2], 0)
    (held,) = datadir.load(ring.data(0)).first_table().owned_by(0)
    mine, theirs = (layout.range_path(ring.data(each), held.token) for each in (0, 2))
    if 0 not in heard_of(theirs):  # Its last record was older than what it has heard.
        ring.stop([0])
        start(ring, 0)
        until("the third one has heard of the first one's", lambda: 0 in heard_of(theirs))
    ring.stop([2])
    acknowledged |= write(ring, [0, 1], 100)
    ring.stop([0, 1])
    disks = [datadir.load(ring.data(each)).disk_uuid for each in (0, 2)]
    kept = replace_by(mine, theirs)
    options = ("--config", str(ring.config(0)))
    last = serve(*options)
    assert f"{mine}/lineage.log is the journal of disk {disks[1]}" in last, last
    assert f"this one is {disks[0]}: put the directory back" in last and "barco replace" in last
    put_back(mine, kept)

    # All of it as an earlier version has left it; its copy has heard of the first one's journal.
    for each in range(3):
        for path in ring.data(each).glob("range-*"):
            forget(path)
        forget_table(ring.data(each))
    kept = replace_by(mine, theirs)
    assert "it has heard of broker 0's: put the directory back" in serve(*options)
    put_back(mine, kept)
    earlier = ring.root / "earlier"
    shutil.copytree(mine, earlier)

    start(ring, 0, 1, 2)
    until("a note", lambda: all(datadir.journals_named(ring.data(each)) for each in range(3)))
    assert {int(event.value) for event in barco.read("t", ring.endpoints)} == acknowledged
    ring.stop([0])
    home = Lineage.load(mine, repair=False).home
    assert home is not None and (home.disk, home.token) == (disks[0], held.token)
    kept = replace_by(mine, earlier)
    assert "lineage.log does not say whose journal it is" in serve(*options)
    put_back(mine, kept)
    start(ring, 0)
