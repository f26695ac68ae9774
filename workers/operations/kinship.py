"""What the journal of one process says of its range's history: what is here, what is elsewhere."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from barco.cluster.replica.replica import Replica
from barco.cluster.state.kin import Ancestor, KnownLineage, far
from barco.model.generation import Generation, Gid
from barco.model.options import WorkerOptions
from barco.model.ranges import peer_of
from barco.types import Epoch, Token
from barco.workers.operations.leaving.ended import lodged_here
from barco.workers.peers.ranges import RingRanges
from barco.workers.storage.stores.replicas import ReplicaStore
from barco.workers.storage.stores.shard_files import GENERATIONS_TOLD_MAX


class HoldsLogs(Protocol):
    """What is asked of a driver (`barco.workers.replication.driver`)."""

    @property
    def machine(self) -> Replica | None:
        """For questions; None before everything was recovered."""

    @property
    def generation(self) -> Generation | None:
        """The newest that is led or followed here."""

    def record(self, gid: Gid) -> Generation | None:
        """A generation, if it is known here."""

    def unread(self) -> frozenset[Gid]:
        """Those that have ended and of which not all can be read here yet."""


class Kinship:
    """Of one process."""

    def __init__(
        self, options: WorkerOptions, ranges: RingRanges, store: ReplicaStore, driver: HoldsLogs
    ) -> None:
        self._token, self._peer = options.held.token, options.peer
        self._me = int(options.process[0])
        self._ranges, self._store, self._driver = ranges, store, driver
        self._far: tuple[Any, list[Ancestor]] = (None, [])
        self.changes: Callable[[], int] = lambda: 0
        """Another number whenever a copy was lodged here (`Lodging`)."""

    def journal(self) -> KnownLineage | None:
        """What is known here; None before it was read."""
        machine = self._driver.machine
        return None if machine is None else machine.journal()

    def known(self) -> KnownLineage:
        """What is known here, for who has waited for the recovery."""
        journal = self.journal()
        assert journal is not None, "who asks has waited for the recovery"
        return journal

    def far(self) -> list[Ancestor]:
        """What this range continues and this process does not have, the newest first."""
        machine, generation = self._driver.machine, self._driver.generation
        if machine is None:
            return []
        lacking = self._driver.unread()
        named = generation and generation.gid
        key = (named, machine.decisions(), lacking, self.changes())
        if self._far[0] != key:
            lodged = lodged_here(self._token, self._store.lineage)
            self._far = (key, far(machine.journal(), self._token, self._me, lacking, lodged))
        return self._far[1]

    def here(self, gid: Gid) -> bool:
        """Whether this process has, or had, the groups of a generation that has ended."""
        record = self._driver.record(gid)
        seated = record is not None and record.seat(self._me) is not None
        if gid.token != self._token or gid in self._driver.unread():
            return False
        return seated or gid in lodged_here(self._token, self._store.lineage)

    def others_with(self, gid: Gid) -> list[int]:
        """The other processes that have a generation, this broker's first, by their numbers in the
        cluster. Any broker tells of a process for any range: where the members are known, others
        have no word."""
        return self.others_of(gid, self._driver.record(gid))

    def others_of(self, gid: Gid, generation: Generation | None) -> list[int]:
        """Of a generation whose members are those of this record, as `others_with`."""
        members = [] if generation is None else [each.ordinal for each in generation.members]
        found = self._ranges.processes_of_token(gid.token)
        found = [each for each in found if not members or each[0] in members]
        found.sort(key=lambda each: each[0] != self._me)
        return [peer for peer in map(peer_of, found) if peer != self._peer]

    def line(self, elsewhere: Iterable[Ancestor]) -> list[dict[str, Any]]:
        """The generations of this range, the oldest first: those that are here, and before them
        those that are elsewhere, as far as they are known."""
        found = [_told(each.gid, each.tail, each.members) for each in elsewhere]
        for each in self._store.topology():
            gid = Gid(Token(self._token), Epoch(each["epoch"]))
            generation = self._driver.record(gid)
            members = () if generation is None else generation.members
            found.append(_told(gid, each["tail"], [member.ordinal for member in members]))
        assert all(each["epoch"] > 0 for each in found), "an epoch is a number from 1"
        found.sort(key=lambda each: each["epoch"])
        return found[-GENERATIONS_TOLD_MAX:]


def _told(gid: Gid, tail: int, members: Iterable[int]) -> dict[str, Any]:
    """A generation, for documents; tail -1: it is open."""
    return {"epoch": gid.epoch, "tail": tail, "token": str(gid.token), "members": list(members)}
