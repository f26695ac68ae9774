"""Registrations at several brokers come to the same groups everywhere."""

import contextlib
import itertools
import random
from typing import Any

import pytest
from msgspec.structs import replace
from sites import LIAR, SESSION_S, SLICES, Site, same, spread

from barco import limits
from barco.cluster.gossip.facts import CONSUMER, ConsumerInfo, Fact
from barco.cluster.groups import registrations
from barco.cluster.groups.registrations import COUNTER_AHEAD_MAX, PAST_SECONDS
from barco.cluster.groups.signs import age_of
from barco.errors import AlreadyRegisteredError, ProtocolError


@pytest.mark.parametrize("seed", range(5))
def test_all_come_to_the_same_assignment(seed: int) -> None:
    sites = [Site(ordinal) for ordinal in range(3)]
    for number in range(9):
        sites[number % 3].register(f"c{number}", group=f"g{number % 2}")
    spread(sites, seed=seed)
    assert same(sites)
    assert {len(members) for members in sites[0].groups().values()} == {5, 4}


def test_the_session_is_the_same_at_all_and_new_with_each_registration() -> None:
    one, other = Site(0), Site(1)
    first = one.register("c")["session"]
    spread([one, other])
    assert other.groups()["g"]["c"]["session"] == first
    second = other.register("c")["session"]
    spread([one, other])
    assert second > first
    assert one.groups()["g"]["c"]["session"] == second


def test_at_odds_at_the_same_time_the_later_one_wins_everywhere() -> None:
    one, other = Site(0), Site(1)
    one.register("c", group="g")
    other.register("c", group="h")
    spread([one, other])
    assert same([one, other])
    assert list(one.groups()) == ["h"]


def test_registered_elsewhere_with_another_group_is_refused_here() -> None:
    one, other = Site(0), Site(1)
    one.register("c", group="g")
    spread([one, other])
    with pytest.raises(AlreadyRegisteredError):
        other.register("c", group="h")


def test_goodbye_anywhere_is_a_goodbye_everywhere() -> None:
    sites = [Site(0), Site(1)]
    sites[0].register("c")
    spread(sites)
    assert sites[1].request("goodbye", consumerId="c")["known"]
    # Heard of at the same moment at the other broker: it has gone all the same.
    sites[0].request("touch", limits.CONSUMER_TOUCH_SECONDS, consumerIds=["c"])
    spread(sites)
    assert sites[0].groups() == sites[1].groups() == {}


def test_who_is_heard_of_at_one_broker_does_not_expire_at_another() -> None:
    sites = [Site(0), Site(1)]
    sites[0].register("c")
    spread(sites)
    for now in (50.0, 100.0, 150.0):
        sites[1].request("touch", now, consumerIds=["c"])
        spread(sites, now)
        assert not sites[0].registrations.tick(now)
    assert list(sites[0].groups()) == ["g"]


def test_news_of_a_consumer_is_told_now_and_then_only() -> None:
    site = Site(0)
    site.register("c")
    told = 0
    for second in range(60):
        site.registrations.request("touch", {"consumerIds": ["c"]}, float(second))
        site.registrations.tick(float(second))
        told += len(site.registrations.outgoing())
    assert told == 5  # Of a session of 30 s.


def test_all_know_how_long_a_consumer_may_be_silent_and_hear_of_it_in_time() -> None:
    sites = [Site(0), Site(1)]
    given = {"consumerId": "c", "group": "g", "topics": ["t"], "start": "startFromLatest"}
    sites[0].request("register", 0.0, **given, sessionMs=5_000)
    spread(sites)
    for tick in range(1, 40):  # Alive at one of them only.
        now = tick / 2
        sites[0].request("touch", now, consumerIds=["c"])
        spread(sites, now)
        assert not any(site.registrations.tick(now) for site in sites)
    assert sites[1].registrations.deadline() <= 20.0 + 5.0
    assert all(site.registrations.tick(25.0) for site in sites)
    assert sites[0].groups() == sites[1].groups() == {}


def test_expired_at_one_and_heard_of_at_the_other_lives_on() -> None:
    sites = [Site(0), Site(1)]
    sites[0].register("c")
    spread(sites)
    assert sites[0].registrations.tick(SESSION_S)
    sites[0].collect()
    sites[1].request("touch", SESSION_S, consumerIds=["c"])
    spread(sites, SESSION_S)
    assert same(sites)
    assert list(sites[0].groups()) == ["g"]


def test_the_departed_are_forgotten_in_the_end_and_do_not_come_back() -> None:
    sites = [Site(0), Site(1)]
    sites[0].register("c")
    spread(sites)
    sites[0].request("goodbye", consumerId="c")
    spread(sites)
    late = sites[1].facts()
    for site in sites:
        site.unix += limits.GOSSIP_TOMBSTONE_SECONDS
        site.registrations.tick(0.0)
        assert site.registrations.forgotten() == ["c"]
        site.store.forget(CONSUMER, "c")
    sites[0].hear(late)
    assert sites[0].facts() == []


def test_random_histories_end_the_same() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        sites = [Site(ordinal) for ordinal in range(3)]
        clock = itertools.count()
        for _ in range(60):
            site, name = rng.choice(sites), f"c{rng.randrange(5)}"
            now = float(next(clock))
            try:
                match rng.randrange(4):
                    case 0:
                        site.register(name, group=rng.choice("gh"), now=now)
                    case 1:
                        site.request("goodbye", now, consumerId=name)
                    case 2:
                        site.request("touch", now, consumerIds=[name])
                    case _:
                        facts = rng.choice(sites).facts()
                        site.hear(rng.sample(facts, len(facts)), now)
            except AlreadyRegisteredError:
                pass
        spread(sites, seed=seed)
        assert same(sites), seed


@pytest.mark.parametrize("counter", [2**48 - 1, 2**47, 2**43])
def test_no_word_of_another_ends_registrations(counter: int) -> None:
    sites = [Site(ordinal) for ordinal in range(3)]
    sites[0].register("c")
    spread(sites)
    (real,) = sites[0].facts()
    lies = [replace(ConsumerInfo.of(real), consumer_id=c, counter=counter) for c in ("c", "d")]
    for site in sites:
        site.hear([lie.fact() for lie in lies])
    sites[1].request("goodbye", consumerId="c")
    sites[1].register("c")
    sites[2].register("d")
    spread(sites)
    assert same(sites)


def test_what_a_lie_takes_of_the_counter_is_given_back() -> None:
    sites = [Site(ordinal) for ordinal in range(3)]
    sites[0].register("liar")
    (real,) = sites[0].facts()
    most = int(sites[0].unix * 1000) + COUNTER_AHEAD_MAX
    for site in sites:
        site.hear([replace(ConsumerInfo.of(real), counter=most).fact()])
    sites[1].register("c")
    for site in sites:
        site.unix += 0.001
    spread(sites)
    assert same(sites)
    assert all(any(fact.key == "c" for fact in site.facts()) for site in sites)


def test_an_end_far_ahead_is_not_kept_until_then() -> None:
    sites = [Site(ordinal) for ordinal in range(3)]
    sites[0].register("c")
    spread(sites)
    (real,) = sites[0].facts()
    end = replace(ConsumerInfo.of(real), removed_at=2**40 - 1)
    lies = [end.fact(), *(replace(end, consumer_id=f"x{n}").fact() for n in range(100))]
    for site in sites:
        site.hear(lies)
        assert [fact.key for fact in site.facts()] == ["c"]
        assert not site.registrations.view()["groups"]
        assert site.registrations.forgotten() == ["c"]
        site.store.forget(CONSUMER, "c")
        site.hear(lies)
        assert site.facts() == []


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """Limits that are reached in a moment; how many each broker has to itself."""
    monkeypatch.setattr(limits, "CONSUMERS_MAX", 60)
    monkeypatch.setattr(limits, "GROUPS_MAX", 30)
    monkeypatch.setattr(registrations, "OWN_ROOM", 30)
    monkeypatch.setattr(registrations, "CONSUMERS_KEPT_MAX", 120)
    return 10


def invented(seed: int) -> list[Fact]:
    """Consumers of nobody, each in a group of its own, said to be any broker's; some have ended."""
    rng = random.Random(seed)
    return [
        ConsumerInfo(
            consumer_id=f"x{number}",
            counter=rng.randrange(1, 1_000),
            ordinal=rng.randrange(3),
            removed_at=rng.choice((0, 0, 1_000)),
            group=f"gx{number}",
            topics=("t",),
            start="startFromLatest",
        ).fact()
        for number in range(1_000)
    ]


@pytest.mark.parametrize("seed", range(10))
def test_who_invents_consumers_takes_no_others_room(small: int, seed: int) -> None:
    """It tells both, in pieces, before and beside; they tell each other all that they have."""
    sites = [Site(ordinal) for ordinal in range(2)]
    for site in sites:
        site.unix += PAST_SECONDS
    sites[0].register("early", group="e")
    lies = invented(seed)
    rng = random.Random(seed)
    for turn in range(small):
        for site in sites:
            site.hear(rng.sample(lies, 500))
            if turn:
                site.register(
                    f"c{site.store.count(CONSUMER)}-{turn}-{site.ordinal}", group=f"h{turn}"
                )
        for one, other in ((0, 1), (1, 0)):
            facts = sites[one].facts()
            sites[other].hear(rng.sample(facts, len(facts)), teller=one)
        for site in sites:
            site.hear(lies)
            assert site.store.count(CONSUMER) <= registrations.CONSUMERS_KEPT_MAX
    honest = [{f.key for f in site.facts() if not str(f.key).startswith("x")} for site in sites]
    assert honest[0] == honest[1] and len(honest[0]) == 2 * small - 1
    assert "early" in honest[0]


@pytest.mark.parametrize("seed", range(5))
def test_who_invents_an_earlier_life_of_a_broker_takes_a_part_of_its_room(
    small: int, seed: int
) -> None:
    """It tells a broker that has just begun what that one is said to have registered before."""
    sites = [Site(ordinal) for ordinal in range(2)]
    sites[1].unix += PAST_SECONDS
    lies = [replace(ConsumerInfo.of(lie), ordinal=0).fact() for lie in invented(seed)]
    sites[0].hear(lies)
    sites[0].unix += PAST_SECONDS
    # What is left for whoever comes first is the liar's at both.
    others = [replace(ConsumerInfo.of(lie), consumer_id=f"y{lie.key}", ordinal=1) for lie in lies]
    for site in sites:
        site.hear([other.fact() for other in others])
    sites[1].hear(sites[0].facts(), teller=0)
    left = small - small // 3
    for number in range(left):
        sites[0].register(f"c{number}", group="h")
    sites[1].hear(sites[0].facts(), teller=0)
    assert len(sites[1].groups()["h"]) == len(sites[0].groups()["h"]) == left


@pytest.mark.parametrize("known_as", [0, 1, LIAR, None])
def test_who_fills_a_group_leaves_the_others_places_and_slices(
    monkeypatch: pytest.MonkeyPatch, known_as: int | None
) -> None:
    """Invented consumers whose names are the first of all, said to be this broker's or any's."""
    monkeypatch.setattr(limits, "CONSUMERS_PER_GROUP_MAX", 60)
    rng = random.Random(7)
    sites = [Site(ordinal) for ordinal in range(2)]
    sites[0].register("early")
    (real,) = sites[0].facts()
    for site in sites:
        site.unix += PAST_SECONDS
    lies = [
        replace(
            ConsumerInfo.of(real),
            consumer_id=f"!{number}",
            ordinal=rng.randrange(3) if known_as is None else known_as,
        ).fact()
        for number in range(100)
    ]
    for site in sites:
        site.hear(lies)
    for number in range(4):
        sites[number % 2].register(f"c{number}")
    for one, other in ((0, 1), (1, 0)):
        sites[other].hear(sites[one].facts(), teller=one)
    for site in sites:
        readers = site.groups()["g"]
        of = {
            (token, index): name
            for name, each in readers.items()
            for token, index in zip(*[iter(each["assigned"]["t"])] * 2, strict=True)
        }
        assert sorted(of) == SLICES, "each is somebody's"
        assert sum(not name.startswith("!") for name in of.values()) >= len(SLICES) // 2
        own = {"early", "c0", "c2"} if site.ordinal == 0 else {"c1", "c3"}
        assert own & set(of.values())


def test_a_group_of_too_many_is_the_same_at_all_and_changes_little() -> None:
    """Incremental views agree with the whole one, whoever comes and goes, and where from."""
    sites = [Site(ordinal) for ordinal in range(3)]
    rng = random.Random(11)
    seen: list[dict[str, Any]] = [{} for _ in sites]
    since = [0 for _ in sites]
    for turn in range(200):
        site = rng.choice(sites)
        name = f"c{rng.randrange(20)}"
        if rng.random() < 0.6:
            site.register(name, now=float(turn))
        else:
            site.request("goodbye", float(turn), consumerId=name)
        for _ in range(2):
            for teller in sites:
                for hearer in sites:
                    if hearer is not teller:
                        hearer.hear(teller.facts(), float(turn), teller=teller.ordinal)
        for number, each in enumerate(sites):
            view = each.registrations.view(since[number])
            for group in view["removed"]:
                seen[number].pop(group, None)
            for group, members in view["groups"].items():
                seen[number].setdefault(group, {}).update(members)
            seen[number] = {
                group: {name: m for name, m in members.items() if m is not None}
                for group, members in seen[number].items()
            }
            since[number] = view["version"]
            assert seen[number] == each.groups(), (turn, number)
            for members in seen[number].values():
                given = [m["assigned"]["t"] for m in members.values()]
                assert sum(map(len, given)) == 2 * len(SLICES)


def test_who_was_heard_of_through_another_counts_as_its_brokers_once_that_one_speaks() -> None:
    odd = [*SLICES, (100, 2)]  # One broker's have one more than another's.
    sites = [Site(ordinal, odd) for ordinal in range(3)]
    for number in range(2 * len(SLICES)):
        sites[number % 2].register(f"c{number:02}")
    for one, other in ((0, 1), (1, 0)):
        sites[other].hear(sites[one].facts(), teller=one)
    sites[2].hear(sites[0].facts(), teller=0)
    assert not same(sites)
    names = [f"c{number:02}" for number in range(2 * len(SLICES))]
    sites[1].request("touch", limits.CONSUMER_TOUCH_SECONDS, consumerIds=names)
    for hearer in (0, 2):
        sites[hearer].hear(sites[1].facts(), teller=1)
    assert same(sites)


def test_who_begins_anew_learns_of_its_earlier_life() -> None:
    sites = [Site(0), Site(1)]
    sites[0].register("c")
    spread(sites)
    sites[0] = Site(0)
    sites[0].unix += PAST_SECONDS - 1
    spread(sites)
    assert same(sites) and sites[0].facts()
    late = Site(0)
    late.unix += PAST_SECONDS
    late.hear(sites[1].facts())
    assert not late.facts()
    late.register("c")  # As a consumer does that is not known.
    sites[1].hear(late.facts(), teller=0)
    assert same([late, sites[1]])


def test_room_is_given_back(small: int) -> None:
    """What was invented ends with its session, and is forgotten; then there is room as before."""
    site = Site(0)
    lies = invented(1)
    site.hear(lies)
    full = site.store.count(CONSUMER)
    assert 90 <= full < 120
    site.registrations.tick(SESSION_S + 1)
    site.collect()
    site.unix += 2 * limits.GOSSIP_TOMBSTONE_SECONDS
    for consumer_id in site.registrations.forgotten():
        site.store.forget(CONSUMER, consumer_id)
    assert site.store.count(CONSUMER) == 0
    site.hear([fact for fact in lies if not ConsumerInfo.of(fact).removed_at])
    assert site.store.count(CONSUMER) >= 90


def test_a_consumer_is_heard_of_after_the_last_number() -> None:
    sites = [Site(ordinal) for ordinal in range(2)]
    sites[0].register("c")
    (real,) = sites[0].facts()
    for heard in (2**63 - 1, 2**64 - 1):
        lie = replace(ConsumerInfo.of(real), heard=heard).fact()
        for site in sites:
            site.hear([lie])
    sites[0].request("touch", 1_000.0, consumerIds=["c"])
    (said,) = sites[0].facts()
    assert age_of(ConsumerInfo.of(said).heard) == 0
    sites[1].hear([said], 1_000.0)
    assert sites[1].facts() == [said]


def test_who_names_a_topic_twice_breaks_no_view() -> None:
    """After its goodbye it was among those that had changed, and no view could be made any more."""
    site = Site(0)
    site.register("honest")
    since = site.registrations.version
    invented = ConsumerInfo(
        consumer_id="x",
        counter=20,
        ordinal=LIAR,
        group="g",
        topics=("t", "t"),
        start="startFromLatest",
    )
    for info in (invented, replace(invented, counter=21, removed_at=1_000)):
        with contextlib.suppress(ProtocolError):
            site.hear([info.fact()])
    site.registrations.view(since)
    assert list(site.groups()["g"]) == ["honest"]
