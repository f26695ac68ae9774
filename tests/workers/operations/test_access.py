"""Users as each process hears of them: in a whole broker, from its first question on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgpack
import pytest

from barco.errors import ConflictError, NotFoundError, NotReadyError
from barco.model.access import EVERYBODY, hash_of
from barco.model.options import WorkerOptions
from barco.workers.http.handlers.standing import look
from barco.workers.operations.access import AccessDesk
from barco.workers.shard.access import ACCESS, KEY

from ..twin import Broker

ROOT, BOB = "barco_root", "barco_bob"


class Closed(Broker):
    """With access on, and root for whom the operator has made a token."""

    def options(self, worker: int) -> WorkerOptions:
        options = super().options(worker)
        options.access.update(required=True, first=[["root", hash_of(ROOT).hex()]])
        return options

    def desk(self, worker: int) -> AccessDesk:
        service = self.services[worker]
        assert service is not None
        return service.access

    async def set(self, name: str, **args: Any) -> Any:
        return await self.siblings.call(0, "access_set", {"name": name, **args})


class Half(Closed):
    """Whose second worker was configured to let everybody in."""

    def options(self, worker: int) -> WorkerOptions:
        options = super().options(worker)
        if worker == 1:
            options.access.update(required=False)
        return options


def run(test: Callable[[Closed], Awaitable[None]], kind: type[Closed] = Closed) -> None:
    async def main() -> None:
        broker = kind()
        desks = [broker.desk(worker) for worker in range(broker.workers)]
        tasks = [asyncio.create_task(desk.run(broker.siblings)) for desk in desks]
        try:
            async with asyncio.timeout(120):
                await test(broker)
        finally:
            for task in tasks:
                task.cancel()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> float:
    """How many seconds it took."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)
    return loop.time() - began


def test_closed_until_it_has_been_heard() -> None:
    desk = Closed().desk(1)
    for token in (ROOT, BOB, None):
        with pytest.raises(NotReadyError):
            desk.who(token)


def test_nobody_is_asked_where_it_is_off() -> None:
    service = Broker().services[1]
    assert service is not None and service.access.who(None) is EVERYBODY


def test_each_process_hears_of_each_change() -> None:
    async def test(broker: Closed) -> None:
        for worker in range(broker.workers):
            await until(lambda worker=worker: broker.desk(worker).table is not None)
            found = broker.desk(worker).who(ROOT)
            assert found is not None and found.name == "root"
            assert broker.desk(worker).who(BOB) is broker.desk(worker).who(None) is None
        assert await broker.set("bob", hash=hash_of(BOB), grants=["produce:a*"])
        took = []
        for worker in range(broker.workers):
            took.append(await until(lambda at=worker: broker.desk(at).who(BOB) is not None))
        assert not await broker.set("bob", grants=["metrics"])  # Was there; the token stays.
        for worker in range(broker.workers):
            took.append(await until(lambda at=worker: broker.desk(at).who(BOB).may("metrics")))
        await broker.set("bob")
        for worker in range(broker.workers):
            took.append(await until(lambda at=worker: broker.desk(at).who(BOB) is None))
        # The bar: a change is live in a second. One of them may meet a machine that stands still.
        assert sorted(took)[len(took) // 2] < 1.0, took

    run(test)


def test_tokens_are_replaced_at_once_or_side_by_side() -> None:
    async def test(broker: Closed) -> None:
        await until(lambda: broker.desk(1).table is not None)
        who = broker.desk(1).who
        await broker.set("bob", hash=hash_of(BOB), grants=[])
        await broker.set("bob", hash=hash_of("new"), keep=True)
        await until(lambda: who("new") is not None)
        assert who(BOB) is who("new")
        await broker.set("bob", hash=hash_of("newest"))
        await until(lambda: who("newest") is not None)
        assert who(BOB) is None and who("new") is None

    run(test)


def test_refusals() -> None:
    async def test(broker: Closed) -> None:
        with pytest.raises(NotFoundError):
            await broker.set("bob")
        with pytest.raises(NotFoundError, match="needs a token and grants"):
            await broker.set("bob", grants=[])
        with pytest.raises(ConflictError):
            await broker.set("root")
        with pytest.raises(NotReadyError):
            await broker.siblings.call(1, "access_set", {"name": "bob"})

    run(test)


def test_it_is_there_after_a_death_and_the_first_users_count_no_more() -> None:
    async def test(broker: Closed) -> None:
        await broker.set("bob", hash=hash_of(BOB), grants=["users"])
        await broker.set("root")
        broker.kill(0)
        broker.start(0)
        desk = broker.desk(0)
        await desk.look(broker.siblings)
        assert desk.who(BOB) is not None and desk.who(ROOT) is None

    run(test)


LATER = {"version": 9, "users": [["bob", [hash_of(BOB)], ["a-verb-of-a-later-version"], [0, 0]]]}
UNREADABLE = [
    msgpack.packb({"slice": 0, "access": LATER}),
    msgpack.packb({"slice": 0, "users": []}),
    b"\xc1",
    b"",
]


@pytest.mark.parametrize("value", UNREADABLE, ids=["verb", "shape", "bytes", "empty"])
def test_users_that_can_not_be_read_let_nobody_in(
    value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the first users, who may do everything, nor those of a change before it."""

    async def test(broker: Closed) -> None:
        await until(lambda: broker.desk(1).table is not None)
        broker.reactors[0].kept[ACCESS, KEY] = value
        broker.kill(0)
        broker.start(0)
        desk = broker.desk(0)
        with pytest.raises(NotReadyError, match="can not read"):
            await desk.look(broker.siblings)
        with pytest.raises(NotReadyError):
            desk.who(ROOT)
        assert "can not read" in caplog.text
        assert broker.desk(1).who(ROOT) is not None  # What was heard goes on to count.
        with pytest.raises(NotReadyError):
            await broker.desk(1).look(broker.siblings)
        for worker, place in ((1, "degraded"), (0, "waiting")):
            app = broker.apps[worker]
            assert app is not None
            assert "can not read" in " ".join(getattr(await look(app._context), place))
        with pytest.raises(NotReadyError, match="can not read"):  # And nobody changes it so.
            await broker.set("bob", hash=hash_of(BOB), grants=["users"])
        desk.required = False  # But whoever starts it on loopback, without asking who it is.
        await broker.set("bob", hash=hash_of(BOB), grants=["users"])
        await desk.look(broker.siblings)
        assert desk.table is not None and desk.table.find(BOB) is not None
        await broker.desk(1).look(broker.siblings)
        assert not broker.desk(1).fault

    run(test)


def test_a_log_that_has_lost_changes_of_users_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async def test(broker: Closed) -> None:
        await broker.set("bob", hash=hash_of(BOB), grants=["produce:a"])
        before = dict(broker.reactors[0].kept)
        await broker.set("bob")
        await until(lambda: broker.desk(1).table is not None and broker.desk(1).table.version == 2)
        assert "went back" not in caplog.text
        broker.reactors[0].kept.update(before)
        broker.kill(0)
        broker.start(0)
        await broker.desk(1).look(broker.siblings)
        assert "went back from version 2 to 1" in caplog.text

    run(test)


def test_who_asks_nobody_asks_as_the_others_do_once_there_are_users(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(broker: Closed) -> None:
        await until(lambda: broker.desk(0).table is not None)
        heard: list[int] = []
        desk = broker.desk(1)
        desk.on_news = lambda table: heard.append(table.version)
        await asyncio.sleep(0.01)
        assert desk.who(None) is EVERYBODY and not heard  # Brokers are restarted with the key.
        assert not desk.watches  # Here; in a ring it does.
        await broker.set("bob", hash=hash_of(BOB), grants=["produce:a"])
        async with asyncio.timeout(60):
            while not desk.required:
                await asyncio.sleep(0.01)
        assert desk.who(None) is None
        bob = desk.who(BOB)
        assert bob is not None and bob.name == "bob" and heard == [1]
        assert "Set access.required = true" in caplog.text

    run(test, Half)


def test_where_nobody_asks_nobody_begins_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Switched off everywhere, users or not: a token that was lost is replaced so."""

    class Open(Closed):
        def options(self, worker: int) -> WorkerOptions:
            options = super().options(worker)
            options.access.update(required=False)
            return options

    async def test(broker: Closed) -> None:
        await broker.set("bob", hash=hash_of(BOB), grants=["users"])
        assert await broker.siblings.call(0, "access_asked", {}) is False
        desk = broker.desk(1)
        assert not await desk._is_asked(broker.siblings)
        await broker.siblings.call(0, "access", {"required": True})
        assert await desk._is_asked(broker.siblings)
        monkeypatch.setattr("barco.workers.operations.access.ASKED_SECONDS", 0.0)
        assert not await desk._is_asked(broker.siblings)
        assert desk.who(None) is EVERYBODY

    run(test, Open)
