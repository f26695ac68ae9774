"""Found by Spark: it imports every top-level package `pyspark_*` and registers `DefaultSource`.

An exception here would break every Python data source of a session, hence the care. A barco that
cannot be imported has a source too: it says why, where Spark would say that there is none.
"""

try:
    from barco.spark.source import BarcoSource as DefaultSource
except ImportError as error:  # Without barco[spark], or with a pyspark that has no such sources.
    try:
        from pyspark_barco.broken import broken_source
    except ImportError:
        pass
    else:
        DefaultSource = broken_source(error)
        __all__ = ["DefaultSource"]
else:
    __all__ = ["DefaultSource"]
