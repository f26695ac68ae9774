"""A simulated disk: what is stable, what is on its way, and what a crash leaves of that."""

from collections import deque
from random import Random
from typing import Any

from barco.cluster.replica.doubt import UNKNOWN
from barco.cluster.state.core import Recovered
from barco.model.generation import Ballot, Gid, GroupHead, Identity
from barco.protocol.replication import (
    AcceptedRecord,
    AsideRecord,
    DecidedRecord,
    DoubtRecord,
    JournalRecord,
    PromisedRecord,
)


class Disk:
    """One broker's disk. Logs and journal hold only what is stable."""

    def __init__(self, identity: Identity, replaces: bytes = b"") -> None:
        self.identity = identity
        self.replaces = replaces
        self.journal: list[JournalRecord] = []
        self.logs: dict[Gid, list[GroupHead]] = {}
        self.rotten: dict[Gid, int] = {}
        """The last good group of a log whose later ones are corrupt."""
        self.sealed: set[Gid] = set()
        """Whose logs are whole, and part of what readers see."""
        self.promised: dict[Gid, Ballot] = {}
        self.accepted: dict[Gid, tuple[Ballot, object]] = {}
        self.in_flight: dict[Gid, deque[GroupHead]] = {}
        self.unsynced: deque[tuple[int, tuple[JournalRecord, ...]]] = deque()
        self.kept: dict[Gid, tuple[GroupHead, ...]] = {}
        """Groups that a start puts into the log (`storage.kept`)."""
        self.full = False
        self.witness: dict[Gid, int] = {}
        """What was committed, as the headers of a log's groups say."""
        self.aside: list[tuple[AsideRecord, dict[Gid, list[GroupHead]]]] = []
        """What was set aside, and why."""

    def log(self, gid: Gid) -> list[GroupHead]:
        """The stable groups of a generation."""
        found = self.logs.get(gid)
        if found is None:
            found = self.logs[gid] = []
        return found

    def flying(self, gid: Gid) -> deque[GroupHead]:
        """Its submitted groups."""
        found = self.in_flight.get(gid)
        if found is None:
            found = self.in_flight[gid] = deque()
        return found

    def end(self, gid: Gid) -> tuple[int, int]:
        """(gseq, header_crc) after everything submitted."""
        flying = self.in_flight.get(gid)
        if flying:
            return flying[-1].gseq, flying[-1].header_crc
        log = self.logs.get(gid)
        return (log[-1].gseq, log[-1].header_crc) if log else (0, 0)

    def holds(self, gid: Gid, gseq: int) -> bool:
        """Whether groups 1 to gseq are stable and sound."""
        return gseq == 0 or len(self.logs.get(gid, ())) >= gseq

    def record(self, record: JournalRecord) -> None:
        """A journal record is stable now."""
        self.journal.append(record)
        self._vote(record)

    def _vote(self, record: JournalRecord) -> None:
        if isinstance(record, PromisedRecord):
            self.promised[record.gid] = record.ballot
        elif isinstance(record, AcceptedRecord):
            self.promised[record.gid] = record.ballot
            self.accepted[record.gid] = (record.ballot, record.value)

    def crash(self, rng: Random) -> list[JournalRecord]:
        """Of what was on its way, any prefix may have arrived. Returns the journal's part."""
        arrived = []
        for _ in range(rng.randint(0, len(self.unsynced))):
            _, records = self.unsynced.popleft()
            for record in records:
                self.record(record)
                arrived.append(record)
        self.unsynced.clear()
        for gid, flying in self.in_flight.items():
            for _ in range(rng.randint(0, len(flying))):
                head = flying.popleft()
                log = self.log(gid)
                # A hole ends what recovery finds: later groups are not reached.
                if head.gseq == len(log) + 1:
                    log.append(head)
            flying.clear()
        for gid, row in self.kept.items():
            log = self.log(gid)
            log += [head for head in row if head.gseq > len(log) and self._goes_on(log, row)]
        self.kept.clear()
        return arrived

    @staticmethod
    def _goes_on(log: list[GroupHead], row: tuple[GroupHead, ...]) -> bool:
        """Whether a row that was kept has what comes next."""
        return row[0].gseq <= len(log) + 1 <= row[-1].gseq

    def recovered(self) -> dict[Gid, Recovered]:
        """What recovery finds (storage rules S3 and S5)."""
        found = {}
        for gid, log in self.logs.items():
            crc = log[-1].header_crc if log else 0
            known = (
                gid in self.rotten,
                gid in self.sealed,
                min(self.witness.get(gid, 0), len(log)),
            )
            found[gid] = Recovered(len(log), crc, *known)
        return found

    def set_aside(self) -> None:
        """What the journal gave up, at a start."""
        wishes = [record for record in self.journal if isinstance(record, AsideRecord)]
        for record in wishes[len(self.aside) :]:
            gone = [gid for gid in self.logs if gid.epoch > record.gid.epoch]
            if record.tail > record.value.tail:
                gone.append(record.gid)
            self.aside.append((record, {gid: self.logs.pop(gid, []) for gid in gone}))
            self.sealed -= {record.gid, *gone}
            for known in (self.promised, self.accepted, self.witness):
                for gid in gone:
                    known.pop(gid, None)

    def copy(self) -> dict[str, Any]:
        """What a copy of the directory holds."""
        names = ("journal", "rotten", "sealed", "promised", "accepted", "witness", "aside", "kept")
        found: dict[str, Any] = {name: getattr(self, name).copy() for name in names}
        return found | {"logs": {gid: log.copy() for gid, log in self.logs.items()}}

    def roll_back(self, copy: dict[str, Any]) -> None:
        """The directory is that copy again."""
        for name, value in copy.items():
            setattr(self, name, value)

    def forget(self, rng: Random) -> None:
        """Frames of the journal are lost in both copies: any records, and that is known."""
        self.journal = [record for record in self.journal if rng.random() < 0.5]
        self.journal.append(DoubtRecord(UNKNOWN, 0))
        self.promised.clear()
        self.accepted.clear()
        for record in self.journal:
            self._vote(record)

    def doubts(self) -> int:
        """Up to which epoch it has no vote, for it may have had one."""
        said = [each.upto for each in self.journal if isinstance(each, DoubtRecord)]
        return said[-1] if said else 0

    def rot(self, gid: Gid, gseq: int) -> None:
        """Group `gseq` can not be read any more, and so nothing after it."""
        del self.log(gid)[gseq - 1 :]
        self.rotten[gid] = gseq - 1

    def decided(self, gid: Gid) -> bool:
        """Whether the journal knows the generation's successor."""
        return any(isinstance(each, DecidedRecord) and each.gid == gid for each in self.journal)
