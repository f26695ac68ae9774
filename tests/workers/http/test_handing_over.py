"""What is with a living holder is not given to another before it polls without it, or leaves."""

import asyncio
import random
from collections import defaultdict

import pytest
from msgspec.structs import replace
from twin import Broker, run

from barco.cluster.groups.groups import START_LATEST, Member

SLICES = 8


async def a_broker(workers: int = 2) -> Broker:
    broker = Broker(workers=workers)
    for slice_ in range(SLICES):
        broker.produce("t", slice_, b"%d" % slice_)
    await broker.register("a", "t")
    return broker


@run
async def test_a_join_takes_nothing_that_is_being_processed() -> None:
    broker = await a_broker()
    assert len(await broker.values("a")) == SLICES
    await broker.register("b", "t")
    assert await broker.values("b") == [], "all of it is with a"
    assert await broker.values("a") == [], "which acknowledges it"
    for slice_ in range(SLICES):
        broker.produce("t", slice_, b"%d" % (100 + slice_))
    got = sorted(await broker.values("a")), sorted(await broker.values("b"))
    assert sorted(got[0] + got[1]) == [100 + slice_ for slice_ in range(SLICES)]
    assert len(got[0]) == len(got[1]) == SLICES // 2


@run
async def test_what_nobody_is_given_moves_at_once() -> None:
    broker = await a_broker()
    await broker.values("a")
    assert await broker.values("a") == []
    await broker.register("b", "t")
    broker.produce("t", 1, b"101")
    broker.produce("t", 6, b"106")
    assert sorted(await broker.values("b") + await broker.values("a")) == [101, 106]


@run
async def test_a_commit_parts_with_it_too() -> None:
    broker = await a_broker()
    await broker.values("a")
    await broker.register("b", "t")
    assert (await broker.commit("a")).status == 204
    broker.produce("t", 1, b"101")
    broker.produce("t", 6, b"106")
    assert await broker.values("b") != []


@run
async def test_who_waits_for_it_gets_it_as_soon_as_it_is_parted_with() -> None:
    broker = await a_broker()
    await broker.values("a")
    for slice_ in range(SLICES):
        broker.produce("t", slice_, b"%d" % (100 + slice_))
    await broker.register("b", "t")
    waiting = asyncio.create_task(broker.values("b", waitMs=20_000))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    for reactor in broker.reactors:
        reactor.hold = True  # Nothing becomes stable that would let it look again.
    assert await broker.values("a") != []
    assert await asyncio.wait_for(waiting, 10) != []


@run
async def test_a_consumer_without_slices_parts_with_what_it_had() -> None:
    """Its polls go to every leader once, though it has nothing to get there."""
    broker = await a_broker()
    await broker.values("a")
    before = broker.supervisor.groups.version
    for number in range(SLICES):  # Of as many other brokers, whose turn is first.
        others = Member(f"Z{number}", "g", ("t",), START_LATEST, 100 + number, 0.0)
        broker.supervisor.groups.adopt(replace(others, origin=number - SLICES))
    broker.supervisor.publish(before)
    await broker.settle()
    assert not broker.supervisor.groups.assignment("g")["a"]["t"]
    for slice_ in range(SLICES):
        broker.produce("t", slice_, b"%d" % (100 + slice_))
    assert await broker.values("Z0", worker=0) == []
    assert await broker.values("a", worker=1) == []
    got = [await broker.values(f"Z{number}") for number in range(SLICES)]
    assert sorted(value for each in got for value in each) == [
        100 + slice_ for slice_ in range(SLICES)
    ]


@run
async def test_the_end_of_its_session_gives_it_to_the_next() -> None:
    broker = await a_broker()
    await broker.values("a")
    await broker.register("b", "t")
    assert await broker.values("b") == []
    before = broker.supervisor.groups.version
    broker.supervisor.groups.touch(["b"], 119.0)
    assert broker.supervisor.groups.tick(121.0)
    broker.supervisor.publish(before)
    assert sorted(await broker.values("b")) == list(range(SLICES))


@run
async def test_who_waits_does_not_spin_meanwhile() -> None:
    broker = await a_broker(workers=1)
    await broker.values("a")
    broker.produce("t", 0, b"100")
    await broker.register("b", "t")
    polls = 0

    async def counted(worker: int, op: str, args: object, timeout: float = 5.0) -> object:
        nonlocal polls
        polls += op == "poll"
        return await honest(worker, op, args, timeout)

    honest = broker.siblings.call
    broker.siblings.call = counted  # type: ignore[method-assign, assignment]
    assert await broker.values("b", waitMs=300) == []
    assert polls <= 3


@pytest.mark.parametrize("seed", range(30))
def test_nothing_comes_twice_while_all_live(seed: int) -> None:
    """Joins, leaves and polls in any order, every answer of which arrives."""

    @run
    async def check() -> None:
        rng = random.Random(seed)
        broker = Broker()
        seen: dict[int, int] = defaultdict(int)
        there: set[str] = set()
        made = 0
        for _ in range(120):
            name = rng.choice("abcdef")
            match rng.randrange(6):
                case 0:
                    if name not in there:
                        await broker.register(name, "t")
                        there.add(name)
                case 1:
                    if name in there and rng.random() < 0.4:
                        await broker.goodbye(name)
                        there.discard(name)
                case 2:
                    broker.produce("t", rng.randrange(SLICES), b"%d" % made)
                    made += 1
                case _:
                    if name in there:
                        for value in await broker.values(name, maxBytes=rng.choice((1, 1_000))):
                            seen[value] += 1
        await broker.register("end", "t")
        there.add("end")
        for _ in range(3 + made):
            for name in sorted(there):
                for value in await broker.values(name):
                    seen[value] += 1
        assert dict(seen) == {number: 1 for number in range(made)}

    check()


async def placement(broker: Broker, name: str) -> str:
    answer = await broker.request("GET", "/v1/consumer/assignment", {"consumerId": name})
    assert answer.status == 200
    return str(answer.json["placement"])


@run
async def test_who_wants_to_know_first_loses_nothing_before_it_does() -> None:
    broker = await a_broker()
    first = await placement(broker, "a")
    assert len(await broker.values("a", placement=first)) == SLICES
    assert await broker.values("a", placement=first) == []  # Nothing is with it any more.
    await broker.register("b", "t")
    for slice_ in range(SLICES):
        broker.produce("t", slice_, b"%d" % (100 + slice_))
    assert await broker.values("b") == []
    assert (await broker.commit("a")).status == 204
    assert await broker.values("b") == [], "it has not heard of it yet"
    answer = await broker.poll("a", placement=first)
    second = await placement(broker, "a")
    assert answer.headers["barco-placement"] == second != first
    mine = [value for each in answer.json for value in each["values"]]
    assert len(mine) == SLICES // 2, "of what it holds only what it goes on with"
    assert await broker.values("b") == []
    assert await broker.values("a", placement=second) == []
    theirs = await broker.values("b")
    assert sorted(mine + theirs) == [100 + slice_ for slice_ in range(SLICES)]


@run
async def test_what_it_was_given_is_committed_before_another_gets_the_slice() -> None:
    broker = await a_broker()
    first = await placement(broker, "a")
    assert len(await broker.values("a", placement=first)) == SLICES
    await broker.register("b", "t")
    assert await broker.values("b") == []
    assert await broker.values("a", placement=first) == []  # Acknowledges, and is told.
    assert await broker.values("b") == []
    assert await broker.values("a", placement=await placement(broker, "a")) == []
    for slice_ in range(SLICES):
        broker.produce("t", slice_, b"%d" % (100 + slice_))
    got = sorted(await broker.values("a") + await broker.values("b"))
    assert got == [100 + slice_ for slice_ in range(SLICES)]


@run
async def test_a_poll_that_waits_is_told_at_once() -> None:
    broker = await a_broker()
    first = await placement(broker, "a")
    await broker.values("a", placement=first)
    waiting = asyncio.create_task(broker.poll("a", placement=first, waitMs=20_000))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await broker.register("b", "t")
    answer = await asyncio.wait_for(waiting, 10)
    assert answer.status == 204
    assert answer.headers["barco-placement"] == await placement(broker, "a") != first


@run
async def test_who_begins_to_wait_just_then_is_told_as_well() -> None:
    """Its worker has heard of the change, whoever sends it did not look again."""
    broker = await a_broker()
    service = broker.services[0]
    assert service is not None
    member = service.membership.get("a")
    assert member is not None
    await broker.values("a")
    who = {"consumer": "a", "session": member.session, "version": 0, "timeout": 20.0}
    await broker.register("b", "t")
    asked = service.operation("wait", who | {"seen": member.placement})
    assert await asyncio.wait_for(asked, 10) is True


@run
async def test_a_session_that_ends_frees_what_was_kept_for_it() -> None:
    broker = await a_broker()
    await broker.values("a", placement=await placement(broker, "a"))
    await broker.register("b", "t")
    assert await broker.values("b") == []
    await broker.goodbye("a")
    for slice_ in range(SLICES):
        broker.produce("t", slice_, b"%d" % (100 + slice_))
    assert len(await broker.values("b")) == SLICES


@run
async def test_who_has_not_heard_of_it_takes_no_new_slice() -> None:
    broker = await a_broker()
    await broker.register("b", "t")
    first = await placement(broker, "b")
    await broker.values("a")
    assert await broker.values("b", placement=first) != []
    await broker.goodbye("a")
    for slice_ in range(SLICES):
        broker.produce("t", slice_, b"%d" % (100 + slice_))
    assert len(await broker.values("b", placement=first)) == SLICES // 2
    second = await placement(broker, "b")
    assert len(await broker.values("b", placement=second)) >= SLICES // 2


@run
async def test_who_reads_nothing_any_more_of_a_leader_parts_with_it_once_it_knows() -> None:
    broker = await a_broker(workers=2)
    first = await placement(broker, "a")
    assert len(await broker.values("a", placement=first)) == SLICES
    assert await broker.values("a", placement=first) == []
    await broker.register("b", "t")  # It gets all that the second worker leads.
    for slice_ in range(SLICES):
        broker.produce("t", slice_, b"%d" % (100 + slice_))
    await broker.values("a", worker=0, placement=first)
    assert await broker.values("b") == []
    await broker.values("a", worker=0, placement=await placement(broker, "a"))
    assert len(await broker.values("b")) == SLICES // 2
