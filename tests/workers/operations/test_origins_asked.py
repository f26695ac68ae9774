"""Whom a process asks for its origin, and what it makes of the first word."""

import asyncio
from pathlib import Path
from typing import NamedTuple

import pytest

from barco.cluster.state.kin import KnownLineage
from barco.model.ranges import process_of
from barco.workers.operations import origins

from .test_origins import NEW, PARENT, SPLIT, Joiner, Member, Ranges, joining


class At(NamedTuple):
    """A range, by where it begins."""

    token: int


def test_the_first_word_is_a_hint(tmp_path: Path) -> None:
    """Nobody is taught by it; what is asked for then is there when a second one says the same."""

    async def test(members: list[Member], joiner: Joiner) -> None:
        members[0].journal = members[1].journal = KnownLineage({}, {})
        await joiner.origins._ask()
        assert joiner.hinted == [(PARENT, SPLIT)] and joiner.told == []

    joining(tmp_path, test)


def test_ranges_further_on_the_left_are_asked_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is just started asks the range beside it, which was its parent, and nobody for whom
    it would need a connection only to hear that it knows nothing."""
    monkeypatch.setattr(origins, "WIDE_SECONDS", 0.1)
    lefts = [NEW - 1 - each for each in range(6)]

    class Wide(Ranges):
        """With six ranges on the left, and a process of another broker for each."""

        all = tuple(map(At, (*lefts, NEW)))  # type: ignore[assignment]

        def of_slice(self, number: int) -> int:
            return NEW

        def processes_of_token(self, token: int) -> list[tuple[int, int]]:
            return [(lefts.index(token), 1)] if token in lefts else [(3, 0)]

    async def test(members: list[Member], joiner: Joiner) -> None:
        asked: list[list[int]] = []
        joiner.origins._ranges = Wide()  # type: ignore[assignment]

        async def ask() -> None:
            asked.append([process_of(each)[0] for each in joiner.origins._asked()])
            joiner.origins._kick.set()
            await asyncio.sleep(0.02)

        joiner.origins._ask = ask  # type: ignore[method-assign]
        running = asyncio.create_task(joiner.origins.run())
        while [0, 1, 2, 3] not in asked or asked[-1] != [0]:
            await asyncio.sleep(0.01)
        running.cancel()
        assert asked[0] == [0] and max(map(len, asked)) == origins.LEFT_RANGES

    joining(tmp_path, test)
