"""Three processes of one shard: what is acknowledged is on two disks, whoever dies or stalls."""

import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest
from replicas import Member, RefusedError, Shard, check_history, same_everywhere, until
from running import Answer

from barco.types import MiB


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    with Shard(tmp_path) as made:
        made.start()
        yield made


class Writer:
    """One client that writes 0, 1, 2 ... to whoever takes them; knows which were acknowledged."""

    def __init__(self, shard: Shard, topic: str = "t") -> None:
        self.shard = shard
        self.topic = topic
        self.acknowledged: list[str] = []
        self.tried = 0
        self.longest = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(60)

    def until_more(self, count: int) -> None:
        """So many more acknowledgements from here on."""
        wanted = len(self.acknowledged) + count
        until("acknowledgements", lambda: len(self.acknowledged) >= wanted)

    def _run(self) -> None:
        turn, last = 0, time.monotonic()
        while not self._done.is_set():
            member = self.shard.members[turn % 3]
            running = member.process is not None and member.process.poll() is None
            value = str(self.tried)
            if running and member.produce(value, self.topic, timeout=2.0) == 200:
                self.acknowledged.append(value)
                self.longest = max(self.longest, time.monotonic() - last)
                last = time.monotonic()
            else:
                turn += 1
                self._done.wait(0.02)
            if running:
                self.tried += 1


def test_an_answer_needs_two_disks(shard: Shard) -> None:
    shard.store("before")
    leader = shard.leader()
    others = [member for member in shard.members if member is not leader]
    for member in others:
        member.kill()
    assert leader.produce("alone", timeout=1.5) != 200
    for member in others:
        member.start()
    shard.leader()
    found = same_everywhere(shard)
    assert found[0] == "before" and set(found) <= {"before", "alone"}


def test_a_killed_leader_is_taken_over_and_comes_back(shard: Shard) -> None:
    first = shard.members[0]
    until("the owner leads", lambda: "leading" in first.log)
    with Writer(shard) as writer:
        writer.until_more(100)
        first.kill()
        writer.until_more(100)
        first.start()
        until("the owner leads again", lambda: first.log.count("leading") > 1)
        writer.until_more(50)
    check_history(same_everywhere(shard), writer)


def test_all_at_once(shard: Shard) -> None:
    with Writer(shard) as writer:
        writer.until_more(100)
        for member in shard.members:
            member.kill()
    for member in shard.members:
        member.start()
    shard.leader()
    check_history(same_everywhere(shard), writer)


@pytest.mark.parametrize("which", [1, 2])
def test_a_stopped_follower_delays_nobody(shard: Shard, which: int) -> None:
    until("the owner leads", lambda: "leading" in shard.members[0].log)
    stopped = shard.members[which]
    stopped.kill(signal.SIGSTOP)
    try:
        with Writer(shard) as writer:
            writer.until_more(100)
    finally:
        stopped.kill(signal.SIGCONT)
    check_history(same_everywhere(shard), writer)


def test_a_stopped_leader_is_fenced(shard: Shard) -> None:
    first = shard.members[0]
    until("the owner leads", lambda: "leading" in first.log)
    with Writer(shard) as writer:
        writer.until_more(50)

        def begun() -> int:
            """How often one of the others has begun to lead."""
            return sum(member.log.count("leading") for member in shard.members[1:])

        before = begun()
        first.kill(signal.SIGSTOP)
        try:
            until("another leader", lambda: begun() > before)
            writer.until_more(50)
        finally:
            first.kill(signal.SIGCONT)
        writer.until_more(50)
    check_history(same_everywhere(shard), writer)


def test_a_leader_that_nobody_follows_refuses_nothing(shard: Shard) -> None:
    """A gap is final for a client; another may lead by now, and have what comes before."""
    until("the owner leads", lambda: "leading" in shard.members[0].log)

    def put(member: Member, seq: int) -> Answer | None:
        numbers = {"Producer_Id": "p", "Producer_Epoch": "0", "Producer_Seq": str(seq)}
        return member.request("POST", "/v1/topic/t/messages?slice=0", b"event", **numbers)

    leader = shard.leader()
    stored = put(leader, 0)
    assert stored is not None and stored.status == 200
    others = [member for member in shard.members if member is not leader]
    for member in others:
        member.kill(signal.SIGSTOP)
    try:
        answer = put(leader, 9)
        assert answer is not None and answer.status == 503, answer
        assert answer.headers["Barco-Outcome"] == "not-written"
    finally:
        for member in others:
            member.kill(signal.SIGCONT)

    def refused() -> bool:
        answers = (put(member, 9) for member in shard.members)
        return any(answer is not None and answer.status == 409 for answer in answers)

    until("a refusal by who leads", refused)


def test_a_damaged_group_is_fetched_again(tmp_path: Path) -> None:
    """On the way to both followers, now and then: writes go on, and the leader leads on, unless the
    machine itself holds it up, which it does not do each time."""
    assert any(is_fetched_again(tmp_path / name) for name in "abc")


def is_fetched_again(root: Path) -> bool:
    """Whether the owner led all the time."""
    root.mkdir()
    with Shard(root) as shard:
        for member in shard.members[1:]:
            member.environment["BARCO_TEST_MUTANT"] = "damaging"
        shard.start()
        until("the owner leads", lambda: "leading" in shard.members[0].log)
        with Writer(shard) as writer:
            writer.until_more(200)
        check_history(same_everywhere(shard), writer)
        assert all("was refused: damaged" in member.log for member in shard.members[1:])
        return shard.members[0].log.count("leading") == 1


def test_a_long_absent_follower_catches_up_from_the_files(shard: Shard) -> None:
    """More than the arena holds, over several segments and two generations."""
    absent = shard.members[2]
    until("the owner leads", lambda: "leading" in shard.members[0].log)
    absent.kill()
    large = "x" * 500_000
    for number in range(40):
        shard.store(f"{number} {large}{number}", shard.members[:2])
    shard.members[0].stop()
    absent.start()
    until("B leads", lambda: "leading" in shard.members[1].log)
    shard.store("last", shard.members[1:])
    shard.members[0].start()
    found = same_everywhere(shard)
    assert [value.split()[0] for value in found] == [*map(str, range(40)), "last"]

    def equal() -> bool:
        files = [segments(member) for member in shard.members]
        print([{name: len(data) for name, data in each.items()} for each in files])
        return files[0] == files[1] == files[2]

    until("equal files", equal)


@pytest.fixture
def short_memory(tmp_path: Path) -> Iterator[Shard]:
    """Three that keep about 32 MiB, in segments of 8 MiB, and look at it all the time."""
    with Shard(tmp_path, retention_bytes=3 * 32 * MiB, retention_seconds=0.2) as made:
        made.start()
        yield made


def test_retention_goes_on_and_a_new_disk_does_not_wait_for_what_it_took(
    short_memory: Shard,
) -> None:
    """Nobody fails, so the leader itself has to end its generation; then there is a new disk."""
    shard = short_memory
    numbers = iter(range(10_000))

    def write() -> None:
        for _ in range(20):
            number = next(numbers)
            value = f"{number:06d}" + os.urandom(300_000).hex()
            # Unknown when a generation ends just then: it may be there twice.
            assert any(shard.leader().produce(value) == 200 for _ in range(100))

    def kept(member: Member) -> int:
        directory = member.directory
        found = 0
        for path in directory.glob("gen-*/seg-*.log"):
            with contextlib.suppress(FileNotFoundError):  # Retention took it just now.
                found += path.stat().st_size
        return found

    def ended() -> bool:
        write()
        return any("so that retention can go on" in member.log for member in shard.members)

    until("the first generation ends", ended)
    for _ in range(5):
        write()
    until("no more than that", lambda: all(kept(each) < 80 * MiB for each in shard.members))
    new = shard.members[2]
    new.kill()
    new.lose_disk()
    new.start()

    def alike() -> list[str] | None:
        """Each removes whole segments, and those of a copy begin elsewhere: one may have more."""
        try:
            copies = [member.read() for member in shard.members]
        except (OSError, RefusedError):
            return None  # It starts, or does not follow yet.
        found = min(copies, key=len)
        same = all(copy[-len(found) :] == found for copy in copies)
        return found if len(found) >= 20 and same else None

    found = until("three copies that end alike", alike)
    assert "removed by retention elsewhere" in new.log
    first = int(found[0][:6])
    assert first > 0, "retention has taken the first ones"
    assert list(dict.fromkeys(int(value[:6]) for value in found)) == [*range(first, next(numbers))]


def segments(member: Member) -> dict[str, bytes]:
    """What the sealed generations' files hold, zeros at their ends aside."""
    shard = member.directory
    newest = max(path.name for path in shard.glob("gen-*"))
    found = {}
    for path in sorted(shard.glob("gen-*/seg-*.log")):
        if path.parent.name < newest and (data := path.read_bytes().rstrip(b"\0")):
            found[f"{path.parent.name}/{path.name}"] = data
    return found


def test_a_stranger_is_refused(shard: Shard) -> None:
    """A process of another cluster, by mistake on a member's address, is told why."""
    stranger = shard.members[2]
    stranger.kill()
    shutil.rmtree(stranger.directory)
    uuid, shard.cluster_uuid = shard.cluster_uuid, "ab" * 16
    stranger.start()
    until("a refusal", lambda: "this is another cluster" in stranger.log)
    stranger.kill()
    shard.cluster_uuid = uuid
    assert shard.leader(shard.members[:2]).produce("on") == 200
