"""The policy of restarts, which is told the time."""

from barco import limits
from barco.supervisor.processes import RestartPolicy


def test_back_off_doubles_up_to_its_limit() -> None:
    policy = RestartPolicy()
    now, delays = 0.0, []
    for _ in range(9):
        delays.append(policy.died(now, lived=10.0))
        now += 10.0
    assert delays == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]


def test_a_long_life_resets_it() -> None:
    policy = RestartPolicy()
    for now in (0.0, 10.0, 20.0):
        policy.died(now, lived=10.0)
    assert policy.died(100.0, lived=80.0) == 0.1


def test_five_deaths_in_thirty_seconds_are_a_loop() -> None:
    policy = RestartPolicy()
    times = [0.0, 7.0, 14.0, 21.0, 29.9]
    assert [policy.died(now, 7.0) is None for now in times] == [False] * 4 + [True]


def test_five_deaths_in_more_than_that_are_not() -> None:
    policy = RestartPolicy()
    times = [0.0, 8.0, 16.0, 24.0, limits.CRASH_LOOP_SECONDS + 0.1, 38.2]
    assert all(policy.died(now, 8.0) is not None for now in times)
