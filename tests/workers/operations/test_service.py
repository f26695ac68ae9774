"""The service of a worker whose core gets other slices: what was begun for others ends, and what
is not here is asked for elsewhere."""

import pytest
from twin import Broker, run

from barco.errors import NotReadyError
from barco.workers.shard.topics import TopicRecord


def record(topic: str, version: int) -> dict[str, object]:
    return TopicRecord(topic=topic, version=version, changed_us=1, author=0, created_us=1).to_dict()


@run
async def test_slices_that_have_gone_are_not_read_as_empty() -> None:
    broker = Broker(workers=1)
    service = broker.services[0]
    assert service is not None
    broker.produce("t", 5, b"1")
    args = {"topic": "t", "slice": 5, "from": "earliest", "budget": 1000, "stored": False}
    assert (await service.operation("read", args))["end"] == 1
    service.hold(range(4))
    service.open(2)
    for op, given in (("read", args), ("wait", args | {"offset": 0, "timeout": 1.0})):
        with pytest.raises(NotReadyError, match="does not have the slice"):
            await service.operation(op, given)
    args["slice"] = 3
    assert (await service.operation("read", args))["end"] == 0
    assert (await service.operation("ping", {}))["slices"] == [0, 3]


@run
async def test_who_leads_goes_on_when_its_next_generation_is_open() -> None:
    broker = Broker(workers=1)
    service = broker.services[0]
    assert service is not None
    service.hold(range(8))  # Nothing new.
    assert service.leading
    service.hold(range(4, 8))
    assert not service.leading and not service.staging.leads
    with pytest.raises(NotReadyError, match="does not lead"):
        await service.operation("start_group", {"group": "g", "topics": ["t"], "start": "latest"})
    service.open(2)
    await service.operation("start_group", {"group": "g", "topics": ["t"], "start": "latest"})
    await service.operation("topic_apply", {"record": record("t", 3)})
    positions = await service.operation("positions", {"group": "g"})
    assert [each["slice"] for each in positions] == [4, 5, 6, 7]
    # Settings are written in its own first slice.
    assert {slice_ for topic, slice_ in broker.reactors[0].ends if topic == "__topics"} == {4}


@run
async def test_a_consumer_keeps_its_slices_where_they_stay() -> None:
    broker = Broker(workers=1)
    service = broker.services[0]
    assert service is not None
    for slice_ in (1, 5):
        broker.produce("t", slice_, b"1")
    await broker.register("c", "t")
    assert len(await broker.values("c")) == 2
    await broker.commit("c")
    service.hold(range(4))
    service.open(2)
    for slice_ in (1, 5):
        broker.produce("t", slice_, b"2")
    assert await broker.values("c") == [2]
    await broker.commit("c")
    positions = await service.operation("positions", {"group": "g"})
    assert {each["slice"] for each in positions} == {0, 1, 2, 3}
