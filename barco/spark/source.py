"""`format("barco")`: what Spark asks first, and which reader or writer it gets.

Spark pickles this class by reference and imports it in drivers and executors, so importing it must
stay light, and must never fail where pyspark is there.
"""

from importlib import import_module

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from barco.arrow.decode import Projection
from barco.spark.base.options import ReadOptions
from barco.spark.base.schema import projection, source_schema
from barco.spark.base.settle import settle
from barco.spark.read.reader import BatchReader
from barco.spark.read.stream import RefusedReader, StreamReader


class BarcoSource(DataSource):
    """Topics as tables and streams. Options: see `barco.spark.base.options`."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        settle()

    @classmethod
    def name(cls) -> str:
        """The word for `format(...)`."""
        return "barco"

    def schema(self) -> StructType:
        """Kafka's columns, our `epoch` among them; or those of the option `columns`."""
        columns = [word.strip() for word in self.options.get("columns", "").split(",")]
        headers = self.options.get("includeHeaders", "").lower() == "true"
        return source_schema([word for word in columns if word], headers=headers)

    def reader(self, schema: StructType) -> DataSourceReader:
        """For `spark.read`."""
        settle()
        return BatchReader(ReadOptions.parse(self.options, stream=False), _projection(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """For `spark.readStream`."""
        try:
            return StreamReader(ReadOptions.parse(self.options, stream=True), _projection(schema))
        except ValueError as error:
            return RefusedReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        settle()
        module = import_module("barco.spark.write.writer")
        writer: DataSourceWriter = module.batch_writer(self.options, schema, overwrite)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """For `df.writeStream`."""
        module = import_module("barco.spark.write.stream_writer")
        writer: DataSourceStreamWriter = module.stream_writer(self.options, schema, overwrite)
        return writer


def _projection(schema: StructType) -> Projection:
    return projection(schema, to_arrow_schema(schema, timezone="UTC"))
