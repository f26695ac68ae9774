"""How long a peer may be silent."""

import pytest

from barco.cluster.replica.peers import Peer
from barco.limits import PACE_SECONDS, SILENCE_GAPS, SILENCE_SECONDS_MAX, SILENCE_SECONDS_MIN
from barco.model.generation import Identity


def listened(gaps: list[float], start: float = 0.0) -> tuple[Peer, float]:
    """A peer whose messages came after these gaps, and when the last one did."""
    peer, clock = Peer(Identity(1, bytes(16)), 7, start), start
    for gap in gaps:
        clock += gap
        peer.heard(clock)
    return peer, clock


def steady(seconds: float) -> list[float]:
    return [0.2] * int(seconds / 0.2 + 1)


def test_a_peer_that_is_new_has_all_the_time_there_is() -> None:
    assert listened([])[0].silence == SILENCE_SECONDS_MAX
    assert listened(steady(PACE_SECONDS - 1))[0].silence == SILENCE_SECONDS_MAX


def test_a_punctual_peer_is_missed_sooner() -> None:
    assert listened(steady(2 * PACE_SECONDS + 1))[0].silence == SILENCE_SECONDS_MIN


@pytest.mark.parametrize("gap", [0.3, 0.5, 1.2, 1.7])
def test_one_late_message_gives_more_time_at_once_and_for_a_while(gap: float) -> None:
    calm = steady(2 * PACE_SECONDS + 1)
    wanted = pytest.approx(min(SILENCE_GAPS * gap, SILENCE_SECONDS_MAX))
    assert listened([*calm, gap])[0].silence == wanted
    assert listened([*calm, gap, *steady(PACE_SECONDS - 1)])[0].silence == wanted
    assert listened([*calm, gap, *steady(2 * PACE_SECONDS + 1)])[0].silence == SILENCE_SECONDS_MIN


def test_an_absence_says_nothing_about_its_pace() -> None:
    calm = steady(2 * PACE_SECONDS + 1)
    assert listened([*calm, SILENCE_SECONDS_MAX + 0.1])[0].silence == SILENCE_SECONDS_MIN


def test_nor_does_one_of_this_process() -> None:
    peer, clock = listened(steady(2 * PACE_SECONDS + 1))
    peer.heard(clock + 0.45, late=True)
    assert peer.silence == SILENCE_SECONDS_MIN
