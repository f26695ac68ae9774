"""For spark-submit: reads topics on a cluster, says what came out of them."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from pyspark.sql import SparkSession
from sparklab import collected


def main(endpoint: str, topic: str, options: str) -> None:
    """Reads until there is a file `done`, at least once: a test kills things meanwhile."""
    spark = SparkSession.builder.appName("submitted").getOrCreate()
    given = json.loads(options)
    done = Path(given.pop("done"))
    rounds = []
    while not rounds or not done.exists():
        # A session that nobody registered the source with: Spark has found it.
        frame = spark.read.format("barco").options(**given)
        frame = frame.option("endpoints", endpoint).option("subscribe", topic).load()
        rounds.append(collected(frame))
        done.with_suffix(".running").touch()
    hosts = frame.selectExpr("spark_partition_id() as p").distinct().count()
    print(json.dumps({"rounds": rounds, "tasks": hosts}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
