"""Spark where brokers ask who asks: a user's token goes the whole way, and is told nowhere."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from sparklab import endpoint_of

import barco
from barco.model.access import hash_of
from barco.supervisor.files.first_users import NAME, add

TOKENS = {name: f"barco_{name}" for name in ("root", "job", "other")}
GRANTS = {"job": ["produce:t", "consume:t"], "other": ["produce:x", "consume:x"]}


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from running import RunningBroker

    data = tmp_path_factory.mktemp("closed") / "data"
    data.mkdir(mode=0o700)
    add(data / NAME, "root", hash_of(TOKENS["root"]).hex())
    found = RunningBroker(data, access_required=True)
    found.start()
    with barco.Admin(endpoint_of(found), token=TOKENS["root"]) as admin:
        for name, grants in GRANTS.items():
            admin.set_user(name, token=TOKENS[name], grants=grants)
    yield found
    found.end()


@pytest.fixture(autouse=True)
def _active(spark: Any, closed: Any) -> None:
    """As for the tests of writes: a start forks, and py4j finds another thread of the JVM."""
    spark._jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)


def written(spark: Any, broker: Any, **options: str) -> None:
    rows = spark.range(0, 2000, 1, 2).selectExpr("concat('k', id % 7) key", "'v' || id value")
    writer = rows.write.format("barco").mode("append").option("endpoints", endpoint_of(broker))
    writer.options(**options).save("t")


def read(spark: Any, broker: Any, **options: str) -> Any:
    reader = spark.read.format("barco").option("endpoints", endpoint_of(broker))
    return reader.option("subscribe", "t").options(**options).load()


def test_a_token_goes_the_whole_way(spark: Any, closed: Any, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKENS["job"])
    written(spark, closed, tokenFile=str(file))
    frame = read(spark, closed, token=TOKENS["job"])
    assert frame.count() == frame.select("value").distinct().count() == 2000
    plan = spark._jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "extended")
    assert TOKENS["job"] not in plan and TOKENS["job"] not in repr(frame)
    stream = spark.readStream.format("barco").option("endpoints", endpoint_of(closed))
    stream = stream.option("subscribe", "t").option("tokenFile", str(file))
    query = (
        stream.option("startingOffsets", "earliest").load()
        .writeStream.format("memory").queryName("closed").trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    assert spark.table("closed").count() == 2000
    assert TOKENS["job"] not in str(query.lastProgress)


@pytest.mark.parametrize("who", ("nobody", "other", "made up"))
def test_without_the_right_one_nothing_is_read_or_stored(spark: Any, closed: Any, who: str) -> None:
    options = {} if who == "nobody" else {"token": TOKENS.get(who, "barco_none")}
    why = "403|forbidden|may not" if who == "other" else "401|unauthorized|token"
    before = read(spark, closed, token=TOKENS["job"]).count()
    for asked in (
        lambda: read(spark, closed, **options).count(),
        lambda: written(spark, closed, **options),
    ):
        with pytest.raises(PySparkException, match=why) as raised:
            asked()
        assert not any(token in str(raised.value) for token in TOKENS.values())
    assert read(spark, closed, token=TOKENS["job"]).count() == before
