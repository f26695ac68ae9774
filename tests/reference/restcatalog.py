"""A real REST catalogue of Iceberg: its own servlet, from Maven, in a process of this machine."""

import fcntl
import hashlib
import importlib.util
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from barco.supervisor.tied import start_tied

HERE = Path(__file__).parent
PROJECT = HERE / "restcatalog.xml"
BUILD = HERE.parents[1] / "build"
TOKEN = "eyJhbGciOiJub25lIn0." + "t" * 300
MAVEN_S = 180
"""Some 40 MB the first time. Who has no Maven within it skips these tests, and is told; so does who
has waited for the other process of a run, which got nothing."""
WAITED_S = 20


@dataclass(frozen=True, slots=True)
class RestCatalog:
    """One that runs."""

    uri: str
    token_file: Path


@contextmanager
def running(path: Path) -> Iterator[RestCatalog]:
    """With its tables in `path`; skips the test, with the reason, where it can not be had."""
    command = ["java", "-cp", _classes(), str(HERE / "RestCatalog.java"), str(path), TOKEN]
    token_file = path / "token"
    token_file.touch(0o600)
    token_file.write_text(TOKEN + "\n")
    with (path / "catalog.log").open("wb") as log:
        process = start_tied(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    with process:
        assert process.stdout is not None and process.stdin is not None
        try:
            port = process.stdout.readline().decode().strip()
            assert port.isdecimal(), (path / "catalog.log").read_text()[-2000:]
            yield RestCatalog(f"http://127.0.0.1:{port}", token_file)
        finally:
            process.stdin.close()
            process.kill()


def _classes() -> str:
    """The class path; what Maven said is kept in build/, and asked for once."""
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        pytest.skip("no pyspark, whose Hadoop the catalog needs: pip install 'barco[spark]'")
    for program in ("mvn", "javac"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program}: apt-get install maven default-jdk-headless")
    sum_of = hashlib.sha256(PROJECT.read_bytes()).hexdigest()[:16]
    kept = BUILD / f"restcatalog-{sum_of}.classes"
    BUILD.mkdir(exist_ok=True)
    began = time.monotonic()
    with (BUILD / "restcatalog.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Of the two processes in which the tests run.
        if not _there(kept):
            if time.monotonic() - began > WAITED_S:
                pytest.skip("Maven did not bring Iceberg's REST catalog to another test")
            _resolve(kept)
    return f"{kept.read_text()}:{Path(pyspark.origin).parent}/jars/*"


def _there(kept: Path) -> bool:
    return kept.exists() and all(Path(each).exists() for each in kept.read_text().split(":"))


def _resolve(kept: Path) -> None:
    asked = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:build-classpath"
    made = kept.with_suffix(".new")
    command = ["mvn", "-B", "-q", "-f", str(PROJECT), asked, f"-Dmdep.outputFile={made}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MAVEN_S, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"Maven did not bring Iceberg's REST catalog within {MAVEN_S} s")
    if done.returncode != 0 or not made.exists():
        pytest.skip(f"Maven does not have Iceberg's REST catalog here: {done.stdout[-300:]}")
    made.replace(kept)
