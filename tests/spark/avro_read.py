"""Reads a topic of Avro events with the registry's schemas, and prints its rows."""

import json
import sys

from barco.spark import from_registry, session


def main(endpoint: str, jars: str, settings: str) -> None:
    """One line of JSON: the rows, as they are sorted."""
    spark = session("avro", "local[1]", json.loads(settings) | {"spark.jars.packages": jars})
    events = spark.read.format("barco").schema("value binary")
    events = events.option("endpoints", endpoint).option("subscribe", "trips").load()
    trips = events.select(from_registry("value", "trips-value", endpoint).alias("trip"))
    rows = [each.trip and each.trip.asDict() for each in trips.collect()]
    print(json.dumps(sorted(rows, key=str)))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
