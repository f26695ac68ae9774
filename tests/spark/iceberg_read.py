"""A program for Spark: `iceberg_read.py JARS CATALOG WAREHOUSE TABLE`, a table in the catalog of a
file that `barco export` has written; its last line is what is in it, as JSON."""

import json
import sys

from pyspark.sql import SparkSession


def main(jars: str, catalog: str, warehouse: str, table: str) -> None:
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.catalog.default": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.default.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "spark.sql.catalog.default.uri": f"jdbc:sqlite:{catalog}",
        "spark.sql.catalog.default.warehouse": warehouse,
    }
    builder = SparkSession.builder.master("local[1]").appName("iceberg")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    rows = session.sql(
        "select count(*) as rows, count(distinct _slice, _offset) as events, sum(n) as total,"
        f" count(text) as texts from `default`.{table}"
    ).collect()
    snapshots = session.sql(
        f"select count(*) as snapshots from `default`.{table}.snapshots"
    ).collect()
    types = dict(session.table(f"`default`.{table}").dtypes)
    session.stop()
    print(json.dumps(rows[0].asDict() | snapshots[0].asDict() | {"n": types["n"]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
