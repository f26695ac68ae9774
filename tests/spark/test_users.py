"""Spark where brokers ask who asks: a user's token goes the whole way, and is told nowhere."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from reference.certificates import authority, issued
from sparklab import endpoint_of

import barco
from barco.client.wire.access import own_in
from barco.model.access import hash_of
from barco.spark.load import Job, reach
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


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Options for a broker that takes a certificate's name for the user's."""
    from running import RunningBroker

    path = tmp_path_factory.mktemp("named")
    ca = authority(path)
    own, job = (issued(path, ca, name) for name in ("own", "job"))
    issued(path, ca, "nobody")
    sealed = {"tls_certificate": str(own.certificate), "tls_key": str(own.key)}
    sealed |= {"tls_client_ca": str(ca.certificate), "access_certificates": "true"}
    found = RunningBroker.closed(path / "data", TOKENS["root"], **sealed)
    found.start()
    where = f"https://localhost:{found.port('discovery')}"
    shown = {"ca": str(ca.certificate), "certificate": str(job.certificate)}
    with barco.Admin(barco.Access.of(where, TOKENS["root"], **shown)) as admin:
        admin.set_user("job", token=TOKENS["job"], grants=GRANTS["job"])
    yield {"endpoints": where, **shown}
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


def test_a_certificate_goes_the_whole_way(
    spark: Any, named: dict[str, str], tmp_path: Path
) -> None:
    """Written, read and loaded by who shows it and no token; its key is told nowhere."""
    frame = spark.range(0, 500, 1, 2).selectExpr("'v' || id value")
    frame.write.format("barco").mode("append").options(**named).save("t")
    (tmp_path / "a.ndjson").write_text('{"a":1}\n{"a":2}\n')
    reach(named, "t")
    job = Job(named, "t", None)
    job.run(spark, [str(tmp_path / "a.ndjson")], None, None)
    assert job.result()["events"] == 2
    found = spark.read.format("barco").options(**named).option("subscribe", "t").load()
    assert found.count() == found.select("value").distinct().count() == 502
    plan = spark._jvm.PythonSQLUtils.explainString(found._jdf.queryExecution(), "extended")
    secret = own_in(named["certificate"]).split("PRIVATE KEY-----")[1].splitlines()[1]
    assert secret not in plan and "PRIVATE" not in plan


def test_with_nobodys_certificate_nothing_is_read_or_stored(
    spark: Any, named: dict[str, str]
) -> None:
    other = named | {"certificate": named["certificate"].replace("job.crt", "nobody.crt")}
    with pytest.raises(PySparkException, match="401|unauthorized|token"):
        spark.read.format("barco").options(**other).option("subscribe", "t").load().count()
    other = named | {"certificate": named["certificate"].replace("job.crt", "none.crt")}
    with pytest.raises(PySparkException, match="certificate: cannot use"):
        spark.read.format("barco").options(**other).option("subscribe", "t").load().count()
