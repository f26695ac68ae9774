"""What was forgotten: a journal with a hole, a directory that is an old copy. The simulator has
the rest of it."""

from typing import Any

import pytest
from lab import FIVE, FOUR, SEALED, SESSION, THREE, A, B, C, Heard, Lab, child

from barco.cluster.replica.doubt import KEEP_SECONDS, POSITION_MAX, POSITIONS_AHEAD_MAX, UNKNOWN
from barco.cluster.replica.leader import GAP_ANSWER_SECONDS
from barco.cluster.replica.replica import Replica
from barco.cluster.state.events import LinkLost, Tick
from barco.cluster.state.held import Fence, Leading, Wish
from barco.limits import PING_SECONDS, SILENCE_SECONDS_MAX
from barco.model.generation import (
    Ballot,
    Generation,
    Gid,
    GroupHead,
    Kind,
    Parent,
    Successor,
)
from barco.protocol.append_frame import Append, Appended
from barco.protocol.replication import (
    AcceptedRecord,
    DecidedRecord,
    DoubtRecord,
    Fenced,
    Gap,
    HeardRecord,
    Nack,
    Ping,
    Prepare,
    Promise,
    PromisedRecord,
    RolledBack,
    Shrunk,
)


def append(gseq: int) -> Append:
    return Append(THREE.gid, 5, GroupHead(gseq, 99, 100, 4096), 0)


def test_who_remembers_votes() -> None:
    lab = Lab(SEALED)
    assert not lab.replica.forgetful() and lab.votes()


def test_who_has_forgotten_does_not() -> None:
    lab = Lab([*SEALED, DoubtRecord(UNKNOWN, 0)])
    assert lab.replica.forgetful() and not lab.votes()
    assert [type(each) for each in lab.hear(A, append(10))] == [Fenced]
    assert not lab.replica._able()


def test_the_others_say_what_is_concerned() -> None:
    lab = Lab([*SEALED, DoubtRecord(UNKNOWN, 0)])
    lab.ping(A, epoch=4)
    assert lab.replica.forgetful(), "C may know more"
    lab.ping(C, epoch=3, session=6, echo_us=9_000_000)
    assert lab.replica.forgetful(), "C has said that before this process began"
    lab.ping(C, epoch=3, session=6)
    assert not lab.replica.forgetful()
    assert lab.journal[-1] == DoubtRecord(UNKNOWN, 0), "of what A has open only A has spoken"
    assert not lab.votes(), "in what was open then it never votes again"
    lab.decided(3, 4)
    lab.ping(A, epoch=4)
    assert lab.journal[-1] == DoubtRecord(4, 0) and not lab.votes(FOUR.gid)
    again = Lab(lab.journal)
    assert not again.votes(FOUR.gid) and not again.replica.forgetful()
    again.decided(4, 5)
    assert again.votes(FIVE.gid), "nobody knew it when this process began"


def test_a_peer_tells_an_old_copy() -> None:
    lab = Lab(SEALED)
    assert not [e for e in lab.ping(A, position=20) if isinstance(e, RolledBack)]
    assert not [e for e in lab.ping(A, position=21) if isinstance(e, RolledBack)]
    assert not [e for e in lab.ping(A, session=8, position=21) if isinstance(e, RolledBack)]
    assert [e for e in lab.ping(A, session=9, position=20) if isinstance(e, RolledBack)] == [
        RolledBack(9, 21)
    ]
    assert not [e for e in lab.ping(A, session=9, position=22) if isinstance(e, RolledBack)]
    # Another disk is another journal.
    other = A._replace(disk_uuid=b"x" * 16)
    assert not [e for e in lab.ping(other, session=10, position=1) if isinstance(e, RolledBack)]


def test_an_old_copy_counts_as_lost() -> None:
    lab = Lab(SEALED)
    assert not lab.hear(A, RolledBack(SESSION - 1, 50)) and not lab.replica.forgetful()
    lab.hear(A, RolledBack(SESSION, len(SEALED)))
    assert not lab.replica.forgetful(), "so far it was when it began: nothing is missing"
    lab.hear(A, RolledBack(SESSION, 50))
    assert lab.replica.forgetful() and not lab.votes()
    assert len(lab.warned) == 1 and "old copy" in lab.warned[0]
    assert lab.journal[-1] == DoubtRecord(UNKNOWN, 64), "48 are missing: a power of two"
    assert lab.replica._position() > 50, "told once"
    lab.hear(A, RolledBack(SESSION, 60))
    assert len(lab.warned) == 1 and lab.journal[-1] == DoubtRecord(UNKNOWN, 64)
    lab.hear(A, RolledBack(SESSION, 70))
    assert len(lab.warned) == 1 and lab.journal[-1] == DoubtRecord(UNKNOWN, 128)
    assert not Lab(lab.journal).votes()


def test_no_word_uses_up_the_positions() -> None:
    """However far one goes: a true one is heard at the next start, and the one after it."""
    journal: list[Any] = SEALED
    for start in range(1, 4):
        lab = Lab(journal)
        before = lab.replica._position()
        assert before < start * 2 * POSITIONS_AHEAD_MAX
        for wrong in (2**62 - 1, 2**63 - 1):
            lab.hear(C, RolledBack(SESSION, wrong), 6)
        assert lab.replica.forgetful(), "it costs a vote, as a true one does"
        assert lab.replica._position() <= before + POSITIONS_AHEAD_MAX + len(lab.journal)
        lab.ping(A)
        lab.ping(C, session=6)  # It is known now what may be forgotten.
        lab = Lab(lab.journal)
        assert not lab.replica.forgetful()
        lab.hear(A, RolledBack(SESSION, lab.replica._position() + 1))
        assert lab.replica.forgetful() and len(lab.warned) == 1
        journal = lab.journal


def test_positions_that_rise_cost_few_records() -> None:
    """Of a liar, or of peers that have heard different ones; also after each start."""
    lab = Lab(SEALED)
    for start in range(1, 4):
        for more in range(1, 300):
            lab.hear(C, RolledBack(SESSION, 5 * start**2 + more), 6)
        for power in range(64):
            lab.hear(C, RolledBack(SESSION, 2**power), 6)
        records = sum(isinstance(each, DoubtRecord) for each in lab.journal)
        assert records <= start * (2 + POSITIONS_AHEAD_MAX.bit_length())
        lab = Lab(lab.journal)


def test_positions_without_an_end() -> None:
    """A journal that has its positions from before they were bounded still tells one."""
    lab = Lab([*SEALED, DoubtRecord(3, POSITION_MAX - 5)])
    lab.hear(A, RolledBack(SESSION, 2**63 - 1))
    assert lab.replica.forgetful() and lab.replica._position() <= 2**63 - 1


def test_the_position_never_goes_back() -> None:
    lab = Lab(SEALED)
    before = lab.replica._position()
    assert before == len(SEALED) and lab.votes()
    after = lab.replica._position()
    assert after == len(lab.journal) > before
    assert Lab(lab.journal).replica._position() == after
    pings = [m for _, m in lab.sent if isinstance(m, Ping)]
    lab.replica.step(11.0, Tick())
    assert all(ping.position <= after for ping in pings)


def test_positions_are_kept() -> None:
    """Whoever was started anew since it heard of a journal objects all the same."""
    lab = Lab(SEALED)
    lab.ping(A, position=20)
    assert not any(isinstance(each, HeardRecord) for each in lab.journal), "not at each ping"
    lab.now += KEEP_SECONDS
    lab.ping(A, position=21)
    lab.now += KEEP_SECONDS
    lab.ping(A, position=21)
    heard = [each for each in lab.journal if isinstance(each, HeardRecord)]
    assert heard == [HeardRecord(A, 5, 21)], "once, the newest"
    assert lab.replica._position() == len(SEALED), "it is no vote: peers would echo it for ever"
    again = Lab(lab.journal)
    assert again.replica._position() == len(SEALED)
    assert RolledBack(9, 21) in again.ping(A, session=9, position=20)
    assert RolledBack(5, 21) not in again.ping(A, session=5, position=21)
    assert RolledBack(9, 21) not in again.ping(A, session=9, position=21)


def test_a_position_goes_with_the_next_vote() -> None:
    lab = Lab(SEALED)
    lab.ping(A, position=20)
    assert lab.votes()
    assert HeardRecord(A, 5, 20) in lab.journal


class KeepsNothing(Heard):
    """Mutant: positions are in memory only."""

    def _keep_positions(self) -> list[HeardRecord]:
        return []


def test_mutant_positions_are_not_kept() -> None:
    lab = Lab(SEALED, KeepsNothing)
    lab.ping(A, position=20)
    assert lab.votes()
    assert RolledBack(9, 20) not in Lab(lab.journal).ping(A, session=9, position=19)


def test_a_log_that_is_shorter_than_it_was() -> None:
    """No vote is missing, but groups: as the pings said, whatever process."""
    lab = Lab(SEALED)
    assert Shrunk(THREE.gid, 9) not in lab.ping(A, tail=9)
    assert Shrunk(THREE.gid, 9) in lab.ping(A, tail=8, session=8)
    assert Shrunk(THREE.gid, 9) not in lab.ping(A, tail=12, session=8)


def test_who_is_told_looks_for_itself() -> None:
    lab = Lab(SEALED)
    lab.hear(C, Shrunk(THREE.gid, 9), 6)
    assert not lab.warned and lab.votes(), "all nine are here: it was old news"
    lab = Lab(SEALED)
    lab.hear(C, Shrunk(THREE.gid, 10), 6)
    assert len(lab.warned) == 1 and "group 10 of epoch 3" in lab.warned[0]
    assert not lab.votes() and not lab.replica._able()
    assert lab.journal[-1] == DoubtRecord(3, 0)
    assert not Lab(lab.journal).votes(), "nor after the next start"
    lab.hear(C, Shrunk(THREE.gid, 11), 6)
    assert len(lab.warned) == 1, "once"


MINE = Generation(Gid(0, 4), 100, B, SESSION, (A, B, C), (Parent(THREE.gid, 9),))  # type: ignore


def test_a_gap_below_what_was_acknowledged() -> None:
    """To the leader: it is told, and one that comes late accuses nobody who has the groups."""
    lab = Lab([*SEALED, DecidedRecord(THREE.gid, Successor(9, Kind.RELEAD, (MINE,)))])
    held = lab.replica._held[MINE.gid]
    held.leading = Leading((0, 2), 0.0)
    held.leading.built = 7
    lab.hear(C, Appended(MINE.gid, 5), 6)
    assert lab.hear(A, Gap(MINE.gid, 3), 5) == [Shrunk(MINE.gid, 0)], "it has said nothing yet"
    for have in (5, 3):
        assert Shrunk(MINE.gid, 5) in lab.hear(C, Gap(MINE.gid, have), 6)
        lab.now += PING_SECONDS
    other = A._replace(disk_uuid=b"x" * 16)
    assert Shrunk not in map(type, lab.hear(other, Gap(MINE.gid, 3), 9))
    lab.votes(MINE.gid)
    assert held.leading is None
    assert Shrunk(MINE.gid, 5) in lab.hear(C, Gap(MINE.gid, 3), 6), "it counts no more, but knows"


def test_gaps_are_not_answered_without_end() -> None:
    """One answer in GAP_ANSWER_SECONDS to each follower: who asks at its own pace gets them all."""
    lab = Lab([*SEALED, DecidedRecord(THREE.gid, Successor(9, Kind.RELEAD, (MINE,)))])
    held = lab.replica._held[MINE.gid]
    held.leading = Leading((0, 2), 0.0)
    start, answers = lab.now, 0
    for turn in range(1_000):
        lab.now = start + turn / 1_000
        answers += Shrunk(MINE.gid, 0) in lab.hear(C, Gap(MINE.gid, 3), 6)
        assert not held.leading.live[2], "it gets no appends, answered or not"
    assert 2 <= answers <= 1 + 1 / GAP_ANSWER_SECONDS
    assert Shrunk(MINE.gid, 0) in lab.hear(A, Gap(MINE.gid, 3), 5), "another one's is its own"
    for turn in range(1, 9):
        lab.now = start + 1 + turn * PING_SECONDS
        assert Shrunk(MINE.gid, 0) in lab.hear(C, Gap(MINE.gid, 3), 6)


def questions(lab: Lab) -> list[Gap]:
    """What A was asked."""
    return [said for ordinal, said in lab.sent if ordinal == 0 and isinstance(said, Gap)]


def test_what_one_says_of_a_log_is_put_to_the_leader() -> None:
    """No vote until it has answered; after that nobody else's word counts in this process."""
    lab = Lab(SEALED)
    lab.ping(A)
    lab.hear(C, Shrunk(THREE.gid, 2**62), 6)
    assert questions(lab) == [Gap(THREE.gid, 9)] and not lab.warned
    lab.hear(C, Shrunk(THREE.gid, 2**62), 6)
    assert not questions(lab), "not at every word"
    assert not lab.votes() and not lab.replica.status()[0]["suspect"]
    lab.now += 1.0
    lab.hear(A, append(10))
    assert not lab.votes() and questions(lab), "asked again, for it may be lost"
    lab.hear(A, Shrunk(THREE.gid, 9))
    assert lab.votes() and not lab.warned
    lab = Lab(SEALED)
    lab.ping(A)
    lab.hear(A, Shrunk(THREE.gid, 9))
    lab.hear(C, Shrunk(THREE.gid, 2**62), 6)
    assert not questions(lab) and lab.votes()


def test_the_leaders_word_on_a_log_is_believed() -> None:
    for before in (9, 0):
        lab = Lab(SEALED)
        lab.ping(A)
        lab.hear(A, Shrunk(THREE.gid, before))
        lab.hear(A, Shrunk(THREE.gid, 10))
        assert len(lab.warned) == 1 and not lab.votes()
        told = lab.replica.status()[0]
        assert (told["suspect"], told["accuser"]) == (True, 0) and "lost its end" in told["why"]


def test_another_process_of_the_leader_is_not_asked() -> None:
    """It does not know what was acknowledged: the word of a third is all that there is."""
    lab = Lab(SEALED)
    lab.ping(A, session=8)
    lab.hear(A, Shrunk(THREE.gid, 8), 8)
    lab.hear(C, Shrunk(THREE.gid, 10), 6)
    assert len(lab.warned) == 1 and not lab.votes()
    assert lab.replica.status()[0]["accuser"] == 2


def test_a_leader_that_goes_without_an_answer() -> None:
    lab = Lab(SEALED)
    lab.ping(A)
    lab.hear(C, Shrunk(THREE.gid, 10), 6)
    assert not lab.warned
    lab._do(lab.replica.step(lab.now, LinkLost(0)))
    said = lab.hear(C, Prepare(THREE.gid, Ballot(9, 2, 6)), 6)
    assert [each.suspect for each in said if isinstance(each, Promise)] == [True]
    assert len(lab.warned) == 1


def test_groups_that_are_here_again_end_it() -> None:
    """As many as somebody said that there were: nothing is missing."""
    lab = Lab(SEALED)
    lab.ping(A)
    lab.hear(C, Shrunk(THREE.gid, 10), 6)
    assert not lab.votes()
    held = lab.replica._held[THREE.gid]
    held.tail = held.received = 10
    assert lab.votes()


def test_a_ballot_that_waits_does_not_slip_through() -> None:
    """It came first, and its groups come after the word that takes the vote."""
    lab = Lab(SEALED)
    lab.ping(A)
    held = lab.replica._held[THREE.gid]
    held.wish, held.round, held.fence = Wish(Ballot(9, 2, 6), 2, None), 9, Fence.SHUT
    lab.hear(C, Shrunk(THREE.gid, 12), 6)
    lab.replica._fulfil(held)
    assert held.promised is None
    lab.hear(A, Shrunk(THREE.gid, 9))
    assert held.promised == Ballot(9, 2, 6)


def test_a_leader_is_not_talked_out_of_its_own_generation() -> None:
    """No process before this one can have acknowledged anything in it: the word is wrong."""
    sealed = [*SEALED, DecidedRecord(THREE.gid, Successor(9, Kind.RELEAD, (MINE,)))]
    lab = Lab(sealed)
    lab.hear(C, Shrunk(MINE.gid, 2**62), 6)
    assert not lab.warned and lab.votes(MINE.gid)
    # Another process of this broker's began it: now the word may be true.
    earlier = Generation(MINE.gid, 100, B, SESSION - 1, (A, B, C), MINE.parents)
    lab = Lab([*SEALED, DecidedRecord(THREE.gid, Successor(9, Kind.RELEAD, (earlier,)))])
    lab.hear(C, Shrunk(MINE.gid, 2**62), 6)
    assert len(lab.warned) == 1 and not lab.votes(MINE.gid)


class AcceptIsNoPromise(Heard):
    """Mutant: at a start, what was accepted fences nobody."""

    def _vote(self, gid: Gid, ballot: Ballot, value: Successor | None) -> None:
        if value is None:
            super()._vote(gid, ballot, value)
        else:
            self._held[gid].accepted = (ballot, value)


def check_votes_survive(machine: type[Replica]) -> None:
    """A promise, or an accept, that was stable: lower ballots and appends are refused."""
    ballot = Ballot(12, 0, 5)
    value = Successor(9, Kind.RELEAD, (child(4, THREE, 9),))
    for record in (PromisedRecord(THREE.gid, ballot), AcceptedRecord(THREE.gid, ballot, value)):
        lab = Lab([*SEALED, record], machine)
        assert Nack(THREE.gid, Ballot(9, 2, 6), ballot) in lab.hear(
            C, Prepare(THREE.gid, Ballot(9, 2, 6)), 6
        )
        assert [type(each) for each in lab.hear(A, append(10))] == [Fenced]


def test_votes_survive_a_restart() -> None:
    check_votes_survive(Heard)


def test_mutant_accept_is_no_promise() -> None:
    with pytest.raises(AssertionError):
        check_votes_survive(AcceptIsNoPromise)


def test_a_new_process_votes_once_those_in_reach_have_answered() -> None:
    """Rule A6. A ping that was sent before the first one from here came is no answer."""
    lab = Lab(SEALED, Replica)
    lab.ping(A)
    lab.ping(C, session=6, echo_us=0)
    assert not lab.votes()
    lab.ping(C, session=6)
    assert lab.votes()


def test_who_does_not_answer_is_waited_for_no_longer_than_who_is_silent() -> None:
    lab = Lab(SEALED, Replica)
    for _ in range(20):
        lab.ping(A, echo_us=0)
        lab.ping(C, session=6)
        assert not lab.votes() or lab.now > 10 + SILENCE_SECONDS_MAX
        lab.now += 0.1
    assert lab.votes()


def test_a_word_that_comes_before_the_leader_is_heard_is_put_to_it() -> None:
    lab = Lab(SEALED, Replica)
    lab.ping(C, session=6)
    lab.hear(C, Shrunk(THREE.gid, 2**62), 6)
    assert not lab.warned and not lab.votes()
    lab.ping(A)
    lab.hear(A, Shrunk(THREE.gid, 9))
    assert lab.votes() and not lab.warned
    lab = Lab(SEALED, Replica)  # And at once, whoever else is unheard.
    lab.ping(A)
    lab.hear(C, Shrunk(THREE.gid, 2**62), 6)
    assert questions(lab) == [Gap(THREE.gid, 9)]


def test_a_word_that_nobody_settles_is_believed_in_the_end() -> None:
    lab = Lab(SEALED, Replica)
    lab.hear(C, Shrunk(THREE.gid, 10), 6)
    while lab.now < 10.2 + SILENCE_SECONDS_MAX and not lab.warned:
        lab.now += 0.1
        lab.ping(C, session=6)
    assert lab.now > 10 + SILENCE_SECONDS_MAX and not lab.votes() and len(lab.warned) == 1
