"""A replica of a range that was made later: it holds nothing before two members have told it."""

from barco.cluster.replica.replica import Replica, Settings
from barco.cluster.state.effects import Effect, Persist, Send
from barco.cluster.state.events import Persisted, Received, Tick
from barco.model.generation import (
    Ballot,
    Generation,
    Gid,
    Identity,
    Kind,
    Parent,
    Successor,
    genesis,
)
from barco.protocol.replication import (
    Accept,
    Decided,
    DecidedRecord,
    HeardRecord,
    OpenedRecord,
    Ping,
    Prepare,
    Unknown,
)

END = 2**63
PARENT = Gid(-END, 4)


def identity(ordinal: int) -> Identity:
    return Identity(ordinal, bytes([ordinal + 1]) * 16)


def split() -> Successor:
    """Range -2^63 of brokers 0, 1, 2 becomes two; the second is led by broker 3."""
    parents = (Parent(PARENT, 9),)
    shapes = ((-END, 0, (0, 3, 1)), (0, END, (3, 1, 2)))
    children = tuple(
        Generation(
            Gid(token, 5),
            end,
            identity(members[0]),
            77,
            tuple(map(identity, members)),
            parents,
        )
        for token, end, members in shapes
    )
    return Successor(9, Kind.SPLIT, children)


def joiner(*, joins: bool = True) -> Replica:
    """Broker 1's, of the second child."""
    ranges = (genesis(0, END, (3, 1, 2)),)
    settings = Settings(me=identity(1), session=8, ranges=ranges, joins=joins)
    return Replica(settings, (), {}, lambda: 0.5, 0.0)


def told(replica: Replica, effects: list[Effect], journal: list) -> list[Send]:
    """Carries out the journal at once; what was sent."""
    sent = []
    while effects:
        again: list[Effect] = []
        for effect in effects:
            if isinstance(effect, Persist):
                journal += [r for r in effect.records if not isinstance(r, HeardRecord)]
                again += replica.step(60.0, Persisted(effect.serial))
            elif isinstance(effect, Send):
                sent.append(effect)
        effects = again
    return sent


def test_it_promises_nothing_that_it_does_not_hold() -> None:
    """No genesis beside the range that still covers its slices, and no vote on one (I10)."""
    replica, journal, sent = joiner(), [], []
    sent += told(replica, replica.start(0.0), journal)
    for second in range(1, 60):
        sent += told(replica, replica.step(float(second), Tick()), journal)
    for gid in (Gid(0, 1), PARENT):
        for message in (
            Prepare(gid=gid, ballot=Ballot(1, 2, 9), session=0),
            Accept(gid=gid, ballot=Ballot(1, 2, 9), value=split(), session=0, sources=()),
        ):
            answers = told(replica, replica.step(60.0, Received(identity(2), 9, message)), journal)
            said = [each.message for each in answers if not isinstance(each.message, Ping)]
            assert said == [Unknown(gid)]
    assert journal == [] and replica._held == {}
    assert sent and all(isinstance(each.message, Ping) for each in sent)


def test_one_member_alone_hands_it_no_range() -> None:
    """Also when all others are silent: that may be the liar's doing."""
    replica, journal = joiner(), []
    told(replica, replica.start(0.0), journal)
    word = Decided(PARENT, split())
    told(replica, replica.step(60.0, Received(identity(2), 9, word)), journal)
    assert journal == [] and replica._held == {}
    told(replica, replica.step(60.1, Received(identity(3), 9, word)), journal)
    assert journal[0] == DecidedRecord(PARENT, split())
    assert [r.generation for r in journal if isinstance(r, OpenedRecord)] == [*split().children]
    assert replica._current[0].generation == split().children[1]


def test_who_was_there_from_the_start_believes_one_while_it_is_new() -> None:
    """The other side of the rule: without it a replaced disk would wait for ever (P5)."""
    replica, journal = joiner(joins=False), []
    told(replica, replica.start(0.0), journal)
    told(replica, replica.step(60.0, Received(identity(2), 9, Decided(PARENT, split()))), journal)
    assert any(isinstance(record, DecidedRecord) for record in journal)
