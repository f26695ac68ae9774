"""Pipelines against a real broker: each event once at the output, wherever one is killed."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running import RunningBroker

import barco
from barco.client.base.errors import TransportError
from barco.client.piping import Engine, NotedState
from barco.client.wire.staged import StagedWrites
from barco.errors import BarcoError, NotReadyError, TopicNotFoundError
from barco.supervisor.tied import start_tied

PROGRAM = Path(__file__).with_name("piped.py")
PATIENCE_S = 120.0
KEYS = 37


def endpoint(broker: RunningBroker) -> str:
    return f"127.0.0.1:{broker.port('discovery')}"


def produce(broker: RunningBroker, count: int, topic: str = "a", first: int = 0) -> None:
    with barco.Producer(endpoint(broker)) as producer:
        numbers = range(first, first + count)
        keys = [b"k%d" % (n % KEYS) for n in numbers]
        assert producer.send_many(topic, [b"%d" % n for n in numbers], keys).result(60) == count


def by_key(broker: RunningBroker, topic: str = "b") -> dict[bytes | None, list[int]]:
    found = defaultdict(list)
    for event in barco.read(topic, endpoint(broker)):
        found[event.key].append(int(event.value))
    return dict(found)


def expected(count: int, first: int = 0) -> dict[bytes | None, list[int]]:
    found = defaultdict(list)
    for n in range(first, first + count):
        found[b"k%d" % (n % KEYS)].append(n)
    return dict(found)


def same(event: barco.Event) -> barco.Output:
    return barco.Output(event.value, event.key)


def pipe(broker: RunningBroker, name: str = "p", **options: Any) -> barco.Pipeline:
    return barco.Pipeline("a", "b", name, endpoint(broker), **options)


def last(broker: RunningBroker, name: str = "p") -> dict[str, Any]:
    return broker.request("GET", f"/v1/writes/{name}", listener="produce").json


def test_everything_once_and_in_order_for_each_key(broker: RunningBroker) -> None:
    produce(broker, 20_000)
    told = []
    done = pipe(broker, batch_bytes=20_000, on_progress=told.append).run(same, to_end=True)
    assert (done.read, done.written) == (20_000, 20_000)
    assert len(told) > 3 and told[-1] == done
    assert by_key(broker) == expected(20_000)
    # The name goes on where it was; another one begins where it is told to.
    assert pipe(broker).run(same, to_end=True).read == 0
    produce(broker, 500, first=20_000)
    assert pipe(broker).run(same, to_end=True).written == 500
    late = pipe(broker, "late", start="latest")
    assert late.run(lambda _: None, to_end=True).read == 0
    assert by_key(broker) == expected(20_500)
    with barco.Admin(endpoint(broker)) as admin:
        assert admin.group("p")["lag"] == 0 and admin.group("late")["lag"] == 0
    produce(broker, 10, first=20_500)  # What "latest" was is decided when it was started first.
    assert late.run(lambda _: None, to_end=True).read == 10


def test_none_one_or_many_outputs_to_several_topics(broker: RunningBroker) -> None:
    produce(broker, 300)

    def function(event: barco.Event) -> Iterator[barco.Output]:
        number = int(event.value)
        for turn in range(number % 3):
            yield barco.Output(event.value, f"n{turn}", timestamp_us=event.timestamp_us - turn)
        if number % 100 == 0:
            yield barco.Output(str(number), topic="hundreds")

    done = pipe(broker).run(function, to_end=True)
    assert (done.read, done.written) == (300, 303)
    assert sorted(int(each.value) for each in barco.read("hundreds", endpoint(broker))) == [
        0,
        100,
        200,
    ]
    times = {int(e.value): e.timestamp_us for e in barco.read("a", endpoint(broker))}
    for event in barco.read("b", endpoint(broker)):
        assert event.key is not None
        assert times[int(event.value)] - event.timestamp_us == int(event.key[1:])


def test_what_the_function_raises_ends_it_and_nothing_of_the_batch_is_stored(
    broker: RunningBroker,
) -> None:
    produce(broker, 100)

    def function(event: barco.Event) -> barco.Output:
        if event.value == b"77":
            raise ZeroDivisionError
        return same(event)

    with pytest.raises(ZeroDivisionError):
        pipe(broker, batch_seconds=60).run(function, to_end=True)
    with pytest.raises(TypeError, match="Outputs, not int"):
        pipe(broker).run(lambda _: [7], to_end=True)  # type: ignore[list-item]
    assert pipe(broker).run(same, to_end=True).written == 100
    assert by_key(broker) == expected(100)
    status = broker.request("GET", "/metrics", listener="metrics").body.decode()
    staged = [line for line in status.splitlines() if line.startswith("barco_staged_bytes")]
    assert staged and all(line.split()[-1] == "0" for line in staged), staged


@pytest.mark.parametrize("where", ["function", "on_progress"])
def test_an_error_of_brokers_that_is_not_the_pipelines_own_ends_it_too(
    broker: RunningBroker, where: str
) -> None:
    """As a producer of the function's raises it: it was tried again, for ever and in silence."""
    produce(broker, 3)
    calls: list[str] = []

    def fails(name: str) -> None:
        calls.append(name)
        assert calls.count(where) < 3, "called again and again"
        if name == where:
            raise NotReadyError("not one of the pipeline's")

    def function(event: barco.Event) -> barco.Output:
        fails("function")
        return same(event)

    with pytest.raises(NotReadyError, match="not one of the pipeline's"):
        pipe(broker, on_progress=lambda _: fails("on_progress")).run(function, to_end=True)
    assert calls.count(where) == 1
    pipe(broker).run(same, to_end=True)
    assert by_key(broker) == expected(3)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (7, "returns Outputs, not int"),
        (b"text", "returns Outputs, not int"),
        (barco.Output(None), "value is bytes or str, not NoneType"),  # type: ignore[arg-type]
        (barco.Output(7), "value is bytes or str, not int"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_output_is_named(broker: RunningBroker, made: Any, words: str) -> None:
    produce(broker, 1)
    with pytest.raises(TypeError, match=words):
        pipe(broker).run(lambda _: made, to_end=True)


def test_what_a_name_has_read_of_other_topics_is_kept(broker: RunningBroker) -> None:
    """Once started with another topic, by mistake perhaps, it does not read the first anew."""
    produce(broker, 100)
    produce(broker, 50, "c", 1000)
    where = endpoint(broker)
    assert pipe(broker).run(same, to_end=True).written == 100
    assert barco.Pipeline("c", "d", "p", where).run(same, to_end=True).written == 50
    assert pipe(broker).run(same, to_end=True).read == 0
    assert barco.Pipeline(["a", "c"], "b", "p", where).run(same, to_end=True).read == 0
    assert by_key(broker) == expected(100)


def test_how_far_it_is_counts_every_batch(
    broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were full before the topic's end, and one whose decision had no answer."""
    produce(broker, 40)
    done = pipe(broker, batch_seconds=0.0).run(same, to_end=True)
    assert (done.read, done.written) == (40, 40)
    assert {topic: len(each) for topic, each in done.positions.items()} == {"a": 8}
    again = pipe(broker).run(same, to_end=True)
    assert (again.read, again.positions) == (0, done.positions)
    other = pipe(broker, "other", start=dict(done.positions["a"])).run(same, to_end=True)
    assert other.read == 0, "where one name is another one may begin"
    produce(broker, 60, first=40)
    real, lost = StagedWrites.decide, []

    async def decide(writes: StagedWrites, batch: int, note: str) -> None:
        await real(writes, batch, note)
        if NotedState.parse(note).rows and not lost:
            lost.append(batch)
            raise TransportError("the answer is lost")

    monkeypatch.setattr(StagedWrites, "decide", decide)
    done = pipe(broker, batch_bytes=100).run(same, to_end=True)
    assert (done.read, done.written, len(lost)) == (60, 60, 1)
    assert by_key(broker) == expected(100)


def test_a_function_that_awaits_and_a_stop(broker: RunningBroker) -> None:
    produce(broker, 1000)

    async def main() -> barco.PipelineProgress:
        pipeline = barco.AsyncPipeline("a", "b", "p", endpoint(broker))

        async def function(event: barco.Event) -> barco.Output:
            await asyncio.sleep(0)
            if event.value == b"999":
                pipeline.stop()
            return same(event)

        return await asyncio.wait_for(pipeline.run(function), PATIENCE_S)

    done = asyncio.run(main())
    assert 0 < done.written == done.read <= 1000
    found = by_key(broker)
    assert sum(map(len, found.values())) == done.written
    assert pipe(broker).run(same, to_end=True).read == 1000 - done.read
    assert by_key(broker) == expected(1000)
    assert json.loads(last(broker)["note"])["rows"] == {}, "it says that nothing is left to commit"


def test_the_one_that_is_started_later_fences_the_other(broker: RunningBroker) -> None:
    produce(broker, 100)
    entered, go_on = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def slow(event: barco.Event) -> barco.Output:
        entered.set()
        assert go_on.wait(PATIENCE_S)
        return same(event)

    def run() -> None:
        try:
            pipe(broker, batch_bytes=1).run(slow)
        except barco.PipelineFencedError as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert entered.wait(PATIENCE_S)
    assert pipe(broker).run(same, to_end=True).written == 100
    go_on.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive() and len(raised) == 1
    assert by_key(broker) == expected(100)


def test_two_that_are_started_at_once_store_each_event_once(broker: RunningBroker) -> None:
    produce(broker, 3000)
    ended: list[Any] = []

    def run() -> None:
        try:
            ended.append(pipe(broker, batch_bytes=500).run(same, to_end=True))
        except barco.PipelineFencedError as error:
            ended.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(ended) == 3
    pipe(broker).run(same, to_end=True)
    assert by_key(broker) == expected(3000)


@pytest.mark.parametrize("step", ["stage", "prepare", "decide", "decided", "commit"])
def test_killed_between_the_steps(broker: RunningBroker, step: str) -> None:
    """Between each two of the five calls: before the decision it never was, behind it it is."""
    produce(broker, 2000)
    for count in (2, 3, 1):  # One decision more than batches: who begins takes the name over.
        arguments = [endpoint(broker), "a", "b", "p", step, str(count)]
        process = start_tied([sys.executable, str(PROGRAM), *arguments], stdout=subprocess.DEVNULL)
        process.wait(PATIENCE_S)
        assert process.returncode == -9, (step, count)
    if step == "commit":
        broker.kill()  # And what was decided survives the broker as well.
        broker.start()
    pipe(broker).run(same, to_end=True)
    assert by_key(broker) == expected(2000)


def test_what_is_wrong_is_said_at_once(broker: RunningBroker) -> None:
    where = endpoint(broker)
    some = {(-(2**63), 0): "00000000-0000000000000000"}
    for wrong, words in (
        (lambda: barco.Pipeline("a", "a", "p", where), "does not write there"),
        (lambda: barco.Pipeline([], "b", "p", where), "at least one topic"),
        (lambda: barco.Pipeline("a", "b", "p/q", where), "no name of a pipeline"),
        (lambda: barco.Pipeline("a", "b", "..", where), "no name of a pipeline"),
        (lambda: pipe(broker, start="ealiest"), "'ealiest' is none of"),
        (lambda: pipe(broker, batch_seconds=-1), "not negative"),
        (lambda: barco.Pipeline(["a", "c"], "b", "p", where, start=some), "those of one topic"),
    ):
        with pytest.raises(ValueError, match=words):
            wrong()
    with pytest.raises(TypeError):
        pipe(broker, batch_secs=1)
    with pytest.raises(TopicNotFoundError):
        pipe(broker).run(same, to_end=True)
    produce(broker, 1)
    with pytest.raises(barco.PipelineError, match=r"no cursor for \(-\d+, 1\) of a"):
        pipe(broker, start=some).run(same, to_end=True)
    with pytest.raises(ValueError, match="does not write there"):
        pipe(broker).run(lambda e: barco.Output(e.value, topic="a"), to_end=True)
    body = b'{"state": "prepared", "attempts": [], "rows": {}, "note": "mine"}'
    kind = {"Content-Type": "application/json"}
    assert (
        broker.request("PUT", "/v1/writes/n/0", listener="produce", body=body, headers=kind).status
        == 200
    )
    with pytest.raises(barco.PipelineError, match="none of a pipeline"):
        pipe(broker, "n").run(same, to_end=True)


def test_memory_is_bounded_and_much_is_staged_before_the_commit(broker: RunningBroker) -> None:
    """One batch of 40 MB with 4 MiB of buffer: all of it appears at once, or nothing."""
    with barco.Producer(endpoint(broker)) as producer:
        values = [b"%06d" % n + b"x" * 10_000 for n in range(4000)]
        producer.send_many("a", values, [b"k%d" % (n % KEYS) for n in range(4000)]).result(60)
    seen: list[int] = []

    def function(event: barco.Event) -> barco.Output:
        if event.value.startswith(b"003999"):
            with barco.Admin(endpoint(broker)) as admin:
                seen.append(sum(topic["topic"] == "b" for topic in admin.topics()))
        return same(event)

    options: dict[str, Any] = {"batch_bytes": 1 << 40, "batch_seconds": 600.0}
    done = pipe(broker, buffer_bytes=4 << 20, **options).run(function, to_end=True)
    assert done.written == 4000 and done.batch == 1 and seen == [0]
    assert sorted(e.value for e in barco.read("b", endpoint(broker))) == values


def test_a_quiet_topic_is_waited_for(broker: RunningBroker) -> None:
    produce(broker, 1)
    pipeline = pipe(broker)
    thread = threading.Thread(target=pipeline.run, args=(same,))
    thread.start()
    for first in (1, 2):
        produce(broker, 1, first=first)
        until = time.monotonic() + PATIENCE_S
        while sum(map(len, read_if_there(broker).values())) <= first:
            assert time.monotonic() < until
            time.sleep(0.05)
    pipeline.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive() and by_key(broker) == expected(3)


def read_if_there(broker: RunningBroker) -> dict[bytes | None, list[int]]:
    try:
        return by_key(broker)
    except TopicNotFoundError:
        return {}


async def some(engine: Engine) -> None:
    """Has it process some events, and stage what comes of them."""
    while not engine.busy:
        for event in await engine.next(5.0) or ():
            engine.add(event, [same(event)])
    await engine.stage()


@pytest.mark.parametrize("step", ["decide", "commit"])
def test_what_may_be_decided_is_not_given_up(
    broker: RunningBroker, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal between the decision and its answer, or before the commit: nobody knows by then."""
    produce(broker, 400)
    real = StagedWrites.decide

    async def decided(writes: StagedWrites, batch: int, note: str) -> None:
        await real(writes, batch, note)
        if NotedState.parse(note).rows:
            raise asyncio.CancelledError

    async def cut(*_: object) -> None:
        raise asyncio.CancelledError

    async def main() -> None:
        engine = Engine(pipe(broker)._pipeline._plan(), follow=False)
        await engine.start()
        await some(engine)
        if step == "decide":
            monkeypatch.setattr(StagedWrites, "decide", decided)
        else:
            monkeypatch.setattr(StagedWrites, "commit", cut)
        with pytest.raises(asyncio.CancelledError):
            await engine.commit()
        monkeypatch.undo()
        await engine.abandon()
        await engine.close()

    asyncio.run(main())
    pipe(broker).run(same, to_end=True)
    assert by_key(broker) == expected(400)


def test_who_is_fenced_takes_nothing_of_the_other_along(broker: RunningBroker) -> None:
    """It gave up the batch behind the last decided one, which was the other's, and just decided."""
    produce(broker, 400)

    async def main() -> None:
        plan = pipe(broker)._pipeline._plan()
        first, second = Engine(plan, follow=False), Engine(plan, follow=False)
        await first.start()
        await some(first)
        await second.start()
        with pytest.raises(barco.PipelineFencedError):
            await first.again(BarcoError("somebody else was first"))
        await some(second)
        await first.abandon()
        assert await second.commit() is not None
        await first.close()
        await second.close()

    asyncio.run(main())
    pipe(broker).run(same, to_end=True)
    assert by_key(broker) == expected(400)
