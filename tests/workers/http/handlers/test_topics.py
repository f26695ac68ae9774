"""Topics over the in-memory twin."""

import json
from typing import Any

import pytest
from twin import Answer, Broker, run


async def put(broker: Broker, topic: str, settings: Any = None, kind: str = "") -> Answer:
    body = b"" if settings is None else json.dumps(settings).encode()
    headers = {"Content-Type": kind} if kind else {}
    return await broker.request("PUT", f"/v1/topics/{topic}", headers=headers, body=body)


async def names(broker: Broker) -> list[str]:
    answer = await broker.request("GET", "/v1/topics")
    return [topic["topic"] for topic in answer.json["topics"]]


@run
async def test_create_look_change_delete() -> None:
    broker = Broker()
    assert (await put(broker, "t")).status == 201
    assert all(reactor.topics["t"] for reactor in broker.reactors)
    answer = await put(broker, "t", {"retentionHours": 1}, "application/json; charset=utf-8")
    assert answer.status == 200 and answer.json["retentionHours"] == 1
    answer = await put(broker, "t", {"retentionBytes": 5})
    assert (answer.json["retentionHours"], answer.json["retentionBytes"]) == (1, 5)
    assert await names(broker) == ["t"]
    assert (await broker.request("DELETE", "/v1/topics/t")).status == 204
    assert await names(broker) == []
    assert (await broker.request("GET", "/v1/topics/t")).status == 404
    assert (await broker.request("DELETE", "/v1/topics/t")).status == 404
    assert not any(reactor.topics["t"] for reactor in broker.reactors)


@run
async def test_compression_is_told_to_every_reactor() -> None:
    broker = Broker()

    def told() -> set[str | None]:
        return {reactor.told["t"][0] for reactor in broker.reactors}

    assert (await put(broker, "t")).json["compression"] == "lz4" and told() == {None}
    answer = await put(broker, "t", {"compression": "none", "retentionHours": 3})
    assert answer.json["compression"] == "none" and told() == {"none"}
    answer = await put(broker, "t", {"retentionHours": 1})
    assert answer.json["compression"] == "none" and told() == {"none"}
    for worker in (0, 1):
        broker.kill(worker)
        broker.reactors[worker].told.clear()
        broker.start(worker)
    assert told() == {"none"}
    await broker.request("DELETE", "/v1/topics/t")
    assert told() == {None}


@run
async def test_whether_timestamps_may_be_any_is_told_to_every_reactor() -> None:
    broker = Broker()

    def told() -> set[bool]:
        return {reactor.told["t"][1] for reactor in broker.reactors}

    assert (await put(broker, "t")).json["timestamps"] == "plausible" and told() == {False}
    assert (await put(broker, "t", {"timestamps": "any"})).json["timestamps"] == "any"
    answer = await put(broker, "t", {"retentionHours": 1})
    assert answer.json["timestamps"] == "any" and told() == {True}
    for worker in (0, 1):
        broker.kill(worker)
        broker.reactors[worker].told.clear()
        broker.start(worker)
    assert told() == {True}
    assert (await put(broker, "t", {"timestamps": "plausible"})).status == 200
    assert told() == {False}
    assert (await put(broker, "t", {"timestamps": "all"})).status == 400


@run
async def test_what_only_an_earlier_generation_knew_is_forgotten() -> None:
    broker = Broker(workers=1)
    await put(broker, "t", {"compression": "none"})
    broker.reactors[0].kept.clear()  # Its group was thrown away by a fence.
    service = broker.services[0]
    assert service is not None
    service.topics.open()
    assert broker.reactors[0].topics == {"t": False}
    assert broker.reactors[0].told == {"t": ()}


@run
async def test_topics_made_by_the_first_produce_are_topics() -> None:
    broker = Broker()
    broker.produce("t", 7, b"1", b"2")
    answer = await broker.request("GET", "/v1/topics/t")
    assert answer.json["retentionHours"] == 168 and answer.json["events"] == 2
    assert [s["rangeIndex"] for s in answer.json["slices"]] == [7]


@run
async def test_internal_topics_are_not_shown() -> None:
    broker = Broker()
    await broker.register("c", "t")
    await put(broker, "u")
    assert await names(broker) == ["u"]
    for method in ("GET", "PUT", "DELETE"):
        assert (await broker.request(method, "/v1/topics/__offsets")).status == 400


@run
async def test_settings_survive_a_restart_of_every_worker() -> None:
    broker = Broker()
    await put(broker, "t", {"retentionHours": 7})
    await put(broker, "gone")
    await broker.request("DELETE", "/v1/topics/gone")
    for worker in (0, 1):
        broker.kill(worker)
        broker.reactors[worker].topics.clear()
        broker.start(worker)
    assert (await broker.request("GET", "/v1/topics/t")).json["retentionHours"] == 7
    assert await names(broker) == ["t"]
    assert all(reactor.topics == {"t": True} for reactor in broker.reactors)
    service = broker.services[1]
    assert service is not None and service.topics.retention("t") == (7, None)


@run
async def test_a_deleted_topic_loses_its_events_and_may_come_back() -> None:
    broker = Broker()
    await put(broker, "t", {"retentionHours": 7})
    broker.produce("t", 0, b"1")
    broker.produce("t", 7, b"2")
    await broker.request("DELETE", "/v1/topics/t")
    assert broker.reactors[0].starts["t", 0] == 1 and broker.reactors[1].starts["t", 7] == 1
    broker.produce("t", 7, b"3")  # Created again by a produce: offsets go on.
    assert await names(broker) == ["t"]
    assert (await broker.request("GET", "/v1/topics/t")).json["retentionHours"] == 168
    await broker.register("c", "t")
    assert await broker.values("c") == [3]


@run
async def test_a_restart_between_decision_and_cut_cuts_again() -> None:
    broker = Broker(workers=1)
    broker.produce("t", 0, b"1")
    await broker.request("DELETE", "/v1/topics/t")
    broker.reactors[0].starts.clear()
    broker.kill(0)
    broker.start(0)
    assert broker.reactors[0].starts["t", 0] == 1


@run
async def test_a_worker_that_slept_learns_what_was_decided() -> None:
    broker = Broker()
    await put(broker, "t", {"retentionHours": 7})
    broker.kill(1)
    assert (await put(broker, "t", {"retentionHours": 8})).status == 503
    assert (await broker.request("DELETE", "/v1/topics/t")).status == 503
    # As if the other half of a change had been cut off: only worker 0 has it.
    service = broker.services[0]
    assert service is not None
    described = await service.operation("topics", {"topic": "t"})
    record = described["t"]["record"] | {"version": 9, "retention_hours": 9}
    await service.operation("topic_apply", {"record": record})
    broker.start(1)
    woken = broker.services[1]
    assert woken is not None
    assert woken.topics.retention("t") == (7, None)
    await woken.adopt_topics(broker.siblings)
    assert woken.topics.retention("t") == (9, None)


@run
async def test_crossing_changes_end_the_same_everywhere() -> None:
    broker = Broker()
    record = {"topic": "t", "version": 1, "changed_us": 5, "created_us": 5}
    first = record | {"author": 0, "retention_hours": 1}
    second = record | {"author": 1, "retention_hours": 2}
    for worker, order in ((0, (first, second)), (1, (second, first))):
        for change in order:
            await broker.siblings.call(worker, "topic_apply", {"record": change})
    assert [s.topics.retention("t") for s in broker.services if s] == [(2, None)] * 2


@pytest.mark.parametrize(
    "settings",
    [[], 1, "x", {"retentionHours": -1}, {"retentionHours": 1.5}, {"retentionHours": "1"},
     {"retentionHours": True}, {"retentionHours": 10**30}, {"retentionBytes": None}, {"x": 1},
     {"compression": "zstd"}, {"compression": None}, {"compression": ["lz4"]}],
)  # fmt: skip
def test_bad_settings_are_400(settings: Any) -> None:
    @run
    async def scenario() -> None:
        broker = Broker()
        assert (await put(broker, "t", settings)).status == 400
        assert await names(broker) == []

    scenario()


@pytest.mark.parametrize(
    "body", [b"{", b"NaN", b'{"retentionHours": NaN}', b"\xef\xbb\xbf{}", b"1" * 9999]
)
def test_bad_bodies_are_400(body: bytes) -> None:
    @run
    async def scenario() -> None:
        broker = Broker()
        assert (await broker.request("PUT", "/v1/topics/t", body=body)).status == 400

    scenario()


@run
async def test_a_body_of_another_kind_is_415() -> None:
    broker = Broker()
    assert (await put(broker, "t", {}, "text/plain")).status == 415


@pytest.mark.parametrize(
    "name", [".", "..", "a%2Fb", "%00", "x" * 128, "%ff", "%c3%a9", "a%20b", "%2e"]
)
def test_bad_names_are_400(name: str) -> None:
    @run
    async def scenario() -> None:
        broker = Broker()
        for method in ("GET", "PUT", "DELETE"):
            assert (await broker.request(method, f"/v1/topics/{name}")).status == 400

    scenario()


@run
async def test_shards_that_know_the_same_settings_have_the_same_digest() -> None:
    broker = Broker()
    first, second = (service.topics for service in broker.services if service is not None)
    nothing = first.digest()
    assert nothing == second.digest() and nothing[1] == 0
    await broker.request("PUT", "/v1/topics/t", body=b'{"retentionHours": 3}')
    assert first.digest() == second.digest() != nothing
    assert first.digest()[1] == 1


@run
async def test_a_change_costs_the_same_beside_thousands_of_topics() -> None:
    """By work: no look at all streams, and no second hash of what did not change."""
    broker = Broker()
    for number in range(300):
        broker.produce(f"many{number}", number % 8, b"1")
    asked: list[str | None] = []
    for reactor in broker.reactors:
        streams = reactor.streams

        def counted(topic: str | None = None, /, streams: Any = streams) -> Any:
            asked.append(topic)
            return streams(topic)

        reactor.streams = counted  # type: ignore[method-assign]
    assert (await put(broker, "one", {"retentionHours": 3})).status == 201
    assert (await put(broker, "one", {"retentionHours": 4})).status == 200
    assert (await put(broker, "many7", {"retentionHours": 4})).status == 200
    assert (await broker.request("DELETE", "/v1/topics/one")).status == 204
    assert asked and None not in asked
    first, second = (service.topics for service in broker.services if service is not None)
    changed = first.digest()
    assert changed == second.digest()
    first.open()
    assert first.digest() == changed, "as a start has it"
