"""The 19 mutants: the machine, or its surroundings, with one rule less each.

Each is a subclass that takes one method's rule away, so that production pays nothing for it.
"""

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from barco.cluster.logs.driving import Course, Role
from barco.cluster.logs.events import CoreState, LogEffect, LogEvent, OpenIn, Rests
from barco.cluster.logs.logs import Logs
from barco.cluster.logs.states import At
from barco.cluster.replica.peers import Peer
from barco.cluster.replica.proposer import Proposal
from barco.cluster.replica.replica import Replica
from barco.cluster.state.effects import Lead
from barco.cluster.state.held import Fence, Held, Leading
from barco.model.generation import (
    Ballot,
    Generation,
    Gid,
    GroupHead,
    Identity,
    Kind,
    Parent,
    Successor,
)
from barco.protocol.append_frame import Append
from barco.protocol.replication import Message, Ping
from barco.types import Epoch
from barco.workers.replication.persisting import Persisting
from barco.workers.storage.index import verdict

from .images import Recovery
from .intake import Early, GoesOn, Intake
from .journal import Files


class Unchecked(Replica):
    """Does not look at itself between two steps: what a mutant breaks a client has to see."""

    def _check(self) -> None:
        pass


class FollowerNotFenced(Unchecked):
    """1: F1 without "promised is unset"."""

    def _fences(self, held: Held) -> bool:
        return held.decided is not None or held.suspect or held.broken


class LeaderWritesOn(Unchecked):
    """2: L2 and L5: the leader's own promise changes nothing for it."""

    def _drain(self, held: Held) -> None:
        if held.leading is not None and held.decided is None:
            held.fence = Fence.SHUT
        else:
            super()._drain(held)

    def _end_session(self, held: Held) -> None:
        pass

    def _may_commit(self, held: Held) -> bool:
        return held.decided is None


class OwnTail(Unchecked):
    """4: P2 with the proposer's own tail."""

    def _tail(self, held: Held, proposal: Proposal) -> int:
        return held.tail


class LeaderResumes(Unchecked):
    """5: L6: a restarted leader goes on in its old generation."""

    def _names_me(self, held: Held) -> bool:
        return held.generation.leader == self._me

    def _lead(self, held: Held) -> None:
        if held.generation.session == self._session or held.leading is not None or held.stopped:
            super()._lead(held)
            return
        if held.shut or held.promised is not None:
            return
        others = tuple(m.ordinal for m in held.generation.members if m != self._me)
        held.leading = Leading(others, self._clock)
        held.leading.built = held.tail
        self._effects.append(Lead(held.generation))

    def _append_of(self, held: Held, head: GroupHead) -> Append:
        return Append(held.generation.gid, held.generation.session, head, held.committed)


class Reopens(Logs):
    """For 5: the core that a restart has loaded leads on."""

    def step(self, event: LogEvent, core: CoreState) -> list[LogEffect]:
        if isinstance(event, Lead) and self.at(event.generation.gid) is At.CORE:
            self.leading = event.generation.gid
            return [OpenIn(event.generation)]
        return super().step(event, core)


class RestsEarly(Logs):
    """26: a drain ends, whatever is in flight."""

    def _drained(self, gid: Gid, core: CoreState) -> None:
        if gid in self._draining:
            self._draining.discard(gid)
            self._ask(Rests(gid))


class NoDrain(Unchecked):
    """6: A1 without the drain: the promise leaves while appends are in flight."""

    def _drained(self, held: Held) -> bool:
        return held.fence is not Fence.OPEN


class TailApart(Unchecked):
    """7: the tails are asked for before the fence, in messages of their own."""

    def _tail(self, held: Held, proposal: Proposal) -> int:
        gid = held.generation.gid
        tails = [held.tail if self._me.ordinal in proposal.promises else 0]
        for ordinal in proposal.promises:
            peer = self._peers.get(ordinal)
            if peer is not None and peer.ping is not None:
                tails += [view.tail for view in peer.ping.views if view.gid == gid]
        return max(tails)


class AcceptsWithout(Unchecked):
    """10: A2 without holding groups 1 to T."""

    def _holds(self, held: Held, tail: int) -> bool:
        return True


class GapsAllowed(Unchecked):
    """11: F1 without gseq = tail + 1."""

    def _follows(self, held: Held, head: GroupHead) -> bool:
        return head.gseq > held.received


class LeaderAlone(Unchecked):
    """12: L3 without a follower."""

    def _committable(self, held: Held) -> int:
        return held.tail


class BallotReused(Unchecked):
    """13: a ballot without the session: a restart counts from one again."""

    def _ballot(self, held: Held) -> Ballot:
        gid = held.generation.gid
        self._rounds[gid] = self._rounds.get(gid, 0) + 1
        return Ballot(self._rounds[gid], self._me.ordinal, 0)


class NotAdopted(Unchecked):
    """14: P2 without adopting accepted values."""

    def _highest_accepted(self, proposal: Proposal) -> Successor | None:
        return None


class RecoveredCounts(Unchecked):
    """15: L5, last sentence: copies received through recovery count for an acknowledgement."""

    def _acknowledge(self, held: Held) -> None:
        if held.promised is not None and held.decided is None:
            held.owed = held.received
        super()._acknowledge(held)

    def _end_session(self, held: Held) -> None:
        pass

    def _may_commit(self, held: Held) -> bool:
        return held.decided is None


class Believing(Unchecked):
    """Votes on whatever it is asked to: for mutants whose values no other rule lets through."""

    def _plausible(self, gid: Gid, value: Successor) -> bool:
        return True


class EpochLookedUp(Believing):
    """16: the epoch after the highest that is known for this token."""

    def _child_epoch(self, template: Generation, parents: tuple[Parent, ...]) -> Epoch:
        known = [gid.epoch for gid in self._held if gid.token == template.gid.token]
        return Epoch(1 + max(known, default=0))


class MergesEarly(Unchecked):
    """17: the range behind is taken over before its generation is sealed."""

    def _handed(self, token: int, taker: Generation) -> Held | None:
        held = self._current.get(token)
        if held is None or held.decided is not None or held.generation.gid not in self._wanted():
            return super()._handed(token, taker)
        held.decided = Successor(held.tail, Kind.HANDOFF, ())
        return held

    def _wanted(self) -> set[Gid]:
        found: set[Gid] = self.__dict__.setdefault("_wanted_gids", set())
        return found

    def _absorb(self, held: Held, donor: Held) -> None:
        self._wanted().add(donor.generation.gid)
        self._drive()


class EpochOwnPlusOne(Believing):
    """18: epoch = own + 1 instead of 1 + max(parents)."""

    def _child_epoch(self, template: Generation, parents: tuple[Parent, ...]) -> Epoch:
        return Epoch(1 + parents[0].gid.epoch)


class SplitInTwo(Believing):
    """19: a split decides its halves one after the other."""

    def _split_value(self, held: Held, tail: int, children: tuple[Generation, ...]) -> Successor:
        whole = super()._split_value(held, tail, children)
        return replace(whole, kind=Kind.RELEAD, children=whole.children[:1])


class RemembersNobody(Unchecked):
    """A5: nothing is kept in mind of what others had. With it a wiped disk is found out, whatever
    name it comes under."""

    def _hear_position(self, peer: Peer, message: Ping) -> None:
        pass

    def _hear_tails(self, peer: Peer, message: Ping) -> None:
        pass

    def _acknowledged_by(self, held: Held, member: Identity) -> int:
        return 0


class LetsBackIn(Unchecked):
    """A disk that once replaced a lost one takes the place of any."""

    def _returns(self, identity: Identity, lost: bytes, generation: Generation) -> bool:
        return False


class TakenForTorn(Recovery):
    """27: S5: what is corrupt is where the log ends, and cleared away."""

    def judge(self, seen: verdict.Seen, wanted: int | None) -> str:
        found = super().judge(seen, wanted)
        return verdict.TORN if found == verdict.CORRUPT and wanted is None else found


class VerdictIgnored(Recovery):
    """28: A4: what recovery found is known, and the machine is not told."""

    def told(self, judged: verdict.Judged) -> verdict.Found:
        return judged.found._replace(suspect=False)


class TakenAsSealed(Recovery):
    """29: what is noted to be whole is taken as far as it goes."""

    def judge(self, seen: verdict.Seen, wanted: int | None) -> str:
        return verdict.SEALED if wanted is not None else super().judge(seen, wanted)


class NoDurable(Recovery):
    """30: S5 without D: only sectors tell what was whole."""

    def seen(self, gid: Gid, wanted: int | None) -> verdict.Seen:
        return super().seen(gid, wanted)._replace(durable=0)


class HearsAll(Role):
    """25: that groups have expired is believed of a log that the core has."""

    def hears(self, message: Message, logs: Logs) -> bool:
        return True


@dataclass(frozen=True)
class Mutant:
    """One rule less."""

    number: int
    name: str
    replica: Any = Unchecked
    intake: Any = Intake
    logs: Any = Logs
    files: Any = Files
    recovery: Any = Recovery
    persisting: Any = Persisting
    course: Any = Course
    role: Any = Role
    told_early: bool = False
    """Records count as stable when their append begins."""
    forgetful: bool = False
    """Promises and accepts are lost at a crash."""
    same_disk_uuid: bool = False
    """A wiped disk comes back under its old identity."""
    early_stable: bool = False
    """A group counts as stable when its write is submitted."""
    in_order: bool = True
    """False: an append that ends before an earlier one counts."""
    starts_loose: bool = False
    """A start does not sync what it reads."""
    reads_first: bool = False
    """A start reads, and syncs then."""
    four: bool = False
    """Needs splits and merges."""


MUTANTS = (
    Mutant(1, "follower append not fenced", FollowerNotFenced),
    Mutant(2, "leader keeps writing after its promise", LeaderWritesOn),
    Mutant(3, "promise and accept kept in memory", forgetful=True),
    Mutant(4, "tail = own tail instead of the highest of the quorum", OwnTail),
    Mutant(5, "restarted leader resumes its generation", LeaderResumes, logs=Reopens),
    Mutant(6, "promise does not drain in-flight writes", NoDrain),
    Mutant(7, "fence and tail read are separate messages", TailApart),
    Mutant(8, "a wiped disk returns under its old identity", RemembersNobody, same_disk_uuid=True),
    Mutant(9, "acknowledgement before stable, then power loss", early_stable=True),
    Mutant(10, "accept without holding [1..T]", AcceptsWithout),
    Mutant(11, "gaps allowed", GapsAllowed),
    Mutant(12, "client acknowledgement on the leader alone", LeaderAlone),
    Mutant(13, "ballot reused", BallotReused),
    Mutant(14, "accepted values not adopted", NotAdopted),
    Mutant(15, "leader counts recovered copies", RecoveredCounts),
    Mutant(16, "epoch from a look-up of history", EpochLookedUp, four=True),
    Mutant(17, "merge active before the donor is sealed", MergesEarly, four=True),
    Mutant(18, "epoch = own + 1 instead of max(parents) + 1", EpochOwnPlusOne, four=True),
    Mutant(19, "split in two registers", SplitInTwo, four=True),
)
DISK_MUTANTS = (
    Mutant(22, "an append counts before an earlier one has ended", in_order=False),
    Mutant(23, "a start does not sync what it reads", starts_loose=True),
    Mutant(24, "a start reads, and syncs then", reads_first=True),
)
"""Of what a disk does: a page cache, syncs that fail, appends that end in any order."""
VERDICT_MUTANTS = (
    Mutant(27, "corruption taken for a torn end", recovery=TakenForTorn),
    Mutant(28, "a verdict that nobody hears of", recovery=VerdictIgnored),
    Mutant(29, "what has ended is taken as far as it goes", recovery=TakenAsSealed),
    Mutant(30, "durable_upto is not looked at", recovery=NoDurable),
)
"""Of what a start makes of the logs that it finds."""
LOGS_MUTANTS = (Mutant(26, "a drain ends while appends are in flight", logs=RestsEarly),)
"""Of the machine of the logs."""
HEARS_ALL = Mutant(25, "a log is skipped that the core still has", role=HearsAll)
"""Of what a driver decides: the machine of the logs says that it can not be."""
INTAKE_MUTANTS = (
    Mutant(20, "the core goes on after the promise", intake=GoesOn),
    Mutant(21, "the core acknowledges what is on its way", intake=Early),
)
"""Of what the core does by itself: caught only where it does."""
