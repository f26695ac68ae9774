"""A hostile member: nothing it says kills another one, loses an event or stops writes for long."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "integration"))

from hostile import Liar
from replicas import Member, Shard, check_history, same_everywhere, until


class Acknowledged:
    """What was written, by number, as `check_history` wants it."""

    def __init__(self) -> None:
        self.acknowledged: list[str] = []
        self.tried = 0

    def write(self, among: list[Member], count: int) -> None:
        """So many more events, whoever takes them."""

        def one() -> bool:
            value, self.tried = str(self.tried), self.tried + 1
            for member in among:
                if member.produce(value, timeout=10.0) == 200:
                    self.acknowledged.append(value)
                    return True
            return False

        for _ in range(count):
            until("an acknowledgement", one)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    made = Shard(tmp_path)
    try:
        made.start()
        yield made
    finally:
        for member in made.members:  # Shown when the test fails.
            print(f"--- broker {member.ordinal}: {member.fatal}\n{member.log[-4000:]}")
        made.end()


def attacked(shard: Shard, seed: int, count: int) -> None:
    """Two honest members live on, with all that they have acknowledged; the third one returns."""
    honest, written = shard.members[:2], Acknowledged()
    written.write(shard.members, 20)
    shard.members[2].kill()
    written.write(honest, 5)
    processes = [member.process.pid for member in honest if member.process]
    liar = Liar(shard, seed)
    for victim in (*honest, *honest):
        liar.attack(victim, count)
        for member in honest:
            assert member.process is not None and member.process.poll() is None, member.log[-2000:]
            assert member.fatal == ""
        written.write(honest, 5)
    assert liar.said > count
    assert [member.process.pid for member in honest if member.process] == processes
    for member in honest:  # What it wrote, if anything, keeps nobody from starting.
        member.kill()
    for member in shard.members:
        member.start()
    shard.leader()
    written.write(shard.members, 5)
    check_history(same_everywhere(shard), written)


def test_a_hostile_member(shard: Shard) -> None:
    attacked(shard, seed=7, count=16)


def longest_pause(written: Acknowledged, among: list[Member], seconds: float) -> float:
    """Writes one after the other; the longest time between two acknowledgements, in seconds."""
    longest, at = 0.0, time.monotonic()
    end = at + seconds
    while time.monotonic() < end:
        written.write(among, 1)
        longest, at = max(longest, time.monotonic() - at), time.monotonic()
    return longest


def test_ballots_without_end_do_not_stop_writes(shard: Shard) -> None:
    """Each fences the range; a member may do so now and then, not again and again."""
    honest, written = shard.members[:2], Acknowledged()
    written.write(shard.members, 20)
    shard.members[2].kill()
    written.write(honest, 5)
    quiet = longest_pause(written, honest, 2.0)
    liar, ended = Liar(shard, 3), threading.Event()
    thread = threading.Thread(target=liar.fence, args=(honest, ended))
    thread.start()
    try:
        longest = longest_pause(written, honest, 12.0)
    finally:
        ended.set()
        thread.join()
    assert liar.said > 50, "it was not attacked"
    # 3 s, and what a busy machine adds to each of the starts of a generation.
    assert longest < 3.0 + 10 * quiet, (longest, quiet, liar.said)
    shard.members[2].start()
    shard.leader()
    written.write(shard.members, 5)
    check_history(same_everywhere(shard), written)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(4))
def test_a_hostile_member_for_long(shard: Shard, seed: int) -> None:
    attacked(shard, seed=100 + seed, count=3000)
