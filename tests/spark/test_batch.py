"""spark.read.format("barco") on the real engine."""

import json
import time
from typing import Any

import pytest
from pyspark.sql.types import StructType
from sparklab import collected, endpoint_of, expected, produce

EVENTS = 20_000
SOME = 7


@pytest.fixture(scope="module")
def topic(broker: Any) -> str:
    """Twenty thousand events, after a restart in the middle: two generations."""
    produce(broker, "flights", range(EVENTS // 2))
    broker.stop()
    broker.restart()
    produce(broker, "flights", range(EVENTS // 2, EVENTS))
    produce(broker, "flights-2", range(SOME))
    return "flights"


def read(spark: Any, broker: Any, schema: str = "", **options: Any) -> Any:
    reader = spark.read.format("barco")
    if schema:
        reader = reader.schema(schema)
    if not {"subscribe", "subscribePattern", "assign"} & options.keys():
        options["subscribe"] = "flights"
    return reader.option("endpoints", endpoint_of(broker)).options(**options).load()


def test_it_is_found_without_registering(spark: Any, broker: Any, topic: str) -> None:
    """The package pyspark_barco: a session of its own looks for sources anew."""
    other = spark.newSession()
    assert read(other, broker, "value binary", subscribe="flights-2").count() == SOME


def test_every_row_once(spark: Any, broker: Any, topic: str) -> None:
    frame = read(spark, broker)
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,epoch:bigint,offset:bigint,"
        "timestamp:timestamp>"
    )
    assert collected(frame) == expected(range(EVENTS))
    rows = frame.selectExpr(
        "count(distinct partition, offset) as places",
        "count(distinct partition) as slices",
        "count(distinct epoch) as epochs",
        "collect_set(topic) as topics",
        "max(timestamp) <= current_timestamp() + interval 1 minute as past",
        "min(timestamp) > current_timestamp() - interval 1 day as recent",
    ).collect()
    assert rows[0].asDict() == {
        "places": EVENTS, "slices": 8, "epochs": 2, "topics": ["flights"], "past": True,
        "recent": True,
    }  # fmt: skip


def test_what_the_broker_did_not_compress(spark: Any, broker: Any) -> None:
    settings = {"body": b'{"compression": "none"}', "headers": {"Content-Type": "application/json"}}
    assert broker.request("PUT", "/v1/topics/plain", **settings).status == 201
    produce(broker, "plain", range(EVENTS))
    for _ in range(2):  # From memory, and from disk.
        assert collected(read(spark, broker, subscribe="plain")) == expected(range(EVENTS))
        values = read(spark, broker, "value binary", subscribe="plain")
        assert values.distinct().count() == EVENTS
        broker.stop()
        broker.restart()


def test_any_columns_in_any_order(spark: Any, broker: Any, topic: str) -> None:
    schema = "timestampType int, value string, token bigint, slice int, key string"
    frame = read(spark, broker, schema)
    assert frame.columns == ["timestampType", "value", "token", "slice", "key"]
    row = frame.where("value like '%\"n\":1,%'").collect()[0]
    assert (row.key, row.token, row.timestampType) == ("key-1", -(2**63), 0)
    assert read(spark, broker, columns="offset,topic").columns == ["offset", "topic"]
    none = spark.read.schema(StructType([])).format("barco").option("subscribe", "flights")
    assert none.option("endpoints", endpoint_of(broker)).load().count() == EVENTS
    micros = read(spark, broker, "timestamp bigint").selectExpr("min(timestamp) as m").first().m
    assert abs(micros / 1e6 - time.time()) < 86_400
    with_headers = read(spark, broker, includeHeaders="true", subscribe="flights-2")
    assert [row.headers for row in with_headers.collect()] == [None] * SOME


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("value int", "value is binary or string, not int"),
        ("nonsense string", "there is no column 'nonsense'"),
        ("key binary not null", "can be null"),
    ],
)
def test_a_schema_that_cannot_be(
    spark: Any, broker: Any, topic: str, schema: str, says: str
) -> None:
    with pytest.raises(Exception, match=says):
        read(spark, broker, schema).count()


def test_topics_by_list_pattern_and_assignment(spark: Any, broker: Any, topic: str) -> None:
    def topics(**options: Any) -> dict[str, int]:
        frame = read(spark, broker, "topic string", **options)
        return {row.topic: row["count"] for row in frame.groupBy("topic").count().collect()}

    everything = {"flights": EVENTS, "flights-2": SOME}
    assert topics(subscribe="flights, flights-2") == everything
    assert topics(subscribePattern="fli.*") == everything
    assert topics(subscribePattern="flights") == {"flights": EVENTS}
    frame = read(spark, broker, "partition int", assign='{"flights":[0,5]}')
    assert {row.partition for row in frame.distinct().collect()} == {0, 5}
    with pytest.raises(Exception, match="does not exist"):
        topics(subscribe="nothing-here")


def test_ranges_of_offsets_and_times(spark: Any, broker: Any, topic: str) -> None:
    def count(**options: Any) -> int:
        return int(read(spark, broker, "offset bigint", **options).count())

    start = {str(p): 10 for p in range(8)} | {"3": -2, "4": -1}
    end = {str(p): 12 for p in range(8)} | {"3": 5, "4": -1}
    given = {"startingOffsets": json.dumps({"flights": start})}
    given |= {"endingOffsets": json.dumps({"flights": end})}
    assert count(**given) == 6 * 2 + 5 + 0
    frame = read(spark, broker, "partition int, offset bigint", **given)
    assert {row.offset for row in frame.where("partition = 6").collect()} == {10, 11}

    stamp = read(spark, broker).selectExpr("max(timestamp) as t").first().t
    later = int(stamp.timestamp() * 1000) + 60_000
    with pytest.raises(Exception, match="is as late as the starting timestamp"):
        count(startingTimestamp=str(later))
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert count(startingTimestamp=str(later), **strategy) == 0
    assert count(startingTimestamp="1", endingTimestamp=str(later)) == EVENTS
    by_time = json.dumps({"flights": {str(p): 1 for p in range(8)}})
    assert count(startingOffsetsByTimestamp=by_time) == EVENTS


def test_offsets_out_of_range(spark: Any, broker: Any, topic: str) -> None:
    far = json.dumps({"flights": {"0": 10**9}})
    with pytest.raises(Exception, match="outside of"):
        read(spark, broker, endingOffsets=far).count()
    assert read(spark, broker, endingOffsets=far, failOnDataLoss="false").count() == EVENTS


def test_partitions_as_many_as_asked_for(spark: Any, broker: Any, topic: str) -> None:
    def tasks(**options: Any) -> tuple[int, int]:
        frame = read(spark, broker, "offset bigint", **options)
        with_task = frame.selectExpr("spark_partition_id() as task").groupBy("task").count()
        rows = with_task.collect()
        return len(rows), sum(row["count"] for row in rows)

    assert tasks() == (2, EVENTS)  # A small topic: one for each shard.
    found, rows = tasks(minPartitions="20")
    assert found >= 20 and rows == EVENTS
    found, rows = tasks(maxRecordsPerPartition="1000")
    assert found >= EVENTS // 1000 and rows == EVENTS
    found, rows = tasks(maxBytesPerPartition="60000", fetchBytes="20000", batchBytes="1000")
    assert found > 8 and rows == EVENTS


def test_filters_hold_whether_spark_would_push_them_or_not(
    spark: Any, broker: Any, topic: str
) -> None:
    condition = (
        "partition in (1, 2) and offset >= 100 and offset < 150 and timestamp > '2020-01-01'"
    )
    name = "spark.sql.python.filterPushdown.enabled"
    try:
        for enabled in ("true", "false"):
            spark.conf.set(name, enabled)
            frame = read(spark, broker).where(condition)
            assert frame.count() == 100
            assert read(spark, broker).where("topic = 'other'").count() == 0
            assert read(spark, broker).where("offset = 3").count() == 8
            assert read(spark, broker).where("offset in (3, 5) or key is null").count() > 8
    finally:
        spark.conf.unset(name)


def test_sql(spark: Any, broker: Any, topic: str) -> None:
    """A table has no options when it is selected from: views and WITH do."""
    options = f"endpoints '{endpoint_of(broker)}', subscribe 'flights'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW flights_now USING barco OPTIONS ({options})")
    assert spark.sql("SELECT count(*) AS n FROM flights_now").first().n == EVENTS


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"startingOffset": "earliest"}, "no option 'startingoffset'"),
        ({"subscribe": "a", "subscribePattern": "b"}, "together"),
        ({"startingOffsets": "erliest"}, "startingOffsets"),
        ({"endpoints": "nowhere"}, "HOST:PORT"),
        ({"startingOffsets": '{"fligths":{"0":5}}'}, "topic fligths, which is not read"),
        ({"endingOffsets": '{"flights":{"8":5}}'}, "partition 8 of topic flights"),
        ({"minPartitions": "0"}, "not positive"),
    ],
)
def test_wrong_options(
    spark: Any, broker: Any, topic: str, options: dict[str, str], says: str
) -> None:
    with pytest.raises(Exception, match=says):
        read(spark, broker, **options).count()


def test_nobody_there(spark: Any) -> None:
    reader = spark.read.format("barco").option("endpoints", "127.0.0.1:9")
    with pytest.raises(Exception, match="no broker answers"):
        reader.option("subscribe", "t").option("fetchTimeoutMs", "300").load().count()
