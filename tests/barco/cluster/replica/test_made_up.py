"""Numbers that a member makes up: no word of one costs more than its silence would."""

import pytest
from lab import ECHO, FIVE, FOUR, SEALED, SESSION, THREE, A, C, Lab

from barco.cluster.replica.doubt import UNKNOWN
from barco.cluster.replica.replica import Replica
from barco.cluster.state.events import Elect, LinkLost
from barco.cluster.state.plausible import ROUNDS_AHEAD_IDLE_MAX, ROUNDS_AHEAD_MAX
from barco.limits import DISTURBANCES_MAX, PATIENCE_SECONDS
from barco.model.generation import Ballot, Identity
from barco.protocol.replication import DoubtRecord, Nack, Prepare, Promise

FAR = UNKNOWN
"""The last number there is, and what stands for: nobody has said."""


@pytest.mark.parametrize("far", [FAR, FAR - 1, 2**32])
def test_an_epoch_that_is_made_up_takes_a_vote_while_it_is_said(far: int) -> None:
    """No generation would ever be the later one. It costs what silence costs, no more."""
    lab = Lab([*SEALED, DoubtRecord(UNKNOWN, 0)])
    lab.ping(A)
    lab.ping(C, epoch=far, session=6)
    assert not lab.votes()
    said = len(lab.journal)
    for _ in range(10):
        lab.ping(C, epoch=far, session=6)
    lab.ping(C, session=6)
    assert not lab.votes(), "that process has said it"
    assert lab.journal[said:] == [], "nothing is kept of words"
    lab.ping(C, session=7)  # It was started anew, and says what is so.
    assert lab.journal[-1] == DoubtRecord(3, 0)
    lab.decided(3, 4)
    assert lab.votes(FOUR.gid) and Lab(lab.journal).votes(FOUR.gid)


def test_an_end_of_an_earlier_build_that_no_generation_reaches() -> None:
    """It was kept on one word; the others are asked anew."""
    lab = Lab([*SEALED, DoubtRecord(2**62, 0)])
    assert lab.replica.forgetful()
    lab.ping(A)
    lab.ping(C, session=6)
    assert lab.journal[-1] == DoubtRecord(3, 0)


def test_a_generation_of_the_time_of_a_made_up_epoch() -> None:
    """What began while nobody knew the end of the doubt has no vote from here; the next one has."""
    lab = Lab([*SEALED, DoubtRecord(UNKNOWN, 0)])
    lab.ping(A)
    lab.ping(C, epoch=FAR, session=6)
    lab.decided(3, 4)
    assert not lab.votes(FOUR.gid)
    lab.ping(A, epoch=4)
    lab.ping(C, epoch=4, session=7)
    lab.decided(4, 5)
    assert not lab.votes(FOUR.gid) and lab.votes(FIVE.gid)


def prepared(lab: Lab, number: int, sender: Identity = C, session: int = 6) -> bool:
    """Whether a ballot of this round is promised, and told."""
    ballot = Ballot(number, sender.ordinal, session)
    said = lab.hear(sender, Prepare(THREE.gid, ballot), session)
    return [each.ballot for each in said if isinstance(each, Promise)] == [ballot]


def proposed(lab: Lab) -> Ballot:
    """Its next ballot."""
    lab.now += 1.0
    lab.sent.clear()
    lab._do(lab.replica.step(lab.now, Elect(THREE.gid)))
    return next(said.ballot for _, said in lab.sent if isinstance(said, Prepare))


def test_who_is_told_of_a_far_round_goes_above_it() -> None:
    """The other one has promised to a liar's ballots, of which there was no news here."""
    lab = Lab(SEALED)
    ballot = proposed(lab)
    lab.hear(A, Nack(THREE.gid, ballot, Ballot(50 * ROUNDS_AHEAD_MAX, 2, 6)))
    assert proposed(lab).round == 50 * ROUNDS_AHEAD_MAX + 1


def test_no_word_uses_up_the_rounds() -> None:
    lab = Lab(SEALED)
    for steps in range(4):
        ballot = proposed(lab)
        assert ballot.round <= 1 + steps * (ROUNDS_AHEAD_IDLE_MAX + 1)
        lab.hear(A, Nack(THREE.gid, ballot, Ballot(2**63 - 1, 2, 6)))


def test_a_far_round_is_taken_where_nobody_leads() -> None:
    """Its proposer may have promised to a liar's ballots, and cannot go below them."""
    lab = Lab(SEALED)
    lab.ping(A)
    assert not prepared(lab, 50 * ROUNDS_AHEAD_MAX), "its leader is at work"
    lab._do(lab.replica.step(lab.now, LinkLost(0)))
    assert prepared(lab, 50 * ROUNDS_AHEAD_MAX)


def test_a_round_beyond_that_is_taken_in_the_end() -> None:
    lab = Lab(SEALED)
    lab.ping(A)
    lab._do(lab.replica.step(lab.now, LinkLost(0)))
    for _ in range(100):
        assert not prepared(lab, 3 * ROUNDS_AHEAD_IDLE_MAX), "not by saying it often"
    lab.now += PATIENCE_SECONDS
    assert not prepared(lab, 3 * ROUNDS_AHEAD_IDLE_MAX)
    lab.now += PATIENCE_SECONDS
    assert prepared(lab, 3 * ROUNDS_AHEAD_IDLE_MAX)


def test_ballots_that_are_passed_over_raise_no_round() -> None:
    """A member may disturb so often; what is beyond that counts as lost, its number too."""
    lab = Lab(SEALED)
    lab.ping(A)
    told = sum(prepared(lab, step * ROUNDS_AHEAD_MAX) for step in range(1, 200))
    assert 0 < told <= DISTURBANCES_MAX
    assert lab.replica._held[THREE.gid].round <= DISTURBANCES_MAX * ROUNDS_AHEAD_MAX


@pytest.mark.parametrize("echo", [0, 10_050_000, SESSION >> 2, ECHO + 2**40, 2**63 - 1])
def test_an_echo_of_what_this_process_never_sent_is_no_answer(echo: int) -> None:
    """Of an earlier process, before the machine's clock began anew, or made up."""
    lab = Lab(SEALED, Replica)
    lab.ping(A)
    lab.ping(C, session=6, echo_us=echo)
    assert not lab.votes(), "C may have to say something yet (rule A6)"
    lab.ping(C, session=6)
    assert lab.votes()
