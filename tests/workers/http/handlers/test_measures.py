"""Topics and groups by name among the metrics, over the in-memory twin."""

import pytest
from twin import Broker, run

from barco.workers.http.handlers import measures


async def told(broker: Broker, query: str) -> dict[str, str]:
    answer = await broker.request("GET", "/metrics", query)
    assert answer.status == 200, answer.body
    lines = answer.body.decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if line[0] != "#")


async def filled() -> Broker:
    broker = Broker()
    for topic, count in (("orders.eu", 3), ("orders.us", 2), ("clicks", 1)):
        for slice in (0, 7):
            broker.produce(topic, slice, *[b"x"] * count)
    broker.reactors[0].truncate_stream("orders.eu", 0, 1)
    return broker


@run
async def test_no_name_is_told_that_nobody_asks_for() -> None:
    broker = await filled()
    for query in ("", "slices=true", "topics=", "groups="):
        assert not any("clicks" in line for line in await told(broker, query))


@run
async def test_topics_by_name_and_by_beginning() -> None:
    broker = await filled()
    lines = await told(broker, "topics=orders.*")
    assert lines['barco_topic_events_total{topic="orders.eu"}'] == "6"
    assert lines['barco_topic_events_kept{topic="orders.eu"}'] == "5"
    assert lines['barco_topic_events_total{topic="orders.us"}'] == "4"
    assert not any("clicks" in line for line in lines)
    lines = await told(broker, "topics=clicks,orders.eu&slices=true")
    assert lines['barco_topic_events_total{topic="orders.eu",slice="7"}'] == "3"
    assert lines['barco_topic_events_kept{topic="orders.eu",slice="0"}'] == "2"
    assert lines['barco_topic_events_total{topic="clicks",slice="0"}'] == "1"
    assert not any("orders.us" in line for line in lines)


@run
async def test_lag_of_groups() -> None:
    broker = await filled()
    await broker.register("c", "clicks")
    await broker.values("c")
    await broker.commit("c")
    broker.produce("clicks", 7, b"y", b"z")
    lines = await told(broker, "groups=*")
    assert lines['barco_group_lag_events{group="g",topic="clicks"}'] == "2"
    assert lines["barco_groups_left_out"] == "0"
    lines = await told(broker, "groups=g&slices=true")
    assert lines['barco_group_lag_events{group="g",topic="clicks",slice="7"}'] == "2"
    assert lines['barco_group_lag_events{group="g",topic="clicks",slice="0"}'] == "0"
    assert not any("group=" in line for line in await told(broker, "groups=h*"))


@run
async def test_too_many_are_left_out_and_counted() -> None:
    broker = await filled()
    await broker.register("c", "clicks")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(measures, "SERIES_MAX", 4)
        patched.setattr(measures, "GROUPS_MAX", 0)
        lines = await told(broker, "topics=*&groups=*")
    named = [line for line in lines if "topic=" in line]
    assert len(named) == 4
    assert lines["barco_series_left_out"] == "2" and lines["barco_groups_left_out"] == "1"
    assert 'barco_topic_events_total{topic="clicks"}' in lines, "the first by name, each time"


@run
async def test_wrong_parameters() -> None:
    broker = Broker()
    for query in ("slices=yes", "topics=" + ",".join("t" * n for n in range(1, 66)), "topic=t"):
        assert (await broker.request("GET", "/metrics", query)).status == 400


@run
async def test_counters_of_each_worker() -> None:
    broker = await filled()
    lines = await told(broker, "workers=true")
    assert {'barco_streams_total{worker="0"}', 'barco_streams_total{worker="1"}'} <= lines.keys()
    assert 'barco_build_info{version="' in next(iter(lines)) and 'broker="0"' in next(iter(lines))
