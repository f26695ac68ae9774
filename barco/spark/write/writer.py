"""`df.write.format("barco")`: each task stages its rows, and the driver commits them as one job."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from barco.spark.base.options import OptionError
from barco.spark.write.commit import (
    WriteOptions,
    abort,
    commit,
    new_attempt,
    new_writer,
    ring_of,
    staged_of,
)
from barco.spark.write.rows import check_schema
from barco.spark.write.shares import Staged
from barco.spark.write.stage import Task


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "BatchWriter":
    """The writer of one job; OptionError if options or columns are wrong."""
    if overwrite:
        raise OptionError('topics are only appended to: write with mode("append")')
    parsed = WriteOptions.parse(options)
    check_schema(schema, parsed)
    return BatchWriter(replace(parsed, writer=parsed.writer or new_writer()))


class BatchWriter(DataSourceArrowWriter):
    """Pickled once on the driver: all tasks, retries and the commit have the same writer's id."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: a try of its own, which counts only if Spark commits it."""
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        staged = Staged(self._options.writer, partition, new_attempt(partition))
        task = Task(self._options, ring_of(self._options), self._options.batch, staged)
        return task.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver, once every task has ended."""
        commit(self._options, self._options.batch, staged_of(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """On the driver, when the job has failed."""
        abort(self._options, self._options.writer, self._options.batch)
