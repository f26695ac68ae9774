"""A data directory that is an old copy, and nobody up who remembers: the attack, as it was done."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from replicas import Member, RefusedError, Shard, same_everywhere, until
from test_replicas import Writer

from barco.supervisor import datadir


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    with Shard(tmp_path) as made:
        made.start()
        yield made


def replication(member: Member) -> dict[str, Any]:
    """What it says of its copy; empty: it does not answer."""
    try:
        return dict(member.call("standing")["replication"])
    except (OSError, RefusedError):
        return {}


def copy_of(member: Member) -> Path:
    """Its directory as it is now. It does not run."""
    old = member.data_dir.with_suffix(".old")
    shutil.copytree(member.data_dir, old, ignore=shutil.ignore_patterns("run"))
    return old


def events_of(member: Member, *command: str) -> Any:
    """`barco` on its directory, as an operator would, with what a supervisor would have made."""
    path = member.data_dir / datadir.IDENTITY
    shape = {"workers": 1, "slices_per_range": 4, "ring_size": 3, "replaces": ""}
    known = {"cluster_uuid": member.shard.cluster_uuid, "disk_uuid": member.disk_uuid}
    path.write_text(json.dumps(known | shape | {"ordinal": member.ordinal}))
    identity = datadir.load(member.data_dir)
    assert identity is not None
    datadir.write_table(member.data_dir, identity, identity.first_table())
    line = [sys.executable, "-P", "-m", "barco", command[0], str(member.data_dir)]
    return subprocess.run(
        [*line, *command[1:]], capture_output=True, text=True, timeout=60, check=False
    )


def stands_again(member: Member) -> bool:
    """Started again, as its supervisor would, when its process has ended."""
    assert member.process is not None
    if member.process.poll() is not None:
        member.end()
        member.start()
    return not replication(member).get("catchingUp", True)


@pytest.mark.parametrize("relead", [False, True])
def test_what_two_go_on_without_is_set_aside(shard: Shard, relead: bool, tmp_path: Path) -> None:
    """The second one's directory is an old copy, the third was away for all of what came after."""
    first, second, third = shard.members
    until("the first leads", lambda: first.produce("0", "probe") == 200)
    third.kill()
    before = [str(number) for number in range(40)]
    assert all(first.produce(each) == 200 for each in before)
    second.kill()
    old = copy_of(second)
    second.start()
    until("both again", lambda: first.produce("40", timeout=5.0) == 200)
    if relead:  # A generation that the copy and the third know nothing of.
        first.kill()
        first.start()
        until("the first leads again", lambda: first.produce("41", timeout=5.0) == 200)
    lost = [str(number) for number in range(1000, 1362)]
    assert all(first.produce(each) == 200 for each in lost)
    second.kill()
    first.kill()
    shutil.rmtree(second.data_dir)
    old.rename(second.data_dir)
    second.start()
    third.start()
    leader = shard.leader([second, third])
    after = [str(number) for number in range(2000, 2330)]
    assert all(leader.produce(each) == 200 for each in after)
    first.start()
    until("its return", lambda: stands_again(first))
    found = same_everywhere(shard)
    assert not set(lost) & set(found) and set(before) | set(after) <= set(found)
    assert "SET ASIDE" in first.log
    for member in (second, third):
        until("the word on it", lambda member=member: "has set aside" in member.log)
    for member in shard.members:
        assert replication(member)["uncleanEnds"] == 1
    assert first.call("standing")["storage"]["setAside"] == 1
    with Writer(shard) as writer:  # It is one of two again.
        second.kill()
        writer.until_more(20)
        second.start()
        writer.until_more(5)
    check_exported(first, lost, tmp_path / "exported")


def check_exported(member: Member, lost: list[str], directory: Path) -> None:
    told = events_of(member, "recover")
    assert "set aside" in told.stdout, told
    made = events_of(member, "recover", "--export", str(directory))
    assert made.returncode == 0, made
    lines = (directory / "t.ndjson").read_text().splitlines()
    values = [json.loads(line)["value"] for line in lines]
    assert set(lost) <= {str(value) for value in values}
    dumped = events_of(member, "dump", "--aside", "--events", "--topic", "t", "--json")
    assert dumped.returncode == 0, dumped
    events = [json.loads(line) for line in dumped.stdout.splitlines()]
    assert set(lost) <= {each["value"] for each in events if each["type"] == "event"}
