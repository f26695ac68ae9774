"""The lineage: which generation follows which, as far as is known here, and what that starts.

A generation may end before its first group, GEN_START, is committed: its leader died too early, and
T is 0. It has no history and no state of its own, so it hands on its parents: its child continues
their groups, waits for those, and begins with their state. Taking it for the end of the line would
lose the deduplication window and the group offsets, and show readers a child before its history.
"""

from collections.abc import Iterator

from barco.cluster.acceptor import Acceptor
from barco.cluster.core import Then
from barco.cluster.effects import Follow, Lead, Seal
from barco.cluster.held import Fence, Held, Leading
from barco.limits import FETCH_GROUPS_MAX, RESEND_SECONDS
from barco.model.generation import (
    GENESIS_EPOCH,
    Generation,
    Gid,
    Identity,
    Parent,
    Successor,
)
from barco.protocol.replication import (
    Decided,
    DecidedRecord,
    JournalRecord,
    OpenedRecord,
    Unknown,
)


class Lineage(Acceptor):
    """Learns successors, tells them, completes sealed generations and opens children."""

    _ask_at: float
    _followed: set[Gid]

    def _start_lineage(self) -> None:
        self._ask_at = self._now
        self._followed = set()
        for held in list(self._held.values()):
            if held.complete and not held.sealed:
                self._grown(held)  # Complete, and stopped before that was told or carried out.
        for held in self._current.values():
            self._told_open(held)

    def _on_decided(self, sender: Identity, message: Decided) -> None:
        self._learned(message.gid, message.value)

    def _learned(self, gid: Gid, value: Successor) -> None:
        """A decided successor, from whoever (rule P4: who learns it stops proposing)."""
        if gid in self._decided:
            assert self._decided[gid] == value, "succ(g) is decided once (I1)"
            return
        self._decided[gid] = value
        children: list[JournalRecord] = [
            OpenedRecord(child) for child in value.children if child.gid not in self._held
        ]
        self._persist(DecidedRecord(gid, value), *children)
        held = self._held.get(gid)
        if held is not None:
            held.decided = value
            held.wish = None
            held.target = min(held.target, value.tail)  # Nothing after T ever existed.
            self._stop_leading(held, "its successor is decided")
            self._drain(held)
            self._want_all(held)
        for child in value.children:
            self._hold(child)
        self._after_journal(Then("decided", gid))

    def _continue(self, then: Then) -> None:
        if then.what != "decided":
            super()._continue(then)
            return
        value = self._decided[then.gid]
        held = self._held.get(then.gid)
        if held is not None:
            self._grown(held)
        for child in value.children:
            self._told_open(self._held[child.gid])
        self._fetch_due()

    def _told_open(self, held: Held) -> None:
        """A generation's record is stable: follow it, or lead it."""
        generation = held.generation
        if held.decided is not None:
            self._grown(held)  # It ended before it was known here, perhaps without a group.
            return
        if generation.is_genesis:
            return
        if self._names_me(held):
            self._lead(held)
        elif held.member and generation.gid not in self._followed:
            self._followed.add(generation.gid)
            self._effects.append(Follow(generation))
            self._acknowledge(held)

    def _names_me(self, held: Held) -> bool:
        """Whether it is this very process that leads the generation, or will."""
        generation = held.generation
        return generation.leader == self._me and generation.session == self._session

    def _ancestors(self, generation: Generation) -> Iterator[Parent]:
        """The parents whose groups it continues; an empty one hands on its own (see the module)."""
        for parent in generation.parents:
            held = self._held.get(parent.gid)
            if parent.tail > 0:
                yield parent
            elif held is not None:
                yield from self._ancestors(held.generation)
            elif parent.gid.epoch > GENESIS_EPOCH:
                yield parent  # Whose child it is, is not known here.

    def _lead(self, held: Held) -> None:
        """Open a child, once its parents' groups are all here and everything is stable."""
        generation = held.generation
        if held.leading is not None or held.stopped or held.shut or held.born > self._durable:
            return
        for gid, tail in self._ancestors(generation):
            parent = self._held.get(gid)
            if parent is not None and parent.complete:
                continue
            if parent is not None:
                self._want(parent, tail)
            else:
                self._missing.add(gid)
            return
        followers = tuple(m.ordinal for m in generation.members if m != self._me)
        held.leading = Leading(followers, self._clock)
        held.lead_at = self._now
        self._ping_at = self._now
        self._effects.append(Lead(generation))

    def _grown(self, held: Held) -> None:
        super()._grown(held)
        if held.complete and not held.sealed and held.fence is Fence.SHUT:
            assert held.decided is not None
            held.sealed = True
            held.suspect = False  # Repaired (A4).
            self._show(held)
            self._effects.append(Seal(held.generation.gid, held.decided.tail))
            for child in self._waiting_children(held):
                self._told_open(child)

    def _waiting_children(self, held: Held) -> list[Held]:
        gid = held.generation.gid
        return [
            each
            for each in self._open()
            if any(parent.gid == gid for parent in self._ancestors(each.generation))
        ]

    def _on_unknown(self, sender: Identity, message: Unknown) -> None:
        """Tell how a generation came to be: the decision that made it."""
        held = self._held.get(message.gid)
        if held is None:
            return
        for parent in held.generation.parents:
            if parent.gid in self._decided:
                told = Decided(parent.gid, self._decided[parent.gid])
                self._send(sender.ordinal, told)

    def _ask_missing(self) -> None:
        """Walk back to what is known, one generation at a time."""
        if not self._missing or self._now < self._ask_at:
            return
        self._ask_at = self._now + RESEND_SECONDS
        peers = [each for each in sorted(self._peers) if not self._down(each)]
        for gid in sorted(self._missing)[:FETCH_GROUPS_MAX]:
            for ordinal in peers:
                self._send(ordinal, Unknown(gid))
