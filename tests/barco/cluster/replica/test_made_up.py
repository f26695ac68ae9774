"""Numbers that a member makes up: no word of one costs more than its silence would."""

import pytest
from lab import FIVE, FOUR, SEALED, A, C, Lab

from barco.cluster.replica.doubt import UNKNOWN
from barco.protocol.replication import (
    DoubtRecord,
)

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
