"""A session where there is no Java says what is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="no pyspark: pip install 'barco[spark]'")


def test_no_java_is_told_and_what_to_do(tmp_path: Path) -> None:
    program = "from barco.spark import session; session(master='local[1]')"
    environment = {**os.environ, "JAVA_HOME": str(tmp_path / "nothing")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, env=environment, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "Java 17" in last and "apt-get install" in last and "JAVA_HOME" in last
