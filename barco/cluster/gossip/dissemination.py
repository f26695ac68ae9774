"""The facts that a broker knows, and which of them it still has to pass on.

What is new is passed on a number of times that grows with the logarithm of the cluster, the least
told first, within a bound of bytes for each message; then it rests. Whoever missed it all the same
finds out by comparing digests (anti-entropy).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from barco import limits
from barco.cluster.gossip.facts import BUCKETS, KINDS, Fact, Key, newer

DIGESTS_BYTES = 8 * BUCKETS


class Store:
    """Facts by kind and key, digests of them, and the queue of rumours."""

    def __init__(self) -> None:
        self._facts: dict[str, dict[Key, Fact]] = {kind: {} for kind in KINDS}
        self._digests = [0] * BUCKETS
        # Rumours by how often they have been told: the next one to tell is found without sorting.
        self._levels: list[dict[tuple[str, Key], Fact]] = [{}]
        self._level_of: dict[tuple[str, Key], int] = {}
        self.bytes = 0
        """Size of all facts as they travel."""

    def get(self, kind: str, key: Key) -> Fact | None:
        """What is known about something."""
        return self._facts[kind].get(key)

    def all(self, kind: str) -> Iterable[Fact]:
        """Everything known of a kind."""
        return self._facts[kind].values()

    def count(self, kind: str) -> int:
        """How many facts of a kind there are."""
        return len(self._facts[kind])

    def merge(self, fact: Fact, *, tell: bool = True) -> bool:
        """Take a fact if it is news; it is then passed on. False if as much was known before."""
        known = self._facts[fact.kind].get(fact.key)
        if known is not None:
            if not newer(fact, known):
                return False
            self._digests[known.bucket] ^= known.check
            self.bytes -= len(known.packed)
            assert self.bytes >= 0
        self._facts[fact.kind][fact.key] = fact
        self._digests[fact.bucket] ^= fact.check
        self.bytes += len(fact.packed)
        if tell:
            self._put((fact.kind, fact.key), fact, 0)
        return True

    def forget(self, kind: str, key: Key) -> None:
        """Drop a fact that has done its service."""
        fact = self._facts[kind].pop(key, None)
        if fact is not None:
            self._digests[fact.bucket] ^= fact.check
            self.bytes -= len(fact.packed)
            self._drop((kind, key))
            assert self.bytes >= 0

    # --- Rumours --------------------------------------------------------------------------------

    @property
    def rumours(self) -> int:
        """How many facts are still to be passed on."""
        return len(self._level_of)

    def tell(self, fact: Fact) -> None:
        """Pass a fact on (again), known as it is."""
        self._put((fact.kind, fact.key), fact, 0)

    def rumour(self, kind: str, key: Key) -> bool:
        """Whether something is still being passed on."""
        return (kind, key) in self._level_of

    def choose(self, bytes_max: int, brokers: int) -> list[Fact]:
        """Facts for one message, least told first; counted as told once more."""
        times_max = times_to_tell(brokers)
        chosen: list[tuple[tuple[str, Key], Fact, int]] = []
        left = bytes_max
        for level, facts in enumerate(self._levels):
            for name in reversed(facts):  # The newest first.
                fact = facts[name]
                if len(fact.packed) + 5 > left:
                    continue
                left -= len(fact.packed) + 5
                chosen.append((name, fact, level))
                if left < 64:
                    break
            if left < 64:
                break
        for name, fact, level in chosen:
            self._told(name, fact, level, times_max)
        return [fact for _, fact, _ in chosen]

    def _told(self, name: tuple[str, Key], fact: Fact, level: int, times_max: int) -> None:
        if level + 1 >= times_max:
            self._drop(name)
        else:
            self._put(name, fact, level + 1)

    def _put(self, name: tuple[str, Key], fact: Fact, level: int) -> None:
        assert name == (fact.kind, fact.key), "a rumour is the fact of its name"
        self._drop(name)
        while len(self._levels) <= level:
            self._levels.append({})
        self._levels[level][name] = fact
        self._level_of[name] = level

    def _drop(self, name: tuple[str, Key]) -> None:
        level = self._level_of.pop(name, None)
        if level is not None:
            del self._levels[level][name]

    def check(self) -> None:
        """What holds between two messages; without a look at each fact."""
        assert self.bytes >= 0 and len(self._digests) == BUCKETS
        assert self.rumours == sum(map(len, self._levels)), "a rumour is told at one level"
        assert self.bytes > 0 or not any(self._facts.values()), "a fact has bytes"
        assert self.bytes == 0 or any(self._facts.values()), "and only facts have"

    # --- Anti-entropy -----------------------------------------------------------------------------

    def digests(self) -> bytes:
        """One hash for each bucket of facts."""
        return b"".join(digest.to_bytes(8, "little") for digest in self._digests)

    def differing(self, digests: bytes) -> set[int]:
        """The buckets in which another broker has something else."""
        theirs = memoryview(digests).cast("Q")
        assert len(theirs) == BUCKETS
        return {bucket for bucket in range(BUCKETS) if theirs[bucket] != self._digests[bucket]}

    def in_buckets(self, buckets: set[int]) -> Iterator[Fact]:
        """All facts of these buckets."""
        for facts in self._facts.values():
            yield from (fact for fact in facts.values() if fact.bucket in buckets)


def times_to_tell(brokers: int) -> int:
    """How often each broker passes a rumour on: enough that it dies out after all have heard it."""
    assert brokers >= 1, "this one is there"
    return limits.GOSSIP_TELL_FACTOR * max(1, math.ceil(math.log10(brokers + 1)))
