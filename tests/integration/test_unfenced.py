"""The follower's fence, and whether anybody would notice if it were not there."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from relay import Relays
from replicas import Member, RefusedError, Shard, check_history, same_everywhere, until

from barco.protocol import replication as r
from barco.protocol.append_frame import Appended

A, B, C = range(3)


class Split:
    """B takes over from A with C's help; then C hears of B only ballots and fetches, and
    still all of A.

    All that is done to messages is to lose them; and C says that it doubts A, which a broker may
    do at any time and with no reason: safety does not rest on it.
    """

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.decided = threading.Event()
        """C has accepted a proposal of B: from now on B may know what follows, and C does not."""
        self.healed = threading.Event()

    def __call__(self, source: int, target: int, message: r.Message) -> r.Message | None:
        """A filter of `Relays`."""
        if self.healed.is_set() or not self.begun.is_set():
            return message
        if {source, target} == {A, B}:
            return None
        if (source, target) == (C, A):  # Neither the fence nor the view of the others.
            return message if isinstance(message, Appended) else None
        if (source, target) == (B, C):
            # On a busy machine the first ballot may be given up: the next one must get through. And
            # B may lack a group without events that A, a second quiet, has written meanwhile.
            if self.decided.is_set() and not isinstance(message, r.Prepare | r.Accept | r.Fetch):
                return None
            return message
        if (source, target) == (C, B):
            if isinstance(message, r.Accepted):
                self.decided.set()
            elif isinstance(message, r.Ping):
                return replace(message, doubts=(A,))
        return message


class Acknowledged:
    """What was answered 200, as `check_history` wants it."""

    def __init__(self) -> None:
        self.acknowledged: list[str] = []


@pytest.fixture
def split() -> Split:
    return Split()


@pytest.fixture
def shard(tmp_path: Path, split: Split) -> Iterator[Shard]:
    with Shard(tmp_path) as made:
        relays = Relays(made, split)
        try:
            yield made
        finally:
            relays.close()


def two_leaders(shard: Shard, split: Split) -> tuple[Acknowledged, list[str], list[str]]:
    """Everything that was acknowledged, what of it A did after it had been deposed, and the history
    that B leads on from."""
    shard.start()
    leader = shard.members[A]
    until("the owner leads", lambda: "leading" in leader.log)
    writer = Acknowledged()
    for number in range(10):
        assert leader.produce(str(number)) == 200
        writer.acknowledged.append(str(number))
    # Once the network is split B can ask nobody for what it lacks.
    until("B has them all", lambda: not leader.call("stats")["replication_groups_behind"])
    split.begun.set()
    until("B's proposal is accepted", split.decided.is_set)
    until("B leads", lambda: "leading" in shard.members[B].log)
    late = [str(n) for n in range(10, 13) if leader.produce(str(n), timeout=1.5) == 200]
    # B has ended A's generation, so this is all that will ever have been in it.
    history: list[str] = []

    def taken_over() -> bool:
        history[:] = shown(shard.members[B])
        return len(history) >= len(writer.acknowledged)

    until("B shows what it has taken over", taken_over)
    writer.acknowledged += late
    split.healed.set()
    return writer, late, history


def shown(member: Member) -> list[str]:
    try:
        return member.read("t")
    except (OSError, RefusedError):
        return []  # It does not follow yet.


def test_a_deposed_leader_gets_nothing_acknowledged(shard: Shard, split: Split) -> None:
    writer, late, history = two_leaders(shard, split)
    assert not late and history == writer.acknowledged
    check_history(same_everywhere(shard), writer)


def test_a_follower_without_its_fence_is_found(shard: Shard, split: Split) -> None:
    """Mutant 1, on real processes: A gets acknowledged, by C, what is after the end that C has
    accepted and from which B leads on (I2). What the three make of it later is not asked."""
    shard.members[C].environment = {"BARCO_TEST_MUTANT": "unfenced"}
    writer, late, history = two_leaders(shard, split)
    assert late, "nothing was done that the fence forbids"
    assert history == writer.acknowledged[:10], "acknowledged, and not in the history of the range"
