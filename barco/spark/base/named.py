"""What a task calls itself to brokers, for people who look at the console's jobs."""

from pyspark import TaskContext

QUERY, BATCH, EXECUTION = (
    "sql.streaming.queryId",
    "streaming.sql.batchId",
    "spark.sql.execution.id",
)
"""What Spark tells each task of the job that it is part of."""


def reader() -> str:
    """Of `Barco-Reader`: the streaming query and its batch, or the number of the execution in its
    application; empty: not within a task."""
    if (context := TaskContext.get()) is None:
        return ""
    query, batch, execution = map(context.getLocalProperty, (QUERY, BATCH, EXECUTION))
    if query:
        return f"spark/{query}" + (f" {batch}" if batch else "")
    return f"spark/execution-{execution}" if execution else "spark"
