"""A broker under attack, and what has to hold after each one."""

import os
import ssl
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from reference.certificates import authority, issued
from running import RunningBroker
from wire import Response, Wire, head, produce

MiB = 1 << 20
MEMORY_BYTES = 128 * MiB
REQUEST_BYTES_MAX = 8 * MiB
MEMORY_OVER_MAX = 64 * MiB
"""Beyond the budget: interpreter, code, receive buffers."""

SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
"""Shadow memory and quarantine: then resident memory says nothing."""


class AttackedBroker(RunningBroker):
    """With a small budget, so that what is not bounded shows."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(
            *args,
            limits_memory_bytes=MEMORY_BYTES,
            limits_request_bytes_max=REQUEST_BYTES_MAX,
            **settings,
        )
        self.pids: list[int] = []
        self.checks = 0

    @classmethod
    def sealed(cls, path: Path) -> "AttackedBroker":
        """One whose ports speak TLS, and its clients too."""
        ca = authority(path)
        own = issued(path, ca, "own")
        broker = cls(
            path / "data",
            engine="epoll",
            tls_certificate=str(own.certificate),
            tls_key=str(own.key),
            tls_handshakes_per_second="100000",
        )
        broker.context = ssl.create_default_context(cafile=ca.certificate)
        return broker

    def begin(self) -> None:
        self.start()
        self.pids = self.worker_pids()

    def wire(self, listener: str = "produce", **options: Any) -> Wire:
        return Wire.to(self.port(listener), context=self.context, **options)

    def shard_wire(self, shard: int, **options: Any) -> Wire:
        """To the process that owns a shard."""
        return Wire.to(self.port(shard=shard), context=self.context, **options)

    def exchange(self, *pieces: bytes, **options: Any) -> Response:
        """One request on a connection of its own; the answer."""
        with self.wire(**options) as wire:
            wire.send(*pieces)
            return wire.response()

    def exchange_many(self, connections: int, request: bytes, seconds: float) -> None:
        """Sends the request again and again on many connections, and never reads."""
        with ExitStack() as stack:
            wires = [stack.enter_context(self.wire()) for _ in range(connections)]
            for wire in wires:
                wire.sock.setblocking(False)
            flood = memoryview(request * max(1, (1 << 18) // len(request)))
            sent = [0] * connections
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                moved = 0
                for number, wire in enumerate(wires):
                    try:
                        count = wire.sock.send(flood[sent[number] % len(flood) :])
                    except BlockingIOError:
                        continue
                    except OSError:
                        count = 0
                    sent[number] += count
                    moved += count
                self.check_memory()
                if not moved:
                    time.sleep(0.02)

    def resident(self) -> list[int]:
        """VmRSS of every worker, in bytes."""
        found = []
        for pid in self.pids:
            with open(f"/proc/{pid}/status") as status:
                line = next(line for line in status if line.startswith("VmRSS:"))
            found.append(int(line.split()[1]) * 1024)
        return found

    def check_memory(self) -> None:
        if not SANITIZED:
            worst = max(self.resident())
            assert worst <= MEMORY_BYTES + MEMORY_OVER_MAX, f"{worst >> 20} MiB resident"

    def check(self) -> None:
        """An honest client is served by every worker; nothing died, grew or complained."""
        self.checks += 1
        assert self.process is not None and self.process.poll() is None, "the broker ended"
        assert self.worker_pids() == self.pids, self.log_path.read_text()[-4000:]
        marker = b"honest-%d" % self.checks
        for shard in range(self.workers):
            with self.shard_wire(shard, timeout=60) as wire:
                wire.send(produce("honest", marker, f"partitionKey={self.checks}"))
                answer = wire.response()
                assert answer.status == 200, answer
                wire.send(head("GET", "/status"))
                assert wire.response().status == 200
        self.check_memory()
        log = self.log_path.read_text()
        for complaint in ("Traceback", "AddressSanitizer", "runtime error", '"critical"'):
            assert complaint not in log, log[log.index(complaint) - 1000 :][:6000]

    def stored(self, topic: str, accept: str = "application/x-ndjson") -> list[bytes]:
        """Every event of a topic as the lines or documents of a read from the start."""
        found = []
        described = self.request("GET", f"/v1/topic/{topic}/slices").json
        for one in described["slices"]:
            at = one["start"]
            while at < one["end"]:
                path = f"/v1/topic/{topic}/slices/{one['token']}/{one['index']}/events"
                answer = self.request(
                    "GET", path, {"from": at, "maxBytes": MiB}, headers={"Accept": accept}
                )
                if answer.status == 204:
                    break
                assert answer.status == 200, answer
                found += answer.body.splitlines()
                at = answer.headers["barco-next-cursor"]
        return found
