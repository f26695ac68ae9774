"""A holder of history that lies: others are asked as well, over real sockets, of real files."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reference.core import chunk_encode

from barco._native import chunk_events, chunks_scan
from barco.cluster.state.kin import TOKEN_END
from barco.errors import NotReadyError
from barco.limits import OFFSET_MAX
from barco.workers.peers import agreed

sys.path.insert(0, str(Path(__file__).parent))
from historylab import EACH, STREAM, Holder, Scene, ancestor, builder, scene

Spoil = Callable[[dict[str, Any]], Any]
FAR = ancestor(2, (0, 1, 2))


def forged(answer: dict[str, Any]) -> dict[str, Any]:
    """Chunks of the same offsets and times, with other events, and sound in themselves."""
    if "sum" in answer:
        return {"sum": bytes(agreed.SUM_BYTES)}
    if "chunks" not in answer:
        return answer
    made = b""
    for at, _, name, index, epoch, base, count, *_ in chunks_scan(answer["chunks"]):
        times = [each[1] for each in chunk_events(answer["chunks"], at)]
        made += chunk_encode(name, index, epoch, base, [b"forged"] * count, None, times)
    return answer | {"chunks": made}


def gone(answer: dict[str, Any]) -> dict[str, Any]:
    """Nothing is left, wherever one asks."""
    return {"sum": b""} if "sum" in answer else answer if "line" in answer else {"at": None}


def later(answer: dict[str, Any]) -> dict[str, Any]:
    """Retention has been there, it says."""
    if "sum" in answer:
        return {"sum": b""}
    return {"at": EACH - 3} if "chunks" in answer or "at" in answer else answer


def earlier(answer: dict[str, Any]) -> dict[str, Any]:
    return {"at": 0} if "at" in answer else answer


def leaves_out(answer: dict[str, Any]) -> dict[str, Any]:
    return answer | {"line": [], "has": []} if "line" in answer else answer


def invents(answer: dict[str, Any]) -> dict[str, Any]:
    """A generation before the first one, which it would have."""
    if "line" not in answer:
        return answer
    return answer | {"line": [*answer["line"], [builder.TOKEN, 1, 28, TOKEN_END, [0, 1, 2]]]}


LIES: list[Spoil] = [forged, gone, later, earlier, leaves_out, invents]


async def holders(scene: Scene, liar: int, lie: Spoil, *epochs: int) -> list[Holder]:
    held = [await scene.hold(*epochs) for _ in range(3)]
    held[liar].spoil = lie
    return held


@pytest.mark.parametrize("liar", range(3))
@pytest.mark.parametrize("lie", LIES)
def test_one_that_lies_makes_no_event_come_go_or_move(root: Path, lie: Spoil, liar: int) -> None:
    """And hides no beginning from who reads, nor from retention."""

    async def test(scene: Scene) -> None:
        held = await holders(scene, liar, lie, 2)
        await scene.own(3, far=(FAR,))
        values: list[bytes] = []
        start = 0
        while start < 2 * EACH:
            result = await scene.reader.read(*STREAM, start, 1000)
            for piece in map(bytes, result.chunks):
                for at, *_ in chunks_scan(piece):
                    values += [each[3] for each in chunk_events(piece, at)]
            start = result.next_offset
        assert values == [value for base in range(0, 2 * EACH, 3) for value in events_at(base)]
        assert held[liar].asked
        store, middle = held[0].store, EACH // 2
        read = await store.reader.read(*STREAM, middle, 1)
        time_us = chunks_scan(bytes(read.chunks[0]))[0][8]
        assert await scene.reader.earliest(*STREAM) == 0
        assert await scene.extents.since(*STREAM, 0) == 0
        at, true = [
            await each.by_timestamp(*STREAM, time_us) for each in (scene.reader, store.reader)
        ]
        assert at is not None and true is not None
        assert at == true or lie is earlier and at < true
        here, _ = await scene.store.extents.splits(*STREAM, 0, 1)
        there, _ = await store.extents.splits(*STREAM, 0, 1)
        kept = await scene.extents.within(*STREAM, here + there // 2)
        honest = await store.extents.within(*STREAM, there // 2)
        assert kept is not None and honest is not None and kept <= honest
        assert lie is earlier or kept == honest

    scene(root, test)


def events_at(base: int) -> list[bytes]:
    return [f"b.c/0/{base + n}".encode() * 3 for n in range(3)]


@pytest.mark.parametrize("liar", range(3))
def test_what_retention_removed_somewhere_stays_gone(root: Path, liar: int) -> None:
    """Two have removed it: one that still gives something there is not believed."""

    async def test(scene: Scene) -> None:
        for at in range(3):
            await scene.hold(2, gone=0 if at == liar else 2)
        scene.holders[liar].spoil = forged
        await scene.own(3, far=(FAR,))
        assert await scene.offsets() == list(range(EACH // 2, 2 * EACH))
        assert await scene.reader.earliest(*STREAM) == EACH // 2

    scene(root, test)


@pytest.mark.parametrize("lie", [leaves_out, invents, gone, later])
@pytest.mark.parametrize("liar", range(3))
def test_a_line_of_which_one_lies_is_the_true_one(root: Path, lie: Spoil, liar: int) -> None:
    """Two of them never had the grandparent, the third has, and none has what was invented."""

    async def test(scene: Scene) -> None:
        await scene.hold(2, 3)
        for _ in range(2):
            await scene.hold(3, far=(FAR,))
        scene.holders[liar].spoil = lie
        await scene.hold(2)
        await scene.hold(2)
        await scene.own(4, far=(ancestor(3, (0, 1, 2)),))
        assert await scene.offsets() == list(range(3 * EACH))
        assert [each.gid.epoch for each in scene.history.known()] == [3, 2]

    scene(root, test)


def test_where_nobody_else_is_readers_believe_one_and_retention_does_not(root: Path) -> None:
    async def test(scene: Scene) -> None:
        held = await holders(scene, 0, gone, 2)
        await scene.own(3, far=(FAR,))
        await scene.history.look()
        for each in held[1:]:
            await each.server.close()
        held[0].spoil = lambda answer: answer
        assert await scene.offsets() == list(range(2 * EACH))
        held[0].spoil = gone
        for knows in (True, False):
            if not knows:  # What it continues is one's word as well.
                scene.history._lines.clear()
            for call in (scene.extents.since, scene.extents.within):
                with pytest.raises(NotReadyError, match="Too few" if knows else "One holder"):
                    await call(*STREAM, OFFSET_MAX - 1)

    scene(root, test)


def test_two_that_contradict_each_other_are_not_believed(root: Path) -> None:
    """The third is away: it is waited for."""

    async def test(scene: Scene) -> None:
        held = await holders(scene, 0, forged, 2)
        await held[2].server.close()
        await scene.own(3, far=(FAR,))
        with pytest.raises(NotReadyError):
            await scene.reader.read(*STREAM, 0, 1000)
        held[0].spoil = gone
        with pytest.raises(NotReadyError):
            await scene.reader.read(*STREAM, 0, 1000)

    scene(root, test)


def test_who_has_no_voice_is_not_asked(root: Path) -> None:
    """A member that lies may come again as a broker that nobody has listed."""

    async def test(scene: Scene) -> None:
        held = [await scene.hold(2) for _ in range(4)]
        for each in held[2:]:
            each.spoil = gone
        await scene.own(3, far=(FAR,))
        scene.history._voices = frozenset({0, 1, 2}).intersection
        assert await scene.offsets() == list(range(2 * EACH))
        assert not held[3].asked

    scene(root, test)


def test_one_that_is_silent_costs_one_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreed, "CONFIRM_SECONDS", 0.6)

    async def main() -> None:
        found, time = agreed.Agreed(9), asyncio.get_running_loop().time

        async def ask(peer: int) -> tuple[bytes] | None:
            await asyncio.sleep(0 if peer == 1 << 16 else 60)
            return None

        began = time()
        assert await found.confirmed([0, 1 << 16], ask, b"x") and time() - began > 0.5
        began = time()
        for _ in range(3):
            assert await found.confirmed([0, 1 << 16], ask, b"x")
        assert time() - began < 3 * 0.6 and found.order([0, 1 << 16]) == [1 << 16, 0]

    asyncio.run(main())
