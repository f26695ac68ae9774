"""Who may say that something is so, where two have to say it."""

from dataclasses import replace

import pytest
from msgspec import structs
from twin import Broker

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.target import Target, TargetBroker, first_target
from barco.cluster.state.kin import KnownLineage
from barco.model.generation import Generation, Gid, Identity
from barco.types import Epoch, Ordinal, Token
from barco.workers.peers.ranges import RingRanges
from barco.workers.peers.voices import Voices

CUT = Cut(3, 8)


@pytest.fixture
def ranges() -> RingRanges:
    return RingRanges(
        replace(
            Broker().options(0),
            ring_size=3,
            ordinal=0,
            brokers=["127.0.0.1", "127.0.0.2", "127.0.0.3"],
            workers=1,
            worker=0,
            shard_endpoints={number: f"127.0.0.1:{9300 + number}" for number in range(3)},
        )
    )


def told(ranges: RingRanges, ordinal: int, disk: int) -> None:
    ranges.tell(ordinal, [(0, 0, 77)], disk_uuid=bytes([disk] * 16).hex())


def test_who_speaks_for_itself_alone_has_no_voice(ranges: RingRanges) -> None:
    """A member that lies comes again from another address, as broker 7, which nobody has listed."""
    target = first_target(CUT, 1)
    voices = Voices(ranges, lambda: target)
    told(ranges, 7, 8)
    assert voices.of((1, 7)) == {1} and voices.of((0, 2, 7)) == {0, 2}
    target = Target(4, CUT, (*target.brokers, TargetBroker(ordinal=7, workers=1)))
    assert voices.of((1, 7)) == {1, 7}, "its cluster wants it"
    target = first_target(CUT, 1)
    assert voices.of((1, 7)) == {1, 7}, "who leaves has what others need"


def test_who_has_left_the_target_has_a_voice_for_who_never_saw_it_there(ranges: RingRanges) -> None:
    target = structs.replace(first_target(CUT, 1), version=9, departed=(4, 7))
    told(ranges, 7, 8)
    assert Voices(ranges, lambda: target).of((1, 7)) == {1, 7}


def test_who_is_in_the_own_journal_has_a_voice(ranges: RingRanges) -> None:
    members = tuple(Identity(Ordinal(each), bytes([each] * 16)) for each in (0, 5, 1))
    generation = Generation(Gid(Token(0), Epoch(4)), 99, members[0], 7, members, ())
    journal = KnownLineage({}, {})
    voices = Voices(ranges, lambda: first_target(CUT, 1))
    assert voices.of((1, 5)) == {1}, "nothing was read yet"
    voices.journal = lambda: journal
    assert voices.of((1, 5)) == {1}
    journal = KnownLineage({generation.gid: generation}, {})
    assert voices.of((1, 5)) == {1, 5}


def test_a_disk_speaks_once(ranges: RingRanges) -> None:
    voices = Voices(ranges, lambda: first_target(CUT, 1))
    assert voices.of((1, 2)) == {1, 2}, "of whom no disk was heard yet"
    told(ranges, 1, 9)
    told(ranges, 2, 9)
    assert voices.of((1, 2)) == {1}
    told(ranges, 2, 3)
    assert voices.of((1, 2)) == {1, 2}
