"""The store of facts and its queue of rumours."""

import random

from barco.cluster.gossip.dissemination import Store, times_to_tell
from barco.cluster.gossip.facts import CONSUMER, LEADER, ConsumerInfo, Fact, LeaderInfo
from barco.cluster.ring.routes import RangeRoute


def leader(token: int, epoch: int = 1) -> Fact:
    return LeaderInfo(RangeRoute(token, 1, token, epoch, 0, (0,))).fact()


def consumer(name: str) -> Fact:
    return ConsumerInfo(
        consumer_id=name, counter=1, ordinal=0, group="g", topics=("t",), start="s"
    ).fact()


def test_the_greatest_wins_in_any_order() -> None:
    facts = [leader(token, epoch) for token in range(20) for epoch in range(1, 5)]
    stores = []
    for seed in range(5):
        store = Store()
        for fact in random.Random(seed).sample(facts * 2, 2 * len(facts)):
            store.merge(fact)
        stores.append(store)
    assert {store.digests() for store in stores} == {stores[0].digests()}
    assert {fact.version[0] for fact in stores[0].all(LEADER)} == {4}
    assert stores[0].bytes == sum(len(fact.packed) for fact in stores[0].all(LEADER))


def test_of_the_same_version_all_keep_the_same_one() -> None:
    one = LeaderInfo(RangeRoute(0, 1, 0, 1, 0, (0, 1))).fact()
    other = LeaderInfo(RangeRoute(0, 1, 0, 1, 1, (0, 1))).fact()
    first, second = Store(), Store()
    for fact in (one, other):
        first.merge(fact)
    for fact in (other, one):
        second.merge(fact)
    assert first.digests() == second.digests()


def test_news_is_told_a_bounded_number_of_times() -> None:
    store = Store()
    store.merge(leader(0))
    told = 0
    while store.choose(1_000, 3):
        told += 1
    assert told == times_to_tell(3)
    assert store.rumours == 0
    assert not store.merge(leader(0)), "it is no news any more"
    assert store.rumours == 0


def test_the_least_told_goes_first_and_newer_news_replaces_older() -> None:
    store = Store()
    store.merge(leader(0))
    store.choose(1_000, 3)
    store.merge(leader(1))
    size = len(leader(1).packed) + 5
    assert store.choose(size, 3) == [leader(1)]
    store.merge(leader(0, epoch=2))
    assert store.choose(size, 3) == [leader(0, epoch=2)]


def test_a_message_is_bounded() -> None:
    store = Store()
    for token in range(1_000):
        store.merge(leader(token))
    chosen = store.choose(500, 3)
    assert 0 < sum(len(fact.packed) + 5 for fact in chosen) <= 500


def test_differences_are_found_by_bucket() -> None:
    one, other = Store(), Store()
    for number in range(300):
        one.merge(consumer(f"c{number}"))
        other.merge(consumer(f"c{number}"))
    assert one.differing(other.digests()) == set()
    extra = consumer("another")
    one.merge(extra)
    assert one.differing(other.digests()) == {extra.bucket}
    assert extra in set(one.in_buckets({extra.bucket}))


def test_what_is_forgotten_leaves_no_trace() -> None:
    store = Store()
    empty = store.digests()
    store.merge(consumer("c"))
    store.forget(CONSUMER, "c")
    assert (store.digests(), store.rumours, store.bytes) == (empty, 0, 0)
