"""Answers that are shared by those who take one that is a little old."""

import asyncio

import pytest
from twin import Broker, run

from barco.errors import NotReadyError
from barco.workers.http.base.lately import (
    AGE_SECONDS_MAX,
    ANSWERS_MAX,
    BYTES_MAX,
    Lately,
    age_max,
)
from barco.workers.http.base.messages import Request, Response


class Asked:
    """Something to be found out, which counts how often it was."""

    def __init__(self) -> None:
        self.times = 0
        self.now = 100.0
        self.lately = Lately(lambda: self.now)
        self.body = b"x"
        self.fails = False

    async def find(self) -> Response:
        self.times += 1
        number = self.times
        await asyncio.sleep(0)
        if self.fails:
            raise NotReadyError("Not now.")
        return Response(200, b"%d" % number + self.body)

    async def ask(self, age: int = 1, key: str = "k") -> int:
        answer = await self.lately.answer(key, age, self.find)
        return int(bytes(answer.body).partition(b"x")[0])


@run
async def test_who_asks_within_the_age_shares_and_nobody_gets_an_older_one() -> None:
    asked = Asked()
    assert await asyncio.gather(*(asked.ask() for _ in range(10))) == [1] * 10
    asked.now += 1.0
    assert await asked.ask() == 1
    asked.now += 0.1
    assert await asked.ask(age=2) == 1
    assert await asked.ask() == 2, "older than a second"
    assert await asked.ask(key="other") == 3


@run
async def test_a_failure_is_told_to_those_who_wait_and_not_kept() -> None:
    asked = Asked()
    asked.fails = True
    told = await asyncio.gather(*(asked.ask() for _ in range(3)), return_exceptions=True)
    assert [type(each) for each in told] == [NotReadyError] * 3 and asked.times == 1
    asked.fails = False
    assert await asked.ask() == 2


@run
async def test_who_goes_away_takes_the_answer_from_nobody_else() -> None:
    asked = Asked()
    first, second = asyncio.create_task(asked.ask()), asyncio.create_task(asked.ask())
    await asyncio.sleep(0)
    first.cancel()
    assert await second == 1
    with pytest.raises(asyncio.CancelledError):
        await first


@run
async def test_what_is_kept_has_bounds() -> None:
    asked = Asked()
    for number in range(2 * ANSWERS_MAX):
        await asked.ask(key=str(number))
    assert len(asked.lately._kept) == ANSWERS_MAX
    asked.now += AGE_SECONDS_MAX + 0.1
    asked.body = b"x" * (BYTES_MAX // 3)
    for number in range(9):
        await asked.ask(key=str(number))
    await asked.ask(key="0")
    assert len(asked.lately._kept) <= 3


@pytest.mark.parametrize(
    ("given", "age"),
    [
        (None, 0), ("max-age=1", 1), ("Max-Age = 2", 2), ("max-age=0", 0), ("no-cache", 0),
        ("max-stale, max-age=3", 3), ("max-age=999999999", AGE_SECONDS_MAX), ("max-age=-1", 0),
        ("max-age=1, max-age=0", 0), ("max-age=9999999999", 0),
    ],
)  # fmt: skip
def test_how_old_an_answer_may_be(given: str | None, age: int) -> None:
    headers = [] if given is None else [(b"Cache-Control", given.encode())]
    assert age_max(Request("GET", "/v1/topics", {}, headers, b"")) == age
    assert age_max(Request("HEAD", "/v1/topics", {}, headers, b"")) == 0


@run
async def test_only_who_says_so_is_told_what_is_old() -> None:
    broker = Broker()

    async def ask(path: str, query: str = "", *, old: bool = False) -> bytes:
        headers = {"Cache-Control": "max-age=5"} if old else {}
        answer = await broker.request("GET", path, query, headers=headers, worker=0)
        assert answer.status == 200
        return answer.body

    before = await ask("/v1/topics", old=True)
    assert (await broker.request("PUT", "/v1/topics/new")).status == 201
    assert await ask("/v1/topics", old=True) == before
    assert b'"new"' in await ask("/v1/topics") and b'"new"' not in before
    slices = await ask("/v1/topic/new/slices", old=True)
    broker.produce("new", 0, b"1")
    assert await ask("/v1/topic/new/slices", old=True) == slices
    assert await ask("/v1/topic/new/slices") != slices
    assert await ask("/v1/topic/new/slices", "splitBytes=1000000", old=True) != slices
