"""lineage.log: what is known of every generation of a shard, and what was voted on its successor.

A frame for each append, some `records` in it; all of it twice (`twofold`).
"""

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from barco.workers.storage.files import layout, records
from barco.workers.storage.files.errors import ForeignJournalError
from barco.workers.storage.files.records import Claim, Generation, Home, Lodged, Name, Parting
from barco.workers.storage.files.twofold import Twofold


class Lineage:
    """The journal of one shard. Every method that adds a record returns after the fsync.

    They may be called from any thread, one at a time waits for the other.
    """

    def __init__(
        self, shard: Path, files: Twofold, content: records.Content, token: int | None
    ) -> None:
        """Use `Lineage.load`."""
        self._token = token
        self.path = shard / layout.LINEAGE_NAME
        self._files = files
        self._generations = content.generations
        self._wishes = content.wishes
        self._moved: set[int] = set()
        self._elsewhere, self._gone = content.elsewhere, content.gone
        self._lock = threading.Lock()
        self._wrote = False
        self.home: Home | None = content.home
        """Whose it is; None: it does not say so yet."""
        self.adopted = False
        """An earlier version has begun it, and it says now whose it is."""
        self.journal = content.journal
        """What the replica's machine promised, accepted and learned, as it was read at the start:
        maps of `barco.protocol.replication_codec`, in order."""
        self.hurt = files.hurt
        """What was wrong with the files; mended, unless `doubtful`."""
        self.doubtful = files.doubtful
        """Records were lost in both."""
        self.torn_bytes = files.torn_bytes

    @property
    def blank(self) -> bool:
        """Whether nothing was ever recorded: no generation, no vote, no copy."""
        return not (self._generations or self.journal or self._wrote)

    @property
    def damaged(self) -> int:
        """How many files were found damaged, gone or too short."""
        return len(self.hurt)

    @classmethod
    def load(
        cls,
        shard: str | os.PathLike[str],
        claim: Claim | None = None,
        *,
        token: int | None = None,
        repair: bool = True,
        expected: bool = True,
    ) -> "Lineage":
        """Reads lineage.log and looks for directories it does not know.

        With `repair` (not for offline inspection) what was read is made stable, and both copies
        are whole again. `expected`: where there are generations, there was one. `claim`: whose it
        has to be, and says that it is from then on; ForeignJournalError, and nothing is changed,
        if it is another's. None: nobody's who takes part in anything. `token`: of
        the range, where its journal may speak of others.
        """
        shard = Path(shard)
        epochs = layout.generation_epochs(shard)
        expected = expected and bool(epochs)
        name = str(shard / layout.LINEAGE_NAME)
        files = Twofold.load(shard, repair=False, doubt=records.DOUBT, expected=expected)
        content = records.read(name, files.bodies(), epochs, token)
        made = cls(shard, files, content, token)
        if claim is not None and (why := made.stranger(claim)) is not None:
            raise ForeignJournalError(name, why)
        if repair:
            made._mend(claim)
        return made

    def stranger(self, claim: Claim) -> str | None:
        """Why it is not the journal of this disk and range, in words; None: nothing says so."""
        begun = bool(self._generations or self.journal) and not self.doubtful
        return records.stranger(self.home, self.journal, claim, begun=begun)

    def _mend(self, claim: Claim | None) -> None:
        """What is said of whose it is comes with the first writing: never without the rest."""
        if claim is None or self.home is not None:
            self._files.mend()
            return
        self._files.mend(records.home_body(claim.home))
        self.home = claim.home
        self.adopted = bool(self._generations or self.journal)

    def generations(self) -> list[Generation]:
        """All that are known, by epoch."""
        return [self._generations[epoch] for epoch in sorted(self._generations)]

    def own(self) -> list[Generation]:
        """Those of which this broker is, or may be, a member: all but what is `lodged`."""
        return [each for each in self.generations() if each.lodged is None]

    def get(self, epoch: int) -> Generation | None:
        """The generation with this epoch, if it is known."""
        return self._generations.get(epoch)

    def to_set_aside(self, *, done: bool = False) -> list[tuple[int, Parting]]:
        """What the machine has given up: number and what it is. `done`: as it was read, whatever of
        it was `moved` since."""
        left = self._wishes.items()
        return [(number, wish) for number, wish in left if done or number not in self._moved]

    def moved(self, epoch: int, number: int) -> None:
        """Records that what was to be set aside has been."""
        self._append({"t": "moved", "e": epoch, "n": number})
        self._moved.add(number)

    def elsewhere(self, parent: Name) -> dict[Name | None, bool]:
        """Children of other ranges, who need the parent's groups until they have begun, and whether
        they have. None stands for whoever takes in what was handed off."""
        return self._elsewhere.get(parent, {})

    def begun(self, parent: Name, child: Name | None) -> None:
        """Records that the first group of such a child is committed."""
        told = list(child) if child is not None else None
        self._append({"t": "begun", "e": parent[1], "p": list(parent), "c": told})

    def is_gone(self, ancestor: Name) -> bool:
        """Whether it was noted that retention has removed a generation that is elsewhere."""
        return ancestor in self._gone

    def gone(self, ancestor: Name) -> None:
        """Records that of a generation that is elsewhere nothing is left there."""
        self._append(records.gone_record(ancestor))
        self._gone.add(ancestor)

    def described(self, epoch: int, session: int, parents: list[tuple[int, int]]) -> None:
        """Records a generation whose files are there already."""
        self._append({"t": "opened", "e": epoch, "s": session, "p": [list(p) for p in parents]})

    def opened(self, epoch: int, session: int, parents: list[tuple[int, int]]) -> None:
        """Records a new generation; before its first segment is made."""
        known = self._generations.get(epoch)
        assert known is None, f"epoch {epoch} was used before"
        self._append({"t": "opened", "e": epoch, "s": session, "p": [list(p) for p in parents]})

    def lodged(self, epoch: int, session: int, lodged: Lodged) -> None:
        """Records that a copy of what others hold is begun here, from nothing."""
        line = [list(each) for each in lodged.line]
        told = {"s": session, "m": list(lodged.members), "p": line}
        self._append({"t": "lodged", "e": epoch} | told)

    def sealed(self, epoch: int, tail: int, end_segment: int, end_bytes: int) -> None:
        """Records T of a generation. A second seal with the same T is a repeated recovery."""
        known = self._generations.get(epoch)
        if known is not None and known.tail is not None:
            assert known.tail == tail, f"epoch {epoch} was sealed at {known.tail}, not {tail}"
            return
        self._append({"t": "sealed", "e": epoch, "T": tail, "i": end_segment, "b": end_bytes})

    def lost(self, epoch: int, first: int, last: int) -> None:
        """Records that an operator gave up the groups from `first` on: T becomes `first` - 1."""
        self._append({"t": "lost", "e": epoch, "f": first, "l": last})

    def begins(self, epoch: int, segment: int, gseq: int, prev_crc: int) -> None:
        """Records what retention leaves of a generation; before anything before it goes."""
        self._append({"t": "begins", "e": epoch, "i": segment, "f": gseq, "c": prev_crc})

    def expired(self, epoch: int) -> None:
        """Records that retention removed the last of a generation."""
        self._append({"t": "expired", "e": epoch})

    def add_journal(self, added: Sequence[tuple[int, records.Record]]) -> None:
        """Adds (epoch, map) pairs of the replica's machine, all with one fsync."""
        self._append(*(records.journal_record(*each) for each in added))

    def _append(self, *added: records.Record) -> None:
        with self._lock:
            self._wrote = True
            for body in records.bodies(added):
                self._files.append(body)
            for record in added:
                records.apply(self._generations, record, self._token)
                records.note_elsewhere(self._elsewhere, record)
