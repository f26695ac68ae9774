"""A machine that holds one range: what it is taught of others, and what it makes of its own."""

import pytest
from msgspec.structs import replace

from barco.cluster.replica.replica import Replica, Settings
from barco.cluster.state.effects import Drain, Effect, Lead, Persist, Send
from barco.cluster.state.events import (
    Drained,
    Event,
    HandOver,
    Move,
    Persisted,
    Received,
    Split,
    Taught,
    Tick,
)
from barco.limits import SILENCE_SECONDS_MAX
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
    JournalRecord,
    OpenedRecord,
    Ping,
    Prepare,
)
from barco.types import Epoch, Ordinal, Token

START, MIDDLE, END = Token(-(2**63)), Token(0), 2**63
SESSION = 77


def identity(ordinal: int) -> Identity:
    return Identity(Ordinal(ordinal), bytes([ordinal + 1]) * 16)


def generation(
    token: Token, epoch: int, end: int, members: tuple[int, ...], *parents: Parent
) -> Generation:
    names = tuple(map(identity, members))
    return Generation(Gid(token, Epoch(epoch)), end, names[0], SESSION, names, parents)


PARENT = generation(START, 4, END, (0, 1, 2), Parent(Gid(START, Epoch(3)), 5))
FIRST = generation(START, 5, MIDDLE, (0, 3, 1), Parent(PARENT.gid, 9))
SECOND = generation(MIDDLE, 5, END, (3, 1, 2), Parent(PARENT.gid, 9))
BALLOT = Ballot(1, Ordinal(3), SESSION)
SPLIT = Successor(9, Kind.SPLIT, (FIRST, SECOND))


class Lab:
    """One machine whose journal is stable at once."""

    def __init__(
        self,
        ordinal: int,
        token: Token,
        *,
        journal: tuple[JournalRecord, ...] = (),
        session: int = SESSION,
        joins: bool = True,
    ) -> None:
        end = MIDDLE if token == START else END
        ranges = (genesis(token, end, (3, 1, 2)),)
        self.settings = Settings(
            me=identity(ordinal), session=session, ranges=ranges, token=token, joins=joins
        )
        self.replica = Replica(self.settings, journal, {}, lambda: 0.5, 0.0)
        self.now = 0.0
        self.journal: list[JournalRecord] = list(journal)
        self.done: list[Effect] = []
        self._do(self.replica.start(0.0))

    def step(self, event: Event) -> list[Effect]:
        """What it did, but for its journal."""
        before = len(self.done)
        self.now += 0.001
        self._do(self.replica.step(self.now, event))
        return self.done[before:]

    def _do(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Drain):  # It has no groups.
                self._do(self.replica.step(self.now, Drained(effect.gid, 0, 0)))
            elif isinstance(effect, Persist):
                self.journal += effect.records
                self._do(self.replica.step(self.now, Persisted(effect.serial)))
            else:
                self.done.append(effect)

    def said(self, ordinal: int, message: Decided) -> list[Effect]:
        return self.step(Received(identity(ordinal), ordinal + 50, message))

    def leads(self) -> list[Generation]:
        return [each.generation for each in self.done if isinstance(each, Lead)]


def by(*ordinals: int) -> frozenset[int]:
    return frozenset(ordinals)


@pytest.mark.parametrize("words", [by(), by(1), by(3, 4), by(1, 3), by(2, 7)])
def test_one_member_of_the_parent_teaches_nothing(words: frozenset[int]) -> None:
    lab = Lab(3, MIDDLE)
    lab.step(Taught(PARENT, SPLIT, words))
    assert lab.journal == [] and lab.replica._held == {} and lab.leads() == []


def test_two_members_teach_a_joiner_which_leads_without_any_of_the_parents_groups() -> None:
    lab = Lab(3, MIDDLE)
    lab.step(Taught(PARENT, SPLIT, by(1, 2)))
    assert lab.leads() == [SECOND]
    assert OpenedRecord(PARENT) in lab.journal and DecidedRecord(PARENT.gid, SPLIT) in lab.journal
    assert [held.generation for held in lab.replica._held.values() if held.member] == [SECOND]
    told = len(lab.journal), len(lab.done)
    lab.step(Taught(PARENT, SPLIT, by(0, 1, 2)))
    assert (len(lab.journal), len(lab.done)) == told, "it is told again, and nothing is done"


def test_what_it_was_taught_is_there_after_a_start() -> None:
    """A new process does not resume; it knows what it is a member of, and the parent's record."""
    lab = Lab(3, MIDDLE)
    lab.step(Taught(PARENT, SPLIT, by(1, 2)))
    again = Lab(3, MIDDLE, journal=tuple(lab.journal), session=SESSION + 1)
    assert again.leads() == [] and again.replica.record(PARENT.gid) == PARENT
    assert again.replica.successor(PARENT.gid) == SPLIT
    assert [held.generation for held in again.replica._open()] == [SECOND]


def test_who_leads_a_child_has_time_to_say_so() -> None:
    """A process that has waited for its range for long has heard nothing of the others meanwhile,
    and would have taken the range over at once: its clients then wait for two leaders."""

    def doubts(lab: Lab, seconds: float) -> list[tuple[int, ...]]:
        found, until = [], lab.now + seconds
        while lab.now < until:
            lab.now += 0.05
            done = lab.step(Tick())
            pings = [each.message for each in done if isinstance(each, Send)]
            found += [each.doubts for each in pings if isinstance(each, Ping)]
        return found

    lab = Lab(1, MIDDLE)
    doubts(lab, 10)
    lab.step(Taught(PARENT, SPLIT, by(0, 2)))
    early = doubts(lab, SILENCE_SECONDS_MAX - 0.1)
    assert len(early) > 10 and not any(early)
    assert doubts(lab, 1)[-1] == (3,)


def test_a_single_member_is_all_who_can_tell() -> None:
    parent = replace(PARENT, members=(identity(0),), leader=identity(0))
    children = tuple(
        replace(child, members=(identity(0),), leader=identity(0)) for child in SPLIT.children
    )
    lab = Lab(0, MIDDLE)
    lab.step(Taught(parent, Successor(9, Kind.SPLIT, children), by(0)))
    assert lab.leads() == [children[1]]


def test_what_can_not_be_is_not_taken_from_two_either() -> None:
    """A child of another parent's end; a record that is not the one that is known."""
    lab = Lab(3, MIDDLE)
    lab.step(Taught(PARENT, replace(SPLIT, tail=8), by(0, 1)))
    assert lab.journal == []
    lab.step(Taught(PARENT, SPLIT, by(0, 1)))
    told = len(lab.journal)
    other = replace(SPLIT, children=(FIRST, replace(SECOND, session=5)))
    lab.step(Taught(PARENT, other, by(0, 1)))
    lab.step(Taught(replace(PARENT, session=5), SPLIT, by(0, 1)))
    assert len(lab.journal) == told


def test_over_links_only_the_origin_of_what_is_known_is_learned() -> None:
    """DECIDED of another range, by both of the others: they may be no members of it."""
    lab = Lab(3, MIDDLE)
    for ordinal in (1, 2):
        lab.said(ordinal, Decided(PARENT.gid, SPLIT))
    assert lab.journal == []
    child = generation(MIDDLE, 6, END, (3, 1, 2), Parent(SECOND.gid, 4))
    for ordinal in (1, 2):  # Of its own range two do.
        lab.said(ordinal, Decided(SECOND.gid, Successor(4, Kind.RELEAD, (child,))))
    assert lab.replica.record(child.gid) == child and SECOND.gid in lab.replica._missing
    lab.said(1, Decided(PARENT.gid, SPLIT))
    assert lab.replica.record(SECOND.gid) == SECOND, "it made what is known by its name"


def parent_is_here() -> Lab:
    """Broker 0's process, as a member of the parent whose groups it has yet to get."""
    journal = (OpenedRecord(PARENT), DecidedRecord(PARENT.gid, SPLIT), OpenedRecord(FIRST))
    return Lab(0, START, journal=journal, joins=False)


def test_a_leader_waits_for_groups_that_are_to_be_here() -> None:
    assert parent_is_here().leads() == []


def test_a_process_holds_only_its_own_token() -> None:
    """Broker 1 is a member of both children: each of its processes of one."""
    for token, mine, other in ((START, FIRST, SECOND), (MIDDLE, SECOND, FIRST)):
        lab = Lab(1, token)
        lab.step(Taught(PARENT, SPLIT, by(0, 2)))
        held = lab.replica._held
        assert held[mine.gid].member and not held[other.gid].concerned
        gid = other.gid
        for message in (Prepare(gid, BALLOT, SESSION), Accept(gid, BALLOT, SPLIT, (), SESSION)):
            done = lab.step(Received(identity(3), SESSION, message))
            assert not [each for each in done if isinstance(each, Send)], "it has no vote there"


class Range:
    """The processes of range MIDDLE at brokers 3, 1 and 2, and what they say to each other."""

    def __init__(self) -> None:
        self.labs = {o: Lab(o, MIDDLE, session=SESSION + (o != 3)) for o in (3, 1, 2)}
        for lab in self.labs.values():
            lab.step(Taught(PARENT, SPLIT, by(0, 1)))
        self.left: list[Send] = []
        """What went to others."""
        self.run(2.5)
        assert self.labs[3].leads() == [SECOND]

    def run(self, seconds: float) -> None:
        until = self.labs[3].now + seconds
        while self.labs[3].now < until:
            for lab in self.labs.values():
                lab.now += 0.05
                lab.step(Tick())
            while self._deliver():
                pass

    def _deliver(self) -> bool:
        """Whether anything was on its way."""
        sent = []
        for ordinal, lab in self.labs.items():
            sent += [(ordinal, each) for each in lab.done if isinstance(each, Send)]
            lab.done = [each for each in lab.done if not isinstance(each, Send)]
        for ordinal, each in sent:
            lab = self.labs[ordinal]
            if each.ordinal not in self.labs:
                self.left.append(each)
                continue
            received = Received(identity(ordinal), lab.settings.session, each.message)
            self.labs[each.ordinal].step(received)
        return bool(sent)

    def decided(self) -> Successor:
        """What all know of the end of what was led."""
        found = {lab.replica.successor(SECOND.gid) for lab in self.labs.values()}
        assert len(found) == 1
        (value,) = found
        assert value is not None
        return value


def test_a_leader_splits_its_range_to_other_members() -> None:
    ring = Range()
    half = Token(2**62)
    parts = (
        generation(MIDDLE, 1, half, (3, 1, 2)),
        replace(generation(half, 1, END, (6, 7, 2)), session=9),
    )
    ring.labs[3].step(Split(SECOND.gid, parts))
    ring.run(1.0)
    value = ring.decided()
    assert value.kind is Kind.SPLIT and value.tail == 0
    assert [child.members for child in value.children] == [part.members for part in parts]
    assert {child.gid.epoch for child in value.children} == {6}
    assert {child.parents for child in value.children} == {(Parent(SECOND.gid, 0),)}
    assert ring.labs[3].leads() == [SECOND, value.children[0]]
    assert ring.left == [], "members of another range are not told over links"


def test_a_leader_moves_its_range_and_whoever_leaves_votes_on_nothing_more() -> None:
    ring = Range()
    child = replace(generation(MIDDLE, 1, END, (1, 2, 5)), session=SESSION + 1)
    ring.labs[3].step(Move(SECOND.gid, child))
    ring.run(0.1)
    value = ring.decided()
    assert value.kind is Kind.RELEAD
    told = {each.ordinal for each in ring.left if isinstance(each.message, Decided)}
    assert told == {5}, "its process of this range is told"
    moved = value.children[0]
    assert (moved.gid, moved.members, moved.end) == (Gid(MIDDLE, Epoch(6)), child.members, END)
    assert ring.labs[1].leads() == [moved] and ring.labs[3].leads() == [SECOND]
    assert ring.labs[3].replica._open() == []
    ballot = Ballot(9, Ordinal(1), 3)
    ring.labs[3].step(Received(identity(1), 78, Prepare(moved.gid, ballot, moved.session)))
    assert [each for each in ring.labs[3].done if isinstance(each, Send)] == []


@pytest.mark.parametrize("members", [(1, 1, 2), (1, 2), (1, 2, 4, 5)])
def test_a_move_to_what_can_not_decide_is_voted_for_by_nobody(members: tuple[int, ...]) -> None:
    ring = Range()
    child = replace(generation(MIDDLE, 1, END, members), session=SESSION + 1)
    ring.labs[3].step(Move(SECOND.gid, child))
    ring.run(0.3)
    assert ring.labs[1].replica.successor(SECOND.gid) is None


def test_a_leader_hands_its_range_over() -> None:
    ring = Range()
    ring.labs[3].step(HandOver(SECOND.gid))
    ring.run(0.5)
    assert ring.decided() == Successor(0, Kind.HANDOFF, ())
    assert all(lab.replica._open() == [] for lab in ring.labs.values())
    assert ring.labs[3].leads() == [SECOND], "nobody takes it back"


def test_only_who_leads_does_any_of_it() -> None:
    ring = Range()
    ring.labs[1].step(HandOver(SECOND.gid))
    ring.labs[2].step(Move(SECOND.gid, generation(MIDDLE, 1, END, (2, 1, 5))))
    ring.run(0.5)
    assert ring.labs[3].replica.successor(SECOND.gid) is None


# --- What was handed over ---------------------------------------------------------------------

LEFT = generation(START, 5, MIDDLE, (0, 3, 1), Parent(PARENT.gid, 9))
RIGHT = generation(MIDDLE, 5, END, (3, 1, 2), Parent(PARENT.gid, 9))
HANDED = Successor(7, Kind.HANDOFF, ())


def taker(*records: JournalRecord) -> Lab:
    """Broker 3's process of the left range, which has heard that the right one was handed over."""
    lab = Lab(3, START, journal=records, joins=True)
    lab.step(Taught(RIGHT, HANDED, by(1, 2)))
    return lab


def test_what_was_handed_over_is_taken_in_once() -> None:
    """Whoever became a member after it was taken in and split off again has to look whether an
    ancestor has it: also where that one's record is not here."""
    lab = taker(OpenedRecord(PARENT), DecidedRecord(PARENT.gid, SPLIT), OpenedRecord(LEFT))
    held = lab.replica._held[LEFT.gid].generation
    donor = lab.replica._handed(MIDDLE, held)
    assert donor is not None and donor.generation == RIGHT

    joined = generation(START, 6, END, (0, 3, 1), Parent(LEFT.gid, 3), Parent(RIGHT.gid, 7))
    again = generation(START, 7, MIDDLE, (0, 3, 1), Parent(joined.gid, 4))
    later = generation(START, 8, MIDDLE, (3, 4, 5), Parent(again.gid, 4))
    for known, missing in (((again,), {joined.gid}), ((PARENT, LEFT, joined, again), set())):
        lab = taker(*map(OpenedRecord, (*known, later)))
        assert lab.replica._handed(MIDDLE, later) is None, "an ancestor took it in"
        assert lab.replica._missing == missing


def test_a_later_one_behind_it_is_taken_in() -> None:
    """The same, where what was split off has been handed over again."""
    joined = generation(START, 6, END, (0, 3, 1), Parent(LEFT.gid, 3), Parent(RIGHT.gid, 7))
    split = (Parent(joined.gid, 4),)
    left, right = (generation(t, 7, e, (0, 3, 1), *split) for t, e in ((START, MIDDLE), (0, END)))
    lab = Lab(3, START, journal=tuple(map(OpenedRecord, (PARENT, LEFT, joined, left))), joins=True)
    lab.step(Taught(right, HANDED, by(0, 1)))
    donor = lab.replica._handed(MIDDLE, left)
    assert donor is not None and donor.generation == right


def test_who_was_away_while_its_range_went_on_to_others_asks_how_its_copy_ended() -> None:
    lab = Lab(3, MIDDLE)
    lab.step(Taught(PARENT, SPLIT, by(0, 1)))
    sixth = generation(MIDDLE, 6, END, (1, 2, 5), Parent(SECOND.gid, 4))
    seventh = generation(MIDDLE, 7, END, (1, 2, 5), Parent(sixth.gid, 8))
    lab.step(Taught(sixth, Successor(8, Kind.RELEAD, (seventh,)), by(1, 2)))
    assert lab.replica._open() == []
    lab.now += 2.0
    pings = [e for e in lab.step(Tick()) if isinstance(e, Send) and isinstance(e.message, Ping)]
    assert {each.ordinal for each in pings} >= {1, 2}
    assert all([view.gid for view in each.message.views] == [SECOND.gid] for each in pings)
    for ordinal in (1, 2):
        lab.said(ordinal, Decided(SECOND.gid, Successor(4, Kind.RELEAD, (sixth,)), SESSION))
    assert lab.replica.record(SECOND.gid) == SECOND and lab.replica.successor(SECOND.gid)
    lab.now += 2.0
    pings = [e for e in lab.step(Tick()) if isinstance(e, Send) and isinstance(e.message, Ping)]
    assert pings and all(not each.message.views for each in pings), "it knows"
