"""The state of a generation that has ended, asked of who has it over real sockets.

B has followed to the end, on real files; the test plays C, who asks, with a real store and core of
two of B's four slices: the second child of a split.
"""

import asyncio
import random
import struct
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest
from asked import asking, expected
from asker import ASK, ASK_SLICES, MINE, PEER_A, PEER_B, Answering, Asker
from following import (
    GID,
    SESSION,
    Follower,
)
from leading import Groups, lead, sent_group

from barco._native import state_cut
from barco.errors import NotReadyError, RequestError
from barco.limits import GROUP_HEADER_BYTES, STATE_ANSWER_SECONDS, STATE_PART_BYTES
from barco.model.generation import Gid, GroupHead, Parent
from barco.model.ranges import peer_of
from barco.types import Epoch, Ordinal, Token
from barco.workers.replication import states as module
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import open_bulk
from barco.workers.storage.index import scan
from barco.workers.storage.stores.recovery import pack_parents


@pytest.fixture(scope="module")
def groups() -> Groups:
    """Over three segments."""
    return lead(60, 60_000)


def test_a_child_begins_with_the_state_of_its_slices(tmp_path: Path, groups: Groups) -> None:
    """As GEN_START, by way of its own store and core, which have never seen a group."""

    async def test(follower: Follower, asker: Asker, answering: Answering, tail: int) -> None:
        await asker.store.restore_state([Parent(GID, tail)])
        whole = follower.reactor
        assert sorted(asker.core.streams()) == sorted(s for s in whole.streams() if s[1] in MINE)
        offsets = {(k, v) for k, v in whole.compacted("__offsets") if int(k[-1:]) in MINE}
        assert set(asker.core.compacted("__offsets")) == offsets and len(offsets) == 2
        assert asker.core.compacted("__topics") == whole.compacted("__topics") != []
        assert answering.answers[-1]["sums"][2] == groups[-1][0].header_crc
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


def test_a_join_begins_with_the_union_of_both(tmp_path: Path, groups: Groups) -> None:
    """Each parent gives what comes of it, and no more."""

    async def test(follower: Follower, asker: Asker, answering: Answering, tail: int) -> None:
        asked: list[tuple[int, int]] = []
        real = answering.gives

        async def gives(args: Any) -> Any:
            asked.append((args["token"], args["first"]))
            return await real({**args, "token": GID.token})

        answering.gives = gives
        taken = Parent(Gid(Token(GID.token + 77), Epoch(2)), tail)
        await asker.store.restore_state([Parent(GID, tail), taken], [range(2), range(2, 4)])
        assert sorted(asker.core.streams()) == sorted(follower.reactor.streams())
        assert asker.core.shard_slices() == (0, 4)
        assert set(asked) == {(GID.token, 0), (taken.gid.token, 2)}
        with pytest.raises(NotReadyError, match="joined"):
            await asker.store.restore_state([Parent(GID, tail), taken], [range(1), range(2, 4)])

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

    async def test(follower: Follower, asker: Asker, answering: Answering, tail: int) -> None:
        async with asyncio.timeout(20):
            while follower.store.epoch == GID.epoch:
                await asyncio.sleep(0.001)
        monkeypatch.setattr(layout, "segment_indexes", with_one_more)
        assert (await follower.store.state_at(GID.epoch, tail, MINE)).state == expected(
            groups, MINE
        )

    asking(tmp_path, groups, test)


def test_it_comes_in_parts(tmp_path: Path) -> None:
    """With 40,000 producers: more than fits into one, and the loop goes on meanwhile."""

    async def test(follower: Follower, asker: Asker, answering: Answering, tail: int) -> None:
        turns, state = 0, expected(many, MINE)
        task = asyncio.get_running_loop().create_task(asker.states.fetch(GID, tail, None))
        while not task.done():
            await asyncio.sleep(0)
            turns += 1
        assert await task == state and len(state) > 4 * STATE_PART_BYTES
        parts = [len(each["part"]) for each in answering.answers if each["part"]]
        assert len(parts) > 4 and max(parts) == STATE_PART_BYTES
        assert turns > 20

    many = with_producers(40_000)
    asking(tmp_path, many, test)


def test_parts_of_two_states_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STATE_WAIT_SECONDS", 0.0)

    def spoil(answer: dict[str, Any], args: Mapping[str, Any]) -> None:
        if args["at"] > 0:
            answer["sums"] = [answer["sums"][0], answer["sums"][1] ^ 1, answer["sums"][2]]

    async def test(follower: Follower, asker: Asker, answering: Answering, tail: int) -> None:
        answering.spoil = spoil
        with pytest.raises(NotReadyError, match="the parts are not of one state"):
            await asker.states.fetch(GID, tail, None)

        answering.spoil = lambda answer, args: None
        assert await asker.states.fetch(GID, tail, None) == expected(many, MINE)

    many = with_producers(20_000)
    asking(tmp_path, many, test)


def test_who_sends_a_state_too_slowly_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part in time, and all of them never: a child would wait for one that lies."""
    monkeypatch.setattr(module, "STATE_WAIT_SECONDS", 0.0)
    monkeypatch.setattr(module, "BYTES_A_SECOND", 2**40)

    async def test(follower: Follower, asker: Asker, answering: Answering, tail: int) -> None:
        gives = answering.gives
        assert gives is not None

        async def slowly(args: Mapping[str, Any]) -> Any:
            await asyncio.sleep(0.8 * (args["size"] > 0))
            return await gives(args)

        answering.gives = slowly
        monkeypatch.setattr(module, "STATE_ANSWER_SECONDS", 2.0)
        with pytest.raises(NotReadyError, match="too slowly"):
            await asker.states.fetch(GID, tail, None)

    asking(tmp_path, with_producers(20_000), test)


GID9 = Gid(GID.token, Epoch(9))


def test_two_say_the_same_or_only_one_has_it(
    tmp_path: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that lies can not change what a child begins with."""
    monkeypatch.setattr(module, "STATE_WAIT_SECONDS", 0.0)
    state, lie = expected(groups, MINE), expected(groups[:-1], MINE)

    def giving(given: bytes | None) -> Callable[[Mapping[str, Any]], Coroutine[Any, Any, Any]]:
        async def give(args: Mapping[str, Any]) -> dict[str, Any]:
            assert (args["epoch"], args["tail"], args["session"]) == (9, 60, SESSION)
            if given is None:
                raise NotReadyError("it is not here")
            part = given[args["at"] :][: args["size"]]
            return {"sums": [len(given), scan.crc32c(given), 7], "part": part}

        return give

    async def main() -> None:
        bulk = open_bulk("threads")
        others = {peer: Answering(tmp_path / f"{peer}.rpc") for peer in (PEER_A, PEER_B)}
        for other in others.values():
            await other.server.start(other.path)
        asker = Asker(tmp_path, bulk, others)
        await asker.start()
        for first, second in ((state, state), (None, state), (state, None)):
            others[PEER_A].gives, others[PEER_B].gives = giving(first), giving(second)
            assert await asker.states.fetch(GID9, 60, None) == state
        others[PEER_A].gives, others[PEER_B].gives = giving(lie), giving(state)
        with pytest.raises(NotReadyError, match="the others have another state"):
            await asker.states.fetch(GID9, 60, None)
        monkeypatch.setattr(module, "STATE_WAIT_SECONDS", 10.0)
        asked = asyncio.create_task(asker.states.fetch(GID9, 60, None))
        others[PEER_B].gives = giving(None)  # It has just learned of the end: the lie waits for it.
        await asyncio.sleep(0.2)
        others[PEER_A].gives = others[PEER_B].gives = giving(state)
        assert await asked == state
        monkeypatch.setattr(module, "STATE_WAIT_SECONDS", 0.0)
        await others[PEER_A].server.close()  # Who is away has no word.
        assert await asker.states.fetch(GID9, 60, None) == state
        await others[PEER_B].server.close()
        await asker.close()
        bulk.close()

    asyncio.run(main())


def test_who_learns_of_the_end_late_is_asked_again_at_once(tmp_path: Path, groups: Groups) -> None:
    """Although a third one has not answered: it is stopped, or busy."""
    state, asked_first = expected(groups, MINE), asyncio.Event()

    async def give(args: Mapping[str, Any]) -> dict[str, Any]:
        part = state[args["at"] :][: args["size"]]
        return {"sums": [len(state), scan.crc32c(state), 7], "part": part}

    async def late(args: Mapping[str, Any]) -> dict[str, Any]:
        if not asked_first.is_set():
            asked_first.set()
            raise NotReadyError("it is not here")
        return await give(args)

    async def never(args: Mapping[str, Any]) -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        bulk, peer_d = open_bulk("threads"), peer_of((Ordinal(3), 0))
        others = {at: Answering(tmp_path / f"{at}.rpc") for at in (PEER_A, PEER_B, peer_d)}
        for other, gives in zip(others.values(), (never, late, give), strict=True):
            other.gives = gives
            await other.server.start(other.path)
        asker = Asker(tmp_path, bulk, others)
        await asker.start()
        async with asyncio.timeout(STATE_ANSWER_SECONDS / 2):
            assert await asker.states.fetch(GID9, 60, None) == state
        assert len(others[PEER_A].asked) == 1
        await asker.close()
        for other in others.values():
            await other.server.close()
        bulk.close()

    asyncio.run(main())


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
    head = GroupHead(made.gseq, made.prev_crc, crc, size)
    return head, (packed + body).ljust(size, b"\0")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"epoch": 9}, "it is not known here that"),
        ({"epoch": 3}, "it is not known here that"),
        ({"token": GID.token + 1}, "no groups of"),
        ({"tail": 59}, "has ended with group 60"),
        ({"tail": 61}, "has ended with group 60"),
        ({"session": 1}, "is another one here"),
        ({"first": 3, "slices": 2}, "other slices"),
        ({"first": 4, "slices": 1}, "other slices"),
        ({"slices": 2**32 - 1}, "no number of slices"),
        ({"slices": 2**32}, "slices is no number"),
        ({"slices": 0}, "slices is no number"),
        ({"tail": 0}, "tail is no number"),
        ({"token": "0"}, "token is no number"),
        ({"at": -1}, "at is no number"),
        ({"size": STATE_PART_BYTES + 1}, "size is no number"),
        ({"size": True}, "size is no number"),
    ],
)
def test_what_is_not_there_is_refused_in_words(
    tmp_path: Path, groups: Groups, changes: dict[str, Any], words: str
) -> None:
    async def test(follower: Follower, asker: Asker, answering: Answering, tail: int) -> None:
        args = {**ASK, "tail": tail, **changes}
        with pytest.raises((NotReadyError, RequestError), match=words):
            await asker.siblings.call(PEER_B, "state", args)

    asking(tmp_path, groups, test)


@pytest.mark.parametrize("lie", ["header", "bytes", "long", "size", "sums", "state", "nothing"])
def test_a_lie_is_not_taken(
    tmp_path: Path, groups: Groups, lie: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else gives it: the core has nothing, and the words say what was wrong."""
    monkeypatch.setattr(module, "STATE_WAIT_SECONDS", 0.0)
    crc = groups[-1][0].header_crc
    words = {
        "header": "its group 60 is another one",
        "bytes": "the parts are not what was sent",
        "long": "more of a state than was asked for",
        "size": "is too large for this broker",
        "sums": "a state with strange sums",
        "state": "it is no state",
        "nothing": "a state without a part",
    }[lie]

    def spoil(answer: dict[str, Any], args: Mapping[str, Any]) -> None:
        total, sum_, header = answer["sums"]
        part = bytearray(answer["part"])
        if lie in ("bytes", "state") and part:
            part[40 if lie == "state" else 100] ^= 0xFF
        if lie == "state":
            bad = bytearray(expected(groups, MINE))
            bad[40] ^= 0xFF
            sum_ = scan.crc32c(bad)
        answer["part"] = None if lie == "nothing" else bytes(part) + b"x" * (lie == "long")
        answer["sums"] = {
            "header": [total, sum_, crc ^ 1],
            "size": [2**32 - 1, sum_, header],
            "sums": [-1, sum_, header],
        }.get(lie, [total, sum_, header])

    async def test(follower: Follower, asker: Asker, answering: Answering, tail: int) -> None:
        answering.spoil = spoil
        with pytest.raises(NotReadyError, match="Nobody gives the state") as told:
            await asker.states.fetch(GID, tail, crc)
        assert words in str(told.value)
        assert asker.core.streams() == []
        answering.spoil = lambda answer, args: None
        assert await asker.states.fetch(GID, tail, crc) == expected(groups, MINE)

    asking(tmp_path, groups, test)


def test_who_has_damage_in_its_log_asks_the_others(tmp_path: Path, groups: Groups) -> None:
    """And who lacks its end: the state comes at once, the groups beside."""

    async def test(follower: Follower, asker: Asker, answering: Answering, tail: int) -> None:
        source, target = follower.store._shard, asker.store._shard
        name = layout.generation_path(source, GID.epoch).name
        (target / name).mkdir()
        for index in layout.segment_indexes(source, GID.epoch)[:-1]:
            data = layout.segment_path(source, GID.epoch, index).read_bytes()
            layout.segment_path(target, GID.epoch, index).write_bytes(data)
        asker.store.lineage.opened(GID.epoch, SESSION, [])
        asker.store.repair_from(Helpless())
        await asker.store.restore_state([Parent(GID, tail)])
        assert sorted(asker.core.streams()) == sorted(follower.reactor.streams())

    asking(tmp_path, groups, test, range(4))


class Helpless:
    """Nobody who could be asked for groups."""

    def members(self, epoch: int) -> list[int]:
        return []

    async def fetch(self, member: int, epoch: int, first: int, last: int) -> list[bytearray]:
        return []
