"""Staged writes at two processes that hold a shard, one log between them: the leader changes."""

from functools import partial
from typing import Any

import pytest
from memory_spool import MemorySpool
from twin import MemoryReactor, run

from barco import _native
from barco.errors import BusyError, ConflictError, NotReadyError
from barco.workers.shard.appends import Appends
from barco.workers.writes.copies import told
from barco.workers.writes.staging import Staging

VALUES = [b"%d" % number for number in range(6)]
ROWS = {("t", 0): len(VALUES)}


class Pair:
    """Two processes. What one has appended the other knows, as by replication."""

    def __init__(self) -> None:
        self.reactor = MemoryReactor()
        self.appends = Appends(self.reactor)
        self.reactor.upcalls = self.upcall
        self.one, self.two = (self.staging(), self.staging())
        for here, there in ((self.one, self.two), (self.two, self.one)):
            here.others = [partial(ask, there)]
        self.one.open()
        self.two.rest()

    def staging(self) -> Staging:
        return Staging(
            self.reactor,
            self.appends,
            MemorySpool(),
            now_us=lambda: self.reactor.clock_us,
            part_bytes=1,  # A part for each piece.
        )

    def upcall(self, upcall: Any) -> None:
        if upcall[0] == "appended":
            self.appends.appended(upcall[1], upcall[2], upcall[5])

    def dies_after(self, appends: int) -> None:
        """The log of the first takes so many groups, and then nothing: another leads."""
        start, left = self.appends.start_commit, appends

        def dying(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                self.one.rest()
                raise BusyError("fenced")
            return start(*args, **kwargs)

        self.appends.start_commit = dying  # type: ignore[method-assign]

    async def fails_over(self) -> None:
        """The second leads from now on."""
        vars(self.appends).pop("start_commit", None)
        self.one.rest()
        self.two.open()
        await self.two.take_over()

    @property
    def stored(self) -> list[bytes]:
        chunks = self.reactor.chunks.get(("t", 0), [])
        return [value for chunk in chunks for _, _, _, value in _native.chunk_events(chunk)]


async def ask(staging: Staging, op: str, args: Any) -> Any:
    """As `ShardService` answers."""
    if op == "staged":
        return told(staging, args)
    place = (args["topic"], args["slice"])
    return await staging.piece(args["writer"], args["batch"], args["attempt"], place, args["seq"])


async def stage(staging: Staging, attempt: str, values: list[bytes]) -> None:
    for seq, value in enumerate(values):
        await staging.stage("q", 0, attempt, ("t", 0), seq, _native.batch_encode([value]))


@pytest.mark.parametrize("copied", [True, False], ids=["copied", "brought"])
def test_the_next_leader_goes_on_where_the_first_has_stopped(copied: bool) -> None:
    async def test() -> None:
        for steps in range(len(VALUES)):
            pair = Pair()
            for staging in (pair.one, pair.two) if copied else (pair.one,):
                await stage(staging, "a", VALUES)
                await staging.prepare("q", 0, ["a"], ROWS)
            pair.dies_after(steps)
            with pytest.raises(BusyError):
                await pair.one.commit("q", 0, ["a"], ROWS)
            assert pair.stored == VALUES[:steps]
            await pair.fails_over()
            if steps:
                assert pair.stored == VALUES, "what has begun needs no driver"
            for _ in range(2):
                assert (await pair.two.commit("q", 0, ["a"], ROWS))["state"] == "committed"
                assert pair.stored == VALUES

    run(test)()


@run
async def test_a_later_driver_does_not_change_what_has_begun() -> None:
    pair = Pair()
    for staging in (pair.one, pair.two):
        await stage(staging, "a", VALUES)
        await staging.prepare("q", 0, ["a"], ROWS)
    pair.dies_after(2)
    with pytest.raises(BusyError):
        await pair.one.commit("q", 0, ["a"], ROWS)
    # The second has not heard of that when the batch is run again, in another order.
    kept, pair.reactor.kept = pair.reactor.kept, {}
    await stage(pair.two, "b", VALUES[::-1])
    await pair.two.prepare("q", 0, ["b"], ROWS)
    pair.reactor.kept = kept
    await pair.fails_over()
    assert pair.stored == VALUES
    assert (await pair.two.commit("q", 0, ["b"], ROWS))["state"] == "committed"
    assert pair.stored == VALUES


@run
async def test_only_the_rest_of_the_same_plan_follows() -> None:
    """The second has the rows in another order, and the plan that has begun is out of reach."""
    pair = Pair()
    await stage(pair.one, "a", VALUES)
    await pair.one.prepare("q", 0, ["a"], ROWS)
    pair.dies_after(2)
    with pytest.raises(BusyError):
        await pair.one.commit("q", 0, ["a"], ROWS)
    others, pair.two.others = pair.two.others, [silent]
    await stage(pair.two, "b", VALUES[::-1])
    await pair.fails_over()
    with pytest.raises(BusyError):
        await pair.two.commit("q", 0, ["b"], ROWS)
    assert pair.stored == VALUES[:2]
    pair.two.others = others
    assert (await pair.two.commit("q", 0, ["b"], ROWS))["state"] == "committed"
    assert pair.stored == VALUES


async def silent(op: str, args: Any) -> Any:
    raise NotReadyError("restarting")


@run
async def test_only_the_leader_commits() -> None:
    pair = Pair()
    await stage(pair.two, "a", VALUES)
    with pytest.raises(NotReadyError):
        await pair.two.commit("q", 0, ["a"], ROWS)
    assert pair.stored == []


@run
async def test_what_waited_for_an_earlier_leadership_ends_there() -> None:
    """It led, somebody else did and went on with the write, and it leads again."""
    pair = Pair()
    for staging in (pair.one, pair.two):
        await stage(staging, "a", VALUES)
        await staging.prepare("q", 0, ["a"], ROWS)
    reads, read = 0, pair.one._spool.read

    async def slow(*args: Any) -> Any:
        nonlocal reads
        reads += 1
        if reads == 3:
            await pair.fails_over()
            pair.two.rest()
            pair.one.open()
        return await read(*args)

    pair.one._spool.read = slow  # type: ignore[method-assign]
    with pytest.raises(NotReadyError):
        await pair.one.commit("q", 0, ["a"], ROWS)
    assert pair.stored == VALUES
    assert (await pair.one.commit("q", 0, ["a"], ROWS))["state"] == "committed"
    assert pair.stored == VALUES


@run
async def test_a_copy_goes_when_the_write_is_over_elsewhere() -> None:
    pair = Pair()
    for staging in (pair.one, pair.two):
        await stage(staging, "a", VALUES)
        await staging.prepare("q", 0, ["a"], ROWS)
    await pair.two.tidy()
    assert pair.two.writes
    await pair.one.commit("q", 0, ["a"], ROWS)
    await pair.two.tidy()
    assert pair.two.writes, "seen once: it may not be committed yet"
    await pair.two.tidy()
    assert not pair.two.writes and not pair.two.expired


@run
async def test_the_driver_takes_a_copy_away_and_names_can_be_used_again() -> None:
    pair = Pair()
    for staging in (pair.one, pair.two):
        await stage(staging, "a", VALUES)
        await staging.prepare("q", 0, ["a"], ROWS)
    await pair.one.commit("q", 0, ["a"], ROWS)
    # The same name for another topic, while the copy is still there.
    for staging in (pair.one, pair.two):
        await staging.stage("q", 0, "b", ("u", 0), 0, _native.batch_encode([b"1"]))
        await staging.prepare("q", 0, ["b"], {("u", 0): 1})
    await pair.one.commit("q", 0, ["b"], {("u", 0): 1})
    await pair.two.abort("q", 0)
    assert not pair.one.writes and not pair.two.writes
    assert pair.stored == VALUES


@run
async def test_what_nobody_has_is_missed() -> None:
    pair = Pair()
    with pytest.raises(ConflictError):
        await pair.one.prepare("q", 0, ["a"], ROWS)
    pair.one.others = [silent]
    with pytest.raises(BusyError):
        await pair.one.prepare("q", 0, ["a"], ROWS)
