"""Waiting events go over once, in order and not before, whatever crashes between two steps."""

import asyncio
import itertools
import random
from collections.abc import Sequence
from typing import Any

import msgpack
import pytest
from reference.core import chunk_encode
from twin import Broker, MemoryLog, MemoryReactor, run

from barco import _native
from barco.errors import BarcoError, BusyError, NotFoundError
from barco.model.delays import WAITING_PREFIX
from barco.workers.delays import index as index_module
from barco.workers.delays import stream as stream_module
from barco.workers.delays.delays import Delays
from barco.workers.delays.marks import DELAYS, DelayMark, Turn, read_cancelled, read_mark
from barco.workers.delays.stream import DelayedStream, Figures, Shared
from barco.workers.shard import internal
from barco.workers.shard.appends import Appends
from barco.workers.shard.reads import Reads

TOPIC, SLICE = "t", 3
WAITING = WAITING_PREFIX + TOPIC


class World(MemoryReactor):
    """A log that outlives its leaders. What a leader asks for may be lost with it, or be stored
    without its hearing of that."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance, self.now, self.epoch = chance, 1_000, 0
        self.crash_share = self.refuse_share = 0.0
        self.crashed = False
        self.due: dict[bytes, int] = {}
        self.early: list[bytes] = []
        self.stream: DelayedStream
        self.begin()

    def begin(self) -> None:
        """Another leader."""
        self.epoch, self.crashed = self.epoch + 1, False
        appends = Appends(self)
        self.upcalls = lambda upcall: appends.appended(upcall[1], upcall[2], upcall[5])
        shared = Shared(self, Reads(self, MemoryLog(self)), appends, lambda: self.now, lambda: 6)
        marks = dict(filter(None, internal.each(DELAYS, self.compacted(DELAYS), read_mark)))
        self.stream = DelayedStream(
            shared, (TOPIC, SLICE), self.epoch, marks.get((TOPIC, SLICE), DelayMark())
        )
        self.stream.end = self.ends.get((WAITING, SLICE), 0)

    @property
    def figures(self) -> Figures:
        return self.stream._shared.figures

    def wait(self, dues: Sequence[int]) -> None:
        """More events, as one chunk."""
        values = [b"%d-%d" % (due, len(self.due) + n) for n, due in enumerate(dues)]
        self.due.update(zip(values, dues, strict=True))
        self.produce(WAITING, SLICE, values, None, list(dues))
        self.stream.end = self.ends[WAITING, SLICE]

    def append_commit(
        self, tag: int, topic: str, slice: int, batches: list[Any], *mark: Any
    ) -> None:
        if self.chance.random() < self.refuse_share:
            raise RuntimeError("not now")
        for _, _, _, value, *_ in itertools.chain.from_iterable(
            _native.batch_events(batch) for batch, *_ in batches
        ):
            assert value is not None
            self.early += [value] if self.due[value] > self.now else []
        if self.chance.random() < self.crash_share:
            self.crashed = True
            if self.chance.random() < 0.5:
                return  # Neither events nor mark.
            self.upcalls = lambda upcall: None
        super().append_commit(tag, topic, slice, batches, *mark)

    def delivered(self) -> list[bytes]:
        """The topic's values, in their order."""
        found = []
        for chunk in self.chunks.get((TOPIC, SLICE), ()):
            found += [event[3] for event in _native.chunk_events(chunk)]
        return [value for value in found if value is not None]

    async def steps(self, most: int) -> None:
        """Some steps; a leader that crashes is followed by another one."""
        for _ in range(most):
            task = asyncio.ensure_future(self.stream.step())
            while not task.done() and not self.crashed:
                await asyncio.sleep(0)
            for _ in range(3):
                await asyncio.sleep(0)
            if self.crashed:
                task.cancel()
                await asyncio.wait([task])
                self.begin()
                continue
            try:
                due = task.result()
            except BarcoError:
                continue
            if due is None or due > self.now:
                return


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a few hundred events are many."""
    monkeypatch.setattr(index_module, "BLOCK", 16)
    monkeypatch.setattr(stream_module, "AT_ONCE", 5)
    monkeypatch.setattr(stream_module, "TURN_EVENTS", 4)
    monkeypatch.setattr(stream_module, "LEAST_EVERY", 7)


@pytest.mark.parametrize("seed", range(60))
@run
async def test_each_once_and_none_early(seed: int) -> None:
    """Through crashes with and without what was asked for, refusals, and clocks that go back."""
    chance = random.Random(seed)
    world = World(chance)
    world.crash_share, world.refuse_share = chance.choice([0.0, 0.1, 0.4]), chance.choice([0, 0.2])
    spread = chance.choice([10, 100, 1000])
    for _ in range(60):
        if chance.random() < 0.6:
            dues = [
                world.now + chance.randrange(-20, spread) for _ in range(chance.randrange(1, 9))
            ]
            world.wait([max(1, due) for due in dues])
        world.now = max(1, world.now + chance.randrange(-15, 40))
        await world.steps(chance.randrange(1, 12))
    world.now += 10 * spread
    await world.steps(100_000)
    assert not world.early
    assert sorted(world.delivered()) == sorted(world.due), "each once"
    mark = world.stream.mark
    assert world.stream.index.next is None and mark.least <= mark.end


@run
async def test_they_come_in_the_order_of_their_times() -> None:
    world = World(random.Random(1))
    world.wait([1500, 1100, 1300, 1100, 1200])
    await world.steps(10)
    assert world.delivered() == []
    world.now = 1250
    await world.steps(10)
    assert world.delivered() == [b"1100-1", b"1100-3", b"1200-4"]
    world.now = 1299
    await world.steps(10)
    assert len(world.delivered()) == 3
    assert await world.stream.step() == 1300, "it says when to come again"
    world.now = 9999
    await world.steps(10)
    assert world.delivered()[3:] == [b"1300-2", b"1500-0"]
    assert await world.stream.step() is None


@run
async def test_what_comes_late_is_delivered_next() -> None:
    """Due before what was delivered already: it is not taken for done."""
    world = World(random.Random(1))
    world.wait([1000, 900])
    await world.steps(10)
    world.wait([950, 1, 1000])
    world.begin()  # And by a leader that has only the mark.
    world.now = 980
    await world.steps(10)
    assert world.delivered() == [b"900-1", b"1000-0", b"1-3", b"950-2"]
    world.now = 1000
    await world.steps(10)
    assert world.delivered()[4:] == [b"1000-4"]


@run
async def test_a_turn_is_gone_on_with_by_who_leads_next() -> None:
    world = World(random.Random(1))
    world.wait([1000] * 12)
    await world.stream.step()
    assert len(world.delivered()) == 3, "as many as are known one by one"
    world.begin()
    turn = world.stream.mark.turn
    assert turn == Turn(1000, 12, (1000, 2)) and world.stream.mark.end == 0
    world.wait([400])
    await world.steps(20)
    assert world.delivered()[-1] == b"400-12" and len(set(world.delivered())) == 13


def test_keys_values_headers_and_times_survive() -> None:
    """The batch is of the events as they waited; their time is when they were due."""
    rows: list[tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]] = [
        (900, b"key", b"v" * 300, (("a", b"1"), ("a", b"\xff"))),
        (700, None, None, ()),
        (800, b"", b"", (("b", b""),)),
        (2**52, None, b"last", ()),
    ]
    due, keys, values, headers = zip(*rows, strict=True)
    chunk = chunk_encode(WAITING, SLICE, 4, 70, values, keys, due, True, headers)
    for order in itertools.permutations(range(4), 3):
        batch = _native.chunk_batch(chunk, [70 + at for at in order])
        found = _native.batch_events(batch)
        wanted = [rows[at] for at in order]
        assert [event[1:4] for event in found] == [row[:3] for row in wanted]
        assert [event[4] if len(event) > 4 else () for event in found] == [row[3] for row in wanted]
    plain = _native.batch_events(_native.chunk_batch(chunk, [71, 73]))
    assert [len(event) for event in plain] == [4, 4], "no headers, as versions before read it"
    for wrong in ([], [69], [74], [70] * 5):
        with pytest.raises(ValueError):
            _native.chunk_batch(chunk, wrong)
    spoilt = bytearray(chunk)
    spoilt[-9] ^= 1
    with pytest.raises(ValueError, match="damaged"):
        _native.chunk_batch(bytes(spoilt), [70])


@run
async def test_a_topic_that_was_deleted_takes_what_waits_along() -> None:
    world = World(random.Random(1))
    world.wait([1500, 1600])
    await world.steps(3)
    await world.stream.drop()
    world.wait([1700])  # And whoever leads now is killed at once.
    world.begin()
    world.now = 9999
    await world.steps(10)
    assert world.delivered() == [b"1700-2"]


@run
async def test_what_could_not_be_dropped_is_delivered() -> None:
    """The deletion was refused, so the topic is there, and all that is asked for it: also where
    another one leads once the mark was written again."""
    world = World(random.Random(1))
    world.wait([1500, 1900])
    await world.steps(3)
    world.fail_status = 503
    with pytest.raises(BarcoError):
        await world.stream.drop()
    world.fail_status = 0
    world.now = 1600
    await world.steps(10)
    world.begin()
    world.now = 9999
    await world.steps(10)
    assert world.delivered() == [b"1500-0", b"1900-1"]


@run
async def test_what_was_cancelled_goes_with_what_waits() -> None:
    world = World(random.Random(1))
    world.wait([1500, 1600])
    await world.steps(3)
    await world.stream.cancel(1, 1)
    await world.stream.drop()
    await asyncio.sleep(0.01)
    assert not world.stream.cancelled
    assert [value for key, value in world.compacted(DELAYS) if key[:1] == b"\0"] == [b""]


@run
async def test_what_is_cancelled_is_passed_over() -> None:
    """Also by who leads next, and what says so is forgotten with it."""
    world = World(random.Random(1))
    world.wait([1500, 1400, 1300, 900])
    await world.steps(10)
    stream = world.stream
    for epoch, offset in ((0, 0), (1, 4), (1, 3), (2, 1)):
        with pytest.raises(NotFoundError):
            await stream.cancel(epoch, offset)
    await stream.cancel(1, 1)
    await stream.cancel(1, 1)
    assert len(world.compacted(DELAYS)) == 2, "the mark, and what was cancelled"
    world.begin()
    keys = [read_cancelled(msgpack.unpackb(value)) for _, value in world.compacted(DELAYS) if value]
    assert ((TOPIC, SLICE), (1400, 1)) in keys
    world.stream.cancelled.add(1)
    world.now = 9999
    await world.steps(20)
    assert world.delivered() == [b"900-3", b"1300-2", b"1500-0"]
    assert world.figures.cancelled == 1 and not world.stream.cancelled
    assert [value for key, value in world.compacted(DELAYS) if b"\0" == key[:1]] == [b""]
    with pytest.raises(NotFoundError):
        await world.stream.cancel(1, 1)


@run
async def test_what_could_not_be_delivered_can_be_cancelled() -> None:
    """The mark that was not written says nothing."""
    world = World(random.Random(1))
    world.wait([1500, 1500])
    await world.steps(3)
    world.now, world.refuse_share = 2000, 1.0
    with pytest.raises(BusyError):
        await world.stream.step()
    world.refuse_share = 0.0
    await world.stream.cancel(1, 0)
    await world.steps(5)
    assert world.delivered() == [b"1500-1"]


@run
async def test_what_could_not_be_cancelled_is_delivered() -> None:
    world = World(random.Random(1))
    world.wait([1500])
    await world.steps(3)
    world.fail_status = 503
    with pytest.raises(BusyError):
        await world.stream.cancel(1, 0)
    world.fail_status, world.now = 0, 2000
    await world.steps(5)
    assert world.delivered() == [b"1500-0"]


@run
async def test_what_retention_has_removed_is_passed_over_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(random.Random(1))
    world.wait([1500, 1600])
    world.wait([1700])
    await world.steps(3)
    world.truncate_stream(WAITING, SLICE, 2)
    world.chunks[WAITING, SLICE].pop(0)
    world.now = 9999
    await world.steps(10)
    assert world.delivered() == [b"1700-2"]
    assert world.figures.lost == 2 and "2 or more were removed" in caplog.text


@run
async def test_what_was_known_by_block_only_is_missed_too(caplog: pytest.LogCaptureFixture) -> None:
    world = World(random.Random(1))
    world.wait([1500 + n for n in range(40)])
    world.wait([1700])
    await world.steps(3)
    assert world.stream.index.blocks == 3
    world.truncate_stream(WAITING, SLICE, 40)
    world.chunks[WAITING, SLICE].pop(0)
    world.now = 9999
    await world.steps(30)
    assert world.delivered() == [b"1700-40"]
    assert world.figures.lost >= 3 + 2 and "were removed before" in caplog.text


@run
async def test_few_chunks_are_in_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what has been read once is delivered: it is not read again for each append."""
    world = World(random.Random(1))
    for _ in range(60):
        world.wait([1500])
    await world.steps(3)
    size = len(world.chunks[WAITING, SLICE][0])
    monkeypatch.setattr(stream_module, "CHUNKS_AT_ONCE", 4 * size)
    held: list[int] = []
    chunks = DelayedStream._chunks

    async def counted(self: DelayedStream, offsets: Sequence[int]) -> Any:
        found = await chunks(self, offsets)
        held.append(0 if found is None else sum(map(len, found.values())))
        return found

    monkeypatch.setattr(DelayedStream, "_chunks", counted)
    world.now = 9999
    await world.steps(40)
    assert sorted(world.delivered()) == sorted(b"1500-%d" % n for n in range(60))
    assert 0 < max(held) <= 4 * size


def test_a_mark_is_read_as_it_was_written() -> None:
    name = ("topic.x", 5)
    mark = DelayMark(3, 100, 7, Turn(200, 20, (150, 12)))
    [found] = internal.each(DELAYS, [(b"k", mark.packed(name, 4))], read_mark)
    assert found == (name, mark)
    for wrong in (
        {"topic": "t"},
        {"topic": "t", "slice": 1, "epoch": 1, "least": 5, "due": 1, "end": 4},
    ):
        with pytest.raises((ValueError, LookupError)):
            read_mark(wrong)


@run
async def test_the_scheduler_comes_when_something_is_due() -> None:
    """With the loop's own timers: two events of one slice, one of another."""
    world = World(random.Random(1))
    start = asyncio.get_running_loop().time()

    def clock() -> int:
        return world.now + int((asyncio.get_running_loop().time() - start) * 1e6)

    appends = Appends(world)
    world.upcalls = lambda upcall: appends.appended(upcall[1], upcall[2], upcall[5])
    delays = Delays(world, reads=Reads(world, MemoryLog(world)), appends=appends, wall_us=clock)
    delays.open(1)
    world.due |= {b"a": 40_000, b"b": 20_000, b"c": 30_000}
    world.early = []
    world.now = 10_000_000
    for value, slice in ((b"a", 3), (b"b", 3), (b"c", 4)):
        world.produce(WAITING, slice, [value], None, [clock() + world.due[value]])
    delays.look()
    for _ in range(200):
        if delays.figures.delivered == 3:
            break
        await asyncio.sleep(0.01)
    assert delays.figures.delivered == 3 and delays.stats()["delayed_known"] == 0
    assert world.ends[TOPIC, 3] == 2 and world.ends[TOPIC, 4] == 1
    delays.close()
    world.produce(WAITING, 3, [b"d"], None, [1])
    delays.look()
    await asyncio.sleep(0.05)
    assert world.ends[TOPIC, 3] == 2, "another one leads"


@run
async def test_an_event_that_comes_within_a_step_is_looked_at_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The step has seen nothing but one of tomorrow, and would come again in half a minute."""
    world, gate = World(random.Random(1)), asyncio.Event()
    world.due |= {b"a": 86_400_000_000, b"b": 1}
    appends = Appends(world)
    world.upcalls = lambda upcall: appends.appended(upcall[1], upcall[2], upcall[5])
    reads = Reads(world, MemoryLog(world))
    delays = Delays(world, reads=reads, appends=appends, wall_us=lambda: world.now)
    step = DelayedStream.step

    async def slow(self: DelayedStream) -> int | None:
        found = await step(self)
        await gate.wait()
        return found

    monkeypatch.setattr(DelayedStream, "step", slow)
    delays.open(1)
    world.now = 10_000_000
    world.produce(WAITING, 3, [b"a"], None, [world.now + world.due[b"a"]])
    delays.look()
    await asyncio.sleep(0.01)
    world.produce(WAITING, 3, [b"b"], None, [world.now - 1])
    delays.look()
    gate.set()
    for _ in range(200):
        if delays.figures.delivered:
            break
        await asyncio.sleep(0.01)
    assert delays.figures.delivered == 1
    delays.close()


@run
async def test_only_what_has_become_longer_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """All streams are listed where a leader begins, and then no more, however many there are."""
    world = World(random.Random(1))
    appends = Appends(world)
    reads = Reads(world, MemoryLog(world))
    delays = Delays(world, reads=reads, appends=appends, wall_us=lambda: world.now)
    world.now = 10_000_000
    for slice in range(8):
        world.produce(WAITING, slice, [b"a"], None, [world.now * 2])
    taken: list[int] = []
    take = delays._take_up
    monkeypatch.setattr(delays, "_take_up", lambda of: (taken.append(len(of)), take(of)))
    delays.open(1)
    delays.look()
    world.produce(WAITING, 3, [b"b"], None, [world.now * 2])
    world.produce(WAITING, 3, [b"c"], None, [world.now * 2])
    delays.look()
    delays.look()
    assert taken == [8, 0, 1, 0] and delays._streams[TOPIC, 3].end == 3
    delays.close()


@run
async def test_a_deletion_waits_for_what_waits() -> None:
    """What was delayed is dropped before the deletion is in the log; where that fails the topic is
    not deleted, and the call can be repeated."""
    broker = Broker()
    broker.produce("t", 0, b"1")
    service = broker.services[0]
    assert service is not None
    order: list[str] = []

    async def refused(topic: str) -> None:
        raise BusyError("not now")

    async def dropped(topic: str) -> None:
        order.append(f"dropped with {len(service.topics.deleted())} deleted")

    service.topics.on_deleting = refused
    answer = await broker.request("DELETE", "/v1/topics/t", worker=0)
    assert answer.status == 504, "the other worker has deleted its part"
    assert not service.topics.deleted()
    service.topics.on_deleting = dropped
    answer = await broker.request("DELETE", "/v1/topics/t", worker=0)
    assert answer.status == 204 and order == ["dropped with 0 deleted"]
