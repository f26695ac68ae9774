"""Spark, with Iceberg's own runtime, reads the table that `barco export` has written."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sparklab import endpoint_of, produce, run_json

JARS = os.environ.get("BARCO_ICEBERG_JARS", "")
"""By commas: iceberg-spark-runtime for that Spark, and sqlite-jdbc."""

PYTHON = os.environ.get("BARCO_ICEBERG_PYTHON", sys.executable)
"""Whose pyspark is one that the jars are for: the runtime for 4.1 does not load in Spark 4.3."""

EVENTS = 2_000

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(not JARS, reason="BARCO_ICEBERG_JARS names no jars of Iceberg and SQLite"),
]


def test_spark_reads_what_was_exported(broker: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    catalog, warehouse = tmp_path / "lake.db", tmp_path / "lake"
    warehouse.mkdir()
    given = [
        *("--catalog", f"sqlite:///{catalog}", "--warehouse", str(warehouse)),
        *("--columns", "auto", "--endpoint", endpoint_of(broker)),
    ]
    for start in (0, EVENTS // 2):  # Two snapshots.
        produce(broker, "lake", range(start, start + EVENTS // 2))
        command = [
            sys.executable,
            "-P",
            "-m",
            "barco",
            "export",
            "lake",
            "--to",
            "iceberg:raw.lake",
        ]
        done = subprocess.run(
            [*command, *given], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr
    program = str(Path(__file__).parent / "iceberg_read.py")
    told = run_json(
        [PYTHON, program, JARS, str(catalog), str(warehouse), "raw.lake"],
        dict(os.environ), 600,
    )  # fmt: skip
    assert told == {
        "rows": EVENTS, "events": EVENTS, "texts": EVENTS, "total": sum(range(EVENTS)),
        "snapshots": 2, "n": "bigint",
    }  # fmt: skip
