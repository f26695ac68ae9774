"""The real engine: Spark on two cores, real brokers. One session for the whole run of pytest."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.session.timeZone": "UTC",
}


def java_missing() -> str:
    """Why Spark cannot run here; empty if it can."""
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        return "no Java: make setup as root, or apt-get install default-jre-headless"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without Java these tests say so; starting a session takes its time on a busy machine."""
    why = java_missing()
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(900))
            if why:
                item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session; tests that change a setting put it back."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from barco.spark import session

    scratch = tmp_path_factory.mktemp("spark")
    settings = QUIET | {
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    found = session("tests", "local[2,3]", settings)
    yield found
    found.stop()


@pytest.fixture(scope="module")
def start_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Starts brokers; each is stopped at the end of the module."""
    from running import RunningBroker

    started: list[Any] = []

    def start(**settings: Any) -> Any:
        directory = tmp_path_factory.mktemp("broker")
        broker = RunningBroker(directory / "data", **settings)
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        broker.end()


@pytest.fixture(scope="module")
def broker(start_broker: Callable[..., Any]) -> Any:
    """One broker with two workers."""
    return start_broker()


@pytest.fixture(scope="session")
def pip_spark_home() -> Path:
    """Where the pip package keeps bin/."""
    import pyspark

    return Path(pyspark.__file__).parent
