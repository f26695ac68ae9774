"""A replica alone: developer mode, and what a restart keeps. The simulator does the rest."""

from msgspec.structs import replace

from barco.cluster.replica.replica import Recovered, Replica, Settings
from barco.cluster.state.effects import (
    AppendForeign,
    Commit,
    Drain,
    Lead,
    Persist,
    Seal,
    Send,
    Skip,
    StopLeading,
)
from barco.cluster.state.events import (
    Built,
    Drained,
    Followed,
    Persisted,
    Received,
    Stable,
    Tick,
)
from barco.cluster.state.held import Fence, Held
from barco.limits import (
    DISTURBANCE_SECONDS,
    DISTURBANCES_MAX,
    FETCH_GROUPS_MAX,
    RESEND_SECONDS,
)
from barco.model.generation import (
    Ballot,
    Gid,
    GroupHead,
    Identity,
    Kind,
    Parent,
    Successor,
    genesis,
)
from barco.protocol.replication import (
    Decided,
    DecidedRecord,
    Expired,
    Fetch,
    Fetched,
    OpenedRecord,
    Ping,
    Prepare,
    Promise,
)

END = 2**63


def identity(ordinal: int) -> Identity:
    return Identity(ordinal, bytes([ordinal + 1]) * 16)


def single(session: int, journal: list = (), logs: dict | None = None) -> Replica:
    settings = Settings(me=identity(0), session=session, ranges=(genesis(-END, END, (0,)),))
    return Replica(settings, journal, logs or {}, lambda: 0.5, 0.0)


def settle(replica: Replica, effects: list, journal: list) -> list:
    """Carries out the journal and drains at once; returns the other effects."""
    others = []
    while effects:
        again = []
        for effect in effects:
            if isinstance(effect, Persist):
                journal += effect.records
                again += replica.step(0.0, Persisted(effect.serial))
            elif isinstance(effect, Drain):
                held = replica._held[effect.gid]
                again += replica.step(0.0, Drained(effect.gid, held.tail, held.tail_crc))
            else:
                others.append(effect)
        effects = again
    return others


def test_a_single_broker_opens_epoch_two_and_commits_alone() -> None:
    journal: list = []
    replica = single(7)
    lead = [e for e in settle(replica, replica.start(0.0), journal) if isinstance(e, Lead)]
    assert [each.generation.gid for each in lead] == [Gid(-END, 2)]
    gid = lead[0].generation.gid
    assert replica.step(0.1, Built(gid, GroupHead(1, 0, 11, 4096))) == []
    assert Commit(gid, 1) in replica.step(0.1, Stable(gid, 1, 11))


def test_a_restart_seals_what_was_and_opens_the_next() -> None:
    journal: list = []
    first = single(7)
    settle(first, first.start(0.0), journal)
    again = single(8, journal, {Gid(-END, 2): Recovered(5, 55)})
    lead = [e for e in settle(again, again.start(0.0), journal) if isinstance(e, Lead)]
    (generation,) = (each.generation for each in lead)
    assert generation.gid == Gid(-END, 3) and generation.session == 8
    assert generation.parents == ((Gid(-END, 2), 5),)
    assert again.successor(Gid(-END, 2)).tail == 5


def test_what_ended_before_it_was_sealed_is_sealed_at_the_next_start() -> None:
    """The decision was in the journal, the groups in their file, and the process gone."""
    journal: list = []
    first = single(7)
    settle(first, first.start(0.0), journal)
    gid = Gid(-END, 2)
    second = single(8, journal, {gid: Recovered(5, 55)})
    assert Seal(gid, 5) in settle(second, second.start(0.0), journal)
    third = single(9, journal, {gid: Recovered(5, 55)})
    assert Seal(gid, 5) in settle(third, third.start(0.0), list(journal))
    fourth = single(9, journal, {gid: Recovered(5, 55, sealed=True)})
    assert Seal(gid, 5) not in settle(fourth, fourth.start(0.0), list(journal))


def test_a_promise_waits_for_the_drain_and_for_the_journal() -> None:
    journal: list = []
    replica = single(7)
    settle(replica, replica.start(0.0), journal)
    gid = Gid(-END, 2)
    replica.step(0.1, Built(gid, GroupHead(1, 0, 11, 4096)))
    ballot = Ballot(9, 3, 1)
    prepare = Received(identity(3), 1, Prepare(gid, ballot))
    assert replica.step(0.2, prepare) == [Drain(gid)]
    assert replica.step(0.2, Stable(gid, 1, 11)) == [Commit(gid, 1)]
    effects = replica.step(0.2, Drained(gid, 1, 11))
    assert [type(each) for each in effects] == [StopLeading, Persist]
    (answer,) = replica.step(0.2, Persisted(effects[1].serial))
    assert answer == Send(3, Promise(gid, ballot, 1, None, False))
    assert not any(isinstance(e, AppendForeign) for e in effects)


# --- A member of three, told of a generation that ended while it was away ------------------------


def told(journal: list, *, tail: int = 9, logs: dict | None = None) -> tuple[Replica, Gid]:
    """Member 2 of three; its journal says that epoch 2 ended with group `tail` and 3 is open."""
    members = tuple(identity(ordinal) for ordinal in range(3))
    first = genesis(-END, END, (0, 1, 2))
    second = replace(
        first, gid=Gid(-END, 2), leader=members[0], session=5, members=members, parents=()
    )
    third = replace(second, gid=Gid(-END, 3), session=6, parents=(Parent(second.gid, tail),))
    journal += [
        DecidedRecord(first.gid, Successor(0, Kind.RELEAD, (second,))),
        OpenedRecord(second),
        DecidedRecord(second.gid, Successor(tail, Kind.RELEAD, (third,))),
        OpenedRecord(third),
    ]
    settings = Settings(me=members[2], session=7, ranges=(first,))
    replica = Replica(settings, journal, logs or {}, lambda: 0.5, 0.0)
    settle(replica, replica.start(0.0), journal)
    return replica, second.gid


def expired(
    replica: Replica, gid: Gid, first: int, crc: int = 88, *, by: int = 1, now: float = 0.1
) -> list:
    return replica.step(now, Received(identity(by), 1, Expired(gid, first, crc)))


def test_what_is_lacking_is_asked_for_after_a_restart_without_any_of_it() -> None:
    journal: list = []
    replica, gid = told(journal)
    assert replica.catching_up() and replica.lacking() == {gid}, "readers look for it elsewhere"
    replica.step(0.1, Received(identity(0), 6, Ping(b"", True, (), 1, 0, 0, ())))
    effects = [effect for tenth in range(2, 30) for effect in replica.step(tenth / 10, Tick())]
    assert Send(0, Fetch(gid, 1, 9, 5)) in effects


def test_a_fetch_that_is_answered_is_followed_by_the_next_one_at_once() -> None:
    """Wherever it began: not only where its end is a multiple of what is asked for at a time."""
    replica, gid = told([], tail=400, logs={Gid(-END, 2): Recovered(3, 3)})
    replica.step(0.1, Received(identity(0), 6, Ping(b"", True, (), 1, 0, 0, ())))
    effects = replica.step(1.0, Tick())
    (sent,) = (e for e in effects if isinstance(e, Send) and isinstance(e.message, Fetch))
    first = sent.message
    assert (first.first, first.last) == (4, 3 + FETCH_GROUPS_MAX)
    for gseq in range(first.first, first.last + 1):
        head = GroupHead(gseq, gseq - 1, gseq, 4096)
        effects = replica.step(1.0, Received(identity(0), 6, Fetched(gid, head)))
    again = Fetch(gid, first.last + 1, first.last + FETCH_GROUPS_MAX, 5)
    assert Send(sent.ordinal, again) in effects, "asked of the same one, who answers"


def test_expired_groups_are_skipped_once_their_generation_has_ended() -> None:
    replica, gid = told([], logs={Gid(-END, 2): Recovered(3, 33)})
    replica.step(0.1, Received(identity(0), 6, Ping(b"", True, (), 1, 0, 0, ())))
    assert Send(0, Fetch(gid, 4, 9, 5)) in expired(replica, gid, 6), "it may have them"
    assert expired(replica, gid, 6) == []
    effects = expired(replica, gid, 6, by=0)
    assert Skip(gid, 6, 88) in effects and not any(isinstance(e, Seal) for e in effects)
    assert replica.catching_up()
    head = GroupHead(6, 88, 66, 4096)
    assert AppendForeign(gid, head) in replica.step(
        0.2, Received(identity(1), 1, Fetched(gid, head))
    )
    # One is on its way to the disk: not now.
    assert expired(replica, gid, 8) == []


def test_who_has_removed_them_is_believed_when_the_other_one_says_nothing() -> None:
    """It may lack them too, and wait for this one."""
    replica, gid = told([], logs={Gid(-END, 2): Recovered(3, 33)})
    replica.step(0.1, Received(identity(0), 6, Ping(b"", True, (), 1, 0, 0, ())))
    assert not any(isinstance(e, Skip) for e in expired(replica, gid, 6))
    late = 0.2 + 2 * RESEND_SECONDS
    assert Skip(gid, 6, 88) in expired(replica, gid, 6, now=late)


def test_nothing_is_skipped_in_a_generation_that_has_not_ended() -> None:
    """It is shut by a vote: what is here may be all that is left of what was acknowledged."""
    gid = Gid(-END, 3)
    replica, _ = told([], logs={gid: Recovered(3, 33)})
    held = replica._held[gid]
    held.promised, held.round, held.fence = Ballot(9, 1, 1), 9, Fence.SHUT
    for by in (0, 1, 0, 1):
        effects = expired(replica, gid, 6, by=by)
        assert not any(isinstance(e, Skip) for e in effects)
    assert held.tail == 3


def test_a_leader_is_heard_by_its_groups_and_not_by_what_the_own_disk_does() -> None:
    replica, _ = told([])
    gid = Gid(-END, 3)
    replica.step(0.1, Received(identity(0), 6, Ping(b"", True, (), 1, 0, 0, ())))
    for gseq in range(1, 31):  # Nothing but groups, for longer than it may be silent.
        replica.step(gseq / 10, Followed(gid, gseq, gseq, 0, 0, 0))
    assert 0 not in replica.status()[0]["down"]
    for gseq in range(1, 31):  # It is gone; what it sent is still being written.
        replica.step(3 + gseq / 10, Followed(gid, 0, 0, gseq, gseq, 0))
    assert 0 in replica.status()[0]["down"]


def test_what_has_arrived_is_readable_elsewhere_until_it_is_sealed() -> None:
    """A copy is whole a moment before its files are read; readers went past it."""
    replica, gid = told([])
    replica._held[gid].tail = 9
    assert replica.catching_up() and not replica.lacking() and replica.arrived() == {gid}
    replica._held[gid].sealed = True
    assert not replica.arrived(), "from then on the logs have it in hand"


def test_a_generation_of_which_nothing_is_left_is_sealed() -> None:
    replica, gid = told([])
    expired(replica, gid, 10, 0)
    effects = expired(replica, gid, 10, 0, by=0)
    assert Skip(gid, 10, 0) in effects and Seal(gid, 9) in effects
    assert not replica.catching_up() and not replica.lacking()


def test_an_empty_generation_that_ended_before_it_was_known_is_sealed() -> None:
    """Its end is told first: no group will come that would have it looked at again."""
    journal: list = []
    replica, _ = told(journal)
    third = journal[3].generation
    fourth, fifth = (
        replace(third, gid=Gid(-END, epoch), session=9, parents=(Parent(Gid(-END, epoch - 1), 0),))
        for epoch in (4, 5)
    )
    effects = []
    for gid, child in ((fourth.gid, fifth), (third.gid, fourth)):
        value = Decided(gid, Successor(0, Kind.RELEAD, (child,)))
        for number in (0, 1):
            step = replica.step(0.1, Received(identity(number), 6 - number, value))
            effects += settle(replica, step, journal)
    assert Seal(third.gid, 0) in effects and Seal(fourth.gid, 0) in effects


def test_nothing_is_skipped_that_may_still_be_voted_on_or_is_here() -> None:
    replica, gid = told([], logs={Gid(-END, 2): Recovered(3, 33)})
    assert expired(replica, Gid(-END, 3), 6) == []
    assert expired(replica, gid, 4) == []
    assert expired(replica, gid, 11) == []


class Heard(Replica):
    """The others have answered its first ping (rule A6)."""

    def _is_unheard(self, held: Held) -> bool:
        return False


def of_three(session: int, led_by: int) -> tuple[Replica, Gid]:
    """Broker 1 of three, in epoch 2 of a range that another one leads."""
    members = tuple(identity(each) for each in range(3))
    first = genesis(-END, END, (0, 1, 2))
    child = replace(
        first,
        gid=Gid(-END, 2),
        leader=identity(led_by),
        session=50,
        members=members,
        parents=(Parent(first.gid, 0),),
    )
    value = Successor(0, Kind.RELEAD, (child,))
    journal = [OpenedRecord(first), DecidedRecord(first.gid, value), OpenedRecord(child)]
    settings = Settings(me=identity(1), session=session, ranges=(first,))
    return Heard(settings, journal, {}, lambda: 0.5, 0.0), child.gid


def promised_to(replica: Replica, gid: Gid, sender: int, ballot_round: int, now: float) -> bool:
    """Whether a PREPARE of this ballot is taken up."""
    ballot = Ballot(ballot_round, sender, 9)
    journal: list = []
    effects = replica.step(now, Received(identity(sender), 9, Prepare(gid, ballot)))
    while effects:
        again = []
        for effect in effects:
            if isinstance(effect, Persist):
                again += replica.step(now, Persisted(effect.serial))
            elif isinstance(effect, Drain):
                held = replica._held[effect.gid]
                again += replica.step(now, Drained(effect.gid, held.tail, held.tail_crc))
            else:
                journal.append(effect)
        effects = again
    return any(
        isinstance(each, Send)
        and isinstance(each.message, Promise)
        and each.message.ballot == ballot
        for each in journal
    )


def test_one_member_has_few_ballots_in_a_row_and_the_others_have_theirs() -> None:
    """Rule P7: whatever the liar sends, who comes after it is heard, and it is heard again."""
    replica, gid = of_three(7, led_by=0)
    replica.step(0.0, Tick())
    taken = [promised_to(replica, gid, 2, 10 + step, 0.1 + step * 0.02) for step in range(100)]
    assert sum(taken) == DISTURBANCES_MAX and taken[0]
    assert promised_to(replica, gid, 0, 200, 2.7), "the owner's, after the liar's"
    assert not promised_to(replica, gid, 2, 201, 2.71)
    later = 2.71 + 2 * DISTURBANCE_SECONDS
    assert [promised_to(replica, gid, 2, 300 + n, later + n) for n in range(3)].count(True) in (
        2,
        3,
    )


def test_whoever_takes_turns_needs_no_allowance() -> None:
    """An owner that is restarted every few seconds, and who stands in for it."""
    replica, gid = of_three(7, led_by=0)
    replica.step(0.0, Tick())
    assert promised_to(replica, gid, 0, 10, 0.1)  # Its leader: from the allowance.
    for turn in range(40):
        assert promised_to(replica, gid, 2 if turn % 2 == 0 else 0, 20 + turn, 1.0 + turn * 0.3)
