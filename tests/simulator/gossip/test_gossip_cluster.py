"""Gossip in a simulated cluster: agreement, its price, and nobody suspected without reason."""

import itertools
import math
import random
from collections.abc import Callable

import pytest
from gossip_world import World, identity
from msgspec.structs import replace

from barco import limits
from barco.cluster.gossip.facts import ALIVE, DOWN, LEFT, ConsumerInfo, Fact, LeaderInfo
from barco.cluster.ring.routes import RangeRoute

SIZES = (3, 12, 96, 192)


def consumer(name: str = "c", counter: int = 1, ordinal: int = 0) -> Fact:
    return ConsumerInfo(
        consumer_id=name,
        counter=counter,
        ordinal=ordinal,
        group="g",
        topics=("t",),
        start="startFromLatest",
    ).fact()


def seldom(world: World, condition: Callable[[], bool], every: int = 0) -> Callable[[], bool]:
    """Look only now and then: a look at all brokers costs more than a step."""
    count = 0
    every = every or max(1, len(world.nodes) // 2)

    def check() -> bool:
        nonlocal count
        count += 1
        return count % every == 0 and condition()

    return check


def all_say(world: World, about: int, *states: int) -> Callable[[], bool]:
    def condition() -> bool:
        others = [o for o in world.nodes if o != about and o not in world.paused]
        return all(world.state_of(at, about) in states for at in others)

    return seldom(world, condition)


@pytest.mark.parametrize("size", SIZES)
def test_idle_each_broker_sends_about_two_messages_a_second(size: int) -> None:
    world = World(size, seed=1)
    world.run(5.0)
    world.reset()
    world.run(20.0)
    rates = world.rates(20.0)
    assert rates["messages"] < 2.5
    assert rates["messages_max"] < 5.0
    assert rates["bytes_max"] < 1_000
    assert (world.false_suspicions, world.false_downs) == (0, 0)


@pytest.mark.parametrize("size", SIZES)
def test_news_reaches_all_in_logarithmic_time_at_a_bounded_price(size: int) -> None:
    world = World(size, seed=2)
    world.run(1.0)
    world.reset()
    start, fact = world.now, consumer()
    world.publish(0, fact, receipt=1)
    # Rumours miss one broker now and then; what is compared finds it.
    most = size if size <= limits.GOSSIP_DIRECT_BROKERS else math.ceil(0.99 * size)
    assert world.run(60.0, seldom(world, lambda: world.knows(fact) >= most))
    assert world.now - start < 0.1 + 0.5 * math.log2(size)
    world.run(10.0)
    assert world.rates(10.0)["messages_max"] < 5.0 + 2 * math.log2(size)
    assert world.run(120.0, seldom(world, world.same))
    told, everybody = world.delivered[0, 1]
    assert told - start <= 2.5
    assert everybody is (size <= limits.GOSSIP_DIRECT_BROKERS)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("refuses", [True, False], ids=["process", "machine"])
def test_a_crash_is_known_to_all_and_so_is_the_return(size: int, refuses: bool) -> None:
    world = World(size, seed=3)
    world.run(2.0)
    start, last = world.now, size - 1
    world.crash(last, refuses=refuses, told=refuses)
    assert world.run(60.0, all_say(world, last, DOWN))
    if refuses:
        assert world.now - start < 6.0
    else:
        assert world.now - start < 6.0 + 8.0 * math.log10(size)
    assert (world.false_suspicions, world.false_downs) == (0, 0)
    world.start(last, incarnation=2)
    assert world.run(60.0, all_say(world, last, ALIVE))


def test_a_broker_that_takes_leave_is_not_suspected() -> None:
    world = World(12, seed=4)
    world.run(2.0)
    world.depart(5)
    world.run(0.5)
    world.crash(5)
    assert world.run(10.0, all_say(world, 5, LEFT))
    assert all(n.members.counters.suspicions == 0 for n in world.nodes.values())


@pytest.mark.parametrize("size", [3, 12, 96])
def test_a_cluster_that_starts_cold_finds_together(size: int) -> None:
    world = World(size, seed=5, primed=False)
    assert world.run(30.0, seldom(world, world.all_alive))
    assert world.run(120.0, seldom(world, world.same))


@pytest.mark.parametrize(("size", "loss"), [(3, 0.2), (12, 0.2), (3, 0.05), (96, 0.05)])
def test_loss_makes_nobody_down(size: int, loss: float) -> None:
    """TCP loses nothing; a fifth of all messages gone is what a sick network looks like."""
    world = World(size, seed=6, loss=loss)
    seconds = 40.0
    world.run(seconds)
    assert world.false_downs == 0
    # A probe fails if it and all that three others try is lost: it happens, and is denied.
    assert world.false_suspicions <= loss * size * seconds
    if size == 96:
        assert world.false_suspicions <= 0.002 * size * seconds


@pytest.mark.parametrize("size", [3, 12, 96])
def test_no_suspicion_of_brokers_that_are_merely_slow(size: int) -> None:
    """Every broker waits up to 0.3 s for the processor, each time: a saturated machine."""
    world = World(size, seed=7)
    world.slow = lambda ordinal: 0.3 * world.random.random()
    world.run(60.0)
    assert (world.false_suspicions, world.false_downs) == (0, 0)


def test_who_was_stopped_blames_nobody_else() -> None:
    world = World(12, seed=8)
    for round_ in range(5):
        world.run(3.0)
        world.pause(round_, 20.0)
        world.run(30.0)
        assert world.run(30.0, seldom(world, world.all_alive))
    assert world.false_downs == 0
    # What it asked before it was stopped was answered while it was: it may suspect, not more.
    assert world.false_suspicions <= 5


def test_a_pause_of_a_second_goes_unpunished() -> None:
    world = World(3, seed=9)
    for _ in range(20):
        world.pause(1, 0.9)
        world.run(3.0)
    assert world.false_downs == 0
    assert world.all_alive()


def test_two_halves_come_together_again() -> None:
    world = World(12, seed=10)
    world.cut = lambda a, b: (a < 6) != (b < 6)
    world.publish(0, consumer("left", 5, 0))
    world.publish(11, consumer("right", 5, 11))
    assert world.run(120.0, seldom(world, lambda: world.state_of(0, 11) == DOWN))
    world.cut = lambda a, b: False
    assert world.run(120.0, seldom(world, world.all_alive))
    assert world.run(120.0, seldom(world, world.same))


def test_one_link_that_is_cut_harms_nobody() -> None:
    """A and B do not hear each other, both hear C: C asks for them."""
    world = World(3, seed=11)
    world.cut = lambda a, b: {a, b} == {0, 1}
    world.run(60.0)
    assert (world.false_suspicions, world.false_downs) == (0, 0)
    fact = consumer()
    world.publish(0, fact)
    assert world.run(10.0, lambda: world.knows(fact) == 3)


def test_the_newest_generation_wins_everywhere() -> None:
    world = World(12, seed=12)
    facts = [
        LeaderInfo(RangeRoute(7, 1, 7, epoch, epoch % 3, (0, 1, 2))).fact()
        for epoch in (3, 1, 4, 2)
    ]
    for number, fact in enumerate(facts):
        world.publish(number, fact)
    assert world.run(30.0, lambda: world.knows(facts[2]) == 12)


def test_a_thousand_registrations_at_once_stay_within_the_bounds() -> None:
    world = World(3, seed=13)
    facts = [consumer(f"c{number}", number + 1) for number in range(1_000)]
    for number, fact in enumerate(facts):
        world.publish(number % 3, fact, receipt=number + 1)
    assert world.run(30.0, lambda: all(world.knows(fact) == 3 for fact in facts[::50]))
    world.run(10.0)
    assert world.same()
    assert len(world.delivered) == 1_000
    assert max(world.messages) < 1_000


def test_one_seed_is_one_history() -> None:
    histories = []
    for _ in range(2):
        world = World(12, seed=14, loss=0.1)
        world.run(20.0)
        histories.append((world.messages, world.bytes, world.nodes[3].store.digests()))
    assert histories[0] == histories[1]


def test_two_that_cannot_agree_do_not_compare_without_end() -> None:
    """One has forgotten, and will not take back, what the other one has more of than fits."""
    world = World(2, seed=15)
    facts = [consumer(f"{number:0120}", number + 1) for number in range(4_000)]
    for fact in facts:
        world.nodes[0].store.merge(fact, tell=False)
    world.nodes[1]._accept = lambda fact, teller: fact.kind != facts[0].kind
    world.reset()
    world.run(60.0)
    assert max(world.messages) < 60 * 6
    assert max(world.bytes) < 60 * 200_000


def test_a_newcomer_gets_more_than_fits_in_one_message() -> None:
    world = World(2, seed=16)
    facts = [consumer(f"{number:0120}", number + 1) for number in range(4_000)]
    for fact in facts:
        world.nodes[0].store.merge(fact, tell=False)
    assert world.run(60.0, seldom(world, lambda: world.knows(facts[-1]) == 2 and world.same(), 9))


@pytest.mark.parametrize("seed", range(20))
def test_who_joined_is_known_soon_to_a_broker_that_does_not_list_it(seed: int) -> None:
    """It is started anew, and believes nobody but the one who joined; which probes it, and compares
    with somebody every ten seconds only."""
    world = World(4, seed)
    world.run(20.0)
    world.crash(0)
    world.start(0, 2, listed=3)
    assert world.run(6.0, lambda: world.state_of(0, 3) == ALIVE)


@pytest.mark.parametrize("seed", range(12))
def test_no_broker_misses_a_registration_for_long(seed: int) -> None:
    """Consumers come and go while brokers crash, return, and stand still."""
    world, chance = World(3, seed), random.Random(seed)
    world.run(2.0)
    numbers, incarnation = iter(range(1, 1_000_000)), 1

    def publish(seconds: float) -> None:
        end = world.now + seconds
        while world.now < end:
            able = [ordinal for ordinal in world.nodes if ordinal not in world.paused]
            at, number = chance.choice(able), next(numbers)
            world.publish(at, consumer(f"c{chance.randrange(20)}", number, at))
            world.run(chance.expovariate(5))

    for _ in range(6):
        victim = chance.randrange(3)
        if chance.random() < 0.5:
            seconds = chance.uniform(0.5, 8.0)
            world.pause(victim, seconds)
            publish(seconds)
        else:
            incarnation += 1
            world.crash(victim)
            publish(chance.uniform(0.0, 3.0))
            world.start(victim, incarnation)
        publish(chance.uniform(0.0, 3.0))
    last = world.now
    assert world.run(60.0, lambda: not world.paused and world.same())
    assert world.now - last < 2.0


@pytest.mark.parametrize("brokers", [3, 5])
@pytest.mark.parametrize("seed", range(4))
def test_a_liar_is_denied_whatever_incarnation_it_gives(seed: int, brokers: int) -> None:
    """It tells each broker of another one every 10 ms; nobody stays down for more than a moment."""
    world, chance = World(brokers, seed), random.Random(seed)
    world.run(3.0)
    assert world.all_alive()
    liar, honest = brokers - 1, range(brokers - 1)
    down_since: dict[tuple[int, int], float] = {}
    longest = 0.0
    for _ in range(600):
        target, about = chance.sample(honest, 2)
        known = world.nodes[target].store.get("broker", about)
        assert known is not None
        base = chance.choice((0, 2**63, known.version[0], known.version[0] + 2**63))
        given = (base + chance.randrange(-2, 3)) % 2**64
        info = replace(identity(about), incarnation=given, state=chance.choice((DOWN, LEFT)))
        world.lie(liar, target, info.fact())
        world.run(0.01)
        for at in honest:
            for other in honest:
                if world.state_of(at, other) in (DOWN, LEFT):
                    longest = max(
                        longest, world.now - down_since.setdefault((at, other), world.now)
                    )
                else:
                    down_since.pop((at, other), None)
    assert longest < 1.0
    assert world.run(2.0, lambda: world.all_alive() and world.same())


@pytest.mark.parametrize("turns", list(itertools.permutations(range(3))))
def test_lies_that_each_win_over_the_next_come_to_an_end(turns: tuple[int, int, int]) -> None:
    """Three values a third of the circle apart: there is no newest one of them."""
    world = World(4, 3)
    world.run(3.0)
    third = 2**64 // 3
    for target, turn in zip((1, 2, 3), turns, strict=True):
        info = replace(identity(0), incarnation=1 + turn * third, state=DOWN)
        world.nodes[target].store.forget("broker", 0)  # As if it had not heard of it before.
        world.lie(3 if target != 3 else 2, target, info.fact())
    assert world.run(5.0, lambda: world.all_alive() and world.same())
