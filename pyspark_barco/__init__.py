"""Found by Spark: it imports every top-level package `pyspark_*` and registers `DefaultSource`.

An exception here would break every Python data source of a session, hence the care.
"""

try:
    from barco.spark.source import BarcoSource as DefaultSource
except ImportError:  # Without barco[spark], or with a pyspark that has no such sources.
    pass
else:
    __all__ = ["DefaultSource"]
