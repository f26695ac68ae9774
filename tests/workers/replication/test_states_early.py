"""The state of a generation is given as soon as all of it is here, and known to be: clients wait
for it, and that it has ended is noted beside."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asked import asking, expected
from asker import ASK, MINE, PEER_A, PEER_B, Answering, Asker, states_of
from following import GID, SUBJECT, Follower
from leading import Groups, lead
from msgspec.structs import replace

from barco._native import ShardState, state_cut
from barco.cluster.ring.cut import Cut
from barco.errors import NotReadyError
from barco.model.generation import Generation, Gid, Identity, Kind, Parent, Successor
from barco.types import Epoch, Ordinal
from barco.workers.replication import states as module
from barco.workers.replication.host import ReplicaHost
from barco.workers.storage.files.bulk import open_bulk
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


def giving(state: bytes) -> Any:
    """An operation `state` that gives this one."""

    async def give(args: Any) -> dict[str, Any]:
        part = state[args["at"] :][: args["size"]]
        return {"sums": [len(state), scan.crc32c(state), 7], "part": part}

    return give


@pytest.mark.parametrize("case", ["asked ahead", "another end", "another life", "two states"])
def test_what_is_asked_for_ahead_is_taken_if_it_is_what_is_wanted(
    tmp_path: Path, groups: Groups, case: str
) -> None:
    """A small state comes with its sums, so two are asked once. What somebody made up is not taken,
    and then all is asked as if nothing had been."""
    state, lie = expected(groups, MINE), expected(groups[:-1], MINE)
    parent = replace(SUBJECT, gid=GID._replace(epoch=Epoch(9)))
    told = {"another life": replace(parent, session=parent.session + 1)}.get(case, parent)

    async def main() -> None:
        bulk = open_bulk("threads")
        others = {peer: Answering(tmp_path / f"{peer}.rpc") for peer in (PEER_A, PEER_B)}
        for other in others.values():
            await other.server.start(other.path)
            other.gives = giving(state)
        asker = Asker(tmp_path, bulk, others)
        asker.session = lambda gid: parent.session
        await asker.start()
        if case == "two states":
            others[PEER_A].gives = giving(lie)
        tail = 59 if case == "another end" else 60
        for _ in range(3):  # Whoever says it again says nothing new.
            asker.states.ahead(told, tail, MINE, list(others))
        await asyncio.sleep(0.1)
        asked = {
            (each["tail"], each["session"]) for other in others.values() for each in other.asked
        }
        assert asked == {(tail, told.session)}
        assert all(len(other.asked) == 1 for other in others.values())
        others[PEER_A].gives = giving(state)
        assert await asker.states.fetch(parent.gid, 60, None, MINE) == state
        rounds = 1 if case == "asked ahead" else 2
        assert [len(other.asked) for other in others.values()] == [rounds, rounds]
        assert await asker.states.fetch(parent.gid, 60, None, MINE) == state
        assert len(others[PEER_A].asked) == rounds + 1, "it is taken once"
        for other in others.values():
            await other.server.close()
        await asker.close()
        bulk.close()

    asyncio.run(main())


@pytest.mark.parametrize(
    "case", ["leads", "follows", "no group", "no slices", "known", "joins", "another range"]
)
def test_who_is_to_lead_asks_ahead(case: str) -> None:
    """By one word: of nothing that it is not to begin, and not once more when it knows."""
    cut, disk = Cut(3, 4), [Identity(Ordinal(each), bytes([each]) * 16) for each in range(4)]
    old, new = Gid(cut.token(0), Epoch(4)), Gid(cut.token(2), Epoch(5))
    parent = Generation(old, cut.token(4), disk[0], 7, tuple(disk[:3]), ())
    parents = (Parent(old, 60),) * (2 if case == "joins" else 1)
    leader = disk[1 if case == "follows" else 3]
    end = cut.token(4) + (case == "no slices")
    child = Generation(new, end, leader, 8, (disk[3], disk[1], disk[2]), parents)
    left = Generation(Gid(old.token, Epoch(5)), new.token, disk[0], 7, tuple(disk[:3]), parents)
    value = Successor(0 if case == "no group" else 60, Kind.SPLIT, (left, child))
    asked: list[Any] = []
    host: Any = SimpleNamespace(
        _me=disk[3],
        _options=SimpleNamespace(held=SimpleNamespace(token=new.token + (case == "another range"))),
        _service=SimpleNamespace(ranges=SimpleNamespace(cut=cut)),
        _kin=SimpleNamespace(others_of=lambda gid, record: [1, 2]),
        _states=SimpleNamespace(ahead=lambda *of: asked.append(of)),
        driver=SimpleNamespace(
            logs=SimpleNamespace(slices_of=lambda token, end: range(2, 4)),
            tail_of=lambda gid: 60 if case == "known" else None,
        ),
    )
    ReplicaHost._hinted(host, parent, value)
    assert asked == ([(parent, 60, range(2, 4), [1, 2])] if case == "leads" else [])
