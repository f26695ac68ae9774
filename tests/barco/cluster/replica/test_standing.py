"""What a replica says of its generation: written, caught up, synced, and who would take over."""

from typing import Any

import pytest
from msgspec.structs import replace

from barco.cluster.replica.replica import Replica, Settings
from barco.cluster.state.events import Built, Received, Stable
from barco.cluster.state.held import Fence
from barco.limits import JOIN_GROUPS_MAX
from barco.model.generation import (
    Generation,
    Gid,
    GroupHead,
    Identity,
    Kind,
    Successor,
    genesis,
)
from barco.protocol.append_frame import Appended
from barco.protocol.replication import (
    DecidedRecord,
    Fenced,
    Gap,
    JournalRecord,
    OpenedRecord,
    Ping,
    View,
)

END = 2**63
SESSION = 7


def identity(ordinal: int) -> Identity:
    return Identity(ordinal, bytes([ordinal + 1]) * 16)


def member(ordinal: int, leader: int) -> tuple[Replica, Generation]:
    """One of three; `leader` has opened the generation that follows genesis."""
    members = tuple(map(identity, range(3)))
    first = genesis(-END, END, (0, 1, 2))
    second = replace(
        first,
        gid=Gid(-END, 2),
        leader=members[leader],
        session=SESSION if ordinal == leader else 5,
        members=members,
    )
    journal: list[JournalRecord] = [
        DecidedRecord(first.gid, Successor(0, Kind.RELEAD, (second,))),
        OpenedRecord(second),
    ]
    settings = Settings(me=members[ordinal], session=SESSION, ranges=(first,))
    replica = Replica(settings, journal, {}, lambda: 0.5, 0.0)
    replica.start(0.0)
    return replica, second


def hear(
    replica: Replica, now: float, sender: int, *views: View, able: bool = True, session: int = 5
) -> None:
    ping = Ping(b"", able, (), 1, 0, 0, views)
    replica.step(now, Received(identity(sender), session, ping))


def said(replica: Replica) -> dict[str, Any]:
    (view,) = replica.status()
    return view


def lead(replica: Replica, gid: Gid, groups: int) -> None:
    for gseq in range(1, groups + 1):
        replica.step(0.1, Built(gid, GroupHead(gseq, gseq - 1, gseq, 4096)))
        replica.step(0.1, Stable(gid, gseq, gseq))


def append(replica: Replica, gid: Gid, sender: int, gseq: int, now: float = 0.1) -> None:
    replica.step(now, Received(identity(sender), 5, Appended(gid, gseq)))


def test_a_follower_says_that_it_is_written_when_its_leader_says_so() -> None:
    replica, generation = member(1, 0)
    gid = generation.gid
    assert not said(replica)["committing"], "nobody was heard yet"
    hear(replica, 0.1, 0, View(gid, 0, 0, False, True, True))
    assert not said(replica)["committing"], "it has not committed GEN_START"
    hear(replica, 0.2, 0, View(gid, 1, 1, False, True, True))
    assert said(replica)["committing"]
    hear(replica, 0.3, 0, View(gid, 2, 1, False, True, False))
    assert not said(replica)["committing"], "it says that nothing gets committed"
    hear(replica, 0.4, 0, View(gid, 2, 2, False, True, True), session=6)
    assert not said(replica)["committing"], "another process than the one that led"
    hear(replica, 0.5, 0, View(gid, 2, 2, False, True, True))
    for tenth in range(6, 40):
        hear(replica, tenth / 10, 2)
    assert not said(replica)["committing"], "it has been silent for too long"


def test_a_copy_that_lacks_groups_of_the_open_generation_has_not_caught_up() -> None:
    replica, generation = member(1, 0)
    gid = generation.gid
    assert not said(replica)["caught_up"], "it has nothing"
    held = replica._held[gid]
    held.tail = held.received = 3
    assert said(replica)["caught_up"]
    hear(replica, 0.2, 0, View(gid, 900, 900, False, True, True))
    assert said(replica)["committing"] and not said(replica)["caught_up"]


def test_a_follower_is_synced_when_it_gets_groups_as_they_come_and_has_said_so() -> None:
    replica, generation = member(0, 0)
    gid = generation.gid
    for other in (1, 2):
        hear(replica, 0.1, other)
    lead(replica, gid, JOIN_GROUPS_MAX + 5)
    assert not any(each["synced"] for each in said(replica)["followers"].values())
    append(replica, gid, 1, 4)
    assert said(replica)["followers"][1]["state"] == "live"
    assert not said(replica)["followers"][1]["synced"], "more is under way than can be joined"
    append(replica, gid, 1, 5)
    assert said(replica)["followers"][1]["synced"] and said(replica)["committing"]
    append(replica, gid, 2, JOIN_GROUPS_MAX)
    replica.step(0.2, Received(identity(2), 5, Gap(gid, 3)))
    assert not said(replica)["followers"][2]["synced"], "it fetches what it lacks"


def test_who_got_of_another_what_it_lacked_gets_groups_as_they_come_again() -> None:
    """Nothing is written meanwhile, so it is told of no group that it lacks, and asks for none."""
    replica, generation = member(0, 0)
    gid = generation.gid
    for other in (1, 2):
        hear(replica, 0.1, other)
    lead(replica, gid, 4)
    append(replica, gid, 2, 2)
    replica.step(0.2, Received(identity(2), 5, Gap(gid, 2)))
    assert not said(replica)["followers"][2]["synced"]
    hear(replica, 0.3, 2, View(gid, 3, 2, False, False, False))
    assert not said(replica)["followers"][2]["synced"], "it lacks a group"
    hear(replica, 0.4, 2, View(gid, 4, 2, False, False, False))
    append(replica, gid, 2, 4, 0.5)
    assert said(replica)["followers"][2]["synced"]


@pytest.mark.parametrize("why", ["fenced", "shut"])
def test_who_takes_none_and_who_sends_none_begin_not_again(why: str) -> None:
    """A ping of before is no sign of what holds now."""
    replica, generation = member(0, 0)
    gid = generation.gid
    for other in (1, 2):
        hear(replica, 0.1, other)
    lead(replica, gid, 4)
    replica.step(0.2, Received(identity(2), 5, Gap(gid, 2)))
    held = replica._held[gid]
    if why == "fenced":
        replica.step(0.3, Received(identity(2), 5, Fenced(gid, None, None)))
    else:
        held.fence = Fence.DRAINING
    hear(replica, 0.4, 2, View(gid, 4, 2, False, False, False))
    assert held.leading is not None and not held.leading.live[2]


def test_there_is_an_heir_only_if_both_others_are_there_and_the_next_one_would() -> None:
    replica, generation = member(0, 0)
    gid = generation.gid
    hear(replica, 0.1, 1)
    lead(replica, gid, 1)
    append(replica, gid, 1, 1)
    for tenth in range(2, 30):
        hear(replica, tenth / 10, 1)
    assert not replica.heir(), "the third was never heard of"
    hear(replica, 3.0, 2)
    assert replica.heir()
    hear(replica, 3.1, 2, able=False)
    assert replica.heir(), "the third does not lead in any case"
    hear(replica, 3.2, 1, able=False)
    assert not replica.heir(), "it stops as well"


def test_the_owner_is_the_heir_of_who_leads_in_its_place() -> None:
    replica, generation = member(1, 1)
    gid = generation.gid
    hear(replica, 0.1, 2)
    lead(replica, gid, 1)
    append(replica, gid, 2, 1)
    for tenth in range(2, 40):
        hear(replica, tenth / 10, 2)
    assert not replica.heir()
    hear(replica, 4.1, 0)
    assert replica.heir()
