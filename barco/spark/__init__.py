"""barco in Spark: `spark.read.format("barco")`, `readStream`, `write`, `writeStream`.

`pip install 'barco[spark]'` is enough for Spark to find the format by itself. Where it is not
(code that is shipped with --py-files), call `barco.spark.register(spark)`. `session()` makes a
session in which Python tasks start quickly; `SETTINGS` are what it sets. `each_batch()` is a sink
for `foreachBatch`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barco.spark.avro import from_registry
    from barco.spark.sessions import SETTINGS, register, session
    from barco.spark.source import BarcoSource
    from barco.spark.write.stream_writer import each_batch

__all__ = ["SETTINGS", "BarcoSource", "each_batch", "from_registry", "register", "session"]

_HOMES = {
    "BarcoSource": "barco.spark.source",
    "SETTINGS": "barco.spark.sessions",
    "each_batch": "barco.spark.write.stream_writer",
    "from_registry": "barco.spark.avro",
    "register": "barco.spark.sessions",
    "session": "barco.spark.sessions",
}


def __getattr__(name: str) -> Any:
    """Nothing is imported before it is used: Spark forks its workers from a process that has
    imported this package, and pyarrow starts threads."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'barco.spark' has no attribute {name!r}")
    try:
        return getattr(import_module(home), name)
    except ImportError as error:
        raise ImportError(
            f"barco.spark needs PySpark 4.2 and pyarrow ({error}): pip install 'barco[spark]'"
        ) from error
