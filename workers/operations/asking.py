"""How many workers this broker shall have, as its configuration says: its entry of the target.

The configuration is one broker's, and the target the cluster's; so a broker whose configuration was
changed asks for its own entry to be changed, compare and set, until it has got it.
"""

import asyncio
import logging
import random
from collections.abc import Callable

from msgspec.structs import replace

from barco.cluster.ring.target import Target
from barco.errors import BarcoError, ConflictError, RequestError
from barco.model.options import WorkerOptions, cluster_mark
from barco.workers.operations.service import ShardService
from barco.workers.seams import SiblingsLike

LOOK_SECONDS = 1.0
ASK_SECONDS = 10.0

log = logging.getLogger("barco.worker")


class WorkersAsked:
    """What one broker asks for, in the process that speaks for it."""

    def __init__(
        self,
        options: WorkerOptions,
        service: ShardService,
        siblings: SiblingsLike,
        granted: Callable[[], None],
    ) -> None:
        """granted: told once the target has the number that was asked for."""
        assert options.workers_asked > 0, "who asks for nothing has nothing to do"
        self._options, self._service, self._siblings = options, service, siblings
        self._asked = options.workers_asked
        self._me = int(options.process[0])
        self._granted = granted
        self._said = ""

    async def run(self) -> None:
        """Until it is granted. A refusal is said once; the reason for it may pass."""
        while not await self.look():
            # Brokers that were restarted together do not refuse one another for ever.
            await asyncio.sleep(LOOK_SECONDS * (0.5 + random.random()))

    async def look(self) -> bool:
        """Ask once; whether there is nothing more to ask for."""
        if self._options.worker != self._service.ranges.speaker:
            return False
        try:
            target = await self._service.target.ask(self._siblings)
            now = target.workers.get(self._me)
            if now is None:
                return False  # It has not joined; until then nobody counts its workers.
            if now != self._asked:
                log.info("broker.workers = %d is asked for, instead of %d", self._asked, now)
                await self._change(target)
        except (ConflictError, RequestError) as error:
            self._say(error)
            return False
        except BarcoError:
            return False  # Nobody keeps the target just now.
        self._granted()
        return True

    async def _change(self, target: Target) -> None:
        leaders, ranges = self._service.leaders, self._service.ranges
        peer = leaders.peer(ranges.of_slice(0))
        if peer is None:
            raise ConflictError("nobody leads slice 0 just now")
        listed = [
            replace(each, workers=self._asked) if each.ordinal == self._me else each
            for each in target.brokers
        ]
        wanted = replace(target, brokers=tuple(listed))
        args = wanted.change_args(cluster_mark(self._options.cluster_uuid))
        await self._siblings.call(peer, "target_change", args, ASK_SECONDS)

    def _say(self, error: BarcoError) -> None:
        if error.detail != self._said:
            self._said = error.detail
            log.warning(
                "broker.workers = %d is not carried out yet: %s. It is asked for again and again;"
                " barco scale --workers %d --broker %d asks for the same",
                *(self._asked, error.detail, self._asked, self._me),
            )
