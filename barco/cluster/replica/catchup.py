"""Fetching groups that are missing here, from any member that has them (rules F3 and A2)."""

from barco.cluster.replica.peers import Peers
from barco.cluster.state.effects import AppendForeign, Serve, Skip
from barco.cluster.state.held import Fence, Gone, Held
from barco.limits import FETCH_GROUPS_MAX, RESEND_SECONDS
from barco.model.generation import GroupHead, Identity
from barco.protocol.append_frame import Append
from barco.protocol.replication import Expired, Fetch, Fetched, Gap


class Catchup(Peers):
    """Asking for groups, and serving those who ask."""

    def _fetch_due(self) -> None:
        """Ask, or ask again, for what is lacking."""
        for held in list(self._lacking.values()):
            if held.received >= held.target or held.broken or held.refusing:
                del self._lacking[held.generation.gid]
            elif self._now >= held.fetch_at and held.fence is not Fence.DRAINING:
                self._fetch(held)

    def _fetch(self, held: Held) -> None:
        assert held.received < held.target, "something is lacking"
        held.fetch_at = self._now + RESEND_SECONDS
        ordinal = self._source(held)
        if ordinal is not None:
            held.asked = min(held.target, held.received + FETCH_GROUPS_MAX)
            wanted = (held.received + 1, held.asked, held.generation.session)
            assert held.received < held.asked <= held.target, "no more than is lacking"
            self._send(ordinal, Fetch(held.generation.gid, *wanted))

    def _source(self, held: Held) -> int | None:
        """The next one to ask: who is known to have it, then the leader, then any member."""
        able = self._sources(held)
        gone = held.expired
        if gone is not None and gone.received == held.received and self._now < gone.until:
            able = [ordinal for ordinal in able if ordinal not in gone.said] or able
        if not able:
            return None
        assert self._me.ordinal not in able, "nobody asks itself"
        held.fetch_turn += 1
        return able[(held.fetch_turn - 1) % len(able)]

    def _sources(self, held: Held) -> list[int]:
        """Whoever may have it and is in reach."""
        generation = held.generation
        wished = [*held.sources, generation.leader.ordinal]
        wished += [member.ordinal for member in generation.members]
        wished += [
            member.ordinal
            for child in (held.decided.children if held.decided is not None else ())
            if self._is_here(child.gid)
            for member in child.members
        ]
        return [
            ordinal
            for ordinal in dict.fromkeys(wished)
            if ordinal != self._me.ordinal and not self._down(ordinal)
        ]

    def _on_fetch(self, sender: Identity, message: Fetch) -> None:
        ordinal = sender.ordinal
        held = self._held.get(message.gid)
        if held is None or self._is_other(held, message.session):
            return
        if held.leading is not None and ordinal in held.leading.appended and not held.shut:
            self._join(held, ordinal, message.first)
        last = min(message.last, held.tail)
        if held.decided is not None:
            last = min(last, held.decided.tail)
        assert last <= held.tail, "nobody is served what is not stable here"
        if last >= message.first:
            self._effects.append(Serve(ordinal, message.gid, message.first, last))
        elif held.received < message.first <= message.last:
            self._send(ordinal, Gap(message.gid, held.tail))

    def _join(self, held: Held, ordinal: int, first: int) -> None:
        """A follower that lacks only recent groups gets these, and from then on every new one.

        Had it to have all that is stable first, it would never be there under load: while one
        fetch is answered the next groups land. It is answered all the same, because a group may
        have left the leader's memory.
        """
        leading = held.leading
        assert leading is not None
        assert ordinal in leading.live, "it is a follower of this generation"
        if first <= leading.built - len(leading.recent):
            return
        leading.live[ordinal] = True
        for head in leading.recent:
            if head.gseq >= first:
                self._send(ordinal, self._append_of(held, head))

    def _append_of(self, held: Held, head: GroupHead) -> Append:
        assert held.leading is not None and head.gseq <= held.leading.built
        return Append(held.generation.gid, self._session, head, held.committed)

    def _on_fetched(self, sender: Identity, message: Fetched) -> None:
        held = self._held.get(message.gid)
        if held is None or held.broken or held.refusing or held.fence is Fence.DRAINING:
            return
        if held.received >= held.target or held.leading is not None:
            return
        if not self._take(held, message.head):
            return
        if not held.shut:
            held.owed = held.received
        if held.received >= held.target:
            self._lacking.pop(message.gid, None)
        elif held.received >= held.asked:
            held.fetch_turn -= 1  # It answers: ask the same one again.
            self._fetch(held)

    def _on_expired(self, sender: Identity, message: Expired) -> None:
        """What retention has removed elsewhere is not waited for, and not kept here.

        Only of a generation that has ended: there is nothing to vote on any more, so a log that
        begins later than with group 1 misleads nobody. And only if nobody else in reach has sent
        them: each is asked, and waited for only so long: it may lack them too, and ask here.
        """
        held = self._held.get(message.gid)
        if held is None or held.decided is None or held.leading is not None:
            return
        if held.tail != held.received or held.fence is not Fence.SHUT:
            return  # Groups are on their way to the disk; it will be asked for again.
        if not held.received + 1 < message.first <= held.decided.tail + 1:
            return
        if self._may_be_elsewhere(held, sender.ordinal):
            return
        assert not held.sealed, "what is sealed lacks nothing"
        held.tail = held.received = message.first - 1
        held.tail_crc = held.received_crc = message.prev_crc
        self._effects.append(Skip(message.gid, message.first, message.prev_crc))
        assert not held.member or held.shut, "and nobody votes on what begins later"
        self._grown(held)
        held.fetch_at = self._now
        self._fetch_due()

    def _may_be_elsewhere(self, held: Held, ordinal: int) -> bool:
        """Whether another in reach has neither said that they are gone nor had the time to."""
        sources = self._sources(held)
        if held.expired is None or held.expired.received != held.received:
            until = self._now + RESEND_SECONDS * len(sources)
            held.expired = Gone(held.received, until, set())
        news = ordinal not in held.expired.said
        held.expired.said.add(ordinal)
        if held.expired.said.issuperset(sources) or self._now >= held.expired.until:
            return False
        if news:
            held.asked, held.fetch_at = held.received, self._now
            self._fetch_due()
        return True

    def _grown(self, held: Held) -> None:
        raise AssertionError("the part that seals is missing")

    def _take(self, held: Held, head: GroupHead) -> bool:
        """Append a group if it is the next one and continues the chain (I5)."""
        if not self._follows(held, head):
            return False
        assert held.leading is None, "who leads takes no groups"
        assert not held.sealed, "what is sealed lacks nothing"
        self._has_come(held, head.gseq, head.header_crc)
        self._effects.append(AppendForeign(held.generation.gid, head))
        return True

    def _has_come(self, held: Held, gseq: int, header_crc: int) -> None:
        """That far is here, if not yet stable: what is lacking is not asked for at once."""
        assert gseq > held.received, "groups come in order"
        held.received, held.received_crc = gseq, header_crc
        held.fetched_at = self._clock
        held.fetch_at = self._now + RESEND_SECONDS

    def _follows(self, held: Held, head: GroupHead) -> bool:
        return head.gseq == held.received + 1 and head.prev_crc == held.received_crc
