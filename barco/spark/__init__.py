"""barco in Spark: `spark.read.format("barco")`, `readStream`, `write`, `writeStream`.

`pip install 'barco[spark]'` is enough for Spark to find the format by itself. Where it is not
(code that is shipped with --py-files), call `barco.spark.register(spark)`.
"""

from typing import TYPE_CHECKING

try:
    from barco.spark.source import BarcoSource
except ImportError as error:
    raise ImportError(
        f"barco.spark needs PySpark 4.2 or newer and pyarrow ({error}): pip install 'barco[spark]'"
    ) from error

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["BarcoSource", "register"]


def register(spark: "SparkSession") -> None:
    """Make `format("barco")` known to a session. Harmless where it is known already."""
    spark.dataSource.register(BarcoSource)
