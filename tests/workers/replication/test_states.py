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
from following import (
    GID,
    SEGMENT_BYTES,
    SESSION,
    SUBJECT,
    UUID,
    A,
    C,
    Follower,
    follow,
)
from leading import Groups, lead, sent_group

from barco._native import Reactor, ShardState, state_cut
from barco.errors import BarcoError, NotReadyError
from barco.limits import GROUP_HEADER_BYTES, STATE_PART_BYTES
from barco.model.generation import Generation, Gid, Kind, Parent, Successor
from barco.protocol import replication as r
from barco.protocol.replication_codec import to_map
from barco.types import Epoch
from barco.workers.replication import states as module
from barco.workers.replication.states import States
from barco.workers.replication.wire import HEAD, decode
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import BulkIo, open_bulk
from barco.workers.storage.index import scan
from barco.workers.storage.stores.recovery import pack_parents
from barco.workers.storage.stores.replicas import ReplicaStore
from barco.workers.storage.stores.retention import Policy

MINE = range(2, 4)
ASK_SLICES = MINE.start, len(MINE)
ASK = r.AskState(GID, 0, *ASK_SLICES, SESSION)


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


class Wire:
    """C's link to B: what C says goes over its connection, what B says is given to C's `States`."""

    connected = True

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.states: States
        self.kept = b""
        self.heard: list[r.Message] = []
        self.spoil: Callable[[r.Message, bytearray], r.Message] = lambda message, _: message
        self.sending: set[asyncio.Task[None]] = set()

    def send(self, message: r.Message) -> bool:
        task = asyncio.get_running_loop().create_task(self.follower.send(C, message))
        self.sending.add(task)
        return True

    async def carry(self) -> None:
        """What B says to C, for as long as the test goes on."""
        loop, end = asyncio.get_running_loop(), self.follower.heard[C.ordinal]
        end.setblocking(False)
        while data := await loop.sock_recv(end, 1 << 20):
            self.kept += data
            while len(self.kept) >= HEAD.size:
                length, beside = HEAD.unpack_from(self.kept)
                if len(self.kept) < HEAD.size + length + beside:
                    break
                message = decode(self.kept[HEAD.size : HEAD.size + length])
                body = bytearray(self.kept[HEAD.size + length :][:beside])
                self.kept = self.kept[HEAD.size + length + beside :]
                if isinstance(message, r.OF_STATES):
                    self.heard.append(message)
                    message = self.spoil(message, body)
                    self.states.heard(1, message, body if beside else None)


def core_of(slices: range) -> Reactor:
    return Reactor(
        arena_bytes=8 << 20,
        request_bytes_max=1 << 20,
        event_bytes_max=1 << 18,
        slices=4,
        slice_first=slices.start,
        slice_last=slices.stop - 1,
        cluster_uuid=UUID,
        session=2,
    )


class Asker:
    """C, who is to lead slices that B's generation had, and has nothing of it."""

    def __init__(self, root: Path, bulk: BulkIo, wire: Wire, slices: range = MINE) -> None:
        self.core = core_of(slices)
        shard = layout.range_path(root / "asker", 0)
        shard.mkdir(parents=True)
        self.told: list[BarcoError] = []
        self.store = ReplicaStore(
            shard,
            bulk,
            cluster_uuid=UUID,
            token=GID.token,
            segment_bytes=SEGMENT_BYTES,
            policy=Policy(0, 0),
            on_error=self.told.append,
        )
        links: Any = {1: wire}
        self.states = wire.states = States(
            links,
            GID.token,
            self.core,
            self.store,
            lambda gid: None,
            lambda gid: SESSION,
            4 << 20,
            lambda reason: self.told.append(NotReadyError(reason)),
        )

    async def start(self) -> None:
        await self.store.recover(self.core)
        self.store.states = self.states

    async def close(self) -> None:
        await self.states.close()
        await self.store.close()
        self.core.close()


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

    asking(tmp_path, with_producers(20_000), test)


def test_a_replica_asks_over_its_own_connections(tmp_path: Path, groups: Groups) -> None:
    """The other way round: B asks, A gives nothing, C gives it."""
    state = expected(groups, range(4))
    gid = Gid(GID.token, Epoch(9))

    async def test(follower: Follower) -> None:
        states = follower.driver._states
        task = asyncio.get_running_loop().create_task(states.fetch(gid.epoch, 60, 7))
        asked: dict[int, r.AskState] = {}
        async with asyncio.timeout(20):
            while not task.done():
                follower.listen()
                for ordinal, message in follower.said:
                    if isinstance(message, r.AskState) and ordinal not in asked:
                        asked[ordinal] = message
                        names = (message.gid, message.tail, message.first, message.slices)
                        if ordinal == A.ordinal:
                            await follower.send(A, r.NoState(*names, "it is not here"))
                            continue
                        sums = (len(state), scan.crc32c(state), 7)
                        half = len(state) // 2
                        for at, part in ((0, state[:half]), (half, state[half:])):
                            piece = r.StatePiece(*names, at, len(part), *sums)
                            await follower.send(C, piece, part)
                follower.said.clear()
                await asyncio.sleep(0.001)
        assert await task == state and not follower.fatal
        assert asked[0] == asked[2] == r.AskState(gid, 60, 0, 4, 0)
        # What was not asked for is passed over; a part of another length ends the connection.
        await follower.send(A, r.StatePiece(gid, 60, 0, 4, 0, 5, 5, 1, 2), b"12345")
        await follower.rest()
        assert A.ordinal in {each.sender.ordinal for each in follower.driver._inputs._open.values()}
        await follower.send(A, r.StatePiece(gid, 60, 0, 4, 0, 5, 5, 1, 2), b"1234")
        await follower.rest()
        assert A.ordinal not in {
            each.sender.ordinal for each in follower.driver._inputs._open.values()
        }

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
        "order": "the parts are not of one state",
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
