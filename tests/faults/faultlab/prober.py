"""How long nothing could be written: clients that try everywhere, all the time."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Container, Sequence
from typing import NamedTuple

from faultlab.ring import KEYS, Ring
from faultlab.wire import Wire

PACE_S = 0.01
TIMEOUT_S = 1.0
"""Of one attempt: meanwhile the clients of the other brokers go on."""


class Gap(NamedTuple):
    """A time without any acknowledgement."""

    seconds: float
    at: int
    """Which range of the ring."""
    since: float
    """Monotonic."""

    def __str__(self) -> str:
        end = time.time() - time.monotonic() + self.since + self.seconds
        clock = time.strftime("%H:%M:%S", time.gmtime(end))
        return f"{self.seconds:.2f} s (range {self.at}, until {clock}.{end % 1 * 1000:03.0f})"


class Prober:
    """For each range of the ring (or each slice) and each broker one client. Knows when each was
    written."""

    def __init__(self, ring: Ring, pace_s: float = PACE_S, *, slices: bool = False) -> None:
        """`pace_s`: between two requests of a client, besides what these take. `slices`: each of
        them is written, and not only the first one of each range."""
        self._pace_s = pace_s
        self._stopping = threading.Event()
        self._keys = KEYS if slices else KEYS[:: ring.placement.slices_per_range]
        self._acks: dict[int, list[float]] = {at: [] for at in range(len(self._keys))}
        self._answers: list[tuple[float, float, str, int]] = []
        """When each request was answered, how long that took, how, and of which range."""
        self._threads = [
            threading.Thread(target=self._run, args=(at, key, node.port), daemon=True)
            for at, key in enumerate(self._keys)
            for node in ring.nodes
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, at: int, key: str, address: tuple[str, int]) -> None:
        wire = None
        target = f"/v1/topic/prober/messages?partitionKey={key}"
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                wire = wire or Wire(address, TIMEOUT_S)
                answer, now = wire.call("POST", target, b"x"), time.monotonic()
                told = answer.headers.get("barco-outcome", "")
                self._answers.append((now, now - began, f"{answer.status} {told}".strip(), at))
                if answer.status == 200:
                    self._acks[at].append(now)
            except (OSError, EOFError) as error:
                now = time.monotonic()
                self._answers.append((now, now - began, type(error).__name__, at))
                if wire is not None:
                    wire.close()
                wire = None
            time.sleep(self._pace_s)

    def gaps(self, since: float, until: float, *, impossible_before: bool = False) -> list[Gap]:
        """The longest time without any acknowledgement for each range, in this time.

        impossible_before: nothing could be written until then, so it is counted from there.
        """
        found = []
        for at in range(len(self._keys)):
            acks = sorted(self._acks[at][:])
            before = [since] if impossible_before else [t for t in acks if t <= since][-1:]
            times = [*before, *(t for t in acks if since < t <= until), until]
            gaps = [Gap(b - a, at, a) for a, b in itertools.pairwise(times)]
            found.append(max(gaps, default=Gap(until - since, at, since)))
        return found

    def took(self, since: float, until: float, but: Container[int] = ()) -> list[float]:
        """Seconds of each request that was acknowledged in this time, but those of some ranges."""
        answers = [each for each in self._answers[:] if since <= each[0] <= until]
        return [took for _, took, how, of in answers if how == "200" and of not in but]

    def answered(self, since: float) -> Counter[str]:
        """How often each answer was given since then: its status, and what it says of the event;
        or the error."""
        return Counter(how for at, _, how, _ in self._answers[:] if at >= since)

    def await_all(self, until: float) -> bool:
        """Whether each range has been written once more, at the latest at this time."""
        since = time.monotonic()
        for at in range(len(self._keys)):
            while not (acks := self._acks[at]) or acks[-1] < since:
                if time.monotonic() > until:
                    return False
                time.sleep(PACE_S)
        return True

    def forget(self) -> None:
        """Nobody will ask for more than the last second any more."""
        now = time.monotonic()
        self._answers = [each for each in self._answers[:] if each[0] > now - 5]
        for acks in self._acks.values():
            acks[:] = [ack for ack in acks if ack > now - 1]

    def stop(self) -> None:
        """No client is under way any more."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(30)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that so many are not above."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
