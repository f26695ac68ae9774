"""What a user may have at most: topics, groups, staged bytes; each counts its own, and no more."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barco import _native, limits
from barco.model.access import ALL, AccessTable, Quota, User, hash_of
from barco.protocol.cursor import Cursor

from ..twin import Answer
from .test_needs import Closed

NAMES = ("ann", "an", "bob", "root")
USED_UP = "urn:barco:problem:quota-used-up"
EXCEEDED = "urn:barco:problem:quota-exceeded"
KIND = "application/vnd.barco.batch"


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def test() -> None:
        asyncio.run(main())

    test.__doc__ = main.__doc__
    return test


class Bounded(Closed):
    """Ann and An have a quota, Bob and Root have none. All of them may do everything."""

    def __init__(self, quota: Quota) -> None:
        super().__init__()
        self.table = AccessTable.of(
            User(name, (hash_of(name),), ALL, quota if name.startswith("an") else Quota())
            for name in NAMES
        )
        self.tell()

    def tell(self) -> None:
        for service in self.services:
            assert service is not None
            service.access.table = self.table

    def again(self) -> None:
        """All processes start anew, with what was stable."""
        for worker in range(self.workers):
            self.kill(worker)
            self.start(worker)
        self.tell()

    async def put(self, who: str, topic: str, **settings: int) -> int:
        return (await self.ask(who, "PUT", f"/v1/topics/{topic}", "", settings)).status

    async def register(self, who: str, group: str, consumer: str = "c") -> Answer:
        query = f"consumerId={consumer}&group={group}&topic=t&onNewGroup=startFromEarliest"
        return await self.ask(who, "PUT", "/v1/consumer/register", query)

    async def stage(self, who: str, size: int, *, writer: str = "w", topic: str = "t") -> Answer:
        headers = {"Authorization": f"Bearer {who}", "Content-Type": KIND}
        value = random.Random(1).randbytes(size)
        query = {"topic": topic, "slice": 0, "attempt": "a", "seq": 0}
        return await self.request(
            *("PUT", f"/v1/writes/{writer}/0/staged", query),
            headers=headers,
            body=_native.batch_encode([value]),
            worker=0,
        )


def refused(answer: Answer, status: int, kind: str) -> None:
    assert (answer.status, answer.json["type"]) == (status, kind), answer
    assert ("retry-after" in answer.headers) == (status == 429)
    assert answer.headers["barco-request-id"]


@run
async def test_topics() -> None:
    broker = Bounded(Quota(topics=2))
    assert [await broker.put("ann", each) for each in ("a", "b")] == [201, 201]
    refused(await broker.ask("ann", "PUT", "/v1/topics/c", "", {}), 403, USED_UP)
    assert (await broker.ask("root", "GET", "/v1/topics/c")).status == 404
    assert await broker.put("ann", "a", retentionHours=5) == 200, "it is there"
    for who, topic in (("bob", "c"), ("an", "d"), ("bob", "e"), ("bob", "f")):
        assert await broker.put(who, topic) == 201, who
    assert await broker.put("root", "b", retentionHours=5) == 200
    broker.again()
    assert await broker.put("ann", "g") == 403, "whoever has changed it, it is hers"
    assert (await broker.ask("root", "DELETE", "/v1/topics/a")).status == 204
    assert [await broker.put("ann", each) for each in ("g", "h")] == [201, 403]
    broker.produce("made", 1, b"1")
    assert await broker.put("ann", "made") == 200, "events have made it, nobody owns it"


@run
async def test_topics_that_are_asked_for_at_once() -> None:
    broker = Bounded(Quota(topics=2))
    found = await asyncio.gather(*(broker.put("ann", f"t{number}") for number in range(8)))
    assert sorted(found) == [201] * 2 + [403] * 6
    topics = (await broker.ask("root", "GET", "/v1/topics")).json["topics"]
    assert len([each for each in topics if each["topic"] != "t"]) == 2


@run
async def test_what_is_staged_makes_no_topic_of_a_user_whose_topics_are_counted() -> None:
    broker = Bounded(Quota(topics=2))
    refused(await broker.stage("ann", 10, topic="new"), 403, USED_UP)
    assert (await broker.stage("bob", 10, topic="new")).status == 200
    assert await broker.put("root", "new") == 201
    assert (await broker.stage("ann", 10, topic="new")).status == 200


@run
async def test_groups() -> None:
    broker = Bounded(Quota(groups=2))
    broker.produce("t", 0, b"1")
    for group in ("g", "h"):
        assert (await broker.register("ann", group, f"of-{group}")).status == 200
    refused(await broker.register("ann", "i", "of-i"), 403, USED_UP)
    assert (await broker.ask("ann", "POST", "/v1/consumer/poll", "consumerId=of-i")).status == 409
    assert (await broker.register("ann", "g", "another")).status == 200, "it is there"
    for who, group in (("bob", "i"), ("an", "j"), ("bob", "k"), ("bob", "l")):
        assert (await broker.register(who, group, f"of-{group}")).status == 200, who
    assert (await broker.register("ann", "i", "of-i")).status == 200, "it is bob's"
    seek = {"topic": "t", "to": "earliest"}
    answer = await broker.ask("ann", "PUT", "/v1/groups/m/positions", "", seek)
    refused(answer, 403, USED_UP)
    for consumer in ("of-g", "another"):
        query = f"consumerId={consumer}"
        assert (await broker.ask("ann", "POST", "/v1/consumer/poll", query)).status in (200, 204)
        assert (await broker.ask("ann", "POST", "/v1/consumer/goodbye", query)).status == 200
    broker.again()
    assert (await broker.register("ann", "m")).status == 403, "its positions are there"
    assert (await broker.ask("root", "DELETE", "/v1/groups/g")).status == 204
    assert (await broker.ask("ann", "PUT", "/v1/groups/m/positions", "", seek)).status == 200
    assert (await broker.register("ann", "n")).status == 403


@run
async def test_groups_that_are_asked_for_at_once() -> None:
    broker = Bounded(Quota(groups=2))
    calls = (broker.register("ann", f"g{number}", f"c{number}") for number in range(8))
    found = [each.status for each in await asyncio.gather(*calls)]
    assert sorted(found) == [200] * 2 + [403] * 6
    groups = (await broker.ask("root", "GET", "/v1/groups")).json["groups"]
    assert len(groups) == 2 and all(each["members"] == 1 for each in groups)


@run
async def test_a_group_begins_where_it_is_counted() -> None:
    """Positions of other slices alone would make any number."""
    broker = Bounded(Quota(groups=1))
    for number in range(8):
        broker.produce("t", number, b"1")

    async def move(who: str, group: str, *slices: int) -> Answer:
        cursor = {str(number): str(Cursor(1, 0)) for number in slices}
        seek = {"topic": "t", "to": {"slices": cursor}}
        return await broker.ask(who, "PUT", f"/v1/groups/{group}/positions", "", seek)

    for slices in ((7,), (1,)):
        answer = await move("ann", "g", *slices)
        assert (answer.status, "slice 0" in answer.json["detail"]) == (400, True)
    assert (await broker.ask("root", "GET", "/v1/groups")).json["groups"] == []
    assert (await move("bob", "b", 7)).status == 200
    assert (await move("ann", "g", 0, 7)).status == 200
    assert (await move("ann", "g", 7)).status == 200, "it is there"
    refused(await move("ann", "h", 0), 403, USED_UP)


@run
async def test_a_group_that_a_poll_begins_again_is_its_users() -> None:
    broker = Bounded(Quota(groups=1))
    broker.produce("t", 0, b"1")
    assert (await broker.register("ann", "g")).status == 200
    for service in broker.services:  # DELETE had looked for members just before.
        assert service is not None
        await service.consumption.forget("g")
    poll = await broker.ask("ann", "POST", "/v1/consumer/poll", "consumerId=c")
    assert poll.status in (200, 204)
    refused(await broker.register("ann", "h", "d"), 403, USED_UP)


@run
async def test_a_group_that_could_not_begin_is_not_counted() -> None:
    broker = Bounded(Quota(groups=1))
    broker.reactors[0].fail_status = 503
    assert (await broker.register("ann", "g")).status == 503
    broker.reactors[0].fail_status = 0
    assert (await broker.register("ann", "h")).status == 200
    assert (await broker.register("ann", "g", "another")).status == 403


@run
async def test_staged_bytes() -> None:
    broker = Bounded(Quota(staged=4_000))
    assert (await broker.stage("ann", 1_800)).status == 200
    assert (await broker.stage("ann", 1_800, writer="v")).status == 200
    for writer in ("w2", "v"):
        attempt = await broker.stage("ann", 1_800, writer=writer)
        if writer == "w2":
            refused(attempt, 429, EXCEEDED)
        else:
            assert attempt.status == 200, "it was staged already"
    for who in ("bob", "an", "root"):
        assert (await broker.stage(who, 3_000)).status == 200
    assert (await broker.ask("ann", "DELETE", "/v1/writes/v/0")).status == 204
    assert (await broker.stage("ann", 1_800, writer="w2")).status == 200


@run
async def test_what_is_staged_at_once_counts_while_it_is_written() -> None:
    broker = Bounded(Quota(staged=4_000))
    spool, append = broker.spools[0], broker.spools[0].append_all

    async def slowly(file: Any, entries: Any) -> Any:
        await asyncio.sleep(0.01)
        return await append(file, entries)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "append_all", slowly)
        calls = (broker.stage("ann", 1_800, writer=f"w{number}") for number in range(8))
        found = sorted([each.status for each in await asyncio.gather(*calls)])
    assert found == [200] * 2 + [429] * 6
    service = broker.services[0]
    assert service is not None
    assert not any(each.coming for each in service.staging.writes.values())
    for number in range(8):
        assert (await broker.ask("ann", "DELETE", f"/v1/writes/w{number}/0")).status == 204
    assert (await broker.stage("ann", 1_800)).status == 200


@run
async def test_one_user_leaves_room_for_others() -> None:
    """Without a quota as well, however many writers it names."""
    broker = Bounded(Quota())
    service = broker.services[0]
    assert service is not None
    service.staging._bytes_max = 8_000
    for writer, status in (("a", 200), ("b", 200), ("c", 503)):
        assert (await broker.stage("ann", 1_800, writer=writer)).status == status
    assert (await broker.stage("an", 1_800)).status == 200
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "STAGED_WRITES_MAX", 6)
        for writer, status in (("c", 200), ("d", 429)):
            assert (await broker.stage("ann", 10, writer=writer)).status == status
        assert (await broker.stage("an", 10, writer="w2")).status == 200


@run
async def test_what_one_user_stages_drops_nothing_that_another_has_left() -> None:
    broker = Bounded(Quota(staged=2_000))
    service = broker.services[0]
    assert service is not None
    assert (await broker.stage("bob", 100)).status == 200
    assert (await broker.stage("ann", 1_800)).status == 200
    late = limits.STAGED_IDLE_SECONDS + 10
    service.staging.monotonic = lambda: time.monotonic() + late
    assert (await broker.stage("ann", 1_800, writer="v")).status == 200, "her own goes"
    assert sorted(broker.spools[0].files) == ["ann:v/0", "bob:w/0"]
    refused(await broker.stage("ann", 1_800, writer="u"), 429, EXCEEDED)
    assert "bob:w/0" in broker.spools[0].files


def test_each_refusal_for_a_quota_is_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("barco"), "propagate", True)
    logging.getLogger("barco").removeHandler(caplog.handler)  # Who propagates is heard at the root.
    caplog.set_level(logging.INFO, "barco.audit")

    async def main() -> None:
        broker = Bounded(Quota(staged=100, groups=1))
        for answer in (
            await broker.stage("ann", 1_800),
            *[await broker.register("ann", group, group) for group in "gh"][1:],
        ):
            request = answer.headers["barco-request-id"]
            lines = [vars(each) for each in caplog.records if each.name == "barco.audit"]
            told = {(line["user"], line["status"]) for line in lines if line["request"] == request}
            assert told == {("ann", answer.status)}

    asyncio.run(main())


@run
async def test_an_earlier_version_takes_no_quota_for_a_removal() -> None:
    """There a change that has none of the fields that it knows is one."""
    broker = Bounded(Quota())
    asked: list[str] = []
    call = broker.siblings.call

    async def noting(worker: int, op: str, args: Any, timeout: float = 5.0) -> Any:
        asked.append(op)
        return await call(worker, op, args, timeout)

    broker.siblings.call = noting  # type: ignore[method-assign]
    new = {"sha256": hash_of("root").hex(), "grants": ["users"]}
    assert (await broker.ask("root", "PUT", "/v1/users/root", "", new)).status == 201
    for given in ({"topics": 5}, {"stagedBytes": 5, "requestsPerSecond": 3}, {"bytesPerSecond": 2}):
        assert (await broker.ask("root", "PUT", "/v1/users/root", "", given)).status == 200
    assert asked == ["access_set", "access_bound", "access_bound", "access_set"]


def test_who_is_refused_is_counted() -> None:
    async def main() -> None:
        broker = Bounded(Quota(topics=1, groups=1, staged=1))
        broker.produce("t", 0, b"1")
        app, service = broker.apps[0], broker.services[0]
        assert app is not None and service is not None
        app.count_in()
        counted = []
        for refused in (
            lambda: broker.put("ann", "one"),
            lambda: broker.put("ann", "two"),
            lambda: broker.register("ann", "g"),
            lambda: broker.register("ann", "h", "d"),
            lambda: broker.stage("ann", 1000),
            lambda: broker.ask("ann", "GET", "/v1/topics/missing"),
        ):
            await refused()
            counted.append(service.more_stats()["over_quota_kept"])
        assert counted == [0, 1, 1, 2, 3, 3]

    asyncio.run(main())
