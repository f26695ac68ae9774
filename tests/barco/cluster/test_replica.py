"""A replica alone: developer mode, and what a restart keeps. The simulator does the rest."""

from barco.cluster.effects import AppendForeign, Commit, Drain, Lead, Persist, Send, StopLeading
from barco.cluster.events import Built, Drained, Persisted, Received, Stable
from barco.cluster.replica import Recovered, Replica, Settings
from barco.model.generation import Ballot, Gid, GroupHead, Identity, genesis
from barco.protocol.replication import Prepare, Promise

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
