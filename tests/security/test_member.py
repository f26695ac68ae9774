"""A hostile member: nothing it says kills another one, loses an event or stops writes for long."""

import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self, get_args

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "integration"))

from hostile import Liar
from replicas import Member, Shard, check_history, same_everywhere, until
from schema import wrong

from barco.cluster.state.plausible import ROUNDS_AHEAD_MAX
from barco.protocol.replication import Message
from barco.workers.http.handlers.standing import of_itself
from barco.workers.http.shapes.status import STATUS

NOT_WRITTEN = {421, 429, 503, 507}
"""Promise D4: such an event is never seen, so it may be sent again to somebody else."""

SHARD = STATUS["properties"]["shards"]["items"]


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
                status = member.produce(value, timeout=10.0)
                if status == 200:
                    self.acknowledged.append(value)
                    return True
                if status not in NOT_WRITTEN:
                    return False  # Nobody knows: at the next one it might be stored again.
            return False

        for _ in range(count):
            until("an acknowledgement", one)


@pytest.fixture
def shard(tmp_path: Path) -> Iterator[Shard]:
    with Shard(tmp_path) as made:
        made.start()
        yield made


class Beside:
    """Writes one after the other while something else goes on; `longest` is in seconds."""

    def __init__(self, written: Acknowledged, among: list[Member]) -> None:
        self.longest = 0.0
        self.failed: AssertionError | OSError | None = None
        self._written, self._among = written, among
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._write)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _write(self) -> None:
        at = time.monotonic()
        try:
            while not self._ended.is_set():
                self._written.write(self._among, 1)
                self.longest = max(self.longest, time.monotonic() - at)
                at = time.monotonic()
        except (AssertionError, OSError) as error:  # Told by the thread that waits.
            self.failed = error


def longest_pause(written: Acknowledged, among: list[Member], seconds: float) -> float:
    """The longest time between two acknowledgements when nothing else goes on, in seconds."""
    with Beside(written, among) as beside:
        time.sleep(seconds)
    assert beside.failed is None, beside.failed
    return beside.longest


def gap_max(quiet: float) -> float:
    """3 s, and what a busy machine adds to each of the starts of a generation."""
    return 3.0 + 10 * quiet


def least_of(quiet: float, paused: Callable[[], float]) -> float:
    """What an attack costs is there each time; what a machine that stands still adds is not."""
    least = paused()
    for _ in range(3):
        if least < gap_max(quiet):
            break
        least = min(least, paused())
    return least


def attacked(shard: Shard, seed: int, count: int, seconds: float = 0.0) -> None:
    """Two honest members live on, with all that they have acknowledged; the third one returns."""
    honest, written = shard.members[:2], Acknowledged()
    written.write(shard.members, 20)
    shard.members[2].kill()
    written.write(honest, 5)
    processes = [member.process.pid for member in honest if member.process]
    quiet = longest_pause(written, honest, 1.0)
    liar, longest = Liar(shard, seed), 0.0
    end = time.monotonic() + seconds

    def pause_under(victim: Member) -> float:
        with Beside(written, honest) as beside:
            liar.attack(victim, count)
        assert beside.failed is None, beside.failed
        return beside.longest

    for number, victim in enumerate(itertools.cycle(honest)):
        if number >= 4 and time.monotonic() >= end:
            break
        paused = least_of(quiet, lambda victim=victim: pause_under(victim))
        longest = max(longest, paused)
        assert longest < gap_max(quiet), (seed, number, longest, quiet)
        for member in honest:
            assert member.process is not None and member.process.poll() is None, member.log[-2000:]
            assert member.fatal == ""
        written.write(honest, 5)
    kinds = {kind.__name__ for kind in get_args(Message)}
    print(f"seed {seed}: {liar.said} frames, {len(liar.kinds)} kinds of {len(kinds)}")
    print(f"longest time without an acknowledged write: {longest:.3f} s (quiet {quiet:.3f} s)")
    assert liar.said > count and liar.kinds == kinds, kinds - liar.kinds
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
        longest = least_of(quiet, lambda: longest_pause(written, honest, 12.0))
    finally:
        ended.set()
        thread.join()
    assert liar.said > 50, "it was not attacked"
    assert longest < gap_max(quiet), (longest, quiet, liar.said)
    shard.members[2].start()
    shard.leader()
    written.write(shard.members, 5)
    check_history(same_everywhere(shard), written)


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "follower"])
def test_rounds_that_one_has_raised_do_not_part_the_others(shard: Shard, leads: bool) -> None:
    """One of two has heard ballots that the other one has not, and the liar says nothing more: the
    next ballot of either is one that the other one takes."""
    honest, written = shard.members[:2], Acknowledged()
    written.write(shard.members, 20)
    shard.members[2].kill()
    written.write(honest, 5)
    quiet = longest_pause(written, honest, 1.0)
    leader = shard.leader(honest)
    (follower,) = (member for member in honest if member is not leader)

    def pause_after_a_climb() -> float:
        with Beside(written, honest) as beside:
            Liar(shard, 4).climb(leader if leads else follower, 60, ROUNDS_AHEAD_MAX)
            time.sleep(4.0)
        assert beside.failed is None, beside.failed
        return beside.longest

    longest = least_of(quiet, pause_after_a_climb)
    assert longest < gap_max(quiet), (longest, quiet)
    leader.kill()
    leader.start()
    written.write(honest, 5)
    shard.members[2].start()
    check_history(same_everywhere(shard), written)


def test_a_leader_is_not_talked_out_of_its_generation(shard: Shard) -> None:
    """With the liar silent afterwards, a leader that believed it could have no successor."""
    honest, written = shard.members[:2], Acknowledged()
    shard.members[2].kill()
    leader = shard.leader(honest)
    written.write([leader], 5)
    liar = Liar(shard, 5)
    before = liar.generation(leader).gid
    liar.slander(leader, 60)
    written.write([leader], 20)
    assert liar.generation(leader).gid == before
    assert "has lost its end" not in leader.log and "old copy" not in leader.log
    shard.members[2].start()
    check_history(same_everywhere(shard), written)


def test_a_follower_is_not_talked_out_of_its_vote(shard: Shard) -> None:
    """It cannot know, but the leader does. With the liar silent there would be no quorum."""
    honest, written = shard.members[:2], Acknowledged()
    shard.members[2].kill()
    leader = shard.leader(honest)
    (follower,) = (member for member in honest if member is not leader)
    written.write([leader], 5)
    liar = Liar(shard, 6)
    gid = liar.generation(leader).gid
    liar.slander(follower, 60)
    written.write([leader], 20)
    assert "has lost its end" not in follower.log and "old copy" not in follower.log
    assert liar.generation(leader).gid == gid
    leader.kill()
    leader.start()  # The votes of both are needed for what follows.
    written.write(honest, 5)
    shard.members[2].start()
    check_history(same_everywhere(shard), written)


def test_whose_votes_are_said_to_be_lost_votes_again(shard: Shard) -> None:
    """That word is believed: it says why it has no vote, and who took it; it ends with the
    generation, and it neither fills the journal nor keeps true words from being heard."""
    honest, written = shard.members[:2], Acknowledged()
    shard.members[2].kill()
    leader = shard.leader(honest)
    (follower,) = (member for member in honest if member is not leader)
    written.write([leader], 5)
    liar = Liar(shard, 8)
    before = (follower.directory / "lineage.log").stat().st_size
    liar.slander_votes(follower, 2_000)

    def accused() -> bool:
        told = follower.call("standing")["replication"]
        assert not wrong(told, SHARD["properties"]["replication"])
        return bool(told["suspect"]) and told.get("accusedBy") == 2

    until("that it says so", accused)
    assert follower.call("standing")["replication"]["suspectWhy"] == "its votes are forgotten"
    *_, told = of_itself(follower.call("standing"))
    assert told.startswith("has no vote, for its votes are forgotten, says broker 2: ")
    assert "barco recover" in told
    shard.members[2].start()
    written.write(honest, 5)
    until("its vote", lambda: not follower.call("standing")["replication"]["suspect"])
    leader.kill()
    written.write([follower], 5)  # It takes part as ever.
    leader.start()
    check_history(same_everywhere(shard), written)
    after = (follower.directory / "lineage.log").stat().st_size
    assert after - before < 64 << 10, (before, after)


@pytest.mark.chaos
@pytest.mark.timeout(0)
def test_a_hostile_member_for_long(shard: Shard) -> None:
    """`make hostile`: mutations for BARCO_HOSTILE_SECONDS from BARCO_HOSTILE_SEED."""
    seconds = float(os.environ.get("BARCO_HOSTILE_SECONDS", "600"))
    seed = int(os.environ.get("BARCO_HOSTILE_SEED", "100"))
    attacked(shard, seed=seed, count=300, seconds=seconds)
