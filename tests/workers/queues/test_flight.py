"""Who has which events, held against a dictionary of each."""

import random
from collections import Counter

import pytest

from barco.workers.queues.flight import InFlight, Lease

SEEDS, STEPS, WIDE = 30, 300, 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_it_is_as_a_dictionary_of_events(seed: int) -> None:
    """Given, let go of and left behind in any order: who has what, and how many of each."""
    rng = random.Random(seed)
    base = rng.choice((0, 7, 2**40))
    flight, known = InFlight(base), dict[int, Lease]()
    leases: list[Lease] = []
    for _ in range(STEPS):
        start = base + rng.randrange(WIDE)
        end = start + rng.choice((1, 1, 2, 5, 20))
        match rng.randrange(4):
            case 0 | 1 if not known.keys() & set(range(start, end)):
                lease = Lease(rng.randrange(10), 1, end - start)
                leases.append(lease)
                flight.give(start, end, lease)
                known |= dict.fromkeys(range(start, end), lease)
            case 2:
                flight.let_go(start, end)
                for at in range(start, end):
                    known.pop(at, None)
            case 3 if rng.random() < 0.3:
                base = min(known, default=base + rng.randrange(WIDE))
                flight.move(base)
        assert flight.count == len(known)
        assert all(flight.get(at) is known.get(at) for at in range(base - 3, base + 2 * WIDE))
        left = Counter(map(id, known.values()))
        assert all(lease.left == left[id(lease)] for lease in leases)


def test_what_nobody_has_takes_no_room() -> None:
    """A window that was wide once is not remembered as such."""
    flight, lease = InFlight(0), Lease(0, 1, 1)
    flight.give(16_000, 16_001, lease)
    assert len(flight._leases) == 16_001
    flight.let_go(16_000, 16_001)
    assert not flight._leases and flight.count == lease.left == 0
    flight.give(3, 5, Lease(0, 1, 2))
    flight.let_go(0, 16_000)
    assert not flight._leases and flight.count == 0
