"""Events that are sent again, or dropped, as many as go at once: what is told of them when
something goes wrong on the way. At a real broker: tests/integration/test_letters.py."""

import json
from typing import Any

import pytest
from twin import run

from barco.errors import BarcoError, NotReadyError
from barco.workers.http.checking.values import OfBody
from barco.workers.http.consuming import letters
from barco.workers.http.consuming.letters import Letters, Tally

ELSEWHERE = ((b"barco-dead-topic", b"u"),)


class Log:
    """Slice 0: an event at each offset, but for some."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, part: int) -> None:
        monkeypatch.setattr(letters, "PART_BYTES", part)
        self.gone: set[int] = set()
        self.others: set[int] = set()
        self.broken_at: int | None = None
        """The lot that fails."""
        self.lots: list[list[int]] = []

    async def read(self, number: int, offset: int) -> OfBody | None:
        if offset in self.gone:
            return None
        headers = tuple((k.decode(), v) for k, v in ELSEWHERE) if offset in self.others else ()
        return OfBody(b"v", b"k", 0, headers)

    async def end(self, part: Any, told: Tally) -> None:
        if len(self.lots) == self.broken_at:
            raise NotReadyError("nobody leads it")
        self.lots.append([offset for _, offset in part.where])
        told.done += len(part.where)

    async def told(self, count: int) -> dict[str, Any]:
        desk = Letters(None, None, None)  # type: ignore[arg-type]
        where = [(0, offset) for offset in range(count)]
        answer = await desk._in_parts(where, self.read, self.end, origin="t")
        found: dict[str, Any] = json.loads(answer.body)
        return found


@run
async def test_as_many_as_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(monkeypatch, part=6)  # Three of them: a key and a value of a byte each.
    told = await log.told(8)
    assert log.lots == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert (told["done"], told["left"], told["why"]) == (8, 0, "")
    log = Log(monkeypatch, part=1)
    await log.told(2)
    assert log.lots == [[0], [1]], "and no empty one behind them"


@run
async def test_what_is_gone_or_of_others_is_counted_and_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(monkeypatch, part=100)
    log.gone, log.others = {1, 4}, {2}
    told = await log.told(6)
    assert log.lots == [[0, 3, 5]]
    assert (told["done"], told["gone"], told["others"], told["left"]) == (3, 2, 1, 0)


@run
async def test_what_goes_wrong_later_is_told_beside_what_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(monkeypatch, part=6)
    log.gone, log.others, log.broken_at = {1}, {2}, 1
    told = await log.told(10)  # 0, 3, 4 are done; 5, 6, 7 fail; 8 and 9 were not come to.
    assert log.lots == [[0, 3, 4]]
    assert (told["done"], told["gone"], told["others"], told["left"]) == (3, 1, 1, 5)
    assert told["why"] == "nobody leads it"


@run
async def test_what_goes_wrong_with_the_first_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(monkeypatch, part=6)
    log.broken_at = 0
    with pytest.raises(BarcoError, match="nobody leads it"):
        await log.told(10)
