"""A poll commits what the client was sent by the one before, and nothing that was only handed out.

Each worker of the twin takes polls, and hands out what the other one owns.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from twin import Answer, Broker, run

from barco.cluster.ring.routes import RangeRoute
from barco.errors import NotReadyError, OutcomeUnknownError
from barco.workers.groups.polls import REMEMBERED_MAX, Written, holds, name_of, remembered
from barco.workers.http.consuming.passes import Pass
from barco.workers.http.consuming.reach import Reach
from barco.workers.operations.service import ShardService
from barco.workers.peers.rpc import RpcServer, Siblings

KINDS = ["application/json", "application/x-ndjson", "application/vnd.polar.consumermessage"]
KINDS += ["application/vnd.barco.chunks"]
SIBLING = 1
"""Owns slices 4 to 7 of two workers' eight."""


def values(answer: Answer) -> list[Any]:
    return [] if answer.status == 204 else [v for item in answer.json for v in item["values"]]


async def a_broker(*slices: int) -> Broker:
    broker = Broker()
    for slice_ in slices:
        broker.produce("t", slice_, str(slice_).encode())
    await broker.register("c", "t")
    return broker


@pytest.mark.parametrize("next_worker", [0, SIBLING])
@pytest.mark.parametrize("wait_ms", [0, 300])
def test_what_a_sibling_handed_out_too_late_comes_again(next_worker: int, wait_ms: int) -> None:
    @run
    async def check() -> None:
        broker = await a_broker(1, 5)
        broker.siblings.dropped.add((SIBLING, "poll"))
        first = await broker.poll("c", worker=0, waitMs=wait_ms)
        assert values(first) == [1]
        broker.siblings.dropped.clear()
        assert await broker.values("c", worker=next_worker) == [5]

    check()


@pytest.mark.parametrize("next_worker", [0, SIBLING])
def test_a_poll_that_gets_nothing_but_a_late_answer(next_worker: int) -> None:
    @run
    async def check() -> None:
        broker = await a_broker(5)
        broker.siblings.dropped.add((SIBLING, "poll"))
        assert await broker.values("c", worker=0, waitMs=20_000) == []
        broker.siblings.dropped.clear()
        assert await broker.values("c", worker=next_worker) == [5]

    check()


@run
async def test_a_client_that_names_its_answers_is_not_taken_at_its_word_for_what_was_lost() -> None:
    broker = await a_broker(1, 5)
    broker.siblings.dropped.add((SIBLING, "poll"))
    first = await broker.poll("c", worker=0)
    assert values(first) == [1]
    broker.siblings.dropped.clear()
    named = first.headers["barco-delivery"]
    commit = {"consumerId": "c", "delivery": named}
    assert (await broker.request("POST", "/v1/consumer/commit", commit)).status == 204
    assert await broker.values("c", worker=0, delivery=named) == [5]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("missed", [1, 2])
@pytest.mark.parametrize("how", ["lost", "refused"])
def test_what_arrived_before_is_no_less_there_for_an_owner_that_did_not_hear_it(
    how: str, missed: int, named: bool
) -> None:
    """It fails in the polls that would tell it that the first answer arrived: nothing of that one
    comes again, and a commit is of all of it."""

    @run
    async def check() -> None:
        broker = await a_broker(1, 5)
        fails = False

        async def may_fail(worker: int, op: str, args: Any, timeout: float = 5.0) -> Any:
            if fails and worker == SIBLING and op == "poll":
                raise NotReadyError("not now") if how == "refused" else OutcomeUnknownError("late")
            return await honest(worker, op, args, timeout)

        honest = broker.siblings.call
        broker.siblings.call = may_fail  # type: ignore[method-assign]
        answer = await broker.poll("c", worker=0)
        assert sorted(values(answer)) == [1, 5]
        fails = True
        for number in range(missed):
            broker.produce("t", 1, b"%d" % (10 + number))
            answer = await broker.poll("c", worker=0, **_named(answer, named))
            assert values(answer) == [10 + number]
        fails = False
        commit = {"consumerId": "c", **_named(answer, named)}
        assert (await broker.request("POST", "/v1/consumer/commit", commit)).status == 204
        await broker.register("d", "t")  # It takes some of the slices, or none: all is done.
        assert await broker.values("d") == []
        broker.produce("t", 5, b"6")
        got = await broker.values("c", worker=0, **_named(answer, named))
        assert got + await broker.values("d") == [6]

    check()


def _named(answer: Answer, named: bool) -> dict[str, str]:
    return {"delivery": answer.headers["barco-delivery"]} if named else {}


@pytest.mark.parametrize("named", [False, True])
def test_and_the_next_poll_gives_it_what_follows(named: bool) -> None:
    @run
    async def check() -> None:
        broker = await a_broker(1, 5)
        answer = await broker.poll("c", worker=0)
        broker.siblings.dropped.add((SIBLING, "poll"))
        broker.produce("t", 1, b"2")
        broker.produce("t", 5, b"6")
        answer = await broker.poll("c", worker=0, **_named(answer, named))
        assert values(answer) == [2]
        broker.siblings.dropped.clear()
        answer = await broker.poll("c", worker=0, **_named(answer, named))
        assert values(answer) == [6], "it was given to nobody, and what was before it arrived"
        assert "!" not in answer.headers["barco-delivery"], "it has heard"
        assert await broker.values("c", worker=0, **_named(answer, named)) == []

    check()


@pytest.mark.parametrize("what", ["commit", "goodbye"])
def test_another_brokers_owner_that_did_not_hear_it_commits_it(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last answer has nothing of it, and it is asked all the same."""

    @run
    async def check() -> None:
        broker = await a_broker(1, 5)
        app, service = broker.apps[0], broker.services[SIBLING]
        assert app is not None and service is not None
        context, consumption = app._context, service.consumption
        monkeypatch.setattr(context, "leading_here", lambda args: {0: args})
        monkeypatch.setattr(consumption, "_is_near", lambda worker: False)
        answer = await broker.poll("c", worker=0)
        assert sorted(values(answer)) == [1, 5]
        honest = broker.siblings.call

        async def deaf(worker: int, op: str, args: Any, timeout: float = 5.0) -> Any:
            if worker == SIBLING and op == "poll":
                raise NotReadyError("not now")
            return await honest(worker, op, args, timeout)

        broker.siblings.call = deaf  # type: ignore[method-assign]
        broker.produce("t", 1, b"2")
        answer = await broker.poll("c", worker=0, **_named(answer, True))
        assert values(answer) == [2] and consumption.committed("g", "t", 5) < 1
        query = {"consumerId": "c", **_named(answer, True)}
        answer = await broker.request("POST", f"/v1/consumer/{what}", query, worker=0)
        assert answer.status in (200, 204)
        assert consumption.committed("g", "t", 5) == 1

    check()


@run
async def test_the_second_look_of_a_poll_may_be_lost_as_well() -> None:
    broker = Broker()
    for number in range(8):
        broker.produce("t", 5, b'"%d%s"' % (number, b"x" * 1000))
    broker.produce("t", 1, b"1")
    await broker.register("c", "t")
    looks = 0

    async def second_is_late(worker: int, op: str, args: Any, timeout: float = 5.0) -> Any:
        nonlocal looks
        looks += op == "poll" and worker == SIBLING
        late = op == "poll" and looks == 2
        broker.siblings.dropped = {(SIBLING, "poll")} if late else set()
        return await honest(worker, op, args, timeout)

    honest = broker.siblings.call
    broker.siblings.call = second_is_late  # type: ignore[method-assign]
    first = await broker.values("c", worker=0, maxBytes=5_000)
    assert looks == 2 and first == [1]
    got = await broker.values("c", worker=0, maxBytes=100_000)
    assert [value[0] for value in got] == [str(number) for number in range(8)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("next_worker", [0, SIBLING])
def test_an_answer_that_breaks_is_not_committed(kind: str, next_worker: int) -> None:
    @run
    async def check() -> None:
        broker = await a_broker(1, 5)
        assert (await broker.poll("c", kind, worker=0, breaks=True)).status == 200
        assert sorted(await broker.values("c", worker=next_worker)) == [1, 5]
        assert await broker.values("c", worker=next_worker) == []

    check()


@pytest.mark.parametrize("next_worker", [0, SIBLING])
def test_an_answer_that_arrived_is_committed_wherever_the_next_poll_comes_in(
    next_worker: int,
) -> None:
    @run
    async def check() -> None:
        broker = await a_broker(1, 5)
        assert sorted(await broker.values("c", worker=0)) == [1, 5]
        assert await broker.values("c", worker=next_worker) == []
        await broker.register("c", "t")
        assert await broker.values("c") == []

    check()


@run
async def test_a_commit_tells_of_what_nobody_knows_to_have_arrived() -> None:
    broker = await a_broker(1, 5)
    await broker.poll("c", worker=0, breaks=True)
    answer = await broker.commit("c")
    assert answer.status == 409 and answer.json["slices"] == ["t/1", "t/5"]
    assert sorted(await broker.values("c", worker=0)) == [1, 5]
    assert (await broker.commit("c")).status == 204
    await broker.register("c", "t")
    assert await broker.values("c") == []


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("next_worker", [0, SIBLING])
def test_a_commit_after_the_owner_has_died_is_not_told_to_be_one(
    named: bool, next_worker: int
) -> None:
    @run
    async def check() -> None:
        broker = await a_broker(1, 5)
        first = await broker.poll("c", worker=0)
        assert sorted(values(first)) == [1, 5]
        broker.kill(SIBLING)
        broker.start(SIBLING)
        query = {"consumerId": "c"}
        if named:
            query |= {"delivery": first.headers["barco-delivery"]}
        path = "/v1/consumer/commit"
        answer = await broker.request("POST", path, query, worker=next_worker)
        assert answer.status == 409 and answer.json["slices"] == ["t/5"]
        assert await broker.values("c", worker=next_worker) == [5]
        assert (await broker.commit("c")).status == 204

    check()


@run
async def test_a_goodbye_commits_nothing_that_did_not_arrive() -> None:
    broker = await a_broker(1, 5)
    await broker.poll("c", worker=0, breaks=True)
    await broker.goodbye("c")
    await broker.register("d", "t")
    assert sorted(await broker.values("d")) == [1, 5]


@run
async def test_the_worker_that_gave_the_answer_has_died_since() -> None:
    broker = await a_broker(1, 5)
    assert sorted(await broker.values("c", worker=0)) == [1, 5]
    broker.kill(0)
    broker.start(0)
    # Nobody can say that it arrived.
    assert sorted(await broker.values("c", worker=SIBLING)) == [1, 5]


@run
async def test_two_polls_at_once_of_one_consumer() -> None:
    broker = await a_broker(1, 5)
    broker.logs[SIBLING].pause = asyncio.Event()
    broker.reactors[SIBLING].memory_floor["t", 5] = 9
    slow = asyncio.create_task(broker.poll("c", worker=0))
    await broker.settle()
    quick = asyncio.create_task(broker.poll("c", worker=SIBLING, breaks=True))
    await broker.settle()
    broker.logs[SIBLING].pause.set()
    await asyncio.gather(slow, quick)
    # The later one did not arrive, and the earlier one had not been given everything any more.
    assert 5 in values(slow.result()) or 5 in await broker.values("c", worker=0)


def test_names_of_answers() -> None:
    assert name_of("a-b-1", ()) == "a-b-1"
    name = name_of("a-b-1", {12, 4})
    assert [w for w in range(20) if not holds(name, "a-b-1", w)] == [4, 12]
    assert not holds(name, "a-b-2", 3) and not holds("", "a-b-1", 3)


def test_a_name_says_what_those_had_given_before_that_it_has_nothing_of() -> None:
    first, second, third = (f"2-0123abcd-{number}" for number in (1, 2, 3))
    name = name_of(second, {4}, {5}, first)
    assert name == f"{second}!4,4={first},5,5={first}"
    words = name.partition("!")[2].split(",")
    assert {"4", "5"} < set(words), "as brokers read it that know no more"
    assert holds(name, first, 4) and not holds(name, second, 4) and holds(name, second, 6)
    assert remembered(name) == {4, 5}
    # From answer to answer, until it has heard it; what was never had is not made up.
    assert name_of(third, (), {4}, name) == f"{third}!4,4={first}"
    assert name_of(third, (), {6}, name) == f"{third}!6,6={second}"
    assert name_of(second, {4}, (), "") == f"{second}!4" and remembered(f"{second}!4") == set()
    assert name_of(third, {4}, {4}, f"{second}!4") == f"{third}!4"


def test_who_is_not_asked_is_remembered_from_name_to_name() -> None:
    reach = Reach(None, everywhere=True)  # type: ignore[arg-type]
    first, second, third = (f"2-0123abcd-{number}" for number in (1, 2, 3))
    said = [None, 0, f"{second}!4,4={first}"]
    assert reach.name(third, Pass([], set()), said) == f"{third}!4,4={first}"


@pytest.mark.parametrize(
    "told", ["x\r\nSet-Cookie: a=b", "", "!", "a!4=b\r\n", "!4==", "!4=" + "f" * 99]
)
def test_a_name_that_no_broker_gave_is_not_passed_on(told: str) -> None:
    assert name_of("2-0123abcd-1", {4}, {5}, told) == "2-0123abcd-1!4"
    assert len(remembered(told)) <= 1


def test_a_name_remembers_a_bounded_number_of_workers() -> None:
    first = "2-0123abcd-1"
    name = name_of("2-0123abcd-2", set(range(100)), range(200), first)
    assert len(remembered(name)) == REMEMBERED_MAX
    assert [each for each in range(100) if holds(name, "2-0123abcd-2", each)] == []
    flood = "x!" + ",".join(f"{number}={first}" for number in range(10_000))
    assert remembered(flood) == set()


def test_a_worker_remembers_a_bounded_number_of_consumers() -> None:
    written = Written(consumers_max=2)
    for number in range(3):
        written.note((f"c{number}", 1), f"a-b-{number}", [])
    assert [written.last((f"c{number}", 1)) for number in range(3)] == [None, "a-b-1", "a-b-2"]


def test_over_real_sockets_an_asker_that_stands_still(tmp_path: Any) -> None:
    """A6 as it was found: the answer has come, and so has the end of the time for it."""

    async def check() -> None:
        broker = await a_broker(1, 5)
        service = broker.services[SIBLING]
        assert service is not None
        loop = asyncio.get_running_loop()
        clock: Callable[[], float] = loop.time
        late = 0.0
        asked, answer = asyncio.Event(), asyncio.Event()

        async def operation(op: str, args: Any) -> Any:
            result = await service.operation(op, args)
            if op == "poll":
                asked.set()
                await answer.wait()
            return result

        path = str(tmp_path / "s")
        server = RpcServer(operation, bytes_max=1 << 20)
        await server.start(path)
        own = broker.services[0]
        assert own is not None
        siblings = Siblings(
            worker=0, paths={SIBLING: path}, operation=own.operation, bytes_max=1 << 20
        )
        await siblings.call(SIBLING, "written", {"consumer": "c", "session": 0})
        app = broker.apps[0]
        assert app is not None
        app._context.siblings = siblings
        loop.time = lambda: clock() + late  # type: ignore[method-assign]
        poll = asyncio.create_task(broker.poll("c", worker=0))
        await asked.wait()
        await broker.settle()
        late = 5.4  # As after a SIGSTOP: five seconds have passed since the last turn of the loop.
        answer.set()
        assert values(await poll) == [1]
        assert await broker.values("c", worker=0) == [5]
        await siblings.close()
        await server.close()

    asyncio.run(asyncio.wait_for(check(), 60))


def led(service: ShardService, epoch: int) -> RangeRoute:
    """The sibling's range in this epoch."""
    held = service.ranges.all[SIBLING]
    return RangeRoute(held.first, held.slices, held.token, epoch, 0, (0,))


@run
async def test_a_commit_waits_for_the_next_leader() -> None:
    """A broker has just died: the next one leads what it led in a moment."""
    broker = await a_broker(1, 5)
    assert sorted(values(await broker.poll("c", worker=0))) == [1, 5]
    service = broker.services[0]
    assert service is not None
    service.leaders.learn(led(service, 1), stopped=True)
    commit = asyncio.create_task(
        broker.request("POST", "/v1/consumer/commit", {"consumerId": "c"}, worker=0)
    )
    await asyncio.sleep(0.3)
    assert not commit.done()
    service.leaders.learn(led(service, 2))
    assert (await commit).status == 204
