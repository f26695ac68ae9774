"""Whether every slice of the ring can be written through this worker, and whom a stop waits for."""

import asyncio
from collections.abc import Callable

from barco.errors import BarcoError
from barco.workers.operations.service import ShardService
from barco.workers.seams import SiblingsLike

LOOK_SECONDS = 0.02
"""Between two looks until the first time that all can be written."""

WAIT_SECONDS = 0.1
"""Between two looks at whether another replica has caught up."""

ASK_SECONDS = 1.0


class Readiness:
    """Of one worker."""

    def __init__(self, service: ShardService) -> None:
        self._service = service
        self._options = service.options

    def writable(self) -> bool:
        """Its own shard has a leader who gets groups committed, and it reaches all the others'; and
        it has heard who may do what."""
        service = self._service
        if not service.access.is_heard:
            return False
        if self.waits:
            return not service.unreached()
        own = service.epoch > 0 and bool(service.gate.status().get("writable", True))
        return own and not service.unreached()

    @property
    def waits(self) -> bool:
        """Whether it was made for a range of which it has not heard yet, or has what is history of
        one that others hold now: nobody waits for it."""
        token, ranges = self._options.held.token, self._service.ranges
        if not self._options.held.genesis and self._service.epoch == 0:
            return True
        return not ranges.known(token) or self._options.process[0] not in ranges.members(token)

    async def announce(self, tell: Callable[[], None]) -> None:
        """Tells once, when it is so. However long that takes: at a cluster's first start nobody
        leads before all three brokers are there."""
        while not self.writable():
            await asyncio.sleep(LOOK_SECONDS)
        tell()

    async def await_others(self, siblings: SiblingsLike, seconds: float) -> None:
        """Before a stop: while another broker that holds this shard is there, but behind, its
        copies and this one's are all that there is. Were this one to go, nobody could acknowledge
        until the other has caught up. Waits no longer than this."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end and await self._behind(siblings):
            await asyncio.sleep(WAIT_SECONDS)

    async def _behind(self, siblings: SiblingsLike) -> bool:
        leaders, options = self._service.leaders, self._options
        leader = leaders.peer(options.held.token)
        if leader is None:
            return False  # Whoever takes it over does not wait for this one.
        try:
            told = await siblings.call(leader, "standing", {}, ASK_SECONDS)
        except BarcoError:
            return False
        return any(
            each["ordinal"] != options.ordinal
            and each["state"] in ("live", "behind")
            and not each.get("synced", True)
            for each in told["replication"].get("followers", ())
        )
