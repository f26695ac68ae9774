"""A range that this broker has left: its last events, and the process that goes on for them.

Whoever is a member of no open generation keeps what has ended until retention is done with it, all
of it then, for nothing comes behind. A reader of what follows believes that there is nothing only
of who had it. So the process goes on until the members of what follows have noted it (`gone`), and
then says that it is spent: its broker ends it once neither target nor routes want it.
"""

from barco.cluster.state.kin import TOKEN_END, Ancestor
from barco.model.generation import Gid
from barco.model.options import WorkerOptions
from barco.model.ranges import peer_of
from barco.types import Epoch, Token
from barco.workers.operations.handovers import look_for_children
from barco.workers.operations.history import History, who_removed
from barco.workers.operations.kinship import HoldsLogs
from barco.workers.operations.service import ShardService
from barco.workers.peers.voices import VOICES
from barco.workers.seams import SiblingsLike
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.stores.replicas import ReplicaStore

ASKED_MAX = 64
"""Generations that are asked about, the newest: of what is older nobody asks whom these are gone
for."""


def ended_here(token: int, lineage: Lineage) -> list[Ancestor]:
    """The generations of this range that were here as those of a member or as a copy, and have a
    group, the newest first; by now retention may have removed them."""
    found = [
        Ancestor(Gid(Token(token), Epoch(each.epoch)), each.tail, TOKEN_END, ())
        for each in lineage.generations()
        if each.tail
    ]
    return found[::-1]


class Left:
    """What one process does before retention, and whether it is still needed."""

    def __init__(
        self,
        options: WorkerOptions,
        store: ReplicaStore,
        driver: HoldsLogs,
        history: History,
        service: ShardService,
        siblings: SiblingsLike,
    ) -> None:
        self._token, self._peer = options.held.token, options.peer
        self._held, self._store, self._driver, self._history = options.held, store, driver, history
        self._ranges, self._siblings, self._voices = service.ranges, siblings, service.voices.of
        self._staging, self._me = service.staging, int(options.process[0])
        self._spent = False

    @property
    def is_left(self) -> bool:
        """Whether this broker is a member of no open generation of this range, as far as it has
        heard."""
        machine = self._driver.machine
        return machine is not None and machine.aimless()

    def idle(self) -> dict[str, bool]:
        """What the supervisor is told with each sign of life. blank: nothing was ever here, no vote
        either. spent: what was here is gone, and nobody needs to be told so."""
        blank = self._store.lineage.blank and self._driver.machine is not None
        return {"blank": blank, "spent": self._spent and self.is_left}

    async def look(self, now_us: int = 0) -> None:
        """Before retention (S8): what follows elsewhere may have begun, and of what was before
        nothing may be left."""
        parts = self._ranges, self._siblings, self._voices
        await look_for_children(self._token, self._store, *parts)
        lineage = self._store.lineage
        own = ended_here(self._token, lineage) if self.is_left else []
        left = [each for each in own if not _is_expired(lineage, each)]
        await self._history.look_for_gone(lineage.gone, left)
        self._spent = self.is_left and await self._is_spent(own[:ASKED_MAX])

    async def retain(self, now_us: int) -> int:
        """Deletes what is due by the log's own clock; returns how many segments."""
        return await self._store.run_retention(now_us, left=self.is_left)

    async def _is_spent(self, own: list[Ancestor]) -> bool:
        if not own or not self._is_empty() or self._staging.writes:
            return False
        if self._store.health()["setAside"]:
            return False  # An operator is to look at it.
        for each in own:
            for token in self._followers(each.gid):
                if not await self._is_known_gone(each, token):
                    return False
        return True

    def _is_empty(self) -> bool:
        """Whether all that was ever here has ended, and retention has removed it. How the range
        goes on without this broker is known here as well."""
        for each in self._store.lineage.generations():
            record = self._driver.record(Gid(Token(self._token), Epoch(each.epoch)))
            strange = record is not None and record.seat(self._me) is None and each.lodged is None
            if not (strange or each.expired or each.tail == 0):
                return False
        return True

    def _followers(self, gid: Gid) -> list[int]:
        """The ranges of the ring that its slices are in now."""
        record, numbers = self._driver.record(gid), self._held.numbers
        after = self._ranges.slice_at(record.end) if record is not None else numbers.stop
        return list(dict.fromkeys(map(self._ranges.of_slice, range(self._held.first, after))))

    async def _is_known_gone(self, ended: Ancestor, token: int) -> bool:
        """Whether members of a range know that retention has removed it: two of them, or the only
        one. This process is not counted: it is about to end."""
        members = self._ranges.members(token)
        peers = {peer_of(each) for each in self._ranges.holders(token)} - {self._peer}
        words = await who_removed(self._siblings, peers, ended)
        return len(self._voices(words)) >= min(VOICES, len(members))


def _is_expired(lineage: Lineage, ended: Ancestor) -> bool:
    known = lineage.get(ended.gid.epoch)
    return known is not None and known.expired
