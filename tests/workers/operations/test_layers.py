"""A slice whose generations lie here and elsewhere in turn, as after a join; over real sockets."""

import sys
from pathlib import Path

import pytest

from barco.errors import CorruptDataError, NotReadyError
from barco.model.ranges import peer_of
from barco.types import Ordinal

sys.path.insert(0, str(Path(__file__).parent))
from historylab import EACH, STREAM, Scene, ancestor, scene


def test_what_was_split_off_and_joined_again_lies_in_between(root: Path) -> None:
    """Also at the end, where what was joined has no event yet; and nobody takes a gap for damage,
    whatever is read ahead."""

    async def test(scene: Scene) -> None:
        await scene.hold(3)
        await scene.hold(5)
        await scene.own(2, 4, 6, far=(ancestor(5, (1,)), ancestor(3, (0,))))
        for size in (200, 1 << 20):
            assert await scene.offsets(size=size) == list(range(5 * EACH))
        assert scene.store.reader.corrupt_chunks == 0
        assert await scene.reader.earliest(*STREAM) == 0
        stores = [scene.store, *(holder.store for holder in scene.holders)]
        sizes = [(await each.extents.splits(*STREAM, 0, 1))[0] for each in stores]
        assert await scene.extents.within(*STREAM, sum(sizes)) == 0
        _, cuts = await scene.extents.splits(*STREAM, 0, 1)
        assert [at for at, _ in cuts] == sorted({at for at, _ in cuts})

    scene(root, test)


def test_who_holds_the_oldest_may_hold_what_came_later(root: Path) -> None:
    """And say that first, where retention has removed the oldest."""

    async def test(scene: Scene) -> None:
        holder, _ = await scene.hold(2, 4), await scene.hold(3)
        await scene.own(5, far=(ancestor(4, (0,)), ancestor(3, (1,)), ancestor(2, (0,))))
        holder.store.lineage.expired(2)
        for segment in holder.store._catalog.segments():
            if segment.key.epoch == 2:
                holder.store._catalog.remove(segment.key)
        assert await scene.reader.earliest(*STREAM) == EACH
        assert await scene.offsets() == list(range(EACH, 4 * EACH))

    scene(root, test)


def test_the_end_may_be_elsewhere(root: Path) -> None:
    """What was joined has not got an event yet: here it would pass for damage at the end."""

    async def test(scene: Scene) -> None:
        holder = await scene.hold(3)
        await scene.own(2, far=(ancestor(3, (0,)),))
        assert await scene.offsets() == list(range(2 * EACH))
        holder.store.lineage.expired(3)
        for segment in holder.store._catalog.segments():
            holder.store._catalog.remove(segment.key)
        assert not (await scene.reader.read(*STREAM, EACH, 100)).chunks
        assert scene.reader.missing(*STREAM, EACH, 2 * EACH) is None, "it is gone, and not damaged"
        assert isinstance(scene.store.reader.missing(*STREAM, 0, EACH), CorruptDataError)

    scene(root, test)


def test_each_holder_says_what_it_lacks(root: Path) -> None:
    """One of two was a member of the generation before, and the other one tells of what comes next
    instead: what either lacks is asked of who has it."""

    async def test(scene: Scene) -> None:
        await scene.hold(2, 3, 4)
        await scene.hold(4, far=(ancestor(3, (0,)),))
        await scene.own(5, far=(ancestor(4, (0, 1)),))
        await scene.history.look()
        assert [each.gid.epoch for each in scene.history.known()] == [4, 3]
        scene.history._good[ancestor(4).gid] = peer_of((Ordinal(1), 0))
        assert await scene.offsets(EACH) == list(range(EACH, 4 * EACH))
        assert await scene.reader.earliest(*STREAM) == 0

    scene(root, test)


@pytest.mark.parametrize("away", [0, 1])
def test_a_holder_that_lacks_what_others_have_says_nothing_of_it(root: Path, away: int) -> None:
    """Two of three have all. Where one of them is away the third, that begins later, is no witness
    that the rest was removed; also if it was away itself when it was asked what it lacks."""

    async def test(scene: Scene) -> None:
        for _ in range(2):
            await scene.hold(2, 3, 4)
        await scene.hold(4, far=(ancestor(3),))
        await scene.own(5, far=(ancestor(4, (0, 1, 2)),))
        peers = sorted(scene.paths)
        late = scene.paths.pop(peers[2])
        await scene.history.look()
        assert [each.gid.epoch for each in scene.history.known()] == [4]
        scene.paths[peers[2]] = late
        await scene.holders[away].server.close()
        await scene.siblings.close()
        try:
            found = await scene.offsets()
        except NotReadyError:  # It is asked for again.
            found = await scene.offsets()
        assert found == list(range(4 * EACH))
        assert await scene.reader.earliest(*STREAM) == 0

    scene(root, test)
