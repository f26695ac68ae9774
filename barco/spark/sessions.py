"""Sessions that suit barco: Python tasks that start in 2 ms, in the right interpreter."""

import os
import sys
from collections.abc import Mapping

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from barco.errors import OperatorError
from barco.spark.base import cores
from barco.spark.source import BarcoSource

SETTINGS = {
    # Both are needed: 40 ms of Nagle and delayed acknowledgements, 36 ms of garbage collection.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": "barco.spark.base.daemon",
}
"""For drivers whose executors have barco installed too."""

JAVA_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Spark reads each cell of a batch through checks of bounds and of reference counts: a tenth of its
time, for batches that its own Python workers have made."""

NO_JAVA = (
    "Spark's Java did not start; what it said is above. Spark needs Java 17 or newer: install it"
    " (Debian: apt-get install default-jre-headless) or set JAVA_HOME"
)

_JAVA_SETTINGS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")


def register(spark: SparkSession) -> None:
    """Make `format("barco")` known to a session, and to the thread that calls: Spark 4.3 finds the
    source of a write or of a streaming sink by the session of the thread, and only the thread that
    made a session has it. Harmless where it is known already."""
    spark.dataSource.register(BarcoSource)
    jvm = getattr(spark, "_jvm", None)
    if jvm is not None:  # It is somewhere else with Spark Connect.
        jvm.org.apache.spark.sql.SparkSession.setActiveSession(spark._jsparkSession)


def session(
    app: str = "barco", master: str | None = None, settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with `SETTINGS` and yours, and tasks that run in this very interpreter.

    `master` None: what spark-submit says, or local[*]. PYSPARK_PYTHON decides if it is set.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app)
    if master is not None:
        builder = builder.master(master)
    chosen = SETTINGS | dict(settings or {})
    for name in _JAVA_SETTINGS:
        chosen[name] = f"{chosen.get(name, '')} {JAVA_OPTIONS}".strip()
    for name, value in chosen.items():
        builder = builder.config(name, value)
    try:
        found: SparkSession = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if "JAVA_GATEWAY_EXITED" not in str(error):
            raise
        raise OperatorError(NO_JAVA) from error
    cores.tell(found)
    register(found)
    return found
