"""A proposer: decides the successor of a generation in two phases (rules P2 to P4).

Two of the three members decide, but for the successor of genesis: that takes all of them, because
it records who they are (`Generation.quorum` says why two are not enough). So the first start of a
cluster needs all three brokers, and no later one does.
"""

from collections.abc import Iterable

from msgspec import Struct, field
from msgspec.structs import replace

from barco.cluster.replica.lineage import Lineage
from barco.cluster.state.held import Held
from barco.cluster.state.plausible import ROUNDS_AHEAD_IDLE_MAX
from barco.limits import (
    ACCEPT_RESENDS_MAX,
    BACKOFF_SECONDS_MAX,
    BACKOFF_SECONDS_MIN,
    RESEND_SECONDS,
)
from barco.model.generation import (
    Ballot,
    Generation,
    Gid,
    Identity,
    Kind,
    Parent,
    Successor,
)
from barco.protocol.replication import (
    Accept,
    Accepted,
    Message,
    Nack,
    Prepare,
    Promise,
)
from barco.types import Epoch


class Proposal(Struct):
    """One ballot of this broker."""

    ballot: Ballot
    kind: Kind
    children: tuple[Generation, ...]
    """Of a split, or of a move; without epoch and parents."""
    resend_at: float
    without_me: bool = False
    """This member's own promise is not asked for."""
    resends: int = 0
    promises: dict[int, Promise] = field(default_factory=dict)
    value: Successor | None = None
    """Set when phase 2 begins."""
    sources: tuple[int, ...] = ()
    accepted: set[int] = field(default_factory=set)


class Proposer(Lineage):
    """Seals a generation at an agreed tail and decides what follows."""

    _proposals: dict[Gid, Proposal]
    _rounds: dict[Gid, int]

    def _start_proposer(self) -> None:
        self._proposals, self._rounds = {}, {}

    def _check_words(self) -> None:
        super()._check_words()
        for gid, proposal in self._proposals.items():
            held = self._held[gid]
            members = {member.ordinal for member in held.generation.members}
            assert held.decided is None, "a proposal ends when its generation is decided"
            assert proposal.ballot.ordinal == self._me.ordinal, "a ballot names who proposes"
            assert proposal.ballot.session == self._session, "and its very process"
            assert proposal.ballot.round <= self._rounds[gid], "no round twice"
            assert proposal.promises.keys() <= members, "each member has one voice (I11)"
            assert proposal.accepted <= members, "and nobody else has"
            assert proposal.value is not None or not proposal.accepted, "phase 1, then phase 2"
            assert proposal.value is None or len(proposal.promises) >= held.generation.quorum

    def _propose(
        self,
        held: Held,
        kind: Kind = Kind.RELEAD,
        children: tuple[Generation, ...] = (),
        without_me: bool = False,
    ) -> None:
        """Phase 1. Any quorum's promises make a value; what only this member has was never
        committed."""
        gid = held.generation.gid
        assert gid not in self._proposals, "one ballot at a time"
        assert held.decided is None, "what is decided is not proposed again (P4)"
        allowed = {Kind.SPLIT: (2,), Kind.RELEAD: (0, 1)}.get(kind, (0,))
        assert len(children) in allowed, "the others make their own"
        ballot = self._ballot(held)
        resend_at = self._now + RESEND_SECONDS
        self._proposals[gid] = Proposal(ballot, kind, children, resend_at, without_me)
        self._prepare(held, self._proposals[gid])

    def _prepare(self, held: Held, proposal: Proposal) -> None:
        assert proposal.value is None, "no promise changes what is to be accepted"
        done = {*proposal.promises, *([self._me.ordinal] if proposal.without_me else ())}
        generation = held.generation
        prepare = Prepare(generation.gid, proposal.ballot, generation.session)
        self._to_members(held, prepare, done)

    def _ballot(self, held: Held) -> Ballot:
        """Higher than any seen; never used twice, because a session never is."""
        gid = held.generation.gid
        self._rounds[gid] = max(held.round, self._rounds.get(gid, 0)) + 1
        ballot = Ballot(self._rounds[gid], self._me.ordinal, self._session)
        assert held.promised is None or ballot > held.promised
        return ballot

    def _to_members(self, held: Held, message: Message, but: Iterable[int] = ()) -> None:
        for member in held.generation.members:
            if member.ordinal not in but:
                self._send(member.ordinal, message)

    def _mine(self, sender: Identity, gid: Gid, ballot: Ballot) -> tuple[Held, Proposal] | None:
        """The proposal that this answers, if its sender has a voice in it (I11)."""
        held, proposal = self._held.get(gid), self._proposals.get(gid)
        if held is None or proposal is None or proposal.ballot != ballot:
            return None
        return (held, proposal) if self._has_voice(held, sender) else None

    def _has_voice(self, held: Held, sender: Identity) -> bool:
        return held.generation.has_member(sender)

    def _on_promise(self, sender: Identity, message: Promise) -> None:
        found = self._mine(sender, message.gid, message.ballot)
        if found is None or message.suspect or found[1].value is not None:
            return
        held, proposal = found
        accepted = message.accepted
        if accepted is not None and (
            not self._plausible(message.gid, accepted[1]) or self._gives_up(held, accepted[1])
        ):
            return
        proposal.promises[sender.ordinal] = message
        if len(proposal.promises) < held.generation.quorum:
            return
        adopted = self._highest_accepted(proposal)
        if adopted is not None:
            proposal.value = adopted
        else:
            proposal.value = self._new_value(held, proposal)
        tails = proposal.promises.items()
        proposal.sources = tuple(o for o, p in tails if p.tail >= proposal.value.tail)
        proposal.resends = 0
        proposal.resend_at = self._now + RESEND_SECONDS
        self._to_members(held, self._accept(message.gid, proposal))

    def _highest_accepted(self, proposal: Proposal) -> Successor | None:
        """Rule P2: what may have been decided already must be adopted."""
        found = [each.accepted for each in proposal.promises.values() if each.accepted is not None]
        return max(found, key=lambda each: each[0])[1] if found else None

    def _tail(self, held: Held, proposal: Proposal) -> int:
        """Rule P2: the highest tail promised; nothing acknowledged is after it."""
        assert not any(each.suspect for each in proposal.promises.values()), "they have no voice"
        return max(each.tail for each in proposal.promises.values())

    def _accept(self, gid: Gid, proposal: Proposal) -> Accept:
        assert proposal.value is not None
        session = self._held[gid].generation.session
        return Accept(gid, proposal.ballot, proposal.value, proposal.sources, session)

    def _on_accepted(self, sender: Identity, message: Accepted) -> None:
        found = self._mine(sender, message.gid, message.ballot)
        if found is None or found[1].value is None:
            return
        held, proposal = found
        proposal.accepted.add(sender.ordinal)
        assert len(proposal.accepted) <= len(held.generation.members), "a member has one voice"
        if len(proposal.accepted) < held.generation.quorum:
            return
        assert proposal.value is not None
        value = proposal.value
        self._decide(held, value)

    def _decide(self, held: Held, value: Successor) -> None:
        """Rule P3: decided. Only now may a child be used."""
        gid = held.generation.gid
        assert held.decided is None, "a proposal ends when its generation is decided"
        self._learned(gid, value)
        assert self._decided[gid] == held.decided == value, "it is told as it was decided"
        assert gid not in self._proposals, "and not proposed any more"
        concerned = {member.ordinal for member in held.generation.members}
        for child in value.children:  # Those of another range are taught by another way (P8).
            if self._is_here(child.gid):
                concerned |= {member.ordinal for member in child.members}
        for ordinal in sorted(concerned - {self._me.ordinal}):
            self._send(ordinal, self._decided_of(gid))

    def _learned(self, gid: Gid, value: Successor) -> None:
        self._proposals.pop(gid, None)
        super()._learned(gid, value)

    def _on_nack(self, sender: Identity, message: Nack) -> None:
        found = self._mine(sender, message.gid, message.ballot)
        if found is not None:
            self._give_up(found[0], message.promised)

    def _give_up(self, held: Held, promised: Ballot) -> None:
        """Rule P4: back off for a random time, then look again whether to propose at all."""
        self._hear_round(held, promised, ROUNDS_AHEAD_IDLE_MAX)
        del self._proposals[held.generation.gid]
        spread = BACKOFF_SECONDS_MAX - BACKOFF_SECONDS_MIN
        held.retry_at = self._now + BACKOFF_SECONDS_MIN + spread * self._random()
        assert held.retry_at > self._now, "others get their turn"

    def _repeat_proposals(self) -> None:
        """Messages may be lost."""
        for gid, proposal in list(self._proposals.items()):
            if self._now < proposal.resend_at:
                continue
            proposal.resend_at = self._now + RESEND_SECONDS
            proposal.resends += 1
            held = self._held[gid]
            assert held.decided is None, "a proposal ends when its generation is decided"
            if proposal.value is None and proposal.without_me and proposal.resends > 1:
                held.left_alone = False  # One of them is gone: it takes this member's after all.
                del self._proposals[gid]
                self._propose(held)
            elif proposal.value is None:
                self._prepare(held, proposal)
            elif proposal.resends > ACCEPT_RESENDS_MAX:
                # Perhaps T is what only a member has that promised and is gone. What two did not
                # accept another ballot may leave out.
                self._give_up(held, proposal.ballot)
            else:
                self._to_members(held, self._accept(gid, proposal), proposal.accepted)

    # --- Values -------------------------------------------------------------------------------

    def _new_value(self, held: Held, proposal: Proposal) -> Successor:
        """The value of this broker's own, if none was accepted before."""
        assert len(proposal.promises) >= held.generation.quorum, "fewer do not know T (P2)"
        tail = self._tail(held, proposal)
        if proposal.kind is Kind.HANDOFF:
            return Successor(tail, Kind.HANDOFF, ())
        if proposal.kind is Kind.SPLIT:
            return self._split_value(held, tail, proposal.children)
        child = self._relead_child(held, tail, *proposal.children)
        return Successor(tail, Kind.RELEAD, (child,))

    def _split_value(self, held: Held, tail: int, children: tuple[Generation, ...]) -> Successor:
        """Both halves in one register: atomic."""
        parents = (Parent(held.generation.gid, tail),)
        first, second = (self._child(each, parents) for each in children)
        assert first.gid.token < first.end == second.gid.token < second.end, "halves, no gap"
        return Successor(tail, Kind.SPLIT, (first, second))

    def _relead_child(
        self, held: Held, tail: int, template: Generation | None = None
    ) -> Generation:
        """The same range under this process, or as it is to be moved, and what its right neighbour
        has handed to it."""
        generation = held.generation
        parents = [Parent(generation.gid, tail)]
        end = generation.end
        while (donor := self._handed(end, generation)) is not None:
            assert donor.decided is not None
            parents.append(Parent(donor.generation.gid, donor.decided.tail))
            end = donor.generation.end
        if template is None:
            members = self._members(generation)
            template = replace(generation, leader=self._me, session=self._session, members=members)
        assert end >= generation.end, "what is handed over is added"
        return self._child(replace(template, end=end), tuple(parents))

    def _child(self, template: Generation, parents: tuple[Parent, ...]) -> Generation:
        gid = Gid(template.gid.token, self._child_epoch(template, parents))
        return replace(template, gid=gid, parents=parents)

    def _child_epoch(self, template: Generation, parents: tuple[Parent, ...]) -> Epoch:
        """Never from a look-up of history."""
        return Epoch(1 + max(parent.gid.epoch for parent in parents))

    def _handed(self, token: int, taker: Generation) -> Held | None:
        """The generation that starts here, if it was handed to the left and not yet absorbed."""
        held = self._current.get(token)
        if held is None or held.decided is None or held.decided.kind is not Kind.HANDOFF:
            return None
        if self._missing or self._may_descend(taker, held.generation):
            return None
        return held

    def _may_descend(self, generation: Generation, donor: Generation) -> bool:
        """Whether an ancestor has taken the donor in, and what came of that may have been split
        off since: who became a member later need not have heard of it.

        Such an ancestor has the donor's slices under a later epoch (I9). So a record is looked for
        only where its epoch is later; one that is not known here is asked for.
        """
        left, seen = [generation], {generation.gid}
        while left:
            for gid, _ in left.pop().parents:
                if gid == donor.gid:
                    return True
                if gid.epoch <= donor.gid.epoch or gid in seen:
                    continue
                seen.add(gid)
                known = self._held.get(gid)
                if known is None:
                    self._missing.add(gid)
                    return True
                if gid.token <= donor.gid.token < known.generation.end:
                    return True
                left.append(known.generation)
        return False

    def _members(self, generation: Generation) -> tuple[Identity, ...]:
        """The same brokers; a replaced disk, or in genesis any, by the identity it has now."""
        return tuple(self._identity(member, generation) for member in generation.members)

    def _identity(self, member: Identity, generation: Generation) -> Identity:
        if member.ordinal == self._me.ordinal:
            return self._me
        peer = self._peers.get(member.ordinal)
        if peer is None:
            return member
        assert peer.identity.ordinal == member.ordinal, "it keeps the seat"
        lost = peer.ping.replaces if peer.ping is not None else b""
        replaced = generation.is_genesis or (
            lost and not self._returns(peer.identity, lost, generation)
        )
        return peer.identity if replaced else member

    def _returns(self, identity: Identity, lost: bytes, generation: Generation) -> bool:
        """Whether the place that this disk asks for, that of the `lost` one, was given to another
        since; or it had that once and was replaced itself. Then it is not let in.

        It may also follow on a disk that never got there: what it names is then in no record of
        the range, and it is let in. The place goes from first parent to child. Other parents,
        absorbed ranges, tell nothing: there the disk may have been taken in earlier than here.
        """
        theirs = (identity, Identity(identity.ordinal, lost))
        if any(each in generation.members for each in theirs):
            return False
        while generation.parents:
            held = self._held.get(generation.parents[0].gid)
            if held is None:
                return False
            generation = held.generation
            if any(
                each in generation.members for each in theirs
            ):  # Not `has_member`: genesis has any.
                return True
        return False
