"""A depot: real files at those who hold history, asked over real sockets, and copied."""

import sys
from pathlib import Path
from typing import Any

import pytest

from barco._native import chunk_events, chunks_scan
from barco.cluster.ring.target import Target, TargetBroker
from barco.cluster.state.kin import TOKEN_END, Ancestor
from barco.errors import BarcoError, NotReadyError, ProtocolError
from barco.model.generation import Gid
from barco.model.ranges import peer_of
from barco.types import Epoch, Ordinal, Token
from barco.workers.operations.history import History
from barco.workers.operations.leaving import ended as ended_module
from barco.workers.operations.leaving.ended import (
    ask_ended,
    ask_group_part,
    believed,
    logs_of,
)
from barco.workers.peers.rpc import Siblings
from barco.workers.shard.whole import WholeReader
from barco.workers.storage.files import layout
from barco.workers.storage.index.catalog import SegmentKey

sys.path.insert(0, str(Path(__file__).parents[1] / "storage"))
sys.path.insert(0, str(Path(__file__).parent))
import builder
from depotlab import EACH, ME, MEMBERS, STREAM, TAIL, Holder, Scene, _nothing, scene, whole_at


def test_what_would_have_one_copy_is_copied_byte_for_byte(root: Path) -> None:
    async def test(scene: Scene) -> None:
        await scene.hold(3, 2, 3)
        await scene.hold(1, 2, 3)
        depot = await scene.depot()
        assert await depot.look()
        assert scene.same(2) and scene.same(3)
        assert await whole_at(scene, ME) == [2, 3]
        assert not await depot.look(), "nothing is left to do"
        # Its machine and its core hear nothing of it, at the next start as well.
        again = await scene.depot()
        assert scene.own.store.epoch == 0 and scene.own.store.lineage.own() == []
        assert await whole_at(scene, ME) == [], "it counts when this process has read it"
        assert await again.look() and await whole_at(scene, ME) == [2, 3]
        assert len(set(scene.brokers[1].groups_asked() + scene.brokers[3].groups_asked())) < 12

    scene(root, test)


def test_nothing_is_copied_of_which_two_stay_or_by_who_is_not_named(root: Path) -> None:
    async def test(scene: Scene) -> None:
        await scene.hold(3, 2)
        await scene.hold(1, 2)
        depot, named = await scene.depot(), scene.target
        scene.target = Target(4, named.cut, named.brokers)
        assert not await depot.look()
        more = (*named.brokers, TargetBroker(ordinal=3, workers=1))
        scene.target = Target(5, named.cut, more, named.depots)
        assert not await depot.look() and scene.own.store.lineage.generations() == []

    scene(root, test)


def test_one_alone_is_not_believed(root: Path) -> None:
    async def test(scene: Scene) -> None:
        await scene.hold(3, 2)
        depot = await scene.depot()
        assert await depot.look() and not scene.own.lodging.is_here(2)
        # Nor one who never was a member, nor two who say different things.
        await scene.hold(9, 2)
        await depot.look()
        assert not scene.own.lodging.is_here(2)
        other = await scene.hold(1, 2)

        def spoil(op: str, answer: Any) -> Any:
            if op == "ended":
                answer["ended"][0][3] ^= 1
            return answer

        other.spoil = spoil
        await depot.look()
        assert not scene.own.lodging.is_here(2)
        other.spoil = lambda op, answer: answer
        await depot.look()
        assert await whole_at(scene, ME) == [2]

    scene(root, test)


def test_who_gives_another_log_is_found_out_at_its_end(root: Path) -> None:
    async def test(scene: Scene) -> None:
        liar, honest = await scene.hold(1, 2), await scene.hold(3, 2)
        false = builder.Log(epoch=2, offsets={STREAM: 0})
        for _ in range(4):
            false.roll()
            for _ in range(6):
                false.events(("x", 1))
        data = b"".join(map(bytes, false.segments))
        cuts = [sum(size for *_, size in false.groups[:n]) for n in range(TAIL + 1)]

        def spoil(op: str, answer: Any) -> Any:
            if op != "ended_groups":
                return answer
            first = liar.asked[-1][1]["first"]
            return {"groups": [data[cuts[first - 1] : cuts[first]]]}

        liar.spoil = spoil
        depot = await scene.depot()
        await depot.look()
        assert liar.groups_asked() == list(range(1, TAIL + 1)), "all of it followed"
        assert honest.groups_asked() and scene.same(2) and await whole_at(scene, ME) == [2]

    scene(root, test)


def test_who_has_less_is_not_asked_before_who_has_more(root: Path) -> None:
    async def test(scene: Scene) -> None:
        less, more = await scene.hold(1, 2, gone=2), await scene.hold(3, 2)
        depot = await scene.depot()

        def away(op: str, answer: Any) -> Any:
            if op == "ended_groups":
                raise NotReadyError("it stops")
            return answer

        more.spoil = away
        await depot.look()
        assert more.groups_asked() == [1] and await whole_at(scene, ME) == []
        more.spoil = lambda op, answer: answer
        await depot.look()
        assert not less.groups_asked() and scene.same(2) and await whole_at(scene, ME) == [2]

    scene(root, test)


def test_what_retention_has_removed_everywhere_is_not_waited_for(root: Path) -> None:
    async def test(scene: Scene) -> None:
        await scene.hold(1, 2, gone=2)
        await scene.hold(3, 2, gone=2)
        depot = await scene.depot()
        await depot.look()
        assert await whole_at(scene, ME) == [2]
        assert layout.segment_indexes(scene.own.directory, 2) == [2, 3]
        begins = {str(scene.brokers[at].store.lineage.get(2)).split("begin=")[1] for at in (1, 3)}
        assert str(scene.own.store.lineage.get(2)).split("begin=")[1].startswith("(2, ")
        assert len(begins) == 1

    scene(root, test)


@pytest.mark.parametrize("after", [1, 9, 20, 25])
def test_a_depot_that_is_killed_goes_on_behind_what_it_has(
    root: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(ended_module, "PART_BYTES", 9000)

    async def test(scene: Scene) -> None:
        holders = [await scene.hold(1, 2), await scene.hold(3, 2)]

        def spoil(op: str, answer: Any) -> Any:
            asked = [first for each in holders for first in each.groups_asked()]
            if op == "ended_groups" and max(asked) > after:
                raise NotReadyError("it is gone")
            return answer

        for each in holders:
            each.spoil = spoil
        depot = await scene.depot()
        await depot.look()
        assert await whole_at(scene, ME) == [] and scene.own.lodging.is_here(2)
        for each in holders:
            each.spoil, each.asked = (lambda op, answer: answer), []
        # A last append that was torn: it is asked for again.
        path = max(layout.generation_path(scene.own.directory, 2).glob("*.log"))
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.truncate(size - 4096)
        depot = await scene.depot()
        await depot.look()
        asked = [first for each in holders for first in each.groups_asked()]
        assert after - 3 <= min(asked) <= after + 2, "not again what was there"
        assert await whole_at(scene, ME) == [2] and scene.same(2)

    scene(root, test)


def test_a_copy_counts_when_it_was_read_again(root: Path) -> None:
    async def test(scene: Scene) -> None:
        await scene.hold(1, 2)
        await scene.hold(3, 2)
        depot = await scene.depot()
        look, seal = scene.own.lodging.look, scene.own.lodging.seal

        async def rot(epoch: int, tail: int) -> None:
            """The disk has written something else."""
            await seal(epoch, tail)
            path = layout.segment_path(scene.own.directory, 2, 1)
            data = bytearray(path.read_bytes())
            data[5000] ^= 1
            path.write_bytes(data)

        scene.own.lodging.seal = rot  # type: ignore[method-assign]
        assert await depot.look()
        assert await whole_at(scene, ME) == [], "sealed, and not as it must be"
        scene.own.lodging.seal = seal  # type: ignore[method-assign]
        looked = []

        async def before(epoch: int, pace: int) -> bool:
            looked.append(await whole_at(scene, ME))
            return await look(epoch, pace)

        scene.own.lodging.look = before  # type: ignore[method-assign]
        assert await depot.look()
        assert looked == [[]], "whole, and not read yet"
        assert await whole_at(scene, ME) == [2] and scene.same(2)

    scene(root, test)


def test_a_copy_that_rots_does_not_count_and_is_made_again(root: Path) -> None:
    async def test(scene: Scene) -> None:
        await scene.hold(1, 2)
        await scene.hold(3, 2)
        depot = await scene.depot()
        await depot.look()
        path = layout.segment_path(scene.own.directory, 2, 2)
        data = bytearray(path.read_bytes())
        data[5000] ^= 1
        path.write_bytes(data)
        scrub = scene.own.store.scrub
        assert scrub is not None and not await scrub.suspect(SegmentKey(2, 2))
        assert await whole_at(scene, ME) == []
        await depot.look()  # It is found out.
        await depot.look()
        await scrub.suspect(SegmentKey(2, 2))
        assert await whole_at(scene, ME) == [2] and scene.same(2)

    scene(root, test)


def test_readers_find_it_there_when_its_members_have_gone(root: Path) -> None:
    async def test(scene: Scene) -> None:
        await scene.hold(1, 2, 3)
        await scene.hold(3, 2, 3)
        depot = await scene.depot()
        await depot.look()
        (older,) = scene.own.far()
        assert (older.gid.token, older.tail) == (builder.TOKEN + 4096, TAIL)
        for gone in (1, 3):
            await scene.brokers.pop(gone).close()
        reader_store = Holder(scene.root, scene.bulk, 7)
        await reader_store.open()
        scene.paths[peer_of((Ordinal(ME), 0))] = scene.own.path
        siblings = Siblings(
            worker=peer_of((Ordinal(7), 0)), paths=scene.paths, operation=_nothing,
            bytes_max=64 << 20,
        )  # fmt: skip
        last = Ancestor(Gid(Token(builder.TOKEN), Epoch(3)), TAIL, TOKEN_END, MEMBERS)
        history = History(
            ranges=scene,  # type: ignore[arg-type]
            siblings=siblings,
            peer=peer_of((Ordinal(7), 0)),
            far=lambda: [last],
            token_of=lambda index: builder.TOKEN,
        )
        reader = WholeReader(reader_store.store.reader, reader_store.store.extents.begins)
        reader.elsewhere = history
        found, start = [], 0
        while (result := await reader.read(*STREAM, start, 200)).chunks:
            for piece in map(bytes, result.chunks):
                for at, *_ in chunks_scan(piece):
                    found += [event[0] for event in chunk_events(piece, at)]
            start = result.next_offset
        assert found == list(range(2 * EACH))
        await siblings.close()
        await reader_store.close()

    scene(root, test)


def test_a_group_that_is_larger_than_an_answer_comes_in_parts(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_module, "PART_BYTES", 1000)

    async def test(scene: Scene) -> None:
        await scene.hold(1, 2)
        holder = await scene.hold(3, 2)
        depot = await scene.depot()
        await depot.look()
        assert await whole_at(scene, ME) == [2] and scene.same(2)
        assert len(holder.asked) + len(scene.brokers[1].asked) > 4 * TAIL

    scene(root, test)


def test_what_is_no_answer_is_refused(root: Path) -> None:
    async def test(scene: Scene) -> None:
        holder = await scene.hold(3, 2)
        peer = peer_of((Ordinal(3), 0))
        for said in (
            None, {}, {"ended": 1}, {"ended": [[1]], "more": None}, {"ended": [], "more": 0},
            {"ended": [None] * 999, "more": None},
        ):  # fmt: skip
            holder.spoil = lambda op, answer, said=said: said
            with pytest.raises(ProtocolError):
                await ask_ended(scene.siblings, peer, builder.TOKEN)
        for said in (
            None, {}, {"groups": []}, {"groups": [1]}, {"groups": [b""]}, {"part": b"", "of": 1},
            {"part": b"ab", "of": 1}, {"part": b"a", "of": 2**40}, {"part": "a", "of": 1},
        ):  # fmt: skip
            holder.spoil = lambda op, answer, said=said: said
            with pytest.raises(ProtocolError):
                await ask_group_part(scene.siblings, peer, builder.TOKEN, 2, 1)
        holder.spoil = lambda op, answer: answer
        with pytest.raises(BarcoError):
            await ask_ended(scene.siblings, peer, builder.TOKEN + 1)
        with pytest.raises(BarcoError):
            await ask_group_part(scene.siblings, peer, builder.TOKEN, 9, 1)

    scene(root, test)


def test_many_generations_are_told_in_several_answers(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_module, "ENDED_MAX", 2)

    async def test(scene: Scene) -> None:
        await scene.hold(3, 2, 3, 4, 5, 6)
        said = await ask_ended(scene.siblings, peer_of((Ordinal(3), 0)), builder.TOKEN)
        assert [each.generation.epoch for each in said] == [2, 3, 4, 5, 6]
        assert {each.generation.members for each in said} == {MEMBERS}
        logs = logs_of(builder.TOKEN, {3: said})
        assert logs[4].holders == {3} and logs[4].bytes == said[2].bytes > 4 * 4096
        assert believed(4, {3: said}, frozenset(), 2) is None
        assert believed(4, {3: said, 9: said}, frozenset(), 2) is None
        told = believed(4, {3: said, 9: said}, frozenset({9}), 2)
        assert told is not None and set(told[1]) == {3, 9}, "one who was a depot before"

    scene(root, test)
