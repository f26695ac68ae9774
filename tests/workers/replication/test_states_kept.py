"""States that are made for who asks: kept for all, and for each broker some of its own."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from asked import asking, expected
from asker import ASK, MINE, PEER_B, Answering, Asker, states_of
from following import SESSION, Follower
from leading import Groups, lead

from barco.workers.peers.callers import CALLER
from barco.workers.replication import states as module


@pytest.fixture(scope="module")
def groups() -> Groups:
    """Over three segments."""
    return lead(60, 60_000)


def test_a_state_is_made_once_for_all_who_ask(tmp_path: Path, groups: Groups) -> None:
    """Any part of it, by anybody, at once or later; two of them are kept."""

    async def test(follower: Follower, asker: Asker, answering: Answering, tail: int) -> None:
        made: list[range] = []
        state_at = follower.store.state_at

        async def counted(epoch: int, tail: int, slices: range) -> Any:
            made.append(slices)
            return await state_at(epoch, tail, slices)

        follower.store.state_at = counted  # type: ignore[method-assign]
        whole = {**ASK, "tail": tail}

        async def ask(**changes: Any) -> Any:
            return await asker.siblings.call(PEER_B, "state", {**whole, **changes})

        answers = await asyncio.gather(*(ask(at=at, size=10) for at in range(50)))
        assert len(made) == 1 and len({tuple(each["sums"]) for each in answers}) == 1
        assert b"".join(each["part"][:1] for each in answers) == expected(groups, MINE)[:50]
        for first in (0, 2, 0, 2):
            await ask(first=first)
        assert made == [MINE, range(2)], "that is another one"
        await ask(first=1)
        await ask(first=2)
        assert made == [MINE, range(2), range(1, 3)], "the oldest makes room"

    asking(tmp_path, groups, test)


def test_what_nobody_asks_for_any_more_is_not_kept(
    tmp_path: Path, groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEPT_SECONDS", 0.05)

    async def test(follower: Follower, asker: Asker, answering: Answering, tail: int) -> None:
        states = states_of(follower)
        await states.operations["state"]({**ASK, "tail": tail})
        assert states._kept, "for whoever asks for the next part"
        async with asyncio.timeout(20):
            while states._kept:
                await asyncio.sleep(0.01)
        states.close()

    asking(tmp_path, groups, test)


def test_who_asks_for_ever_others_has_no_part_of_an_honest_one_made_again(
    tmp_path: Path, groups: Groups
) -> None:
    """Each broker has states of its own, and waits for one of another's at most."""

    async def test(follower: Follower, asker: Asker, answering: Answering, tail: int) -> None:
        states, made = states_of(follower), list[range]()
        state_at = follower.store.state_at

        async def slowly(epoch: int, tail: int, slices: range) -> Any:
            made.append(slices)
            await asyncio.sleep(0.05)
            return await state_at(epoch, tail, slices)

        follower.store.state_at = slowly  # type: ignore[method-assign]
        whole = {**ASK, "tail": tail, "at": 0, "size": 10}

        async def ask(caller: int, **changes: Any) -> Any:
            CALLER.set(caller)
            return await states.operations["state"]({**whole, **changes})

        tasks = [
            asyncio.create_task(
                ask(1, first=at % 4, slices=1 + at // 4 % 2 * 2, session=at % 2 * SESSION)
            )
            for at in range(24)
        ]
        await asyncio.sleep(0)
        for at in range(8):
            before = len(made)
            await asyncio.create_task(ask(2, at=at))
            assert len(made) - before <= 2 + (at == 0), "one of the other's, and its own once"
        await asyncio.gather(*tasks, return_exceptions=True)
        for at in range(8):
            await asyncio.create_task(ask(2, at=at))
        assert made.count(MINE) == 1 and len(made) > 8 and len(states._kept) <= 4
        states.close()

    asking(tmp_path, groups, test)
