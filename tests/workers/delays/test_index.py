"""Which waiting events are next: all of them in their order, and few known one by one."""

import random
import tracemalloc
from array import array

import pytest
from twin import run

from barco.workers.delays import index as module
from barco.workers.delays.index import DueIndex
from barco.workers.delays.marks import FIRST, LAST, DelayMark, Key
from barco.workers.shard.waiting import breathe

MIB = 1 << 20


class Stored:
    """Events by offset, of which the index reads the times."""

    def __init__(self) -> None:
        self.times = array("q")
        self.mark = DelayMark()
        self.reads = 0
        self.fail_at = 0
        self.index = DueIndex(self.read, self.mark.from_on)

    async def read(self, start: int, stop: int) -> list[tuple[int, bytes]]:
        self.reads += 1
        await breathe()
        if self.reads == self.fail_at:
            raise OSError
        stop = min(stop, len(self.times))
        middle = (start + stop) // 2  # As of two chunks.
        parts = [(start, middle), (middle, stop)]
        return [(low, self.times[low:high].tobytes()) for low, high in parts if low < high]

    def add(self, times: list[int], most: int) -> None:
        first = len(self.times)
        self.times.extend(times)
        self.index.add(array("q", times).tobytes(), first, most)


def test_times_are_sorted_into_three() -> None:
    times = array("q", [5, 9, 1, 5, 7, 5]).tobytes()
    between = module._native.times_between
    every = [(5, 100), (9, 101), (1, 102), (5, 103), (7, 104), (5, 105)]
    assert between(times, 100, FIRST, LAST) == (every, None)
    assert between(times, 100, (5, 101), (7, 104)) == ([(5, 103), (5, 105)], (7, 104))
    assert between(times, 100, (5, 103), (5, 103)) == ([], (5, 103))
    assert between(b"", 0, FIRST, LAST) == ([], None)
    with pytest.raises(TypeError):
        between(times, 0, 5, LAST)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(30))
@run
async def test_all_come_once_and_in_order(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is taken at any moment is what a sorted list of everything has first."""
    chance = random.Random(seed)
    monkeypatch.setattr(module, "BLOCK", 8)
    most = chance.choice([1, 2, 7, 40])
    stored, model = Stored(), list[Key]()
    spread = chance.choice([1, 5, 1000])
    for _ in range(300):
        turn = stored.mark.turn
        if turn is None and chance.random() < 0.5 and len(stored.times) < 400:
            news = [chance.randrange(spread) for _ in range(chance.randrange(1, 30))]
            model += [(due, len(stored.times) + at) for at, due in enumerate(news)]
            model.sort()
            stored.add(news, most)
        if chance.random() < 0.2:
            stored.fail_at = stored.reads + chance.randrange(1, 5)
        try:
            await stored.index.fill(most)
        except OSError:
            await stored.index.fill(most)  # Nothing was forgotten meanwhile.
        assert stored.index.next == (model[0] if model else None)
        assert len(stored.index) <= most + 2 * max(1, most // 2)
        least = stored.index.least
        assert (least is None) == (not model)
        assert least is None or least <= min(offset for _, offset in model)
        if turn is None and model:
            stored.mark.open_turn(model[0][0], len(stored.times))
        elif turn is not None and (keys := stored.index.due(turn.due, 5)):
            assert keys == model[: len(keys)]
            stored.index.taken(len(keys))
            turn.at = keys[-1]
            del model[: len(keys)]
        elif turn is not None:
            assert not model or model[0][0] > turn.due, "all of the turn was known"
            stored.mark.close_turn()


@run
async def test_what_is_at_one_time_is_read_once() -> None:
    """Nine o'clock: block by block, in the order of offsets."""
    stored, most = Stored(), 8192
    count = 40 * module.BLOCK
    for _ in range(40):
        stored.add([9] * module.BLOCK, most)
    seen = 0
    while (keys := stored.index.due(9, 1000)) or stored.index.next is not None:
        if not keys:
            await stored.index.fill(most)
            continue
        assert keys[0] == (9, seen)
        seen += len(keys)
        stored.index.taken(len(keys))
        await stored.index.fill(most)
    assert seen == count and stored.reads <= 120, stored.reads


def test_ten_million_take_little_memory() -> None:
    """Ten million at random, as a worker of eight slices has them: far below 64 MiB."""
    chance = random.Random(1)
    made = [
        array("q", [chance.randrange(10**12) for _ in range(module.BLOCK)]).tobytes()
        for _ in range(16)
    ]
    total, most = 10_000_000, 131_072 // 8
    blocks = total // module.BLOCK + 1

    async def never(start: int, stop: int) -> list[tuple[int, bytes]]:
        raise AssertionError("nothing is read for it")

    tracemalloc.start()
    try:
        found = [DueIndex(never, DelayMark().from_on) for _ in range(8)]
        for at in range(blocks):
            index = found[at % 8]
            index.add(made[at % 16], at // 8 * module.BLOCK, most)
        used, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(len(index) for index in found) <= 131_072
    assert sum(index.blocks for index in found) <= blocks
    assert peak < 64 * MIB, (used, peak)
