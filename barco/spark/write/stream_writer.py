"""`df.writeStream.format("barco")`: each micro-batch is stored once, whatever is restarted.

The name of a write is (query id, batch id): both are in the checkpoint. Spark commits on another
object in another process, so the tasks' reports carry the query's id.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from barco.spark.base.options import OptionError
from barco.spark.write.commit import (
    WriteOptions,
    abort,
    commit,
    new_attempt,
    ring_of,
    staged_of,
)
from barco.spark.write.rows import StageError, check_schema
from barco.spark.write.shares import Staged
from barco.spark.write.stage import Task

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> "StreamWriter":
    """The writer of a query; OptionError if options or columns are wrong.

    `overwrite` is outputMode("complete"): the whole result with each batch, as Kafka's sink has it.
    """
    parsed = WriteOptions.parse(options)
    check_schema(schema, parsed)
    return StreamWriter(parsed)


class StreamWriter(DataSourceStreamArrowWriter):
    """Stages in tasks, commits on the driver."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: a try of its own, which counts only if Spark commits it."""
        context = TaskContext.get()
        query = context.getLocalProperty(_QUERY) if context is not None else None
        batch = context.getLocalProperty(_BATCH) if context is not None else None
        if context is None or query is None or batch is None:
            raise StageError("Spark does not say which query and batch the task is of")
        partition = context.partitionId()
        writer = self._options.writer or str(query)
        staged = Staged(writer, partition, new_attempt(partition))
        return Task(self._options, ring_of(self._options), int(batch), staged).write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, once every task of the batch has ended."""
        commit(self._options, batchId, staged_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, when the batch has failed; the next try stages anew."""
        for writer in {staged.writer for staged in staged_of(messages)}:
            abort(self._options, writer, batchId)


def each_batch(**options: str) -> Callable[[DataFrame, int], None]:
    """For `foreachBatch`: stores each batch once, in every output mode. Spark 4.3 lets no source
    that is written in Python have outputMode("update") by `format(...)`.

    `options` are those of a write; the query's id is the writer, unless `writerId` names it.
    """

    def write(batch: DataFrame, number: int) -> None:
        writer = options.get("writerId") or _query_of(batch)
        sink = batch.write.format("barco").mode("append").options(**options)
        sink.option("writerId", writer).option("batchId", str(number)).save()

    return write


def _query_of(batch: DataFrame) -> str:
    found = batch.sparkSession.sparkContext.getLocalProperty(_QUERY)
    if not found:
        raise OptionError("Spark does not say which query it is: give option writerId")
    return str(found)
