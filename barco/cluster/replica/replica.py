"""One shard range on one broker: leader, follower, acceptor, proposer, lineage, failure view.

    replica = Replica(settings, journal, logs, random, now)
    effects = replica.start(now)
    effects = replica.step(now, event)          # for every event, and Tick() at `deadline`

The machine is pure: it reads no clock, no file, no socket. Bytes of groups never pass through it.
A range with a single member (developer mode) runs in the very same way.

What the protocol asks of whoever carries out the effects:

* Effects are carried out in the order in which they are returned, those of one step before the next
  step. None is optional but `Send`.
* `Persist` is an append to the journal and an fsync; `Persisted` is told after it, in order.
* While `steady(gid)` says where a generation stands, its leader's groups may be taken and
  acknowledged without a step; then `Followed` comes before the next one.
* `Stable(gid, gseq)` means: every group up to gseq is on stable storage. In order for a generation.
* After `Drain(gid)` nothing more is submitted to that log by its leader; `Drained` is told when all
  that was submitted is stable (or has failed: then `IoFailed` first). `Built` and `Stable` of
  those groups come before. What `AppendForeign` asks for later is fetched, and is appended.
* `Lead(generation)`: build GEN_START as group 1, tell `Built`, go on as the leader.
  `StopLeading`: end every pending call as "unknown", build nothing more.
  Of a generation with a single member no `Built` need be told, and what is stable is committed
  without a `Commit`: then `Stable` tells how far it is when its first group is stable, and before
  each step.
* A generation whose `Decided` record is in the journal ends with its T, whether `Seal` was carried
  out or not.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barco.cluster.replica.conflict import Conflict
from barco.cluster.replica.follower import Steady
from barco.cluster.replica.peers import Peer
from barco.cluster.state.core import Recovered, Settings
from barco.cluster.state.effects import Effect, Stop
from barco.cluster.state.events import (
    Absorb,
    Built,
    Corrupted,
    Drained,
    Elect,
    Event,
    Followed,
    HandOver,
    IoFailed,
    LinkLost,
    Move,
    Persisted,
    Received,
    Refused,
    Resign,
    Split,
    Stable,
    Taught,
    Tick,
)
from barco.cluster.state.held import Held
from barco.cluster.state.kin import KnownLineage
from barco.cluster.state.unrest import Unrest
from barco.limits import CONSUMER_CONTACT_SECONDS_MAX, IO_PAUSE_SECONDS, REFUSALS_MAX
from barco.model.generation import Generation, Gid, Identity, Kind, Successor
from barco.protocol.append_frame import Append, Appended
from barco.protocol.replication import (
    Accept,
    Accepted,
    Decided,
    Expired,
    Fenced,
    Fetch,
    Fetched,
    Gap,
    JournalRecord,
    Message,
    Nack,
    OpenedRecord,
    Ping,
    Prepare,
    Promise,
    RolledBack,
    Shrunk,
    Unknown,
    Unwelcome,
    View,
)

__all__ = ["Recovered", "Replica", "Settings"]


class Replica(Conflict):
    """The machine. See the module's text for what its surroundings promise."""

    def __init__(
        self,
        settings: Settings,
        journal: Iterable[JournalRecord],
        logs: Mapping[Gid, Recovered],
        random: Callable[[], float],
        now: float,
    ) -> None:
        """Builds it from what survived.

        journal: every record that was ever persisted, in order.
        logs: what recovery found of each generation that has groups here.
        random: uniform in [0, 1), for back-offs. now: monotonic seconds.
        """
        super().__init__(settings, journal, logs, random, now)
        self._start_peers()
        self._start_proposer()
        self._start_lineage()
        self._start_doubt()
        self._start_conflict()
        self._unrest = Unrest()
        self._stopped = False
        self._unwelcomed: set[int] = set()

    def start(self, now: float) -> list[Effect]:
        """The first effects; call it once, before any step."""
        return self.step(now, Tick())

    def step(self, now: float, event: Event) -> list[Effect]:
        """Take in one event; returns what has to be done, in this order."""
        self._advance_clock(now)
        if not self._stopped and not (self._yields and not isinstance(event, Persisted)):
            getattr(self, _HANDLERS[type(event)])(event)
            while self._to_myself and not self._yields:
                self._receive(self._me, self._session, self._to_myself.popleft())
            if self._ping_at <= self._now and not self._yields:
                self._ping_all()
        self._check()
        effects, self._effects = self._effects, []
        return effects

    def _check(self) -> None:
        """What holds between two steps, whatever happened; of generations, the open ones."""
        self._check_journal()
        self._check_held()
        self._check_words()
        over = self._stopped or self._yields
        assert over or self._ping_at > self._now, "a ping that is due has been sent"
        assert over or not self._to_myself, "it has heard what it said"
        assert self._started <= self._now, "time does not go back"
        assert self._me.ordinal not in self._peers, "nobody is a peer of itself"
        for ordinal, peer in self._peers.items():
            assert peer.identity.ordinal == ordinal, "a disk speaks for its seat"
        assert self._lost.isdisjoint(self._peers), "who was heard of has links of its own"

    def deadline(self) -> float:
        """When the next `Tick` is due, in seconds on the clock of `now`; infinite: at no time."""
        due = self._ping_at
        for proposal in self._proposals.values():
            due = min(due, proposal.resend_at)
        for held in self._current.values():
            if held.decided is None and self._now < held.retry_at < due:
                due = held.retry_at
        for held in self._lacking.values():
            due = min(due, held.fetch_at)
        return max(due, self._now)

    def steady(self, gid: Gid) -> Steady | None:
        """As a follower has it (`Follower.steady`); a machine that has stopped takes nothing."""
        return None if self._stopped or self._yields else super().steady(gid)

    def serves_consumers(self, now: float) -> bool:
        """Whether group consumers may be served by this leader: no other leader does, for sure.

        Needs a follower's answer of the last 2 s, and 2 s of leadership; reads by position need
        neither.
        """
        self._advance_clock(now)
        for held in self._open():  # Asked for with each lease.
            leading = held.leading
            if leading is None:
                continue
            settled = now - held.lead_at >= CONSUMER_CONTACT_SECONDS_MAX
            if (settled or not leading.appended) and self._contact(held):
                return True
        return False

    def successor(self, gid: Gid) -> Successor | None:
        """The decided `Successor` of a generation, or None."""
        return self._decided.get(gid)

    def catching_up(self) -> bool:
        """Whether a generation that has ended is not whole and sealed here, or not even known."""
        for gid in [gid for gid, held in self._unsealed.items() if held.sealed]:
            del self._unsealed[gid]
        return bool(self._unsealed or self._missing)

    def lacking(self) -> frozenset[Gid]:
        """Generations that have ended and of which groups are to come here yet, or that are not
        even known: what a reader looks for in them others have."""
        gone = {gid for gid, held in self._unsealed.items() if not (held.sealed or held.complete)}
        return frozenset(gone | self._missing)

    def arrived(self) -> frozenset[Gid]:
        """Generations that have ended, of which all groups are here and are not sealed yet."""
        return frozenset(
            gid for gid, held in self._unsealed.items() if held.complete and not held.sealed
        )

    def unclean(self) -> int:
        """How many generations ended on an operator's word (D9), or without groups that a member
        had committed (`barco.cluster.replica.conflict`), as far as is known here."""
        ends = sum(value.kind is Kind.UNCLEAN for value in self._decided.values())
        return ends + self.conflicts()

    def record(self, gid: Gid) -> Generation | None:
        """The record of a generation, if it is known here."""
        held = self._held.get(gid)
        return held.generation if held is not None else None

    def aimless(self) -> bool:
        """Whether no open generation is known here in which this broker has a voice."""
        return not self._open()

    def decisions(self) -> int:
        """How many successors are known here: another number, another `journal`."""
        return len(self._decided)

    def journal(self) -> KnownLineage:
        """Every generation and every decision that is known here."""
        return KnownLineage(
            {gid: held.generation for gid, held in self._held.items()}, self._decided
        )

    def readable(self, gid: Gid) -> int:
        """gseq up to which this replica's copy of a generation may be shown to readers."""
        held = self._held.get(gid)
        return 0 if held is None else held.shown

    # --- Events -------------------------------------------------------------------------------

    def _tick(self, event: Tick) -> None:
        self._stalled()
        self._repeat_proposals()
        self._drive()
        self._fetch_due()
        self._ask_missing()

    def _received(self, event: Received) -> None:
        if event.sender.ordinal != self._me.ordinal:
            self._receive(event.sender, event.session, event.message)

    def _receive(self, sender: Identity, session: int, message: Message) -> None:
        if sender is not self._me:
            peer = self._note(sender, session)
            if isinstance(message, Ping):
                self._on_ping(peer, message)
                return
        getattr(self, _MESSAGES[type(message)])(sender, message)

    def _persisted(self, event: Persisted) -> None:
        assert event.serial <= self._serial, "only what was given can be stable"
        self._durable = max(self._durable, event.serial)
        while self._thens and self._thens[0][0] <= self._durable:
            self._continue(self._thens.popleft()[1])
        if not self._yields:
            self._drive()

    def _on_link_lost(self, event: LinkLost) -> None:
        self._link_lost(event.ordinal)
        self._drive()

    def _failed(self, event: IoFailed) -> None:
        """Rules L4 and S7: the first error ends leadership, and nothing is retried."""
        self._unable_until = self._now + IO_PAUSE_SECONDS
        if event.gid is None:
            self._stopped = True
            self._effects.append(Stop(f"the journal failed: {event.reason}"))
            return
        held = self._held[event.gid]
        held.broken = True
        self._stop_leading(held, event.reason)
        assert held.leading is None, "the first error ends it (L4)"
        self._ping_at = self._now

    def _refused(self, event: Refused) -> None:
        """What came is not what can stand there. Whoever has it is asked again; if that is no
        better, the fault is with the leader, and another generation has to begin before it."""
        held = self._held[event.gid]
        assert event.gseq >= held.tail, "what is stable was taken"
        held.refusals = held.refusals + 1 if held.refused_at == event.gseq else 1
        held.refused_at = event.gseq
        wanted = max(held.target, held.received)
        held.received, held.received_crc = event.gseq, event.header_crc
        held.owed = min(held.owed, event.gseq)
        if held.refusals > REFUSALS_MAX:
            held.refusing = True
            self._ping_at = self._now
            return
        held.fetch_at = self._now
        self._want(held, wanted)
        self._fetch_due()

    def _corrupted(self, event: Corrupted) -> None:
        """Rule A4: no vote any more; the groups come back from the others."""
        held = self._held[event.gid]
        self._stop_leading(held, "its log is corrupt")
        held.tail, held.tail_crc = event.gseq, event.header_crc
        held.received, held.received_crc = event.gseq, event.header_crc
        held.suspect, held.sealed = True, False
        held.why, held.accuser = "its log is corrupt", -1
        assert held.leading is None, "who leads can trust its log"
        held.wish = None  # Nor the vote that waited for groups.
        self._drain(held)
        self._want_all(held)
        self._ping_at = self._now

    def _resign(self, event: Resign) -> None:
        self._resigned = True
        self._ping_at = self._now

    def _elect(self, event: Elect) -> None:
        held = self._held.get(event.gid)
        if held is None or held.decided is not None or not held.member:
            return
        if event.gid not in self._proposals:
            self._propose(held)

    def _split(self, event: Split) -> None:
        held = self._held.get(event.gid)
        if held is None or held.leading is None or event.gid in self._proposals:
            return
        first, second = event.children
        assert first.gid.token == held.generation.gid.token and second.end == held.generation.end
        assert first.end == second.gid.token
        self._propose(held, Kind.SPLIT, event.children)

    def _move(self, event: Move) -> None:
        held = self._held.get(event.gid)
        if held is None or held.leading is None or event.gid in self._proposals:
            return
        child, generation = event.child, held.generation
        assert (child.gid.token, child.end) == (generation.gid.token, generation.end)
        self._propose(held, Kind.RELEAD, (child,))

    def _hand_over(self, event: HandOver) -> None:
        held = self._held.get(event.gid)
        if held is not None and held.leading is not None and event.gid not in self._proposals:
            self._propose(held, Kind.HANDOFF)

    def _on_absorb(self, event: Absorb) -> None:
        held = self._held.get(event.gid)
        if held is None or event.donor.gid.token != held.generation.end:
            return
        if event.donor.gid not in self._held:
            self._persist(OpenedRecord(event.donor))
        self._absorb(held, self._hold(event.donor))

    # --- Messages -----------------------------------------------------------------------------

    def _on_ping(self, peer: Peer, message: Ping) -> None:
        news = peer.ping is None or (peer.ping.able, peer.ping.doubts) != (
            message.able,
            message.doubts,
        )
        if peer.ping is None:
            self._ping_at = self._now  # An answer ends its wait for one (rule A6).
        answered = self._has_answered(peer.identity.ordinal)
        peer.ping = message
        if not answered and self._has_answered(peer.identity.ordinal):
            news = True  # And this one's own.
        peer.epoch = max([peer.epoch, *(view.gid.epoch for view in message.views)])
        peer.stamp_us = message.stamp_us
        self._hear_position(peer, message)
        self._hear_tails(peer, message)
        self._hear_conflicts(peer, message)
        self._settle_doubt()
        if self._refuses(peer, message):
            return
        for view in message.views:
            held = self._held.get(view.gid)
            if held is None:
                self._send(peer.identity.ordinal, Unknown(view.gid))
            elif self._is_other(held, view.session):
                self._tell_origin(peer.identity.ordinal, held)
                self._send(peer.identity.ordinal, Unknown(view.gid))
            elif held.decided is not None:
                self._send(peer.identity.ordinal, self._decided_of(view.gid))
            else:
                self._on_view(peer, held, view)
        self._fetch_due()
        if news:
            self._drive()

    def _on_view(self, peer: Peer, held: Held, view: View) -> None:
        leader = held.generation.leader
        if peer.identity == leader and peer.session == held.generation.session and held.member:
            self._hear_leader(held, view)
        elif held.leading is not None and peer.identity in held.generation.members:
            if view.fenced:
                self._follower_fenced(held, peer.identity.ordinal)
            else:
                self._hear_follower(held, peer.identity.ordinal, view)
                assert peer.ping is not None
                if self._echoed(peer.ping.echo_us) is not None:
                    peer.echo_us = max(peer.echo_us, peer.ping.echo_us)
        elif peer.identity in held.generation.members:
            self._hear_member(held, view)

    def _refuses(self, peer: Peer, message: Ping) -> bool:
        """A freshly formatted disk must not take an ordinal that had another one; nor may one that
        stood in for a lost one, and was replaced since."""
        for held in self._open():
            for member in held.generation.members:
                if member.ordinal != peer.identity.ordinal or not member.disk_uuid:
                    continue
                if message.replaces and not self._returns(
                    peer.identity, message.replaces, held.generation
                ):
                    continue
                if member != peer.identity:
                    told = Unwelcome(member, held.generation.gid)
                    self._send(peer.identity.ordinal, told)
                    return True
        return False

    def _unwelcome(self, sender: Identity, message: Unwelcome) -> None:
        """From two of them: a single member cannot stop another by saying so."""
        if message.known.ordinal != self._me.ordinal or message.known == self._me:
            return
        self._unwelcomed.add(sender.ordinal)
        others = {m.ordinal for each in self._settings.ranges for m in each.members}
        if len(self._unwelcomed & others) >= min(2, len(others) - 1):
            self._stopped = True
            self._effects.append(
                Stop(
                    f"broker {sender.ordinal} knows broker {self._me.ordinal} with disk "
                    f"{message.known.disk_uuid.hex()}: bring that data directory back or, if it"
                    " is lost, run `barco replace` for this one and start again",
                    refused=True,
                )
            )


_HANDLERS: dict[type[Any], str] = {
    Tick: "_tick",
    Received: "_received",
    LinkLost: "_on_link_lost",
    Persisted: "_persisted",
    Built: "_on_built",
    Stable: "_on_stable",
    Followed: "_on_followed",
    Drained: "_on_drained",
    IoFailed: "_failed",
    Refused: "_refused",
    Corrupted: "_corrupted",
    Resign: "_resign",
    Elect: "_elect",
    Split: "_split",
    Move: "_move",
    HandOver: "_hand_over",
    Absorb: "_on_absorb",
    Taught: "_on_taught",
}
_MESSAGES: dict[type[Any], str] = {
    Append: "_on_append",
    Appended: "_on_appended",
    Fenced: "_on_fenced",
    Gap: "_on_gap",
    Unknown: "_on_unknown",
    Prepare: "_on_prepare",
    Promise: "_on_promise",
    Nack: "_on_nack",
    Accept: "_on_accept",
    Accepted: "_on_accepted",
    Decided: "_on_decided",
    Fetch: "_on_fetch",
    Fetched: "_on_fetched",
    Expired: "_on_expired",
    Unwelcome: "_unwelcome",
    RolledBack: "_on_rolled_back",
    Shrunk: "_on_shrunk",
}
