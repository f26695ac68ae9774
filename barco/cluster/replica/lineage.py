"""The lineage: which generation follows which, as far as is known here, and what that starts.

A generation may end before its first group, GEN_START, is committed: its leader died too early, and
T is 0. It has no history and no state of its own, so it hands on its parents: its child continues
their groups, waits for those, and begins with their state. Taking it for the end of the line would
lose the deduplication window and the group offsets, and show readers a child before its history.
"""

from collections.abc import Iterator

from barco.cluster.replica.acceptor import Acceptor
from barco.cluster.state.core import Then
from barco.cluster.state.effects import Follow, Lead, Seal
from barco.cluster.state.events import Taught
from barco.cluster.state.held import Fence, Held, Leading
from barco.cluster.state.plausible import is_plausible
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
from barco.types import Epoch, Token

WORDS_MAX = 64
"""Generations of which somebody's word is kept in mind; it is given again."""


TAUGHT_BY = 2
"""So many members of a generation of another range have to say what was decided there."""


class Lineage(Acceptor):
    """Learns successors, tells them, completes sealed generations and opens children."""

    _ask_at: float
    _followed: dict[Token, Epoch]
    """By token the newest epoch that was followed. Of one before it a record may come late, by who
    tells of it while its end is still on the way: that is no news of what to follow."""

    _words: dict[Gid, dict[int, Successor]]
    """What single members say was decided, by ordinal."""

    def _start_lineage(self) -> None:
        self._words = {}
        self._ask_at = self._now
        self._followed = {}
        for held in list(self._held.values()):
            if held.complete and not held.sealed:
                self._grown(held)  # Complete, and stopped before that was told or carried out.
        for held in self._current.values():
            self._told_open(held)

    def _check_words(self) -> None:
        assert len(self._words) <= WORDS_MAX
        assert self._words.keys().isdisjoint(self._decided), "what is decided needs no word"
        assert all(Gid(*each) in self._held for each in self._followed.items())

    def _on_decided(self, sender: Identity, message: Decided) -> None:
        held = self._held.get(message.gid)
        if held is None or not self._is_other(held, message.session):
            self._told_decided(sender, message.gid, message.value)
        else:  # Back to where the two of that name have come apart.
            self._send(sender.ordinal, Unknown(message.gid))

    def _told_decided(self, sender: Identity, gid: Gid, value: Successor) -> None:
        """A member says that this was decided. One alone may be wrong: it is believed when two say
        so, this one among them if it has accepted the value itself; or when there is nobody else in
        reach who could, for then the two of them have to go on.
        """
        if gid in self._decided or not self._takes(gid, value):
            if self._decided.get(gid) != value:
                self._contradicted(sender, gid, value)
            return
        if not self._is_here(gid) and not self._is_origin(value):
            return  # Of another range two of its members tell (P8), by another way than this.
        words = self._words.setdefault(gid, {})
        if self._voices(gid, sender):
            words[sender.ordinal] = value
        while len(self._words) > WORDS_MAX:
            del self._words[next(iter(self._words))]
        self._weigh(gid, value)

    def _is_origin(self, value: Successor) -> bool:
        """Whether this made a generation that is known here, by its record or by its name."""
        known = self._held.keys() | self._missing
        return any(child.gid in known for child in value.children)

    def _on_taught(self, event: Taught) -> None:
        """Rule P8: of any two who say so one is honest, and its journal has it as decided."""
        parent, value = event.parent, event.value
        voices = event.by.intersection(member.ordinal for member in parent.members)
        if not self._is_sure(voices, parent) or not is_plausible(parent.gid, value, parent):
            return
        known = self._held.get(parent.gid)
        if known is not None and known.generation != parent:
            return
        if parent.gid in self._decided or not self._takes(parent.gid, value):
            return
        if known is None:
            self._persist(OpenedRecord(parent))
            self._hold(parent)
        self._learned(parent.gid, value)

    def _is_sure(self, voices: frozenset[int], parent: Generation) -> bool:
        return len(voices) >= min(TAUGHT_BY, len(parent.members))

    def _contradicted(self, sender: Identity, gid: Gid, value: Successor) -> None:
        raise AssertionError("the part on conflicts is missing")

    def _takes(self, gid: Gid, value: Successor) -> bool:
        held = self._held.get(gid)
        if not self._plausible(gid, value):
            return False
        if held is not None and self._gives_up(held, value):
            return False
        return all(
            (known := self._held.get(child.gid)) is None or known.generation == child
            for child in value.children
        )

    def _voices(self, gid: Gid, sender: Identity) -> bool:
        """Whether it is one of those who decide, or hold what follows."""
        held = self._held.get(gid)
        known = [held.generation] if held is not None else self._settings.ranges
        return any(each.seat(sender.ordinal) is not None for each in known)

    def _weigh(self, gid: Gid, value: Successor) -> None:
        assert gid not in self._decided, "what is decided needs no word"
        held, words = self._held.get(gid), self._words.get(gid, {})
        heard = {ordinal for ordinal, word in words.items() if word == value}
        mine = held is not None and held.accepted is not None and held.accepted[1] == value
        generation = held.generation if held is not None else self._settings.ranges[0]
        assert self._me.ordinal not in heard, "its own vote is no word of others"
        others = {member.ordinal for member in generation.members} - {self._me.ordinal, *heard}
        sure = len(heard) + mine > 1 or all(map(self._down, others))
        # A disk without a past has nothing to lose by it, and perhaps there is only one left who
        # knows (`barco.cluster.state.unclean`).
        sure = sure or self._is_new()
        # One alone could hand a range that others have to a disk that was made for another one.
        sure = sure and not (self._settings.joins and held is None) or len(heard) > 1
        sure = sure or self._is_origin(value)  # A child that is known here says the same.
        # So has one that may have accepted it and forgotten that: there may be no second voice.
        sure = sure or held is not None and held.suspect and self._forgotten(held)
        if heard and sure:  # Its own vote alone decides nothing.
            self._learned(gid, value)

    def _is_new(self) -> bool:
        """Whether this disk has never been a member of anything but genesis."""
        return not any(
            each.member for each in self._held.values() if not each.generation.is_genesis
        )

    def _voted(self, held: Held) -> None:
        """This member has accepted a value: perhaps somebody has said that it was decided."""
        gid = held.generation.gid
        if gid in self._words and gid not in self._decided and held.accepted is not None:
            self._weigh(gid, held.accepted[1])

    def _learned(self, gid: Gid, value: Successor) -> None:
        """A decided successor (rule P4: who learns it stops proposing)."""
        self._words.pop(gid, None)
        if gid in self._decided:
            assert self._decided[gid] == value, "succ(g) is decided once (I1)"
            return
        assert self._plausible(gid, value), "who told it was not believed before that was looked at"
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
        assert then.gid in self._decided, "it is in the journal"
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
            if not self._is_kept(held):
                self._open_children(held)
            return
        if generation.is_genesis:
            return
        if self._names_me(held):
            self._lead(held)
        elif (
            held.member
            and len(generation.members) > 1  # Else nobody is there who could be followed.
            and generation.gid.epoch > self._followed.get(generation.gid.token, 0)
        ):
            assert generation.leader != self._me or not self._names_me(held)
            self._followed[generation.gid.token] = generation.gid.epoch
            self._effects.append(Follow(generation))
            self._acknowledge(held)

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

    def _lacks(self, gid: Gid) -> bool:
        """Whether groups of an ancestor have yet to come here. Those of a generation that this
        process is no member of never do: whoever leads asks its members for the state."""
        held = self._held.get(gid)
        if held is None:
            return self._is_here(gid)
        return self._is_kept(held) and not held.complete

    def _lead(self, held: Held) -> None:
        """Open a child, once everything is stable, and all groups of its parents that are to be
        here."""
        generation = held.generation
        if held.leading is not None or held.stopped or held.shut or held.born > self._durable:
            return
        for gid, tail in self._ancestors(generation):
            if not self._lacks(gid):
                continue
            parent = self._held.get(gid)
            if parent is not None:
                self._want(parent, tail)
            else:
                self._missing.add(gid)
            return
        assert self._names_me(held), "nobody leads in another's name"
        assert held.tail == held.committed == 0, "nobody has had a group of it yet"
        followers = tuple(m.ordinal for m in generation.members if m != self._me)
        held.leading = Leading(followers, self._clock)
        held.lead_at = self._now
        self._ping_at = self._now
        self._effects.append(Lead(generation))

    def _grown(self, held: Held) -> None:
        super()._grown(held)
        assert held.complete or not held.sealed, "what is sealed lacks nothing"
        if not self._is_kept(held):
            return
        if held.complete and not held.sealed and held.fence is Fence.SHUT:
            assert held.decided is not None
            held.sealed = True
            held.suspect = False  # Repaired (A4).
            self._show(held)
            self._effects.append(Seal(held.generation.gid, held.decided.tail))
            self._open_children(held)

    def _open_children(self, held: Held) -> None:
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
        if held is not None:
            self._tell_origin(sender.ordinal, held)

    def _tell_origin(self, ordinal: int, held: Held) -> None:
        for parent in held.generation.parents:
            if parent.gid in self._decided:
                self._send(ordinal, self._decided_of(parent.gid))

    def _unexplained(self) -> set[Gid]:
        """Generations whose parent is known, and not that they follow it: that record was lost. The
        answer is needed here, and by others who wait for a second word on it."""
        if not self._doubted:
            return set()
        return {
            held.generation.gid
            for held in self._held.values()
            for parent in held.generation.parents
            if (known := self._held.get(parent.gid)) is not None and known.decided is None
        }

    def _ask_missing(self) -> None:
        """Walk back to what is known, one generation at a time."""
        if self._now < self._ask_at or not (self._missing or self._doubted):
            return
        self._ask_at = self._now + RESEND_SECONDS
        peers = [each for each in sorted(self._peers) if not self._down(each)]
        asked = sorted(self._missing | self._unexplained())
        for gid in asked[:FETCH_GROUPS_MAX]:
            for ordinal in peers:
                self._send(ordinal, Unknown(gid))
