"""How many tasks run at a time, from the session to the process that plans reads.

That process has no session; what it has is the environment that the session's context gives to
Spark's Python processes.
"""

import os

from pyspark.sql import SparkSession

VARIABLE = "BARCO_SPARK_CORES"


def tell(spark: SparkSession) -> None:
    """Before the source is registered, which copies the environment. Only where cores cannot come
    and go: on one machine."""
    context = getattr(spark, "sparkContext", None)  # Spark Connect has none.
    if context is not None and context.master.partition("[")[0] == "local":
        context.environment[VARIABLE] = str(context.defaultParallelism)


def told() -> int:
    """0: not known."""
    return int(os.environ.get(VARIABLE) or 0)
