"""A generation without followers: what the core tells of it, and how the machine hears the rest."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from following import SEGMENT_BYTES, make_reactor
from test_carrier import GENERATION, GID, run, turns

from barco.cluster.logs import events as le
from barco.cluster.state import effects as fx
from barco.cluster.state import events as ev
from barco.model.generation import Generation, Gid, Identity, Kind, Parent, Successor, genesis
from barco.protocol.replication import DecidedRecord, OpenedRecord
from barco.workers.replication.alone import given_up, lost_records
from barco.workers.storage.index.verdict import Found

TURNS_MAX = 5_000
EVENTS = 5


class Led:
    """A real core that leads epoch 2."""

    def __init__(self, root: Path, *, followers: bool) -> None:
        self.reactor = make_reactor()
        self.upcalls: list[tuple[Any, ...]] = []
        path = root / "segment"
        path.write_bytes(bytes(SEGMENT_BYTES))
        self.fd = os.open(path, os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
        self.reactor.begin_generation(2, 7, followers)
        self.reactor.add_segment(0, self.fd, SEGMENT_BYTES)
        self.reactor.open_generation(b"")

    def until(self, count: int, kind: str) -> None:
        """So many of these upcalls have come."""
        for _ in range(TURNS_MAX):
            self.upcalls += self.reactor.run(0.002)[1]
            if len(self.told(kind)) >= count:
                return
        raise AssertionError(self.reactor.log_state())

    def told(self, kind: str) -> list[tuple[Any, ...]]:
        return [upcall for upcall in self.upcalls if upcall[0] == kind]


@pytest.fixture(params=[False, True], ids=["alone", "with followers"])
def led(root: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Led, bool]]:
    made = Led(root, followers=request.param)
    yield made, request.param
    made.reactor.close()
    os.close(made.fd)


def test_without_followers_what_is_stable_is_answered_and_only_the_first_group_is_told(
    led: tuple[Led, bool],
) -> None:
    core, followers = led
    core.until(1, "landed")
    for tag in range(1, EVENTS + 1):
        core.reactor.append(tag, "a", 0, None, b"value")
        core.until(1 + tag, "landed") if followers else core.until(tag, "appended")
    state = core.reactor.log_state()
    assert state["stable_gseq"] > EVENTS and state["stable_crc"] != 0
    landed = core.told("landed")
    assert landed[0][1] == 1
    if followers:
        assert len(core.told("built")) >= len(landed) > EVENTS and not core.told("appended")
        assert state["committed"] == 0
    else:
        assert len(landed) == 1 and not core.told("built")
        assert state["committed"] == state["stable_gseq"]


def test_the_machine_hears_what_the_core_did_by_itself() -> None:
    async def test(logs: Any, core: Any, store: Any, told: Any, opened: Any) -> None:
        store.segment.set()
        logs.step(fx.Lead(GENERATION))  # Its leader is the only member.
        await turns()
        assert opened and logs.untold() is None
        core.taken = 1
        logs.step(le.Landed(1, 101, 2))
        assert told == [ev.Stable(GID, 1, 101)] and logs.untold() is None
        core.taken = 9
        assert logs.untold() == ev.Stable(GID, 9, 109) and logs.untold() is None
        core.taken = 12
        logs.step(le.Landed(1, 101, 2))  # Late: what the machine knows does not go back.
        assert told[1:] == [ev.Stable(GID, 12, 112)]

    run(test)


def test_a_drain_ends_though_the_core_tells_of_nothing_that_lands(root: Path) -> None:
    """Retention ends a single broker's generation under load: nothing was built any more, for ever,
    if something was in flight just then."""

    async def test(logs: Any, core: Any, store: Any, told: Any, opened: Any) -> None:
        led = Led(root, followers=False)
        led.until(1, "landed")
        store.segment.set()
        logs.step(fx.Lead(GENERATION))
        await turns()
        logs._reactor = led.reactor  # That leads it by now, with its first group.
        logs.step(le.Landed(*led.told("landed")[0][1:]))
        led.reactor.append(1, "a", 0, None, b"value")
        while led.reactor.log_state()["settled"]:
            led.upcalls += led.reactor.run(0.0)[1]
        logs.step(fx.Drain(GID))
        await turns()
        assert not any(isinstance(each, ev.Drained) for each in told)
        led.until(1, "settled")
        logs.settled()
        assert told[-1] == ev.Drained(GID, 2, led.reactor.log_state()["header_crc"])
        led.reactor.close()
        os.close(led.fd)

    run(test)


# --- What a journal has lost ---------------------------------------------------------------------

ME = Identity(0, b"a" * 16)
GENESIS = genesis(0, 1000, (0,))


def found(tail: int) -> Found:
    return Found(tail, 7, False, False)


def test_generations_that_only_the_files_know_are_one_line() -> None:
    made = lost_records(
        GENESIS, GENESIS.end, ME, [], {2: 20, 3: None, 4: 40}, {2: found(5), 4: found(9)}
    )
    assert [(each.gid.epoch, each.value.tail) for each in made] == [(1, 0), (2, 5), (3, 0)]
    children = [each.value.children[0] for each in made]
    assert [child.gid.epoch for child in children] == [2, 3, 4]
    assert [child.session for child in children] == [20, 0, 40]
    assert children[2].parents == (Parent(Gid(0, 3), 0),) and children[2].leader == ME
    # With these nothing is lost any more.
    assert lost_records(GENESIS, GENESIS.end, ME, made, {2: 20, 3: None, 4: 40}, {}) == []


def test_what_is_left_of_the_journal_stays_as_it_is() -> None:
    whole = lost_records(
        GENESIS, GENESIS.end, ME, [], {2: 20, 3: 30, 4: 40}, {2: found(5), 3: found(6)}
    )
    third = OpenedRecord(whole[1].value.children[0])  # The decision that made it is lost.
    made = lost_records(
        GENESIS, GENESIS.end, ME, [whole[0], third, whole[2]], {2: 20, 3: 30, 4: 40}, {}
    )
    assert made == [whole[1]], "where epoch 2 ended, the record of epoch 3 says"


def split(gid: Gid, border: int) -> Successor:
    """Its second child is another range's, with an epoch of the same name."""
    parents = (Parent(gid, 5),)
    one, two = (
        Generation(Gid(token, gid.epoch + 1), end, ME, session, (ME,), parents)
        for token, end, session in ((gid.token, border, 30), (border, 1000, 31))
    )
    return Successor(5, Kind.SPLIT, (one, two))


def test_a_range_that_was_split_goes_on_as_its_first_child() -> None:
    first = lost_records(GENESIS, 500, ME, [], {2: 20}, {})
    value = split(Gid(0, 2), 500)
    journal = [*first, DecidedRecord(Gid(0, 2), value)]
    made = lost_records(GENESIS, 500, ME, journal, {2: 20, 3: 30, 4: 40}, {3: found(6)})
    assert [(each.gid, each.value.tail) for each in made] == [(Gid(0, 3), 6)]
    assert made[0].value.children[0].end == 500, "what was split off stays so"
    # Where the split itself is lost, it does not get back what its newest log does not have.
    opened = OpenedRecord(value.children[0])
    (made_up,) = lost_records(GENESIS, 500, ME, [*first, opened], {2: 20, 3: 30}, {2: found(5)})
    assert made_up.value.children == (value.children[0],)
    # And the second child's record is not taken for the own one of that epoch.
    later = split(Gid(0, 3), 300)
    journal = [*first, OpenedRecord(value.children[0]), DecidedRecord(Gid(0, 3), later)]
    (lost,) = lost_records(GENESIS, 300, ME, journal, {2: 20, 3: 30, 4: 30}, {2: found(5)})
    assert lost.value.children == (value.children[0],)
    assert lost_records(GENESIS, 500, ME, [*first, DecidedRecord(Gid(0, 2), value)], {}, {}) == []
    journal = [*first, DecidedRecord(Gid(0, 2), value)]
    (made_up,) = lost_records(GENESIS, 500, ME, journal, {4: 40}, {})
    assert made_up.value.children[0].parents == (Parent(Gid(0, 3), 0),)


def test_what_an_operator_gave_up_is_not_waited_for() -> None:
    child = lost_records(GENESIS, GENESIS.end, ME, [], {2: 20}, {})[0].value.children[0]
    decided = DecidedRecord(Gid(0, 2), Successor(9, Kind.UNCLEAN, (child,)))
    assert given_up([decided], {2: found(4)}, [2])[2].tail == 9
    assert given_up([decided], {2: found(4)}, [])[2].tail == 4
