"""Staged writes while a range is split: each of the two processes stores what is for its slices,
by the plan that has begun, and a write of which nothing has begun goes on in two parts."""

from typing import Any

import pytest
from memory_spool import MemorySpool
from test_copies import Pair
from twin import run

from barco import _native
from barco.errors import BusyError, ConflictError, NotReadyError

VALUES = [b"%d" % number for number in range(4)]
LOW, HIGH = ("t", 0), ("t", 5)
ROWS = {LOW: len(VALUES), HIGH: len(VALUES)}


def stored(pair: Pair, stream: tuple[str, int]) -> list[bytes]:
    chunks = pair.reactor.chunks.get(stream, [])
    return [value for chunk in chunks for _, _, _, value in _native.chunk_events(chunk)]


async def staged(pair: Pair, staging: Any, attempt: str = "a") -> None:
    for stream in (LOW, HIGH):
        for seq, value in enumerate(VALUES):
            batch = _native.batch_encode([value])
            await staging.stage("q", 0, attempt, stream, seq, batch)


async def split(pair: Pair) -> None:
    """The first goes on with 0 to 3, the second begins with 4 to 7."""
    vars(pair.appends).pop("start_commit", None)
    pair.one.rest()
    pair.one.slices, pair.two.slices = range(4), range(4, 8)
    for staging in (pair.one, pair.two):
        staging.open()
        await staging.take_over()


@pytest.mark.parametrize("steps", range(2 * len(VALUES) + 1))
def test_what_has_begun_is_completed_by_both(steps: int) -> None:
    async def test() -> None:
        pair = Pair()
        await staged(pair, pair.one)
        await pair.one.prepare("q", 0, ["a"], ROWS)
        pair.dies_after(steps)
        try:
            await pair.one.commit("q", 0, ["a"], ROWS)
        except BusyError:
            pass
        await split(pair)
        for staging, stream in ((pair.one, LOW), (pair.two, HIGH)):
            rows = {stream: len(VALUES)}
            for _ in range(2):
                assert (await staging.commit("q", 0, ["a"], rows))["state"] == "committed"
            assert stored(pair, stream) == VALUES

    run(test)()


@run
async def test_a_driver_that_has_not_heard_of_it_is_told() -> None:
    pair = Pair()
    await staged(pair, pair.one)
    await split(pair)
    for call in (pair.one.prepare, pair.one.commit):
        with pytest.raises(NotReadyError, match="not here"):
            await call("q", 0, ["a"], ROWS)
    assert stored(pair, LOW) == stored(pair, HIGH) == []


@run
async def test_what_others_ask_for_is_kept_and_then_goes() -> None:
    pair = Pair()
    await staged(pair, pair.one)
    await pair.one.prepare("q", 0, ["a"], ROWS)
    pair.dies_after(1)
    with pytest.raises(BusyError):
        await pair.one.commit("q", 0, ["a"], ROWS)
    others, pair.two.others = pair.two.others, ()  # It can not ask yet.
    await split(pair)
    assert stored(pair, LOW) == VALUES and pair.one.writes
    assert await pair.one.expire() == 0 and pair.one.writes
    pair.two.before, pair.two.others = others, ()
    await pair.two.prepare("q", 0, ["a"], {HIGH: len(VALUES)})
    (write,) = pair.two.writes.values()
    assert write.attempts["a"].keys() == {HIGH}
    await pair.two.commit("q", 0, ["a"], {HIGH: len(VALUES)})
    assert stored(pair, HIGH) == VALUES
    pair.one.monotonic = lambda: 1e9
    assert await pair.one.expire() == 1 and not pair.one.writes
    assert isinstance(pair.one._spool, MemorySpool)


@pytest.mark.parametrize("steps", range(len(VALUES) + 1))
def test_what_two_have_prepared_is_completed_by_who_gets_both(steps: int) -> None:
    """The driver knows it as one from then on. The attempt is of a plan already, for the slices
    that were here before; and a part of it may be stored."""

    async def test() -> None:
        pair = Pair()
        pair.one.slices, pair.two.slices = range(4), range(4, 8)
        for staging, stream in ((pair.one, LOW), (pair.two, HIGH)):
            staging.open()
            for seq, value in enumerate(VALUES):
                batch = _native.batch_encode([value])
                await staging.stage("q", 0, "a", stream, seq, batch)
            await staging.prepare("q", 0, ["a"], {stream: len(VALUES)})
        pair.dies_after(steps)
        try:
            await pair.one.commit("q", 0, ["a"], {LOW: len(VALUES)})
        except BusyError:
            pass
        vars(pair.appends).pop("start_commit", None)
        pair.two.rest()
        pair.one.rest()
        pair.one.slices = range(8)
        pair.one.open()
        await pair.one.take_over()
        for _ in range(2):
            assert (await pair.one.commit("q", 0, ["a"], ROWS))["state"] == "committed"
        assert stored(pair, LOW) == stored(pair, HIGH) == VALUES
        with pytest.raises(ConflictError, match="not the same"):
            await pair.one.commit("q", 0, ["a"], {LOW: 1})

    run(test)()
