"""A simulated disk: what is stable, what is on its way, and what a crash leaves of that."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from random import Random
from typing import Any

from barco.model.generation import Ballot, Gid, GroupHead, Identity
from barco.protocol.replication import (
    AcceptedRecord,
    AsideRecord,
    DecidedRecord,
    DoubtRecord,
    JournalRecord,
    PromisedRecord,
)

from .images import Spot, rotten, torn
from .journal import Files


class Seen:
    """Which rare branches this world and its copies have been through (test_sometimes.py)."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def note(self, name: str, *, when: bool = True) -> None:
        if when:
            self.names.add(name)


class Disk:
    """One broker's disk. Logs and journal hold only what is stable."""

    def __init__(
        self,
        identity: Identity,
        replaces: bytes = b"",
        *,
        seen: Seen | None = None,
        seed: int = 0,
        files: type[Files] = Files,
    ) -> None:
        self.identity = identity
        self.seen = seen or Seen()
        self.replaces = replaces
        self.files = files(f"{seed} {identity}", self.seen.note)
        self.logs: dict[Gid, list[GroupHead]] = {}
        self.behind: dict[Gid, tuple[Spot, ...]] = {}
        """What stands in the places after the last group of `logs`, where it is not all zeros: torn
        by a crash, or damaged, and sound ones behind that."""
        self.upto: dict[int, int] = {}
        """`durable_upto` in the header of each group, by its content. The world's."""
        self.sealed: dict[Gid, int] = {}
        """Whose logs are part of what readers see, with their tails: all was here once."""
        self.promised: dict[Gid, Ballot] = {}
        self.accepted: dict[Gid, tuple[Ballot, object]] = {}
        self.in_flight: dict[Gid, deque[GroupHead]] = {}
        self.unsynced: tuple[JournalRecord, ...] = ()
        """The append to the journal that is under way."""
        self.kept: dict[Gid, tuple[GroupHead, ...]] = {}
        """Groups that a start puts into the log (`storage.kept`)."""
        self.begins: dict[Gid, int] = {}
        """Logs of which retention has left the groups from this one on. The heads of those before
        stay, for the log's end; they are served to nobody."""
        self.done: dict[Gid, set[int]] = {}
        """Appends of the core that ended before an earlier one."""
        self.loose: dict[Gid, int] = {}
        """Logs whose groups after this one can be read, and are lost with the power."""
        self.doomed: dict[Gid, int] = {}
        """Logs whose groups after this one can be read until the next sync: theirs has failed."""
        self.full = False
        self.witness: dict[Gid, int] = {}
        """What was committed, as the headers of a log's groups say."""
        self._random = 0
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

    @property
    def journal(self) -> list[JournalRecord]:
        """What a start finds, or has found, and what was added."""
        return self.files.expected

    def add(self, records: Sequence[JournalRecord]) -> None:
        """Records of one append are stable now."""
        if records:
            self.files.append(records)
            for record in records:
                self._vote(record)

    def load(self, *, synced: bool) -> list[JournalRecord]:
        """What a start reads in the journal."""
        return self.files.load(expected=any(self.logs.values()), synced=synced)

    def believe(self, found: list[JournalRecord]) -> None:
        """What was read is what there is from now on."""
        if found != self.journal:
            self.files.expected = found
            self._vote_again()

    def _vote(self, record: JournalRecord) -> None:
        if isinstance(record, PromisedRecord):
            self.promised[record.gid] = record.ballot
        elif isinstance(record, AcceptedRecord):
            self.promised[record.gid] = record.ballot
            self.accepted[record.gid] = (record.ballot, record.value)

    def put(self, gid: Gid, heads: Iterable[GroupHead]) -> None:
        """The next groups of a log are in their places, over whatever stood there."""
        log = self.log(gid)
        for head in heads:
            log.append(head)
            if left := self.behind.pop(gid, ())[1:]:
                self.behind[gid] = left

    def complete(self, gid: Gid, gseq: int) -> GroupHead | None:
        """An append ended, maybe before an earlier one. The group up to which all have, if that is
        news."""
        done, flying, last = self.done.setdefault(gid, set()), self.flying(gid), None
        done.add(gseq)
        while flying and flying[0].gseq in done:
            last = flying.popleft()
            done.discard(last.gseq)
            self.put(gid, (last,))
        return last

    def crash(self, rng: Random, *, power: bool = False) -> None:
        """The process is gone, or the power. Of what was on its way any prefix has arrived: after a
        kill it can be read, but is not stable before it is synced."""
        if power:
            self._lose(rng)
        stable = len(self.journal)
        self.files.kill(self.unsynced, arrived=bool(self.unsynced) and rng.randint(0, 1) > 0)
        for record in self.journal[stable:]:
            self._vote(record)
        self.unsynced = ()
        for gid, flying in self.in_flight.items():
            log, done = self.log(gid), self.done.pop(gid, set())
            stable, arrived = len(log), rng.randint(0, len(flying))
            while arrived < len(flying) and flying[arrived].gseq in done:
                arrived += 1
            for _ in range(arrived):
                head = flying.popleft()
                if head.gseq == len(log) + 1:
                    self.put(gid, (head,))
            # A hole ends what recovery finds: later groups are not reached.
            self._tear(gid, flying, done)
            flying.clear()
            if not power and len(log) > stable:
                self.loose[gid] = min(self.loose.get(gid, stable), stable)
        for gid, row in self.kept.items():
            log = self.log(gid)
            if row[0].gseq <= len(log) + 1:
                self.seen.note("a row that was kept is restored", when=row[-1].gseq > len(log))
                self.put(gid, [head for head in row if head.gseq > len(log)])
        self.kept.clear()

    def _tear(self, gid: Gid, left: Sequence[GroupHead], done: Collection[int] = ()) -> None:
        """Appends that have not arrived leave something in their places. Over damage it is as it
        was: they are the same bytes."""
        if left and not self.behind.get(gid):
            self._random += 1
            rng = Random(f"{self.identity} {self._random}")
            self.behind[gid] = torn(left, done, self.upto, rng)
            self.seen.note("an append of a log is torn", when=self.behind[gid][0].stands)

    def _lose(self, rng: Random) -> None:
        """With the power goes any suffix of what was not synced."""
        for gid, stable in (self.loose | self.doomed).items():
            log = self.log(gid)
            end = stable if gid in self.doomed else rng.randint(min(stable, len(log)), len(log))
            self.seen.note("groups that were read are lost with the power", when=end < len(log))
            lost = log[end:]
            del log[end:]
            self._tear(gid, lost)
        end = len(self.journal)
        left = rng.randint(min(self.files.loose, end), end)
        self.seen.note("votes that were read are lost with the power", when=self.files.lose(left))
        self.sync()
        self._vote_again()

    def sync(self) -> None:
        """A start makes stable what it is about to read (rule S5). What a sync did not write that
        failed can be read until the next one: then it is gone."""
        for gid, stable in self.doomed.items():
            self.seen.note("a sync takes what another lost", when=len(self.log(gid)) > stable)
            del self.log(gid)[stable:]
        self.doomed.clear()
        self.loose.clear()

    def doom(self, gid: Gid) -> None:
        """Its appends fail: they can be read, until somebody syncs."""
        log, flying = self.log(gid), self.flying(gid)
        self.doomed[gid] = min(self.doomed.get(gid, len(log)), len(log))
        self.put(gid, flying)
        flying.clear()
        self.done.pop(gid, None)

    def set_aside(self) -> None:
        """What the journal gave up, at a start."""
        wishes = [record for record in self.journal if isinstance(record, AsideRecord)]
        for record in wishes[len(self.aside) :]:
            gone = [gid for gid in self.logs if gid.epoch > record.gid.epoch]
            if record.tail > record.value.tail:
                gone.append(record.gid)
            self.aside.append((record, {gid: self.logs.pop(gid, []) for gid in gone}))
            self.sealed.pop(record.gid, None)
            self.behind.pop(record.gid, None)
            for known in (
                *(self.promised, self.accepted, self.witness, self.begins),
                *(self.sealed, self.behind),
            ):
                for gid in gone:
                    known.pop(gid, None)

    def copy(self) -> dict[str, Any]:
        """What a copy of the directory holds."""
        names = (
            "behind",
            "sealed",
            "promised",
            "accepted",
            "witness",
            "aside",
            "kept",
            "loose",
            "doomed",
        )
        found: dict[str, Any] = {name: getattr(self, name).copy() for name in names}
        found["files"] = self.files.copy()
        return found | {"logs": {gid: log.copy() for gid, log in self.logs.items()}}

    def roll_back(self, copy: dict[str, Any]) -> None:
        """The directory is that copy again."""
        for name, value in copy.items():
            setattr(self, name, value)

    def forget(self, rng: Random) -> None:
        """Frames of the journal are lost in both copies: any records, and that is known."""
        self.files.forget(lambda: rng.random() < 0.5)
        self._vote_again()

    def _vote_again(self) -> None:
        self.promised.clear()
        self.accepted.clear()
        for record in self.journal:
            self._vote(record)

    def doubts(self) -> int:
        """Up to which epoch it has no vote, for it may have had one."""
        said = [each.upto for each in self.journal if isinstance(each, DoubtRecord)]
        return said[-1] if said else 0

    def skip(self, gid: Gid, first: int, prev_crc: int) -> None:
        """A log that has ended begins with this group."""
        last = GroupHead(first - 1, 0, prev_crc, 0)
        self.logs[gid] = [*(GroupHead(gseq, 0, 0, 0) for gseq in range(1, first - 1)), last]
        self.begins[gid] = first

    def damaged(self, gids: Iterable[Gid] | None = None) -> list[Gid]:
        """Of these generations, or all, those that have ended and are not sound to their tails."""
        among = self.sealed if gids is None else gids
        return [gid for gid in among if not self.holds(gid, self.sealed.get(gid, 0))]

    def rot(self, gid: Gid, gseq: int) -> None:
        """Group `gseq` can not be read any more, and so nothing after it."""
        self._random += 1
        rng = Random(f"{self.identity} {self._random}")
        log, old = self.log(gid), self.behind.get(gid, ())
        # Only the headers of others tell of what lacks sectors; or that it has ended later.
        told = max(self.upto.get(head.header_crc, 0) for head in log[gseq:] or log[-1:])
        known, sealed = gseq <= told, gid in self.sealed
        self.behind[gid] = (*rotten(log[gseq - 1 :], rng, known=known, sealed=sealed), *old)
        del log[gseq - 1 :]

    def decided(self, gid: Gid) -> bool:
        """Whether the journal knows the generation's successor."""
        return any(isinstance(each, DecidedRecord) and each.gid == gid for each in self.journal)
