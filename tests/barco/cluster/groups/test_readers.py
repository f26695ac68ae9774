"""Who reads which slices: even, the same for all who know the same, and little moves."""

import itertools
import random
import time
from collections.abc import Iterator, Sequence

import pytest

from barco import limits
from barco.cluster.groups.readers import NO_RANK, ReaderInfo, Readers
from barco.cluster.groups.shares import Shares, shares

SHAPES = [(1, 3), (3, 5), (8, 8), (24, 5), (24, 40), (256, 12), (500, 40)]


class Group:
    """Readers whose brokers hear of one another at once, and tell of their ranks now and then."""

    def __init__(self, slices: int, weights: tuple[int, ...] = (1,), seed: int = 0) -> None:
        self.slices, self.weights = slices, weights
        self.readers = Readers(slices)
        self.claims: dict[str, ReaderInfo] = {}
        self.chance = random.Random(seed)
        self._sessions = itertools.count(1)

    def put(self, name: str, claim: ReaderInfo) -> None:
        self.claims[name] = claim
        self.readers.put(name, claim)
        self.readers.settle()

    def join(self, origin: int = 0) -> str:
        session = next(self._sessions)
        name = f"c{self.chance.randrange(10**9)}"
        weight = self.chance.choice(self.weights)
        self.put(name, ReaderInfo(len(self.claims), session, weight, origin))
        return name

    def leave(self, name: str) -> None:
        del self.claims[name]
        self.readers.remove(name)
        self.readers.settle()

    def tell(self) -> None:
        """Each is told of with the rank where it is."""
        for name, claim in list(self.claims.items()):
            rank = self.readers.rank(name)
            self.put(name, ReaderInfo(rank, claim.session, claim.weight, claim.origin))

    def of(self) -> dict[int, str]:
        given = [(slice_, name) for name in self.claims for slice_ in self.readers.slices(name)]
        assert len(given) == len(dict(given)), "no slice is two readers'"
        return dict(given)

    def check(self) -> None:
        """Each slice is somebody's, and each has its weight's part within one."""
        assert sorted(self.of()) == (list(range(self.slices)) if self.claims else [])
        total = sum(claim.weight for claim in self.claims.values())
        for name, claim in self.claims.items():
            part = self.slices * claim.weight / total
            assert abs(len(self.readers.slices(name)) - part) < 1


def moved(before: dict[int, str], after: dict[int, str]) -> int:
    return sum(before[slice_] != name for slice_, name in after.items() if slice_ in before)


@pytest.mark.parametrize(("slices", "most"), SHAPES)
def test_a_join_moves_what_the_new_one_gets_and_nothing_else(slices: int, most: int) -> None:
    group = Group(slices)
    for _ in range(most):
        before = group.of()
        name = group.join()
        after = group.of()
        group.check()
        assert moved(before, after) <= -(-slices // len(group.claims))
        assert all(before.get(slice_, name) == by or by == name for slice_, by in after.items())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("slices", "most"), SHAPES)
def test_joins_and_leaves_in_any_order(slices: int, most: int, seed: int) -> None:
    """Brokers have told of the ranks in between, as they do three times a session."""
    group = Group(slices, seed=seed)
    for _ in range(3 * most):
        before = group.of()
        if len(group.claims) < most // 2 or group.chance.random() < 0.5:
            group.join()
            part = -(-slices // len(group.claims))
            assert moved(before, group.of()) <= part
        else:
            name = group.chance.choice(sorted(group.claims))
            lost = len(group.readers.slices(name))
            group.leave(name)
            if group.claims:
                part = -(-slices // (len(group.claims) + 1))
                assert lost <= moved(before, group.of()) <= lost + part
        group.check()
        before = group.of()
        group.tell()
        assert group.of() == before, "who tells of what is moves nothing"


@pytest.mark.parametrize("seed", range(4))
def test_leaves_before_anybody_has_told_of_ranks_are_even_and_joins_move_no_more(
    seed: int,
) -> None:
    group = Group(48, seed=seed)
    for _ in range(30):
        group.join()
    for turn in range(100):
        if turn % 4 == 3 or len(group.claims) < 3:
            before = group.of()
            group.join()
            assert moved(before, group.of()) <= -(-48 // len(group.claims))
        else:
            group.leave(group.chance.choice(sorted(group.claims)))
        group.check()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weights", [(1,), (1, 2, 3, 100)])
@pytest.mark.parametrize(("slices", "most"), SHAPES)
def test_the_order_in_which_facts_come_does_not_matter(
    slices: int, most: int, weights: tuple[int, ...], seed: int
) -> None:
    """Nor what was believed meanwhile: of those who have left, and of earlier claims."""
    chance = random.Random(seed)
    claims = {
        f"c{number}": ReaderInfo(
            chance.choice((NO_RANK, chance.randrange(most), number)),
            chance.randrange(10**6),
            chance.choice(weights),
            chance.randrange(3),
        )
        for number in range(most)
    }
    found = []
    for _ in range(3):
        readers = Readers(slices)
        for name in chance.sample(sorted(claims), most):
            if chance.random() < 0.3:
                readers.put(name, ReaderInfo(chance.randrange(most), 7, 1, chance.randrange(3)))
            if chance.random() < 0.3:
                readers.put(f"gone-{name}", ReaderInfo(chance.randrange(most), 10**7, 3, 0))
            readers.put(name, claims[name])
            if chance.random() < 0.3:
                readers.settle()
        for name in claims:
            if f"gone-{name}" in readers._readers:
                readers.remove(f"gone-{name}")
        readers.settle()
        found.append({name: tuple(readers.slices(name)) for name in claims})
    assert found[0] == found[1] == found[2]
    assert sorted(itertools.chain(*found[0].values())) == list(range(slices))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("slices", "most"), SHAPES)
def test_weights_within_one_of_their_part(slices: int, most: int, seed: int) -> None:
    group = Group(slices, (1, 2, 3, 50, limits.CONSUMER_WEIGHT_MAX), seed)
    for _ in range(2 * most):
        if len(group.claims) < most // 2 or group.chance.random() < 0.6:
            group.join()
        else:
            group.leave(group.chance.choice(sorted(group.claims)))
        group.check()


def test_one_of_twice_the_weight_gets_twice_as_much() -> None:
    readers = Readers(24)
    for number, weight in enumerate((1, 2, 1)):
        readers.put(f"c{number}", ReaderInfo(number, number, weight, 0))
    readers.settle()
    assert [len(readers.slices(f"c{number}")) for number in range(3)] == [6, 12, 6]


def test_who_weighs_little_gets_a_slice_before_others_get_one_more() -> None:
    assert shares(8, [100, 1]) == [7, 1]
    assert shares(4, [3, 3, 1]) == [2, 1, 1]
    assert shares(7, [1, 1, 1]) == [3, 2, 2] and shares(2, [1, 1, 1]) == [1, 1, 0]


@pytest.mark.parametrize("seed", range(5))
def test_settling_says_whose_slices_have_changed_and_nobody_else_s(seed: int) -> None:
    group = Group(60, (1, 4), seed)
    for _ in range(150):
        before = {name: tuple(group.readers.slices(name)) for name in group.claims}
        if len(group.claims) < 5 or group.chance.random() < 0.55:
            name = f"n{len(before)}-{group.chance.randrange(10**9)}"
            claim = ReaderInfo(len(before), group.chance.randrange(10**6), 1, 0)
            group.claims[name] = claim
            group.readers.put(name, claim)
        else:
            name = group.chance.choice(sorted(group.claims))
            del group.claims[name]
            group.readers.remove(name)
        said = group.readers.settle()
        differ = {
            name
            for name in group.claims
            if tuple(group.readers.slices(name)) != before.get(name, ())
        }
        assert differ <= said <= set(group.claims)
        assert all(
            name in differ or not group.readers.slices(name) or name in said for name in said
        )
        assert len(said) <= len(differ) + 2, "who has moved to a rank with the same slices, at most"


def test_shares_are_a_function_of_the_weights_alone() -> None:
    """Whatever was there before: steps are taken back exactly."""
    chance = random.Random(3)
    kept = Shares(40)
    for _ in range(300):
        count = chance.randrange(41)
        weights = [chance.choice((1, 1, 1, 5)) for _ in range(count)]
        if chance.random() < 0.5:
            weights = [2] * count
        given = shares(40, weights)
        if count and chance.random() < 0.3:
            given = given[::-1]
        kept.settle(weights, given)
        fresh = Shares(40)
        fresh.settle(weights, given)
        assert [kept.of(at) for at in range(count)] == [fresh.of(at) for at in range(count)]
        assert [len(fresh.of(at)) for at in range(count)] == given


def plainly(slices: int, weights: Sequence[int]) -> list[int]:
    """What `shares` says, in its own words."""
    parts = [divmod(slices * weight, sum(weights)) for weight in weights]
    given = [down for down, _ in parts]
    for empty in (True, False):
        for rank, (down, lost) in enumerate(parts):
            if lost and (not down) == empty and sum(given) < slices:
                given[rank] += 1
    return given


def rank_by_rank(
    slices: int, weights: Sequence[int], at_last: Sequence[int] = ()
) -> list[list[int]]:
    """Each takes what others have too much, of the first one first; the last one takes first. So
    many slices each has at last, if not what its weight gives it."""
    held: list[list[int]] = []

    def share_out(given: Sequence[int]) -> None:
        lacking = [rank for rank, mine in enumerate(held) for _ in range(given[rank] - len(mine))]
        for rank, mine in enumerate(held):
            for _ in range(len(mine) - given[rank]):
                held[lacking.pop()].append(mine.pop())

    for last in range(len(weights)):
        held.append([] if held else list(range(slices)))
        share_out(plainly(slices, weights[: last + 1]))
    if at_last:
        share_out(at_last)
    return [sorted(mine) for mine in held]


@pytest.mark.parametrize("weights", [(1,), (1, 2), (1, 2, 3, 5), (1, 100), tuple(range(1, 101))])
def test_only_those_whose_part_changes_are_looked_at(weights: tuple[int, ...]) -> None:
    chance = random.Random(len(weights))
    for slices in (1, 7, 24, 100, 257):
        kept = Shares(slices)
        for _ in range(8):
            given = [chance.choice(weights) for _ in range(chance.randrange(min(slices, 60) + 1))]
            kept.settle(given, shares(slices, given))
            assert shares(slices, given) == plainly(slices, given)
            found = [list(kept.of(rank)) for rank in range(len(given))]
            assert found == rank_by_rank(slices, given)


@pytest.mark.parametrize("most", [1, 4, 100])
def test_many_at_once_and_what_goes_again_is_as_if_it_had_come_one_by_one(most: int) -> None:
    """What moved when a rank came is not kept: it is found again when the rank goes."""
    chance = random.Random(most)
    weights = [chance.randint(1, most) for _ in range(200)]
    kept, steps = Shares(2_000), []
    for count in (200, 80, 79, 160, 3, 200):
        kept.settle(weights[:count], shares(2_000, weights[:count]))
        steps.append((count, [list(kept.of(rank)) for rank in range(count)]))
        assert sum(map(len, steps[-1][1])) == 2_000
    for count, found in steps:
        assert found == rank_by_rank(2_000, weights[:count])
    given = shares(2_000, weights)
    for _ in range(3):  # As where some of more readers than slices have to be idle.
        chance.shuffle(given)
        kept.settle(weights, given)
        wanted = rank_by_rank(2_000, weights, given)
        assert [list(kept.of(rank)) for rank in range(200)] == wanted


def test_of_more_readers_than_slices_brokers_take_turns() -> None:
    readers = Readers(6)
    for number in range(200):  # Invented: they claim what they like, and to have come last.
        readers.put(f"x{number}", ReaderInfo(number % 6, 10**6 + number, 1, 2))
    for number in range(4):
        readers.put(f"c{number}", ReaderInfo(number, number, 1, number % 2))
    readers.settle()
    assert all(len(readers.slices(f"c{number}")) == 1 for number in range(4))
    before = {name: tuple(readers.slices(name)) for name in readers._readers}
    readers.put("late", ReaderInfo(len(readers), 10**7, 1, 2))
    readers.settle()
    assert not readers.slices("late")
    assert all(tuple(readers.slices(name)) == given for name, given in before.items())


def triples() -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(5), 3))


def arrangements(known: dict[tuple[int, ...], tuple[int, ...]], left: int) -> Iterator[None]:
    """All ways to give three slices to each three of five names, of which no join moves more than
    one: for each four there is a way that is one move away from each three of them at most."""
    todo = triples()
    if left == 0:
        yield
        return
    triple = todo[len(todo) - left]
    for given in itertools.permutations(triple):
        known[triple] = given
        if all(has_join(known, four) for four in itertools.combinations(range(5), 4)):
            yield from arrangements(known, left - 1)
        del known[triple]


def has_join(known: dict[tuple[int, ...], tuple[int, ...]], four: tuple[int, ...]) -> bool:
    before = [known[each] for each in itertools.combinations(four, 3) if each in known]
    return any(
        all(sum(a != b for a, b in zip(given, each, strict=True)) <= 1 for each in before)
        for given in itertools.permutations(four, 3)
    )


def test_no_function_of_the_names_alone_is_even_and_moves_so_little() -> None:
    """Why a registration has a rank (docs/consumers.md): three slices and five names will do."""
    assert not any(True for _ in arrangements({}, 10))


def test_a_thousand_consumers_and_ten_thousand_slices() -> None:
    """Bounded by work: a join looks at those who give something, whatever it takes here."""
    group = Group(10_000)
    for number in range(limits.CONSUMERS_PER_GROUP_MAX - 1):
        group.claims[f"c{number}"] = info = ReaderInfo(number, number, 1, 0)
        group.readers.put(f"c{number}", info)
    started = time.process_time()
    group.readers.settle()
    whole = time.process_time() - started
    before = group.of()
    group.claims["last"] = info = ReaderInfo(999, 999, 1, 0)
    started = time.process_time()
    group.readers.put("last", info)
    changed = group.readers.settle()
    one = time.process_time() - started
    assert len(changed) == 1 + 10 and moved(before, group.of()) == 10
    group.check()
    mixed = Shares(10_000)
    weights = [1 + number % 4 for number in range(limits.CONSUMERS_PER_GROUP_MAX)]
    started = time.process_time()
    mixed.settle(weights, shares(10_000, weights))
    print(f"of four weights {1000 * (time.process_time() - started):.1f} ms")
    print(f"all {1000 * whole:.1f} ms, one more {1000 * one:.2f} ms of processor time")


def test_of_many_without_a_rank_one_more_or_less_changes_little_for_the_others() -> None:
    """As when several brokers have admitted at once, or a version that gives no ranks."""
    chance = random.Random(1)
    share = 0.0
    for _ in range(40):
        readers = Readers(60)
        infos = {f"c{n}": ReaderInfo(NO_RANK, chance.randrange(10**6), 1, 0) for n in range(60)}
        for name, info in infos.items():
            readers.put(name, info)
        readers.settle()
        before = {name: readers.rank(name) for name in infos}
        gone = chance.choice(sorted(infos))
        readers.remove(gone)
        readers.settle()
        share += sum(readers.rank(name) != before[name] for name in infos if name != gone) / 59
    assert share / 40 < 0.2
