"""One broker as a child process, and an HTTP client that hides nothing."""

import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

from reference import described
from reference.families import workers_of

from barco.model.access import hash_of
from barco.supervisor.files import first_users
from barco.supervisor.tied import start_tied

START_SECONDS_MAX = 60
STOP_SECONDS_MAX = 60


@dataclass
class Answer:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RunningBroker:
    """`barco serve` on free ports. `settings` are keys such as limits_memory_bytes."""

    program: tuple[str, ...] = ("-m", "barco")
    """What Python runs."""

    context: ssl.SSLContext | None = None
    """Of its clients, where its ports speak TLS."""

    def __init__(
        self,
        data_dir: Path,
        *,
        workers: int = 2,
        engine: str = "",
        ports_from: int = 0,
        files: int = 0,
        **settings: Any,
    ):
        self.data_dir = data_dir
        self.ports_from = ports_from  # 0: free ones, others after each restart.
        self.files = files  # The limit on open files, hard and soft; 0: that of the tests.
        self.workers = workers
        self.engine = engine
        self.settings = settings
        self.process: subprocess.Popen[str] | None = None
        self.ready: dict[str, Any] = {}
        self.log_path = data_dir.with_suffix(".log")

    @classmethod
    def closed(cls, data_dir: Path, token: str, **given: Any) -> Self:
        """One that asks for tokens: its first user is root, with this one."""
        data_dir.mkdir(mode=0o700)
        first_users.add(data_dir / first_users.NAME, "root", hash_of(token).hex())
        return cls(data_dir, access_required=True, **given)

    def knows(self, shown: str, *, gone: bool = False) -> None:
        """Returns when each worker has heard of who says this as `Authorization`; or that it is
        nobody any more."""
        deadline = time.monotonic() + START_SECONDS_MAX
        for shard in range(self.workers):
            while self._asks_in_vain(shown, shard) != gone:
                assert time.monotonic() < deadline, f"worker {shard} never heard of {shown}"
                time.sleep(0.01)

    def _asks_in_vain(self, shown: str, shard: int) -> bool:
        headers = {"Authorization": shown}
        return self.request("GET", "/v1/topics", headers=headers, shard=shard).status == 401

    def forgets(self, shown: str) -> None:
        """Returns when each worker has heard that nobody says this."""
        self.knows(shown, gone=True)

    def start(self) -> None:
        """Returns when it is ready."""
        command = [sys.executable, "-P", *self.program, "serve", "--dev", "--json"]
        command += ["--data-dir", str(self.data_dir), "--ports-from", str(self.ports_from)]
        command += ["--workers", str(self.workers)]
        if self.engine:
            command += ["--engine", self.engine]
        if self.files:
            command = ["sh", "-c", f'ulimit -n {self.files}; exec "$@"', "sh", *command]
        given = {f"BARCO_{name.upper()}": str(value) for name, value in self.settings.items()}
        with self.log_path.open("a") as log:
            self.process = start_tied(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | given,
                start_new_session=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(STOP_SECONDS_MAX)
        assert line, f"the broker did not start:\n{self.log_path.read_text()[-4000:]}"
        self.ready = json.loads(line)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(STOP_SECONDS_MAX)

    def kill(self) -> None:
        """SIGKILL to the supervisor and all workers at once."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(STOP_SECONDS_MAX)

    def restart(self) -> None:
        """After `kill` or `stop`."""
        assert self.process is not None and self.process.poll() is not None
        self.start()

    def end(self) -> None:
        """Whatever state it is in."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()

    def worker_pids(self) -> list[int]:
        """As they are now, by /proc: restarted ones have new ones."""
        assert self.process is not None
        return workers_of(self.process.pid)

    def line_about(self, request: str) -> dict[str, Any]:
        """The line of the log with a request's id; it is written within a second or so."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            for line in self.log_path.read_text().splitlines():
                if f'"{request}"' in line:
                    return dict(json.loads(line))
            time.sleep(0.1)
        raise AssertionError(f"no line about {request}")

    # --- HTTP ---------------------------------------------------------------------------------

    def port(self, listener: str = "consume", shard: int | None = None) -> int:
        """Of a public listener, or of a worker's shard endpoint."""
        if shard is not None:
            return int(self.ready["shards"][shard].rpartition(":")[2])
        return int(self.ready["ports"][listener])

    def request(
        self,
        method: str,
        path: str,
        query: Any = (),
        *,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        listener: str = "consume",
        shard: int | None = None,
        timeout: float = 30,
    ) -> Answer:
        """One request on a connection of its own: any worker may get it."""
        where = ("127.0.0.1", self.port(listener, shard))
        connection = (
            http.client.HTTPConnection(*where, timeout=timeout)
            if self.context is None
            else http.client.HTTPSConnection(*where, timeout=timeout, context=self.context)
        )
        try:
            target = path + ("?" + urlencode(query, doseq=True) if query else "")
            connection.request(method, target, body, headers or {})
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            answer = Answer(response.status, names, response.read())
        finally:
            connection.close()
        described.check(method, path, answer.status, names, answer.body)
        return answer

    def produce(
        self,
        topic: str,
        body: bytes,
        *,
        key: str | None = None,
        kind: str = "application/x-ndjson",
        **query: Any,
    ) -> Any:
        """Where it was stored."""
        if key is not None:
            query["partitionKey"] = key
        end = time.monotonic() + START_SECONDS_MAX
        while True:
            answer = self.request(
                "POST",
                f"/v1/topic/{topic}/messages",
                query,
                body=body,
                headers={"Content-Type": kind},
                listener="produce",
            )
            if answer.headers.get("barco-outcome") != "not-written" or time.monotonic() > end:
                break
            time.sleep(0.02)  # Its owner is restarting: nothing was written, so again.
        assert answer.status == 200, answer
        return answer.json

    def register(self, consumer: str, *topics: str, group: str = "g", **query: Any) -> Answer:
        query = {"onNewGroup": "startFromEarliest"} | query
        query |= {"consumerId": consumer, "group": group, "topic": topics}
        return self.request("PUT", "/v1/consumer/register", query)

    def poll(self, consumer: str, *, accept: str = "application/json", **query: Any) -> Answer:
        query["consumerId"] = consumer
        return self.request("POST", "/v1/consumer/poll", query, headers={"Accept": accept})

    def commit(self, consumer: str) -> Answer:
        return self.request("POST", "/v1/consumer/commit", {"consumerId": consumer})

    def goodbye(self, consumer: str, **query: Any) -> Answer:
        return self.request("POST", "/v1/consumer/goodbye", {"consumerId": consumer} | query)

    def values(self, consumer: str, **query: Any) -> list[Any]:
        """The values of one poll."""
        answer = self.poll(consumer, **query)
        assert answer.status in (200, 204), answer
        if answer.status == 204:
            return []
        return [value for item in answer.json for value in item["values"]]

    def drain(self, consumer: str, count: int, seconds: float = 60) -> list[Any]:
        """Values of polls until there are `count` of them."""
        found: list[Any] = []
        end = time.monotonic() + seconds
        while len(found) < count and time.monotonic() < end:
            found += self.values(consumer, waitMs=500)
        return found

    def wait_ready(self, seconds: float = 60) -> None:
        """Until /status says that every shard is served."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if self.request("GET", "/status", timeout=2).status == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"not ready again:\n{self.log_path.read_text()[-4000:]}")


def key_of(broker: RunningBroker, topic: str, slice: int) -> str:
    """A partition key whose events go to this slice."""
    from barco.model.placement import Placement
    from barco.model.token import token_of

    placement = Placement(1, 8)
    for number in range(1000):
        if placement.locate(token_of(str(number).encode()))[1] == slice:
            return str(number)
    raise AssertionError("no key found")
