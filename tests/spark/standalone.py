"""A standalone Spark cluster from the pip package: a master and two workers on loopback."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
from kills import command_of, descendants

START_SECONDS = 240
HOME = Path(pyspark.__file__).parent
WITH_PARENT = ["setpriv", "--pdeathsig", "KILL"]
"""util-linux: a test run that is killed leaves no cluster behind."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody has."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Standalone:
    """The processes; `environment` is for whoever submits to it."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self._directory = directory
        self._count = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.port, self.web = free_port(), free_port()
        self.environment = os.environ | {
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(directory / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            # However often its executors die, the master starts others.
            "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
            "PYSPARK_PYTHON": sys.executable,
        }

    @property
    def master(self) -> str:
        """For --master."""
        return f"spark://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Returns when the master knows all workers."""
        master = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"]
        self._spawn("master", [*master, "--port", str(self.port), "--webui-port", str(self.web)])
        for number in range(self._count):
            worker = ["org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1"]
            worker += ["-c", "1", "-m", "1g", "-d", str(self._directory / f"worker-{number}")]
            self._spawn(f"worker-{number}", [*worker, "--webui-port", "0", self.master])
        deadline = time.monotonic() + START_SECONDS
        while self._alive() < self._count:
            assert time.monotonic() < deadline, self.logs()
            assert all(each.poll() is None for each in self._processes), self.logs()
            time.sleep(0.2)

    def stop(self) -> None:
        """SIGTERM to the processes that were started here, workers first."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(30)

    def executors(self) -> list[int]:
        """The JVMs that run tasks."""
        below = [pid for process in self._processes[1:] for pid in descendants(process.pid)]
        return [pid for pid in below if "CoarseGrainedExecutorBackend" in command_of(pid)]

    def python_tasks(self) -> list[int]:
        """The Python workers of all executors."""
        below = [pid for executor in self.executors() for pid in descendants(executor)]
        daemons = [pid for pid in below if "barco.spark.base.daemon" in command_of(pid)]
        return [pid for daemon in daemons for pid in descendants(daemon)]

    def submit(self, script: Path, *arguments: str, **settings: str) -> Any:
        """spark-submit; what the script printed last, as JSON."""
        command = [str(HOME / "bin" / "spark-submit"), "--master", self.master]
        options = {
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        for name, value in (options | settings).items():
            command += ["--conf", f"{name}={value}"]
        done = subprocess.run(
            [*command, str(script), *arguments],
            env=self.environment,
            timeout=START_SECONDS * 2,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return json.loads(done.stdout.strip().splitlines()[-1])

    def logs(self) -> str:
        """The ends of all logs."""
        return "\n".join(
            f"{path.name}:\n{path.read_text(errors='replace')[-1500:]}"
            for path in sorted(self._directory.glob("*.log"))
        )

    def _alive(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            url = f"http://127.0.0.1:{self.web}/json/"
            with urllib.request.urlopen(url, timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        return 0

    def _spawn(self, name: str, arguments: list[str]) -> None:
        with (self._directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [*WITH_PARENT, str(HOME / "bin" / "spark-class"), *arguments],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._directory,
            )
        self._processes.append(process)


@contextlib.contextmanager
def standalone(directory: Path) -> Iterator[Standalone]:
    """A cluster for as long as the block runs."""
    found = Standalone(directory)
    try:
        found.start()
        yield found
    finally:
        found.stop()
