"""The state of a generation is given as soon as all of it is here, and known to be: clients wait
for it, and that it has ended is noted beside."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from asked import asking, expected
from asker import ASK, MINE, Answering, Asker, states_of
from following import GID, Follower
from leading import Groups, lead
from msgspec.structs import replace

from barco._native import ShardState, state_cut
from barco.errors import NotReadyError
from barco.workers.replication import states as module
from barco.workers.storage.index import scan
from barco.workers.storage.stores import restoring


@pytest.fixture(scope="module")
def groups() -> Groups:
    """In one segment."""
    return lead(40, 20_000)


def test_a_question_is_held_until_all_of_it_is_here(tmp_path: Path, groups: Groups) -> None:
    async def test(follower: Follower, asker: Asker, answering: Answering, tail: int) -> None:
        ended: list[int | None] = [None]
        whole = [False]
        states = states_of(follower)
        states._tail_of = lambda gid: ended[0]
        real = follower.store.whole
        follower.store.whole = lambda *of: whole[0] and real(*of)  # type: ignore[method-assign]
        asked = asyncio.create_task(states.operations["state"]({**ASK, "tail": tail}))
        for news in (ended, whole):
            await asyncio.sleep(0.02)
            assert not asked.done(), "it is not known yet"
            news[0] = tail  # type: ignore[call-overload]
        assert (await asked)["sums"][0] == len(expected(groups, MINE))
        assert not states._held
        states.close()

    asking(tmp_path, groups, test)


def test_what_does_not_come_is_refused_after_a_while(
    tmp_path: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And at once to who asks for ever more."""
    monkeypatch.setattr(module, "HELD_SECONDS", 0.1)

    async def test(follower: Follower, asker: Asker, answering: Answering, tail: int) -> None:
        states = states_of(follower)
        states._tail_of = lambda gid: None
        ask = states.operations["state"]
        held = [asyncio.create_task(ask({**ASK, "tail": tail})) for _ in range(module.HELD_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(NotReadyError, match="not known here"):
            await ask({**ASK, "tail": tail})
        assert not any(each.done() for each in held), "that one was not held"
        for each in held:
            with pytest.raises(NotReadyError, match="not known here"):
                await each
        assert not states._held
        states.close()

    asking(tmp_path, groups, test)


def test_who_has_all_groups_tells_before_the_end_is_noted(tmp_path: Path, groups: Groups) -> None:
    """The core has them, and they are stable: the very same state; not of what it lacks."""

    async def test(follower: Follower, asker: Asker, answering: Answering, tail: int) -> None:
        noted = follower.store.lineage.get(GID.epoch)
        assert noted is not None and noted.sealed
        core = {"stable_gseq": tail, "segment": noted.end_segment, "segment_used": noted.end_bytes}
        before = replace(noted, tail=None, end_segment=0, end_bytes=0)
        early = restoring.as_ended(before, tail, core)
        assert early is not None and early == noted
        for core_has, given in (
            (None, before),
            ({**core, "stable_gseq": tail - 1}, before),
            (core, replace(before, expired=True)),
            (core, replace(noted, tail=tail + 1)),
            (core, None),
        ):
            assert restoring.as_ended(given, tail, core_has) is None
        assert restoring.as_ended(before, 0, core) is None

    asking(tmp_path, groups, test)


def walked(groups: Groups, data: bytes, *, tail: int = 0, at: tuple[int, int] = (0, 0)) -> Any:
    """What is added of these bytes, from the start or behind this group."""
    header = scan.parse_header(groups[0][1])
    assert header is not None
    state = ShardState(0, 4)
    of = header.cluster_uuid, header.token, header.epoch, header.session
    return state, state.walk(data, *of, *at, tail or len(groups))


def test_groups_are_added_as_far_as_they_are_whole(groups: Groups) -> None:
    data = b"".join(group for _, group in groups)
    state, (used, gseq, crc) = walked(groups, data)
    assert (used, gseq, crc) == (len(data), len(groups), groups[-1][0].header_crc)
    assert state_cut(state.snapshot(), MINE.start, len(MINE)) == expected(groups, MINE)
    first = len(groups[0][1])
    half = walked(groups, data[: first + 1000])[1]
    assert half == (first, 1, groups[0][0].header_crc), "the next one is not all there"
    assert walked(groups, data, tail=7)[1][1] == 7, "and what is behind the end does not count"
    behind = walked(groups, data[first:], at=(1, groups[0][0].header_crc))[1]
    assert behind == (len(data) - first, len(groups), groups[-1][0].header_crc)
    assert walked(groups, data[first:])[1][0] == 0, "it does not begin with a state"
    assert walked(groups, data[first:], at=(1, 7))[1][0] == 0, "it follows on another"
    assert walked(groups, data[first:], at=(2, groups[0][0].header_crc))[1][0] == 0
    assert walked(groups, b"")[1] == (0, 0, 0)
    for place, whole in ((40, 0), (130, 0), (first + 40, 1), (first + 140, 1)):
        hurt = bytearray(data)  # In a header, in a state, in a header, in a chunk.
        hurt[place] ^= 1
        assert walked(groups, bytes(hurt))[1][1] == whole


def test_damage_is_told_by_the_scan(tmp_path: Path, groups: Groups) -> None:
    """The short way says nothing: what is wrong, and whether it is, another one does."""

    async def test(follower: Follower, asker: Asker, answering: Answering, tail: int) -> None:
        calls: list[int] = []
        real = scan.run

        def counted(*args: Any) -> Any:
            calls.append(1)
            return real(*args)

        patch = pytest.MonkeyPatch()
        with patch.context() as patched:
            patched.setattr(scan, "run", counted)
            found = await follower.store.state_at(GID.epoch, tail, MINE)
            assert found.state == expected(groups, MINE) and not calls
            assert found.header_crc == groups[-1][0].header_crc
            patched.setattr(restoring, "_walked", lambda *_: None)
            assert await follower.store.state_at(GID.epoch, tail, MINE) == found and calls
            patched.undo()
            patched.setattr(restoring, "WALK_BYTES", 4096)  # Groups that are larger.
            assert await follower.store.state_at(GID.epoch, tail, MINE) == found

    asking(tmp_path, groups, test)
