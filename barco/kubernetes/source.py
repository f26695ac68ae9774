"""A StatefulSet's replica count as the number of brokers that a cluster shall have."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from barco.errors import BarcoError
from barco.kubernetes.pods import StatefulSet
from barco.supervisor.sources.changes import fewer

log = logging.getLogger("barco.kubernetes")

BACKOFF_SECONDS_MAX = 30.0


class ReplicaCount:
    """Makes more replicas the cluster's target. Every broker does: the same wish is no change."""

    def __init__(self, wish: Callable[[Sequence[str]], Awaitable[str]]) -> None:
        """wish: brokers with these addresses, by ordinal, shall be in the cluster."""
        self._wish = wish
        self._before = 0

    async def run(self, changes: "asyncio.Queue[StatefulSet]") -> None:
        """For as long as the broker runs: only the latest that was told counts."""
        found, failures = await changes.get(), 0
        while True:
            while not changes.empty():
                found = changes.get_nowait()
            done = await self._take(found.replicas)
            failures = 0 if done else failures + 1
            wait = min(2.0**failures, BACKOFF_SECONDS_MAX) if failures else None
            try:
                found = await asyncio.wait_for(changes.get(), wait)
            except TimeoutError:
                pass  # The same once more: what stood in its way may have passed.

    async def _take(self, replicas: int) -> bool:
        """Whether there is nothing left to say of it."""
        before, self._before = self._before, replicas
        if replicas < before:
            log.error("%s", fewer("spec.replicas says", replicas, before))
            return True
        try:
            # Where they are they say themselves when they come.
            said = await self._wish([""] * replicas)
        except BarcoError as error:
            if replicas != before:
                log.warning("spec.replicas = %d, not yet: %s", replicas, error.detail)
            return False
        if replicas != before:
            log.info("spec.replicas = %d: %s", replicas, said)
        return True
