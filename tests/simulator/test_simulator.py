"""The real machines under every fault the simulator knows."""

import pytest

from .plan import Outcome, run
from .world import World

SECONDS = 30.0


def check(outcome: Outcome) -> None:
    assert outcome.violation is None, f"seed {outcome.seed}: {outcome.violation}"


@pytest.mark.parametrize("seed", range(60))
def test_three_brokers(seed: int) -> None:
    check(run(seed, SECONDS))


@pytest.mark.parametrize("seed", range(30))
def test_four_brokers_split_and_merge(seed: int) -> None:
    check(run(seed, SECONDS, four=True))


@pytest.mark.parametrize("seed", range(30))
def test_a_chosen_member_lags(seed: int) -> None:
    check(run(seed, SECONDS, lag=True))


@pytest.mark.parametrize("seed", range(30))
def test_logs_rot(seed: int) -> None:
    check(run(seed, SECONDS, rotting=True))


@pytest.mark.parametrize(
    ("seed", "four"), [(7770033, True), (7770247, False), (7770373, False), (306763, False)]
)
def test_what_rots_was_sound_before(seed: int, four: bool) -> None:
    """False alarms of the simulator once: a group rotted that the core had told as stable, before
    the machine had heard of it; or while a vote was on the disk that only a start made stable."""
    check(run(seed, SECONDS, four=four))


@pytest.mark.parametrize(("seed", "four"), [(7772770, False), (7772202, True)])
def test_a_suspect_member_does_not_vote(seed: int, four: bool) -> None:
    """An ACCEPT had waited for groups when the log was found corrupt: it was fulfilled later."""
    check(run(seed, SECONDS, four=four))


def test_a_tail_that_only_a_gone_member_has() -> None:
    """It promised its last group, which nobody else had, and was gone before anyone got it: two of
    three were there, and waited for the third."""
    check(run(7771747, SECONDS))


def test_an_older_generation_is_not_followed_after_a_newer_one() -> None:
    """Who had been away heard of the newest generation first, and of one before it while the end of
    that was on the way: it hid what it had until the older one's first group was here, and then
    showed the newer one without its state."""
    check(run(1033, SECONDS, lag=True))


def test_what_is_followed_may_be_shut_before_the_core_has_it() -> None:
    """The core kept what it had led, and an assertion of its follower ended the process."""
    check(run(9100175, SECONDS))


def test_work_is_done_at_all() -> None:
    """Without faults the leader never changes and nothing is left behind."""
    outcome = run(0, SECONDS, faults=[])
    check(outcome)
    assert outcome.acks > 100 and outcome.generations == 2


@pytest.mark.parametrize("seed", range(60))
def test_one_broker(seed: int) -> None:
    """Developer mode; in every other world its core commits by itself, as the real one does."""
    check(run(seed, SECONDS, one=True))


def test_the_machine_of_one_broker_has_to_know_how_far_its_core_is() -> None:
    """Else it decides on an end that lies before what was acknowledged."""

    def silent(world: World) -> None:
        world.tells = False

    def found(seed: int) -> str:
        try:
            violation = run(seed, SECONDS, one=True, native=True, made=silent).violation
        except AssertionError as error:  # Who had recovered more notices it itself.
            return str(error)
        return violation.invariant if violation is not None else ""

    less = "a promise tells of all that was acknowledged (A1)"
    assert [found(seed) for seed in range(4)] == [less, "I2", "I2", less]
