"""What registrations say of ranks and weights, at several brokers."""

import random

import pytest
from msgspec.structs import replace
from sites import Site, same, spread

from barco import limits
from barco.cluster.gossip.facts import ConsumerInfo, Fact
from barco.errors import NotReadyError


def test_ranks_are_told_again_and_that_moves_nothing() -> None:
    sites = [Site(ordinal) for ordinal in range(3)]
    for number in range(5):
        sites[number % 3].register(f"c{number}")
        spread(sites, seed=number)
    sites[0].request("goodbye", consumerId="c1")
    spread(sites)
    before = slices_of(sites[0])
    assert ConsumerInfo.of(fact_of(sites[0], "c4")).ranks == (4,)
    sites[1].request("touch", 20.0, consumerIds=["c0", "c2", "c3", "c4"])
    spread(sites, 20.0)
    assert ConsumerInfo.of(fact_of(sites[0], "c4")).ranks == (1,), "it sits where c1 was"
    assert same(sites) and slices_of(sites[0]) == before
    sites[2].register("c5", now=20.0)
    spread(sites, 20.0)
    after = slices_of(sites[0])
    assert same(sites) and len(after["c5"]) == 1
    assert all(set(after[name]) <= set(before[name]) for name in before)


def slices_of(site: Site) -> dict[str, list[tuple[int, int]]]:
    readers = site.groups()["g"].items()
    return {
        name: list(zip(*[iter(each["assigned"]["t"])] * 2, strict=True)) for name, each in readers
    }


def fact_of(site: Site, name: str) -> Fact:
    (fact,) = (fact for fact in site.facts() if fact.key == name)
    return fact


def test_of_consumers_at_several_brokers_at_once_none_has_a_slice_of_another() -> None:
    """They have got the same ranks: the later registration has it, the others sit down elsewhere,
    and when brokers tell of them each rank is one's."""
    sites = [Site(ordinal) for ordinal in range(3)]
    for number in range(6):
        sites[number % 3].register(f"c{number}")
    spread(sites)
    before = slices_of(sites[0])
    assert same(sites) and all(len(each) == 1 for each in before.values())
    for site in sites:
        site.request("touch", 20.0, consumerIds=[f"c{number}" for number in range(6)])
    spread(sites, 20.0)
    assert same(sites) and slices_of(sites[0]) == before
    ranks = [ConsumerInfo.of(fact).ranks for fact in sites[0].facts()]
    assert sorted(ranks) == [(rank,) for rank in range(6)]


def test_while_one_broker_cannot_read_of_ranks_nobody_is_given_one() -> None:
    upgraded = False
    sites = [Site(ordinal, ranked=lambda: upgraded) for ordinal in range(2)]
    for number in range(4):
        sites[number % 2].register(f"c{number}")
    spread(sites)
    assert same(sites) and all(len(fact.body) == 5 for fact in sites[0].facts())
    given = {"consumerId": "w", "group": "g", "topics": ["t"], "start": "startFromLatest"}
    with pytest.raises(NotReadyError):
        sites[0].request("register", **given, weight=2)
    assert "w" not in sites[0].groups()["g"]
    before, upgraded = slices_of(sites[0]), True
    sites[0].request("touch", 20.0, consumerIds=[f"c{number}" for number in range(4)])
    spread(sites, 20.0)
    assert same(sites) and slices_of(sites[0]) == before
    assert {ConsumerInfo.of(fact).ranks for fact in sites[0].facts()} == {
        (rank,) for rank in range(4)
    }
    sites[0].request("register", 20.0, **given, weight=2)
    spread(sites, 20.0)
    assert same(sites) and len(slices_of(sites[1])["w"]) == 2


@pytest.mark.parametrize("seed", range(5))
def test_whatever_is_said_of_ranks_and_weights_all_come_to_the_same(seed: int) -> None:
    """Lies too: of the same rank, of one far away, of a heavy one."""
    rng = random.Random(seed)
    slices = [(token, index) for token in (-100, 0, 100) for index in range(8)]
    sites = [Site(ordinal, slices) for ordinal in range(3)]
    for number in range(5):
        sites[number % 3].register(f"c{number}")
    (real, *_) = sites[0].facts()
    lies = [
        replace(
            ConsumerInfo.of(real),
            consumer_id=f"x{number}",
            counter=rng.randrange(1, 1_000),
            weight=rng.choice((1, 7, limits.CONSUMER_WEIGHT_MAX)),
            ranks=rng.choice(((), (0,), (3,), (2**31 - 1,))),
        ).fact()
        for number in range(rng.randrange(1, 9))
    ]
    for site in sites:
        site.hear(rng.sample(lies, len(lies)))
    spread(sites, seed=seed)
    for name in ("c1", "c3"):
        sites[seed % 3].request("goodbye", consumerId=name)
        spread(sites, seed=seed)
        given = [each for some in slices_of(sites[0]).values() for each in some]
        assert same(sites) and sorted(given) == slices
