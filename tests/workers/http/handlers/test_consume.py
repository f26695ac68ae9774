"""Group consumption over the in-memory twin."""

import asyncio
import json
from dataclasses import replace

import pytest
from twin import Answer, Broker, run

from barco.model.options import WorkerOptions


def numbers(first: int, count: int) -> list[bytes]:
    return [str(n).encode() for n in range(first, first + count)]


@run
async def test_register_poll_and_nothing_twice() -> None:
    broker = Broker()
    for slice in range(8):
        broker.produce("t", slice, *numbers(slice * 10, 3))
    answer = await broker.register("c", "t")
    assert (answer.status, answer.body) == (200, b"OK")
    got = await broker.values("c")
    assert sorted(got) == sorted(s * 10 + n for s in range(8) for n in range(3))
    assert await broker.values("c") == []


@run
async def test_the_shape_of_polars_json() -> None:
    broker = Broker()
    broker.produce("t1", 1, b'{"a":1}')
    await broker.register("c", "t1")
    answer = await broker.poll("c")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == [
        {
            "topic": "t1",
            "token": "-9223372036854775808",
            "rangeIndex": 1,
            "version": 1,
            "startOffset": "0",
            "values": [{"a": 1}],
        }
    ]


@run
async def test_values_that_are_not_json_do_not_break_the_answer() -> None:
    broker = Broker()
    broker.produce("t", 0, b"{broken", b"\xff", b"1")
    await broker.register("c", "t")
    assert await broker.values("c") == ["{broken", {"base64": "/w=="}, 1]


@run
async def test_registering_twice_and_otherwise() -> None:
    broker = Broker()
    await broker.register("c", "t")
    again = await broker.register("c", "t")
    assert (again.status, again.body) == (200, b"Already registered")
    other = await broker.register("c", "u")
    assert other.status == 409
    assert other.headers["content-type"] == "application/problem+json"
    assert other.json["type"] == "urn:barco:problem:already-registered"


@run
async def test_polar_registers_with_a_json_body() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    body = json.dumps({"id": "c", "group": "g", "topics": ["t"], "onNewGroup": 1}).encode()
    headers = {"Content-Type": "application/json"}
    answer = await broker.request("POST", "/v1/consumer/register", headers=headers, body=body)
    assert answer.body == b"OK"
    assert await broker.values("c") == [1]
    legacy = await broker.request(
        "PUT",
        "/v1/consumer/register",
        {"consumer_id": "c", "group": "g", "topic": "t", "onNewGroup": "startFromEarliest"},
    )
    assert legacy.body == b"Already registered"


@run
async def test_a_poll_commits_what_the_last_one_returned() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1", b"2")
    await broker.register("c", "t")
    assert await broker.values("c") == [1, 2]
    broker.produce("t", 0, b"3")
    assert await broker.values("c") == [3]
    await broker.settle()
    broker.kill(0)
    broker.start(0)
    # 1 and 2 were committed by the second poll; 3 never was.
    assert await broker.values("c") == [3]


@run
async def test_without_a_commit_everything_comes_again() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    await broker.register("c", "t")
    assert await broker.values("c") == [1]
    await broker.register("c", "t")  # The same name, a new session: a restarted consumer.
    assert await broker.values("c") == [1]


@run
async def test_a_manual_commit_is_durable_when_it_is_answered() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    broker.produce("t", 7, b"2")
    await broker.register("c", "t")
    assert sorted(await broker.values("c")) == [1, 2]
    broker.reactors[0].hold = True
    task = asyncio.create_task(broker.commit("c"))
    await broker.settle()
    assert not task.done()
    broker.reactors[0].release()
    assert (await task).status == 204
    for worker in (0, 1):
        broker.kill(worker)
        broker.start(worker)
    await broker.register("c", "t")
    assert await broker.values("c") == []


@run
async def test_a_commit_with_nothing_to_commit_is_204() -> None:
    broker = Broker()
    await broker.register("c", "t")
    assert (await broker.commit("c")).status == 204


@run
async def test_a_commit_that_the_log_refuses_is_503_and_nothing_is_lost() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    await broker.register("c", "t")
    assert await broker.values("c") == [1]
    broker.reactors[0].fail_status = 503
    answer = await broker.commit("c")
    assert answer.status == 503 and answer.headers["barco-outcome"] == "not-written"
    broker.reactors[0].fail_status = 0
    assert (await broker.commit("c")).status == 204
    broker.kill(0)
    broker.start(0)
    assert await broker.values("c") == []


@run
async def test_a_start_that_the_log_refuses_is_noted_anew() -> None:
    broker = Broker()
    for slice in range(8):
        broker.produce("t", slice, *numbers(slice * 10, 2))
    broker.reactors[0].fail_status = 503
    assert (await broker.register("c", "t", start="startFromLatest")).status == 503
    assert (await broker.poll("c")).headers["barco-unavailable-slices"] == "0,1,2,3"
    broker.reactors[0].fail_status = 0
    assert await broker.values("c") == []
    broker.produce("t", 3, b"39")
    assert await broker.values("c") == [39]


@run
async def test_start_from_latest_skips_what_was_there_and_nothing_else() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    await broker.register("c", "t", start="startFromLatest")
    broker.produce("t", 0, b"2")
    broker.produce("t", 5, b"3")
    for worker in (0, 1):  # The start is on disk: a restart must not move it to the new end.
        broker.kill(worker)
        broker.start(worker)
    assert sorted(await broker.values("c")) == [2, 3]


@run
async def test_the_first_start_of_a_group_counts() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    await broker.register("c", "t", start="startFromLatest")
    await broker.goodbye("c")
    broker.produce("t", 0, b"2")
    await broker.register("d", "t", start="startFromEarliest")
    assert await broker.values("d") == [2]


@run
async def test_two_groups_do_not_see_each_other() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    await broker.register("c", "t", group="g")
    await broker.register("d", "t", group="h")
    assert await broker.values("c") == [1]
    assert await broker.values("d") == [1]


@run
async def test_two_consumers_share_the_slices() -> None:
    broker = Broker()
    for slice in range(8):
        broker.produce("t", slice, str(slice).encode())
    await broker.register("a", "t")
    await broker.register("b", "t")
    assert sorted(await broker.values("a")) == [0, 1, 2, 3]
    assert sorted(await broker.values("b")) == [4, 5, 6, 7]


@run
async def test_goodbye_commits_and_hands_over_at_once() -> None:
    broker = Broker()
    for slice in range(8):
        broker.produce("t", slice, str(slice).encode())
    await broker.register("a", "t")
    await broker.register("b", "t")
    await broker.values("a")
    answer = await broker.goodbye("a")
    assert (answer.status, answer.body) == (200, b"OK")
    broker.produce("t", 0, b"100")
    assert sorted(await broker.values("b")) == [4, 5, 6, 7, 100]
    assert (await broker.poll("a")).status == 409


@run
async def test_goodbye_without_commit_gives_the_events_to_the_next() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    await broker.register("a", "t")
    assert await broker.values("a") == [1]
    await broker.goodbye("a", commit="false")
    await broker.register("b", "t")
    assert await broker.values("b") == [1]


@run
async def test_an_expired_consumer_is_fenced_and_its_events_come_again() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    await broker.register("a", "t")
    await broker.register("b", "t")
    assert await broker.values("a") == [1]
    before = broker.supervisor.groups.version
    broker.supervisor.groups.touch(["b"], 119.0)
    assert broker.supervisor.groups.tick(121.0)
    broker.supervisor.publish(before)
    assert (await broker.commit("a")).status == 409
    assert await broker.values("b") == [1]


async def commit_to(broker: Broker, consumer: str, slice: int) -> Answer:
    position = {"topic": "t", "slice": slice, "offset": 1}
    body = json.dumps({"positions": [position]}).encode()
    return await broker.request("POST", "/v1/consumer/commit", {"consumerId": consumer}, body=body)


@run
async def test_a_rebalance_moves_slices_and_refuses_a_late_commit() -> None:
    broker = Broker()
    for slice in range(8):
        broker.produce("t", slice, str(slice).encode())
    await broker.register("b", "t")
    assert len(await broker.values("b")) == 8
    await broker.register("a", "t")
    assert await broker.values("a") == [], "b may be processing all of it"
    await broker.register("b", "t")
    assert sorted(await broker.values("a")) == [4, 5, 6, 7], "b is another one, and forgets it"
    late = await commit_to(broker, "b", 4)
    assert late.status == 409 and late.json["slices"] == ["t/4"]
    assert sorted(await broker.values("b")) == [0, 1, 2, 3]
    assert (await broker.commit("a")).status == 204


@run
async def test_a_consumer_may_commit_what_nobody_else_has_taken_yet() -> None:
    broker = Broker()
    for slice in range(8):
        broker.produce("t", slice, str(slice).encode())
    await broker.register("b", "t")
    assert len(await broker.values("b")) == 8
    await broker.register("a", "t")
    assert (await broker.commit("b")).status == 204
    assert await broker.values("a") == []


@run
async def test_positions_never_go_back() -> None:
    broker = Broker(workers=1)
    broker.produce("t", 0, b"1", b"2")
    await broker.register("c", "t")
    await broker.values("c")
    await broker.commit("c")
    broker.produce("t", 0, b"3")
    assert await broker.values("c") == [3]
    await broker.register("c", "t")
    assert await broker.values("c") == [3]
    group = await broker.request("GET", "/v1/groups/g")
    assert [p["offset"] for p in group.json["positions"] if p["rangeIndex"] == 0] == ["2"]


@run
async def test_a_poll_takes_several_chunks_and_keeps_to_its_budget() -> None:
    broker = Broker(workers=1)
    for n in range(50):
        broker.produce("t", 0, b'"%04d%s"' % (n, b"x" * 1000))
    await broker.register("c", "t")
    first = await broker.values("c", maxBytes=10_000)
    assert 5 <= len(first) <= 10
    rest = []
    while got := await broker.values("c", maxBytes=20_000):
        rest += got
    assert [int(v[:4]) for v in first + rest] == list(range(50))


@run
async def test_an_event_over_the_budget_is_returned_all_the_same() -> None:
    broker = Broker(workers=1)
    broker.produce("t", 0, b'"%s"' % (b"x" * 300_000))
    broker.produce("t", 0, b"2")
    await broker.register("c", "t")
    assert [len(str(v)) for v in await broker.values("c", maxBytes=1)] == [300_000]
    assert await broker.values("c", maxBytes=0) == [2]


@run
async def test_slices_are_served_fairly() -> None:
    broker = Broker(workers=1)
    for _ in range(100):
        broker.produce("t", 0, b'"%s"' % (b"x" * 10_000))
    broker.produce("t", 7, b"7")
    await broker.register("c", "t")
    assert 7 in await broker.values("c", maxBytes=100_000)


@run
async def test_what_is_not_in_memory_comes_from_disk() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    broker.produce("t", 0, b"2")
    broker.reactors[0].memory_floor["t", 0] = 2
    await broker.register("c", "t")
    assert await broker.values("c") == [1, 2]
    assert broker.logs[0].reads > 0


@run
async def test_corrupt_data_is_told_and_does_not_stop_the_other_slices() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    broker.produce("t", 1, b"2")
    broker.reactors[0].memory_floor["t", 0] = 9
    broker.logs[0].corrupt.add(("t", 0))
    await broker.register("c", "t")
    answer = await broker.poll("c")
    assert answer.headers["barco-unavailable-slices"] == "0"
    assert [item["values"] for item in answer.json] == [[2]]


def test_what_cannot_be_read_is_logged_once_until_it_can(caplog: pytest.LogCaptureFixture) -> None:
    @run
    async def told() -> None:
        broker = Broker(workers=1)
        broker.produce("t", 0, b"1")
        broker.reactors[0].memory_floor["t", 0] = 9
        broker.logs[0].corrupt.add(("t", 0))
        await broker.register("c", "t")
        for _ in range(3):
            assert await broker.values("c") == []
        assert [each.name for each in caplog.records] == ["barco.consumption"]
        assert "t/0 cannot be read from 0 on" in caplog.text
        broker.logs[0].corrupt.clear()
        broker.reactors[0].memory_floor.clear()
        assert await broker.values("c") == [1]
        broker.produce("t", 0, b"2")
        broker.reactors[0].memory_floor["t", 0] = 9
        broker.logs[0].corrupt.add(("t", 0))
        assert await broker.values("c") == []
        assert len(caplog.records) == 2

    told()


@run
async def test_a_dead_worker_is_skipped_and_named() -> None:
    broker = Broker()
    broker.produce("t", 0, b"1")
    broker.produce("t", 7, b"7")
    await broker.register("c", "t")
    broker.kill(1)
    answer = await broker.poll("c")
    assert answer.headers["barco-unavailable-slices"] == "4,5,6,7"
    assert [item["values"] for item in answer.json] == [[1]]
    commit = await broker.commit("c")
    assert commit.status == 503
    broker.start(1)
    assert (await broker.commit("c")).status == 204
    assert await broker.values("c") == [7]


@run
async def test_registering_while_a_worker_is_down_is_503_and_can_be_repeated() -> None:
    broker = Broker()
    broker.kill(1)
    assert (await broker.register("c", "t")).status == 503
    broker.start(1)
    answer = await broker.register("c", "t")
    assert (answer.status, answer.body) == (200, b"Already registered")


@run
async def test_retention_moves_a_position_forward() -> None:
    broker = Broker(workers=1)
    for n in range(4):
        broker.produce("t", 0, str(n).encode())
    await broker.register("c", "t")
    broker.reactors[0].starts["t", 0] = 2
    assert await broker.values("c") == [2, 3]


@run
async def test_retention_on_disk_moves_a_position_forward() -> None:
    broker = Broker(workers=1)
    for n in range(4):
        broker.produce("t", 0, str(n).encode())
    broker.reactors[0].memory_floor["t", 0] = 4
    broker.logs[0].kept["t", 0] = 2
    await broker.register("c", "t")
    answer = await broker.poll("c")
    assert [(item["startOffset"], item["values"]) for item in answer.json] == [("2", [2, 3])]


@run
async def test_without_auto_create_a_topic_that_is_misspelt_can_not_be_waited_for() -> None:
    class Strict(Broker):
        def options(self, worker: int) -> WorkerOptions:
            return replace(super().options(worker), auto_create=False)

    strict = Strict()
    strict.produce("orders", 0, b"1")
    answer = await strict.register("c", "oders")
    assert (answer.status, answer.json["detail"]) == (404, "There is no topic oders.")
    assert (await strict.request("GET", "/v1/groups")).json == {"groups": []}
    assert (await strict.register("c", "orders")).status == 200
    assert (await Broker().register("c", "oders")).status == 200, "its first event makes it"


@run
async def test_a_heartbeat_is_a_sign_of_life() -> None:
    broker = Broker()
    assert (await broker.request("POST", "/v1/consumer/heartbeat", "consumerId=c")).status == 409
    await broker.register("c", "t")
    for worker in range(2):
        told: list[str] = []
        service = broker.services[worker]
        assert service is not None
        service.membership.heard_of = told.append  # type: ignore[method-assign]
        answer = await broker.request(
            "POST", "/v1/consumer/heartbeat", "consumerId=c", worker=worker
        )
        assert (answer.status, answer.body, told) == (204, b"", ["c"])
    assert (await broker.request("POST", "/v1/consumer/heartbeat")).status == 400
