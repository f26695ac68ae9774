"""Signs of life as numbers."""

import random

from barco.cluster.gossip.facts import ConsumerInfo, Fact, newer
from barco.cluster.groups.signs import age_of, told_after


def fact(heard: int) -> Fact:
    info = ConsumerInfo(
        consumer_id="c",
        counter=1,
        ordinal=0,
        heard=heard,
        group="g",
        topics=("t",),
        start="startFromLatest",
    )
    return info.fact()


def test_each_that_is_told_is_newer_whatever_their_ages() -> None:
    chance = random.Random(1)
    for start in (0, 1, 2**16 - 1, 2**16, 2**63 - 1, 2**64 - 1, 2**64 - 2**16):
        heard = start
        for _ in range(50):
            age = chance.choice((0.0, 0.004, 1.0, 655.0, chance.random() * 600, 1e6))
            after = told_after(heard, age)
            assert newer(fact(after), fact(heard)) and not newer(fact(heard), fact(after))
            if after >= 2**16:
                assert abs(age_of(after) - min(age, 655.35)) <= 0.006
            heard = after


def test_a_registration_is_a_sign_of_now() -> None:
    assert age_of(0) == 0
