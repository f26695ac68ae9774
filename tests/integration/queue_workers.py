"""Some who take part in a queue, and what they have seen."""

import random
import threading
import time

import barco
from barco.errors import BarcoError

SECONDS = 120.0
"""Generous: it only ends what has failed."""


class Workers:
    """Some who take part, each at a broker of its own, and what they have seen."""

    def __init__(self, endpoints: list[str], count: int, wanted: int) -> None:
        self.acked: dict[bytes, float] = {}
        """When the answer to the acknowledgement was there."""
        self.again: list[bytes] = []
        """What was acknowledged, and came all the same."""
        self.order: dict[bytes, list[int]] = {}
        self.failures: list[Exception] = []
        self.wanted = wanted
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(
                target=self._work, args=([endpoints[n % 3], *endpoints], n), daemon=True
            )
            for n in range(count)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def done(self) -> bool:
        return len(self.acked) >= self.wanted or bool(self.failures)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive()

    def _work(self, endpoints: list[str], seed: int) -> None:
        chance = random.Random(seed)
        try:
            with barco.Queue("t", "q", endpoints, timeout_s=SECONDS) as queue:
                while not self.done:
                    self._some(queue, chance)
        except Exception as error:  # noqa: BLE001 - told by the test.
            self.failures.append(error)

    def _some(self, queue: barco.Queue, chance: random.Random) -> None:
        began = time.monotonic()
        try:
            got = queue.lease(20, wait_s=0.5)
        except BarcoError as error:
            assert error.retryable, error
            return
        keep = [each for each in got if chance.random() < 0.8]
        with self._lock:
            self.again += [
                each.value for each in got if self.acked.get(each.value or b"", began) < began
            ]
            for each in got:
                self.order.setdefault(each.key or b"", []).append(int(each.value or b"0"))
        if keep:
            queue.ack(*keep)
            now = time.monotonic()
            with self._lock:
                for each in keep:
                    self.acked.setdefault(each.value or b"", now)
        rest = [each for each in got if each not in keep]
        if rest and chance.random() < 0.7:  # Of the others the time ends.
            try:
                queue.nack(*rest)
            except BarcoError as error:
                assert error.status == 409 or error.retryable, error
