"""Two generations of one name: a disk went back in time, and nobody was there who remembered.

A broker whose disk is an old copy, and one that was away while the events came, are two of three.
Nothing tells them that there was more, so they go on without it, which is what the protocol lets
two against one do; and as epochs are counted on from the parents', their next generation has the
name of one that the third has already. Whoever says something of a generation says which one is
meant, by its leader's session, and what is meant of another is not taken for it.

When the third is back it hears from both of them what was decided, and that it is not what it knows
(another successor, or one without groups that were committed). Then, and only on the word of both,
it gives way: a record in its journal says so, its process ends, and the next start sets aside what
it held of that generation and of all after it before it takes part as one without a past there
(`barco.workers.storage.files.aside`). Nothing of it is deleted. One of them alone may be wrong, or
lie: it changes nothing here (rule P5).
"""

from barco.cluster.replica.doubt import Doubt
from barco.cluster.replica.peers import Peer
from barco.cluster.state.core import Then
from barco.cluster.state.effects import Stop, Warn
from barco.cluster.state.held import Held
from barco.model.generation import Gid, Identity, Kind, Successor
from barco.protocol.replication import AsideRecord, Ping

WORDS_MAX = 64
"""Generations of which a word against what is known here is kept in mind; it is given again."""


class Conflict(Doubt):
    """Finds that two others hold another line, and gives way to it."""

    _against: dict[Gid, dict[Identity, Successor]]
    """What members say was decided, where something else is known here."""
    _told_of: dict[Identity, int]
    """How often each disk has said that it gave way, as far as it was told here."""
    _yields: bool
    """This process is about to end, and does nothing more."""

    def _start_conflict(self) -> None:
        self._against, self._told_of = {}, {}
        self._yields = False

    def conflicts(self) -> int:
        """How often a member of the range has given way, as far as is known here."""
        return self._asides + sum(self._told_of.values())

    def _check_words(self) -> None:
        super()._check_words()
        assert len(self._against) <= WORDS_MAX
        assert self._asides >= 0 and all(each > 0 for each in self._told_of.values())

    def _contradicted(self, sender: Identity, gid: Gid, value: Successor) -> None:
        held = self._held.get(gid)
        if held is None or held.generation.is_genesis or not held.member:
            return
        if sender not in held.generation.members or not self._plausible(gid, value):
            return
        words = self._against.setdefault(gid, {})
        words[sender] = value
        while len(self._against) > WORDS_MAX:
            del self._against[next(iter(self._against))]
        others = {each for each in held.generation.members if each != self._me}
        # All of the others: so nobody is left who holds what this one does.
        if len(others) > 1 and others == {each for each, word in words.items() if word == value}:
            self._give_way(held, value)

    def _give_way(self, held: Held, value: Successor) -> None:
        assert held.member and not held.generation.is_genesis, "only its own vote is given up"
        generation, mine = held.generation, held.decided
        if value.kind is not Kind.RELEAD or mine is not None and mine.kind is not Kind.RELEAD:
            return  # Splits and merges have neighbours, and an operator's word is one: told only.
        if self._yields:
            return
        self._yields = True
        self._thens.clear()
        self._persist(AsideRecord(generation.gid, value, held.tail))
        known = "another successor" if mine is not None else f"committed groups up to {held.tail}"
        who = " and ".join(
            str(o) for o in sorted(m.ordinal for m in generation.members) if o != self._me.ordinal
        )
        self._effects.append(
            Warn(
                f"brokers {who} go on after group {value.tail} of epoch {generation.gid.epoch}, and"
                f" this one had {known}: one of their data directories is an old copy. They are"
                " two: what only this one holds is SET ASIDE, acknowledged events among it, and not"
                " lost:"
                f" {max(0, held.tail - value.tail)} groups of that epoch and all later epochs here."
                " `barco recover` lists and exports it"
            )
        )
        self._after_journal(Then("aside", generation.gid))

    def _continue(self, then: Then) -> None:
        if then.what != "aside":
            super()._continue(then)
            return
        assert self._yields, "nothing else was done since"
        self._stopped = True
        self._effects.append(
            Stop("what only this broker holds is set aside at the next start, which follows")
        )

    def _hear_conflicts(self, peer: Peer, message: Ping) -> None:
        """Who had to give way says so in its pings: told here too, once in a process's life."""
        known = self._told_of.get(peer.identity, 0)
        if message.aside <= known or peer.identity not in self._memberships():
            return
        self._told_of[peer.identity] = message.aside
        self._effects.append(
            Warn(
                f"broker {peer.identity.ordinal} has set aside what it alone held, acknowledged"
                " events among it: a data directory was an old copy, here or elsewhere."
                f" `barco recover` on broker {peer.identity.ordinal} lists and exports it"
            )
        )

    def _memberships(self) -> set[Identity]:
        return {member for held in self._open() for member in held.generation.members}
