"""Budgets count what is rendered: small chunks of many events, and text that grows."""

import json
from typing import Any

import pytest
from twin import Answer, Broker, run

TOKEN = "-9223372036854775808"
NDJSON = "application/x-ndjson"
POLAR = "application/vnd.polar.consumermessage"
KINDS = ("application/json", NDJSON)


def events_of(answer: Answer) -> list[Any]:
    if answer.status == 204:
        return []
    assert answer.status == 200, answer
    if answer.headers["content-type"] == NDJSON:
        return [json.loads(line)["value"] for line in answer.body.splitlines()]
    return [value for item in answer.json for value in item["values"]]


async def read(broker: Broker, at: str, kind: str, budget: int) -> Answer:
    path = f"/v1/topic/t/slices/{TOKEN}/0/events"
    query = {"from": at, "maxBytes": budget}
    return await broker.request("GET", path, query, headers={"Accept": kind})


async def read_all(broker: Broker, kind: str, budget: int, over: int) -> list[Any]:
    got: list[Any] = []
    at = "earliest"
    while True:
        answer = await read(broker, at, kind, budget)
        at = answer.headers["barco-next-cursor"]
        if answer.status == 204:
            return got
        got += (found := events_of(answer))
        assert len(answer.body) <= budget + over or len(found) == 1


def test_a_bomb_is_read_in_small_pieces() -> None:
    """A hundred thousand empty events are a kilobyte on the disk, and twenty as lines."""

    @run
    async def check() -> None:
        broker = Broker()
        broker.produce("t", 0, b"first", *[b""] * 100_000, b"last")
        for kind in (*KINDS, POLAR):
            answer = await read(broker, "earliest", kind, 1)
            assert answer.status == 200 and len(answer.body) < 500
            assert answer.headers["barco-next-cursor"].endswith("1")
            answer = await read(broker, "earliest", kind, 100_000)
            assert 10_000 < len(answer.body) < 100_500 or kind == POLAR
        for kind in KINDS:
            got = await read_all(broker, kind, 1 << 20, 300)
            assert got == ["first", *[""] * 100_000, "last"]

    check()


@pytest.mark.parametrize("kind", KINDS)
def test_text_that_grows_is_cut_to_its_budget(kind: str) -> None:
    """Control characters take six bytes each: nobody guesses that from their number."""
    values = [bytes([1 + n % 8]) * 3000 for n in range(200)]

    @run
    async def check() -> None:
        broker = Broker()
        for at in range(0, 200, 40):
            broker.produce("t", 0, *values[at : at + 40])
        got = await read_all(broker, kind, 100_000, 300)
        assert [value.encode() for value in got] == values

    check()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("budget", [1, 1000, 30_000, 1 << 20])
def test_polls_end_within_chunks_and_lose_nothing(kind: str, budget: int) -> None:
    """Each slice has a chunk of many events, one of few, and one of text that grows."""
    few = 40 if budget == 1 else 2000

    @run
    async def check() -> None:
        broker = Broker()
        wanted: dict[int, list[str]] = {}
        for slice in range(8):
            parts = [
                [b"%d-%d" % (slice, n) for n in range(few)],
                [b"x%d" % slice],
                [b"\x02" * 400 + b"%d-%d" % (slice, n) for n in range(few // 10)],
            ]
            for part in parts:
                broker.produce("t", slice, *part)
            wanted[slice] = [value.decode() for part in parts for value in part]
        await broker.register("c", "t")
        got: list[str] = []
        delivery = {}
        while True:
            answer = await broker.poll("c", kind, maxBytes=budget, **delivery)
            if answer.status == 204:
                break
            found = events_of(answer)
            assert len(answer.body) <= 2 * budget + (80 << 10) or len(found) <= 16
            got += found
            delivery = {"delivery": answer.headers["barco-delivery"]}
        for slice, values in wanted.items():
            known = set(values)
            assert [value for value in got if value in known] == values, slice
        assert len(got) == sum(map(len, wanted.values()))

    check()


@run
async def test_a_poll_that_was_cut_anew_commits_nothing_that_was_not_sent() -> None:
    """The first try is put back: whoever polls after it, without a word, gets no gap."""
    broker = Broker(workers=1)
    values = [bytes([1 + n % 8]) * 5000 for n in range(60)]
    broker.produce("t", 0, *values)
    await broker.register("c", "t")
    got: list[Any] = []
    while found := events_of(await broker.poll("c", maxBytes=250_000)):
        got += found
        assert (await broker.commit("c")).status == 204
    assert [value.encode() for value in got] == values


@run
async def test_an_event_larger_than_any_budget_is_served() -> None:
    broker = Broker()
    broker.produce("t", 0, b"\x01" * 300_000, b"small")
    broker.produce("t", 7, b"\x01" * 300_000)
    await broker.register("c", "t")
    got: list[Any] = []
    while found := events_of(await broker.poll("c", maxBytes=1)):
        got += found
    assert sorted(map(len, got)) == [5, 300_000, 300_000]
