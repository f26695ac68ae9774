"""The state of a generation that has ended, asked of a real replica over its connections.

B has followed to the end, on real files; the test plays C, who asks, with a real store and core of
two of B's four slices: the second child of a split.
"""

import asyncio
import dataclasses
import random
import struct
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from asker import ASK, ASK_SLICES, MINE, Asker, Wire
from following import (
    GID,
    SESSION,
    SUBJECT,
    A,
    C,
    Follower,
    follow,
)
from leading import Groups, lead, sent_group

from barco._native import ShardState, state_cut
from barco.errors import NotReadyError
from barco.limits import GROUP_HEADER_BYTES, STATE_PART_BYTES
from barco.model.generation import Generation, Gid, Kind, Parent, Successor
from barco.protocol import replication as r
from barco.protocol.replication_codec import to_map
from barco.types import Epoch
from barco.workers.replication import states as module
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import open_bulk
from barco.workers.storage.index import scan
from barco.workers.storage.stores.recovery import pack_parents


@pytest.fixture(scope="module")
def groups() -> Groups:
    """Over three segments."""
    return lead(60, 60_000)


async def ended(follower: Follower, groups: Groups) -> int:
    """B has all groups, and two members' word that they are all."""
    for at, (head, data) in enumerate(groups):
        await follower.send(A, r.Append(GID, SESSION, head, at), data)
    await follower.rest()
    tail = len(groups)
    child = Generation(
        Gid(GID.token, Epoch(3)), SUBJECT.end, A, 5, SUBJECT.members, (Parent(GID, tail),)
    )
    for peer in (A, C):
        await follower.send(peer, r.Decided(GID, Successor(tail, Kind.RELEAD, (child,))))
    async with asyncio.timeout(20):
        while (found := follower.store.lineage.get(GID.epoch)) is None or not found.sealed:
            await follower.rest()
    return tail


def expected(groups: Groups, slices: range) -> bytes:
    behind = ShardState(0, 4)
    for _, data in groups:
        header = scan.parse_header(data)
        assert header is not None
        if header.flags & (scan.GEN_START | scan.SNAPSHOT):
            behind.restore(data[GROUP_HEADER_BYTES:][: header.body_bytes])
        else:
            behind.apply_group(data)
    return state_cut(behind.snapshot(), slices.start, len(slices))


def asking(
    root: Path,
    groups: Groups,
    test: Callable[[Follower, Asker, Wire, int], Coroutine[Any, Any, None]],
    slices: range = MINE,
) -> None:
    """Runs a test with B, who has all groups, and C, who has none."""

    async def main(follower: Follower) -> None:
        tail = await ended(follower, groups)
        wire, bulk = Wire(follower), open_bulk("threads")
        carrying = asyncio.get_running_loop().create_task(wire.carry())
        asker = Asker(root, bulk, wire, slices)
        await asker.start()
        try:
            await test(follower, asker, wire, tail)
            assert not follower.fatal
        finally:
            carrying.cancel()
            await asyncio.gather(carrying, return_exceptions=True)
            await asker.close()
            bulk.close()

    follow(root, native=True, test=main)


def test_a_child_begins_with_the_state_of_its_slices(tmp_path: Path, groups: Groups) -> None:
    """As GEN_START, by way of its own store and core, which have never seen a group."""

    async def test(follower: Follower, asker: Asker, wire: Wire, tail: int) -> None:
        await asker.store.restore_state([(GID.epoch, tail)])
        whole = follower.reactor
        assert sorted(asker.core.streams()) == sorted(s for s in whole.streams() if s[1] in MINE)
        offsets = {(k, v) for k, v in whole.compacted("__offsets") if int(k[-1:]) in MINE}
        assert set(asker.core.compacted("__offsets")) == offsets and len(offsets) == 2
        assert asker.core.compacted("__topics") == whole.compacted("__topics") != []
        assert wire.heard[-1].header_crc == groups[-1][0].header_crc  # type: ignore[union-attr]
        # And opens with it.
        await asker.store.begin(3, 2)
        segment = await asker.store.next_segment()
        assert segment is not None
        asker.core.add_segment(*segment)
        asker.core.open_generation(pack_parents([(GID.epoch, tail)]))
        built: list[Any] = []
        while not built:
            built += [each for each in asker.core.run(0.01)[1] if each[0] == "built"]
        first = sent_group(asker.core, *built[0][4:])
        header = scan.parse_header(first)
        assert header is not None and header.flags & scan.GEN_START
        state = state_cut(first[GROUP_HEADER_BYTES:][: header.body_bytes], *ASK_SLICES)
        wanted = expected(groups, MINE)
        assert (state[:28], state[32:]) == (wanted[:28], wanted[32:]), "but for the log's clock"
        clock, before = struct.unpack("<2I", state[28:32] + wanted[28:32])
        assert clock >= before
        while asker.core.log_state()["stable_gseq"] < 1:
            asker.core.run(0.01)

    asking(tmp_path, groups, test)


def test_it_is_read_of_no_more_than_the_history(
    tmp_path: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that was prepared is listed, and removed before it is read: by who leaves the
    generation, at any moment after that has ended."""
    listed = layout.segment_indexes

    def with_one_more(shard: Path, epoch: int) -> list[int]:
        found = listed(shard, epoch)
        return [*found, found[-1] + 1] if epoch == GID.epoch and found else found

    async def test(follower: Follower, asker: Asker, wire: Wire, tail: int) -> None:
        async with asyncio.timeout(20):
            while follower.store.epoch == GID.epoch:
                await asyncio.sleep(0.001)
        monkeypatch.setattr(layout, "segment_indexes", with_one_more)
        assert (await follower.store.state_at(GID.epoch, MINE)).state == expected(groups, MINE)

    asking(tmp_path, groups, test)


def test_it_comes_in_parts(tmp_path: Path) -> None:
    """With 40,000 producers: more than fits into one, and the loop goes on meanwhile."""

    async def test(follower: Follower, asker: Asker, wire: Wire, tail: int) -> None:
        turns, state = 0, expected(many, MINE)
        task = asyncio.get_running_loop().create_task(asker.states.fetch(GID.epoch, tail, None))
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        assert await task == state and len(state) > 4 * STATE_PART_BYTES
        parts = [each for each in wire.heard if isinstance(each, r.StatePiece)]
        assert len(parts) > 4 and max(each.size for each in parts) == STATE_PART_BYTES
        assert turns > 20

    many = with_producers(40_000)
    asking(tmp_path, many, test)


def test_parts_of_two_states_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STATE_WAIT_SECONDS", 0.0)

    def spoil(message: r.Message, data: bytearray) -> r.Message:
        if isinstance(message, r.StatePiece) and message.at > 0:
            return dataclasses.replace(message, crc=message.crc ^ 1)
        return message

    async def test(follower: Follower, asker: Asker, wire: Wire, tail: int) -> None:
        wire.spoil = spoil
        with pytest.raises(NotReadyError, match="the parts are not of one state"):
            await asker.states.fetch(GID.epoch, tail, None)

        wire.spoil = lambda message, data: message
        assert await asker.states.fetch(GID.epoch, tail, None) == expected(many, MINE)

    many = with_producers(20_000)
    asking(tmp_path, many, test)


def test_the_rest_of_an_answer_is_passed_over(tmp_path: Path) -> None:
    """Of whom only the sums were wanted, it goes on sending; then it is asked for all."""

    async def test(follower: Follower, asker: Asker, wire: Wire, tail: int) -> None:
        what = dataclasses.replace(ASK, tail=tail)
        for _ in range(5):
            sums = await asker.states._ask(1, what, sums_alone=True)
            whole = await asker.states._ask(1, what)
            assert whole.sums == sums.sums and len(whole.parts) == whole.sums[0]

    asking(tmp_path, with_producers(30_000), test)


GID9 = Gid(GID.token, Epoch(9))


async def answered(
    follower: Follower, task: "asyncio.Task[bytes]", gives: dict[int, bytes | None]
) -> list[int]:
    """Who was asked, in that order, until the call has ended. None: it says that it has none."""
    asked: list[int] = []
    async with asyncio.timeout(30):
        while not task.done():
            follower.listen()
            said, follower.said = follower.said, []
            for ordinal, message in said:
                if not isinstance(message, r.AskState):
                    continue
                assert message == r.AskState(GID9, 60, 0, 4, 0)
                asked.append(ordinal)
                names = (message.gid, message.tail, message.first, message.slices)
                peer, state = {0: A, 2: C}[ordinal], gives[ordinal]
                if state is None:
                    await follower.send(peer, r.NoState(*names, "it is not here"))
                    continue
                sums = (len(state), scan.crc32c(state), 7)
                half = len(state) // 2
                for at, part in ((0, state[:half]), (half, state[half:])):
                    await follower.send(peer, r.StatePiece(*names, at, len(part), *sums), part)
            await asyncio.sleep(0.001)
    return asked


def test_a_replica_asks_over_its_own_connections(tmp_path: Path, groups: Groups) -> None:
    """The other way round: B asks, A gives nothing, C gives it, and A still nothing."""
    state = expected(groups, range(4))

    async def test(follower: Follower) -> None:
        states = follower.driver._states
        task = asyncio.get_running_loop().create_task(states.fetch(9, 60, 7))
        assert await answered(follower, task, {0: None, 2: state}) == [0, 2, 0]
        assert await task == state and not follower.fatal
        # What was not asked for is passed over; a part of another length ends the connection.
        piece = r.StatePiece(GID9, 60, 0, 4, 0, 5, 5, 1, 2)
        inputs = follower.driver._inputs
        await follower.send(A, piece, b"12345")
        await follower.rest()
        assert A.ordinal in {each.sender.ordinal for each in inputs._open.values()}
        await follower.send(A, piece, b"1234")
        await follower.rest()
        assert A.ordinal not in {each.sender.ordinal for each in inputs._open.values()}

    follow(tmp_path, native=True, test=test)


def test_two_say_the_same_or_only_one_has_it(
    tmp_path: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that lies can not change what a child begins with."""
    monkeypatch.setattr(module, "STATE_WAIT_SECONDS", 0.0)
    state, lie = expected(groups, range(4)), expected(groups[:-1], range(4))

    async def test(follower: Follower) -> None:
        fetch, loop = follower.driver._states.fetch, asyncio.get_running_loop()
        task = loop.create_task(fetch(9, 60, None))
        assert await answered(follower, task, {0: state, 2: state}) == [0, 2]
        assert await task == state
        task = loop.create_task(fetch(9, 60, None))
        assert await answered(follower, task, {0: lie, 2: state}) == [0, 2, 2, 0]
        with pytest.raises(NotReadyError, match="the others have another state"):
            await task

    follow(tmp_path, native=True, test=test)


def with_producers(count: int) -> Groups:
    """One group whose state has so many producers."""
    ((_, data),) = lead(1, 10)
    header = scan.parse_header(data)
    assert header is not None
    rng = random.Random(3)
    body = struct.pack("<10I", 0x504E5342, 2, 1, 4, count, 0, 0, 1_700_000_000, 0, 4) + b"\x01\x01t"
    body += b"".join(struct.pack("<IIQQqq", 0, each, 0, 9, 0, 0) for each in range(4))
    for number in range(count):
        row = (rng.randbytes(16), 0, 2 + number % 2, 1, 0, 7, 8, 1_700_000_000_000_000)
        body += struct.pack("<16sIIIIQQq", *row)
    return [group_of(header, body)]


def group_of(header: scan.GroupHeader, body: bytes) -> tuple[Any, bytes]:
    """A GEN_START with this state."""
    size = -(-(GROUP_HEADER_BYTES + len(body)) // 4096) * 4096
    made = header._replace(
        body_bytes=len(body), group_bytes=size, body_crc=scan.crc32c(body), blank_sectors=0
    )
    packed = scan._HEADER.pack(*made)
    crc = scan.crc32c(packed[: scan._CRC_AT])
    packed = packed[: scan._CRC_AT] + struct.pack("<I", crc)
    head = r.GroupHead(made.gseq, made.prev_crc, crc, size)
    return head, (packed + body).ljust(size, b"\0")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gid": Gid(GID.token, Epoch(9))}, "it is not known here that"),
        ({"gid": Gid(GID.token, Epoch(3))}, "it is not known here that"),
        ({"gid": Gid(GID.token + 1, GID.epoch)}, "no groups of"),  # type: ignore[arg-type]
        ({"tail": 59}, "has ended with group 60"),
        ({"tail": 61}, "has ended with group 60"),
        ({"session": 1}, "is another one here"),
        ({"first": 3, "slices": 2}, "other slices"),
        ({"first": 4, "slices": 1}, "other slices"),
        ({"slices": 2**32 - 1}, "no number of slices"),
    ],
)
def test_what_is_not_there_is_refused_in_words(
    tmp_path: Path, groups: Groups, changes: dict[str, Any], words: str
) -> None:
    async def test(follower: Follower, asker: Asker, wire: Wire, tail: int) -> None:
        wire.send(dataclasses.replace(ASK, **{"tail": tail, **changes}))
        async with asyncio.timeout(10):
            while not wire.heard:
                await asyncio.sleep(0.001)
        (said,) = wire.heard
        assert isinstance(said, r.NoState) and words in said.reason
        assert to_map(said)["reason"].isprintable()

    asking(tmp_path, groups, test)


@pytest.mark.parametrize("lie", ["header", "bytes", "order", "size", "slices", "state"])
def test_a_lie_is_not_taken(
    tmp_path: Path, groups: Groups, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else gives it: the core has nothing, and the words say what was wrong."""
    monkeypatch.setattr(module, "STATE_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(module, "STATE_ANSWER_SECONDS", 0.5)
    crc = groups[-1][0].header_crc
    words = {
        "header": "its group 60 is another one",
        "bytes": "the parts are not what was sent",
        "order": "no answer",
        "size": "is too large for this broker",
        "slices": "no answer",
        "state": "it is no state",
    }[lie]

    def spoil(message: r.Message, data: bytearray) -> r.Message:
        if not isinstance(message, r.StatePiece):
            return message
        if lie in ("bytes", "state"):
            data[40 if lie == "state" else 100] ^= 0xFF
        sum_ = scan.crc32c(data) if lie == "state" else message.crc
        changes: dict[str, Any] = {
            "header": {"header_crc": crc ^ 1},
            "order": {"at": 1},
            "size": {"total": 2**32 - 1},
            "slices": {"first": 0},
            "state": {"crc": sum_},
            "bytes": {},
        }[lie]
        return dataclasses.replace(message, **changes)

    async def test(follower: Follower, asker: Asker, wire: Wire, tail: int) -> None:
        wire.spoil = spoil
        with pytest.raises(NotReadyError, match="Nobody gives the state") as told:
            await asker.states.fetch(GID.epoch, tail, crc)
        assert words in str(told.value)
        assert asker.core.streams() == []
        wire.spoil = lambda message, data: message
        assert await asker.states.fetch(GID.epoch, tail, crc) == expected(groups, MINE)

    asking(tmp_path, groups, test)


def test_who_has_damage_in_its_log_asks_the_others(tmp_path: Path, groups: Groups) -> None:
    """And who lacks its end: the state comes at once, the groups beside."""

    async def test(follower: Follower, asker: Asker, wire: Wire, tail: int) -> None:
        source, target = follower.store._shard, asker.store._shard
        name = layout.generation_path(source, GID.epoch).name
        (target / name).mkdir()
        for index in layout.segment_indexes(source, GID.epoch)[:-1]:
            data = layout.segment_path(source, GID.epoch, index).read_bytes()
            layout.segment_path(target, GID.epoch, index).write_bytes(data)
        asker.store.lineage.opened(GID.epoch, SESSION, [])
        asker.store.repair_from(Helpless())
        await asker.store.restore_state([(GID.epoch, tail)])
        assert sorted(asker.core.streams()) == sorted(follower.reactor.streams())

    asking(tmp_path, groups, test, range(4))


class Helpless:
    """Nobody who could be asked for groups."""

    def members(self, epoch: int) -> list[int]:
        return []

    async def fetch(self, member: int, epoch: int, first: int, last: int) -> list[bytearray]:
        return []


def test_one_answer_at_a_time_for_a_peer(tmp_path: Path, groups: Groups) -> None:
    """It asks again and again: the last one counts, and one log is read for all."""

    async def test(follower: Follower, asker: Asker, wire: Wire, tail: int) -> None:
        made = 0
        state_at = follower.store.state_at

        async def counted(epoch: int, slices: range) -> Any:
            nonlocal made
            made += 1
            return await state_at(epoch, slices)

        follower.store.state_at = counted  # type: ignore[method-assign]
        for _ in range(50):
            await follower.send(C, dataclasses.replace(ASK, tail=tail))
        async with asyncio.timeout(10):
            while not wire.heard:
                await asyncio.sleep(0.001)
        await follower.rest()
        assert made == 1 and 1 <= len(wire.heard) <= 50
        wire.heard.clear()
        await follower.send(C, dataclasses.replace(ASK, tail=tail))  # Later, once more.
        await follower.rest()
        assert made == 1 and len(wire.heard) == 1
        await follower.send(C, dataclasses.replace(ASK, tail=tail, first=0))
        await follower.rest()
        assert made == 2, "that is another one"

    asking(tmp_path, groups, test)
