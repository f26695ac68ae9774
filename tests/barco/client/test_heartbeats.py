"""When heartbeats are sent, and when they are not."""

import asyncio

import pytest

from barco.client.base.errors import TransportError
from barco.client.consuming.heartbeats import Heartbeats
from barco.errors import NotFoundError, NotRegisteredError

EVERY = 0.02


async def beats_of(
    seconds: float,
    *,
    fails: Exception | None = None,
    busy_max: float = 60.0,
    calls: bool = False,
) -> int:
    """How many are sent in so long."""
    sent = 0

    async def say() -> None:
        nonlocal sent
        sent += 1
        if fails is not None:
            raise fails

    beats = Heartbeats(say, 3 * EVERY, busy_max)
    beats.start()
    for _ in range(round(seconds / (EVERY / 4))):
        await asyncio.sleep(EVERY / 4)
        if calls:
            beats.called()
    await beats.close()
    before = sent
    await asyncio.sleep(3 * EVERY)
    assert sent == before, "closed is closed"
    return sent


@pytest.mark.parametrize(("options", "some"), [
    ({}, True),
    ({"calls": True}, False),  # Polls say so themselves.
    ({"busy_max": 0.0}, False),
    ({"fails": TransportError("away")}, True),
    ({"fails": NotRegisteredError("gone")}, True),
])  # fmt: skip
def test_it_beats_while_the_program_is_busy(options: dict[str, object], some: bool) -> None:
    sent = asyncio.run(beats_of(20 * EVERY, **options))  # type: ignore[arg-type]
    assert sent >= 3 if some else sent <= 1, sent


def test_a_program_that_hangs_loses_its_slices() -> None:
    """At most as many as fit into the time that it may be busy."""
    sent = [asyncio.run(beats_of(30 * EVERY, busy_max=5 * EVERY))]
    while not sent[-1] and len(sent) < 10:  # The machine stood still for all of that time.
        sent.append(asyncio.run(beats_of(30 * EVERY, busy_max=5 * EVERY)))
    assert 1 <= sent[-1] <= 5


def test_brokers_that_know_none_are_asked_once() -> None:
    assert asyncio.run(beats_of(20 * EVERY, fails=NotFoundError("no such path"))) == 1
