"""Generations that are elsewhere: real files at those who hold them, asked over real sockets."""

import asyncio
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from barco._native import chunks_scan
from barco.cluster.state.kin import TOKEN_END
from barco.errors import BarcoError, CorruptDataError, NotReadyError
from barco.limits import OFFSET_MAX, POLL_BYTES_MAX
from barco.model.generation import Generation, Gid, Identity, Kind, Parent, Successor
from barco.model.ranges import process_of
from barco.protocol.replication import DecidedRecord
from barco.protocol.replication_codec import to_map
from barco.types import Epoch, Ordinal, Token
from barco.workers.operations.handovers import look_for_children
from barco.workers.operations.holding import Holding
from barco.workers.peers.agreed import ANSWER_SECONDS

sys.path.insert(0, str(Path(__file__).parent))
from historylab import EACH, STREAM, Scene, ancestor, builder, scene


def test_the_parents_events_come_first_and_are_read_ahead(root: Path) -> None:
    async def test(scene: Scene) -> None:
        holder, other = await scene.hold(2), await scene.hold(2)
        await scene.own(3, far=(ancestor(2),))
        assert await scene.offsets() == list(range(2 * EACH))
        assert await scene.offsets(100) == list(range(99, 2 * EACH)), "from its chunk on"
        assert await scene.offsets(size=1 << 20) == list(range(2 * EACH))
        assert await scene.offsets(raw=100) == list(range(2 * EACH))
        assert holder.store.reader.read_ahead_hits > 10, (
            "one of them is asked, as long as it answers"
        )
        assert {each["what"] for each in other.asked} == {"line", "sum"}
        assert scene.store.reader.disk_bytes > 0
        assert await scene.reader.earliest(*STREAM) == 0
        read = await holder.store.reader.read(*STREAM, 33, 1)
        time_us = chunks_scan(bytes(read.chunks[0]))[0][8]
        assert await scene.reader.by_timestamp(*STREAM, time_us) in range(33, 36)

    scene(root, test)


def test_nothing_of_a_child_is_given_before_its_parents(root: Path) -> None:
    """E7: where nobody can be asked it is not known whether there is something."""

    async def test(scene: Scene) -> None:
        holder = await scene.hold(2)
        await scene.own(3, far=(ancestor(2),))
        await holder.server.close()
        for call in (
            scene.reader.read(*STREAM, 0, 1000),
            scene.reader.earliest(*STREAM),
            scene.reader.by_timestamp(*STREAM, 0),
            scene.extents.since(*STREAM, 0),
            scene.extents.within(*STREAM, 1 << 40),
        ):
            with pytest.raises(NotReadyError, match="who hold"):
                await call
        assert await scene.offsets(EACH) == list(range(EACH, 2 * EACH)), "what is here is"
        # Who never had all of it can not say that there is nothing.
        await scene.siblings.close()
        scene.holders.append(await scene.hold(3))
        with pytest.raises(NotReadyError, match="who hold"):
            await scene.reader.read(*STREAM, 0, 1000)
        scene.holders.pop()

    scene(root, test)


def test_a_stopped_holder_costs_one_short_wait(root: Path) -> None:
    """Of a process that is stopped the kernel goes on to take calls, and nobody reads them."""

    async def test(scene: Scene) -> None:
        stopped, fine, _ = [await scene.hold(2) for _ in range(3)]
        await scene.own(3, far=(ancestor(2, (0, 1, 2)),))
        time, peers = asyncio.get_running_loop().time, sorted(scene.paths)
        with socket.socket(socket.AF_UNIX) as listener:
            scene.paths[peers[0]] = stopped.path + ".stopped"
            listener.bind(scene.paths[peers[0]])
            listener.listen()
            began = time()
            assert await scene.offsets() == list(range(2 * EACH))
            assert time() - began < ANSWER_SECONDS / 2 and fine.asked and not stopped.asked
            assert scene.history._agreed.order(peers) == [*peers[1:], peers[0]], "it comes last"

    scene(root, test)


def test_what_retention_has_removed_is_passed_over(root: Path) -> None:
    async def test(scene: Scene) -> None:
        holder = await scene.hold(2, gone=2)
        await scene.own(3, far=(ancestor(2),))
        assert await scene.offsets() == list(range(EACH // 2, 2 * EACH))
        assert await scene.reader.earliest(*STREAM) == EACH // 2
        holder.store.lineage.expired(2)
        for segment in holder.store._catalog.segments():
            holder.store._catalog.remove(segment.key)
        assert await scene.offsets() == list(range(EACH, 2 * EACH))
        assert await scene.reader.earliest(*STREAM) == EACH

    scene(root, test)


def test_of_what_two_say_is_gone_nobody_is_asked_any_more(root: Path) -> None:
    """So nobody has to stay who has had it: else readers would wait for those for ever."""

    async def test(scene: Scene) -> None:
        old, other, never = [await scene.hold(*epochs) for epochs in ((2,), (2,), (3,))]
        await scene.own(4, far=(ancestor(2),))
        noted = list[Gid]()

        def note(gid: Gid) -> None:
            scene.store.lineage.gone(gid)
            noted.append(gid)

        await scene.history.look_for_gone(note)
        old.store.lineage.expired(2)
        await scene.history.look_for_gone(note)
        assert not noted, "one alone may be wrong"
        other.store.lineage.expired(2)
        await scene.history.look_for_gone(note)
        assert noted == [ancestor(2).gid]
        for holder in (old, other, never):
            holder.asked.clear()
        await scene.history.look_for_gone(note)
        for holder in (old, other, never):
            await holder.server.close()
        await scene.siblings.close()
        assert await scene.offsets(2 * EACH) == list(range(2 * EACH, 3 * EACH))
        assert await scene.reader.earliest(*STREAM) == 2 * EACH
        assert await scene.offsets() == list(range(2 * EACH, 3 * EACH)), "nothing was before"
        assert scene.history.between(0, 1, 4), "and what was there is no hole"
        assert len(noted) == 1 and not (old.asked or other.asked or never.asked)

    scene(root, test)


def test_who_has_noted_it_may_be_asked_and_a_copy_that_is_left_may_go(root: Path) -> None:
    """Of whoever comes later a fellow of its range is asked, when those who had it have gone."""

    async def test(scene: Scene) -> None:
        fellow, other, wrong = [await scene.hold(3) for _ in range(3)]
        await scene.own(4, far=(ancestor(2),))
        noted, left = list[Gid](), [ancestor(3)]
        fellow.store.lineage.gone((builder.TOKEN, 2))
        wrong.store.lineage.gone((builder.TOKEN + 1, 2))
        await scene.history.look_for_gone(noted.append, left)
        assert not noted
        other.store.lineage.gone((builder.TOKEN, 2))
        await scene.history.look_for_gone(noted.append, left)
        assert noted == [ancestor(2).gid]
        for each in (other, wrong):
            each.store.lineage.expired(3)
        wrong.spoil = lambda answer: {"gone": 1}
        await scene.history.look_for_gone(noted.append, left)
        assert ancestor(3).gid not in noted
        wrong.spoil = lambda answer: answer
        await scene.history.look_for_gone(noted.append, left)
        assert ancestor(3).gid in noted, "the own remnant as well"

    scene(root, test)


def test_a_line_is_followed_from_holder_to_holder(root: Path) -> None:
    """The parent's holder has never had the grandparent's groups, and says who has."""

    async def test(scene: Scene) -> None:
        first = await scene.hold(2)
        await scene.hold(3, far=(ancestor(2, (0,)),))
        await scene.own(4, far=(ancestor(3, (1,)),))
        assert await scene.offsets() == list(range(3 * EACH))
        await scene.history.look()
        assert [each.gid.epoch for each in scene.history.known()] == [3, 2]
        assert sum(each["what"] == "line" for holder in scene.holders for each in holder.asked) == 4
        await first.server.close()
        await scene.siblings.close()
        with pytest.raises(NotReadyError, match="who hold"):
            await scene.reader.read(*STREAM, 0, 1000)

    scene(root, test)


def test_times_and_sizes_count_what_is_elsewhere(root: Path) -> None:
    async def test(scene: Scene) -> None:
        await scene.hold(2)
        await scene.own(3, far=(ancestor(2),))
        here, _ = await scene.store.extents.splits(*STREAM, 0, 1)
        there, _ = await scene.holders[0].store.extents.splits(*STREAM, 0, 1)
        assert await scene.extents.since(*STREAM, 0) == 0
        assert await scene.extents.within(*STREAM, here // 2) in range(EACH + 1, 2 * EACH)
        kept = await scene.extents.within(*STREAM, here + there // 2)
        assert kept in range(EACH // 3, 2 * EACH // 3)
        assert await scene.extents.within(*STREAM, here + there) == 0
        total, cuts = await scene.extents.splits(*STREAM, 0, 1)
        assert total == here + there > sum(size for _, size in cuts) > total * 9 // 10
        offsets = [at for at, _ in cuts]
        assert offsets == sorted(set(offsets)) and EACH in offsets and offsets[0] == 3
        total, cuts = await scene.extents.splits(*STREAM, 0, 1 << 40)
        assert total == here + there and cuts == [(EACH, there)]
        assert (await scene.extents.splits(*STREAM, EACH, 1 << 40)) == (here, [])

    scene(root, test)


@pytest.mark.parametrize("lie", ["other", "beyond", "cut", "bits", "end", "epoch", "none", "list"])
def test_an_answer_that_is_none_is_not_taken(root: Path, lie: str) -> None:
    """Then the next holder is asked; and if there is none, nothing is given."""

    async def test(scene: Scene) -> None:
        liar, _ = await scene.hold(2), await scene.hold(2)
        await scene.own(3, far=(ancestor(2),))
        whole = await scene.holders[1].store.reader.read(*STREAM, 9, 500)
        another = builder.chunk("a", 0, 0, count=9)

        def spoil(answer: dict[str, Any]) -> Any:
            if "chunks" not in answer:
                return answer
            chunks = answer["chunks"]
            flipped = bytes([chunks[0], chunks[1] ^ 1, *chunks[2:]])
            changes: dict[str, Any] = {
                "other": {"chunks": another, "end": 9},
                "beyond": {"chunks": b"".join(whole.chunks), "end": whole.next_offset},
                "cut": {"chunks": chunks[:-8]},
                "bits": {"chunks": flipped},
                "end": {"end": answer["end"] + 3},
                "epoch": {"epoch": 3},
                "none": {"chunks": None},
            }
            return [answer] if lie == "list" else {**answer, **changes[lie]}

        liar.spoil = spoil
        assert await scene.offsets(size=500) == list(range(2 * EACH))
        assert any(each["what"] == "read" for each in liar.asked)
        scene.holders[1].spoil = spoil
        scene.history._good.clear()
        with pytest.raises((CorruptDataError, NotReadyError)):
            await scene.reader.read(*STREAM, 0, 500)

    scene(root, test)


LINES = {
    "younger": [[builder.TOKEN, 2, 28, TOKEN_END, [0]]],
    "many members": [[builder.TOKEN, 1, 28, TOKEN_END, [0, 1, 2, 3]]],
    "no list": {"a": 1},
    "short": [[builder.TOKEN, 1, 28]],
    "no range": [[builder.TOKEN, 1, 28, builder.TOKEN, [0]]],
    "too many": [[builder.TOKEN, 1, 28, TOKEN_END, [0]]] * 65,
}


@pytest.mark.parametrize("case", LINES)
def test_a_line_that_is_none_is_not_followed(root: Path, case: str) -> None:
    async def test(scene: Scene) -> None:
        (await scene.hold(2)).spoil = lambda answer: {"line": LINES[case]}
        await scene.own(3, far=(ancestor(2),))
        with pytest.raises(NotReadyError, match=r"an ancestor that is none|a line of ancestors"):
            await scene.reader.read(*STREAM, 0, 500)

    scene(root, test)


def test_what_is_asked_has_bounds(root: Path) -> None:
    async def test(scene: Scene) -> None:
        holder = await scene.hold(2)
        await scene.own(3, far=(ancestor(2),))
        good = {"token": builder.TOKEN, "epoch": 2, "tail": 28, "what": "read", "topic": "b.c"}
        good |= {"slice": 0, "from": 0, "bytes": 1, "stop": OFFSET_MAX, "columns": -1}
        ask = holder.holding.operations["history"]
        assert (await ask(good))["end"] == 3, "at least one chunk"
        assert await ask({**good, "epoch": 3}) == {"never": True}
        for changes in (
            {"token": builder.TOKEN + 1},
            {"epoch": 0},
            {"tail": 27},
            {"what": "all"},
            {"topic": ""},
            {"topic": "x" * 128},
            {"topic": b"b.c"},
            {"slice": -1},
            {"slice": 257},
            {"from": -1},
            {"from": 2**63},
            {"bytes": 0},
            {"bytes": POLL_BYTES_MAX + 1},
            {"raw": -1},
            {"columns": -2},
            {"stop": True},
        ):
            with pytest.raises(BarcoError):
                await ask({**good, **changes})

    scene(root, test)


def test_who_left_a_range_hears_that_it_goes_on(root: Path) -> None:
    """S8: else the last that it was a member of would be kept for good."""

    async def test(scene: Scene) -> None:
        token, has = builder.TOKEN, dict[int, bool]()
        await scene.own(2, 3, far=())
        store = scene.store
        member = Identity(Ordinal(1), bytes(16))
        gid, parents = Gid(Token(token), Epoch(4)), (Parent(ancestor(3).gid, 28),)
        moved = Successor(
            28, Kind.RELEAD, (Generation(gid, TOKEN_END, member, 9, (member,), parents),)
        )
        store.lineage.add_journal([(3, to_map(DecidedRecord(ancestor(3).gid, moved)))])
        assert store.moved_to(2) is None and store.moved_to(3) == (token, 4)

        class Voices:
            async def broadcast(self, op: str, args: Any, timeout: float) -> dict[int, Any]:
                assert op == "begun" and list(args.values()) == [{"token": token, "epoch": 4}] * 3
                return {peer: has.get(process_of(peer)[0], False) for peer in args}

        class Ranges:
            def processes_of_token(self, at: int) -> list[tuple[int, int]]:
                return [(each, 3) for each in range(3)]

            def members(self, at: int) -> tuple[int, ...]:
                return (0, 1, 2)

        parts: Any = (token, store, Ranges(), Voices())
        for voices, known in (((), False), ((1,), False), ((1, 2), True), ((), True)):
            has.clear()
            has.update(dict.fromkeys(voices, True))
            await look_for_children(*parts)
            assert store._continued(3) is known and store._continued(2)
        assert store.moved_to(3) is None, "it is not asked again"

    scene(root, test)


async def handed_off(scene: Scene) -> None:
    """Of what was handed over two brokers have to say that what took it in has begun; a single
    broker has nobody else."""
    token = builder.TOKEN
    members = {token: (0, 1, 2)}
    has: dict[int, bool] = {}

    class Voices:
        async def broadcast(self, op: str, args: Any, timeout: float) -> dict[int, Any]:
            assert op in ("taken", "begun")
            of_this = op == "taken" and {"token": token, "epoch": 2} in args.values()
            return {peer: of_this and has.get(process_of(peer)[0], False) for peer in args}

    class Ranges:
        def processes_of_token(self, at: int) -> list[tuple[int, int]]:
            return [(each, 3) for each in range(3)]

        def members(self, at: int) -> tuple[int, ...]:
            return members[at]

        def slice_at(self, at: int) -> int:
            return 5

        def of_slice(self, number: int) -> int:
            return token - 9

        def left_of(self, at: int, count: int) -> list[int]:
            return [at - 7]

    handed = DecidedRecord(ancestor(2).gid, Successor(28, Kind.HANDOFF, ()))
    scene.store.lineage.add_journal([(2, to_map(handed))])
    parts: Any = (token, scene.store, Ranges(), Voices())
    for words, brokers, known in (
        ({}, 3, False),
        ({1: True}, 3, False),
        ({1: True}, 1, True),
    ):
        has.clear()
        has.update(words)
        members[token] = tuple(range(brokers))
        await look_for_children(*parts)
        assert scene.store.lineage.elsewhere((token, 2))[None] is known


def test_a_parent_hears_that_its_child_has_begun(root: Path) -> None:
    """S8: of two that say so, once; before that its last generation stays."""

    async def test(scene: Scene) -> None:
        token, other = builder.TOKEN, builder.TOKEN + 5
        await scene.own(2, far=())
        member = Identity(Ordinal(0), bytes(16))
        children = tuple(
            Generation(Gid(Token(at), Epoch(3)), end, member, 9, (member,), (Parent(gid, 28),))
            for at, end, gid in (
                (token, other, ancestor(2).gid),
                (other, TOKEN_END, ancestor(2).gid),
            )
        )
        split = DecidedRecord(ancestor(2).gid, Successor(28, Kind.SPLIT, children))
        scene.store.lineage.add_journal([(2, to_map(split))])
        parent, child = (token, 2), (other, 3)
        has: dict[int, Any] = {}

        class Voices:
            """Three brokers with a process for the child."""

            async def broadcast(self, op: str, args: Any, timeout: float) -> dict[int, Any]:
                asked = {"token": other, "epoch": 3}
                assert op == "begun" and list(args.values()) == [asked] * 3
                return {peer: has.get(process_of(peer)[0]) for peer in args}

        class Ranges:
            def processes_of_token(self, at: int) -> list[tuple[int, int]]:
                return [(each, 3) for each in range(3)] if at == other else []

            def members(self, at: int) -> tuple[int, ...]:
                return (0, 1, 2)

        parts: Any = (token, scene.store, Ranges(), Voices())
        for words, known in (
            ({}, False),
            ({0: True}, False),
            ({0: True, 1: NotReadyError("away"), 2: "true"}, False),
            ({0: True, 2: True}, True),
            ({}, True),
        ):
            has.clear()
            has.update(words)
            await look_for_children(*parts)
            assert scene.store.lineage.elsewhere(parent) == {child: known}
        await handed_off(scene)
        # And what a child's process says of itself.
        begun = Holding(token, scene.store, lambda: ()).operations["begun"]
        assert await begun({"token": token, "epoch": 2}) is True
        assert await begun({"token": token, "epoch": 3}) is False
        assert await begun({"token": other, "epoch": 2}) is False

    scene(root, test)
