#!/usr/bin/env python3
"""`make cluster`: three brokers on 127.0.0.1, .2 and .3, from three generated files.

    scripts/cluster.py start    three files, three data directories, three brokers in the background
    scripts/cluster.py status   what the first broker that answers says of the ring
    scripts/cluster.py stop     ask all to drain and end (make cluster-stop)

Everything is in .cluster/: b0.toml to b2.toml, a data directory, a log and a process id for each.
"""

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import barco
from barco.errors import BarcoError
from barco.supervisor.tied import start_tied

SIZE = 3
START_SECONDS = 180.0
STOP_SECONDS = 90.0
STATUS_SECONDS = 20.0
WORKERS = 1
MEMORY_BYTES = 64 * 1024 * 1024
"""For each process: there are three for each worker of each broker, all on this machine."""

SEGMENT_BYTES = 32 * 1024 * 1024
"""Nine processes have a segment and a spare each, and a new one for each generation."""

TOML = """\
[broker]
ordinal = {ordinal}
data_dir = "{data}"
workers = {workers}
[cluster]
brokers = {brokers}
uuid = "{uuid}"
secret_file = "{secret}"
[limits]
memory_bytes = {memory}
request_bytes_max = 4194304
[storage]
segment_bytes = {segment}
"""


class ClusterError(Exception):
    """The cluster can not go on; the text says why."""


@dataclass
class LocalCluster:
    """Brokers of one machine, each with an address of its own and the usual ports."""

    root: Path
    hosts: Sequence[str] = tuple(f"127.0.0.{number + 1}" for number in range(SIZE))
    workers: int = WORKERS
    tied: bool = False
    """They end with this process; else they stay."""
    python: str = sys.executable
    mutual: bool = False
    """Brokers speak TLS among themselves, with certificates made by `barco certs`."""
    _started: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def endpoints(self) -> list[str]:
        """Where every broker answers."""
        return [f"{host}:9250" for host in self.hosts]

    def config(self, ordinal: int) -> Path:
        """A broker's file."""
        return self.root / f"b{ordinal}.toml"

    def data(self, ordinal: int) -> Path:
        """A broker's data directory."""
        return self.root / f"data-{ordinal}"

    def log(self, ordinal: int) -> Path:
        """What a broker says."""
        return self.root / f"b{ordinal}.log"

    def write(self, brokers: int = 0) -> None:
        """The files of the first so many brokers (0: of all), which know of no more; those of an
        earlier run are kept, so that the data is taken up again."""
        brokers = brokers or len(self.hosts)
        self.root.mkdir(parents=True, exist_ok=True)
        uuid, secret = self._uuid(), self.root / "secret"
        if not secret.exists():
            secret.touch(mode=0o600)
            secret.write_text(secrets.token_hex(32) + "\n")
        for ordinal in range(brokers):
            if self.config(ordinal).exists():
                continue
            text = TOML.format(
                ordinal=ordinal,
                data=self.data(ordinal),
                workers=self.workers,
                brokers=json.dumps(list(self.hosts[:brokers])),
                uuid=uuid,
                secret=secret,
                memory=MEMORY_BYTES,
                segment=SEGMENT_BYTES,
            )
            self.config(ordinal).write_text(text)
            if self.mutual:
                self.certify(ordinal)

    def certify(self, ordinal: int) -> None:
        """A broker's certificate, and its name in the broker's file: for the next start."""
        path, config = self.root / "certs", self.config(ordinal)
        verb = ["issue", str(ordinal)] if (path / "ca.key").exists() else ["init"]
        if not (path / f"broker-{ordinal}.crt").exists():
            command = [self.python, "-P", "-m", "barco", "certs", *verb]
            command += ["--config", str(config), "--dir", str(path)]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
        named = f'ca = "{path}/ca.crt"\n'
        for key, kind in (("certificate", "crt"), ("key", "key")):
            named += f'{key} = "{path}/broker-{ordinal}.{kind}"\n'
        config.write_text(config.read_text().replace("[limits]", f"{named}[limits]"))

    def _uuid(self) -> str:
        """The cluster's: that of the first broker's file, if there is one."""
        if not self.config(0).exists():
            return secrets.token_hex(16)
        return str(tomllib.loads(self.config(0).read_text())["cluster"]["uuid"])

    def start(self, ordinal: int) -> int:
        """Start one broker in the background; its process id."""
        command = [self.python, "-P", "-m", "barco", "serve", "--config", str(self.config(ordinal))]
        begin = start_tied if self.tied else subprocess.Popen
        with self.log(ordinal).open("ab") as log:
            broker = begin(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._started[ordinal] = broker
        self._pid_file(ordinal).write_text(f"{broker.pid}\n")
        return int(broker.pid)

    def check_free(self) -> None:
        """ClusterError: somebody else listens where a broker that does not run yet is to."""
        for ordinal, endpoint in enumerate(self.endpoints):
            host, _, port = endpoint.rpartition(":")
            with socket.socket() as probe:
                taken = probe.connect_ex((host, int(port))) == 0
            if taken and self.pid(ordinal) is None:
                raise ClusterError(
                    f"another process listens at {endpoint}: stop it first"
                    " (make demo-stop, if it is the broker of make demo)"
                )

    def pid(self, ordinal: int) -> int | None:
        """The process id of a broker that runs."""
        try:
            pid = int(self._pid_file(ordinal).read_text())
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, ValueError):
            return None
        ours = os.fsencode(self.config(ordinal)) in arguments
        return pid if ours and state != "Z" else None

    def kill(self, ordinal: int) -> None:
        """SIGKILL to a broker; its workers die with it."""
        pid = self.pid(ordinal)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        self._reap(ordinal, STOP_SECONDS)

    def stop(self, ordinals: Sequence[int] | None = None) -> list[int]:
        """Ask brokers to drain and end; those that ran."""
        asked = range(len(self.hosts)) if ordinals is None else ordinals
        running = {ordinal: pid for ordinal in asked if (pid := self.pid(ordinal)) is not None}
        for pid in running.values():
            os.kill(pid, signal.SIGTERM)
        for ordinal in running:
            self._reap(ordinal, STOP_SECONDS)
        return list(running)

    def wait_ready(self, ordinals: Sequence[int] | None = None) -> None:
        """Until these brokers say that they serve; ClusterError with the last word otherwise."""
        wanted = list(range(len(self.hosts)) if ordinals is None else ordinals)
        deadline = time.monotonic() + START_SECONDS
        word = ""
        while wanted:
            status = self.status(wanted[0])
            if status.get("status") == "ready":
                wanted.pop(0)
                continue
            word = str(status.get("reason", ""))
            if self.pid(wanted[0]) is None:
                word = "it has ended: " + self._last_line(wanted[0])
                deadline = 0.0
            if time.monotonic() >= deadline:
                raise ClusterError(f"broker {wanted[0]} is not ready: {word or 'no answer'}")
            time.sleep(0.1)

    def wait_in_sync(self, ordinal: int) -> None:
        """Until all copies are where they should be: before another broker is stopped."""
        deadline = time.monotonic() + START_SECONDS
        while not (status := self.status(ordinal)).get("inSync"):
            if time.monotonic() >= deadline:
                why = "; ".join(status.get("degraded", [])) or status.get("reason", "no answer")
                raise ClusterError(f"broker {ordinal} is not in sync: {why}")
            time.sleep(0.1)

    def status(self, ordinal: int) -> dict[str, Any]:
        """What a broker says of itself; {} if it does not answer."""
        try:
            with barco.Admin(self.endpoints[ordinal], timeout_s=STATUS_SECONDS) as admin:
                return dict(admin.status())
        except BarcoError:
            return {}

    def topology(self) -> dict[str, Any]:
        """The ring, as the first broker that answers sees it."""
        with barco.Admin(self.endpoints, timeout_s=10.0) as admin:
            return dict(admin.topology())

    def _pid_file(self, ordinal: int) -> Path:
        return self.root / f"b{ordinal}.pid"

    def _last_line(self, ordinal: int) -> str:
        lines = self.log(ordinal).read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no word"

    def _reap(self, ordinal: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.pid(ordinal) is not None:
            if ordinal in self._started:
                self._started[ordinal].poll()
            if time.monotonic() >= deadline:
                raise ClusterError(f"broker {ordinal} does not end: see {self.log(ordinal)}")
            time.sleep(0.02)
        self._pid_file(ordinal).unlink(missing_ok=True)


def main() -> int:
    """Parse, act, say what went wrong in one line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=("start", "status", "stop"))
    parser.add_argument("--dir", type=Path, default=Path(".cluster"), help="default: %(default)s")
    parser.add_argument("--workers", type=int, default=WORKERS, help="of each broker (%(default)s)")
    parser.add_argument("--mutual", action="store_true", help="TLS among brokers; needs an empty"
                        " --dir, and the package cryptography")  # fmt: skip
    args = parser.parse_args()
    cluster = LocalCluster(args.dir.resolve(), workers=args.workers, mutual=args.mutual)
    try:
        if args.action == "start":
            start(cluster)
        elif args.action == "stop":
            stopped = cluster.stop()
            print(f"stopped brokers: {', '.join(map(str, stopped)) or 'none was running'}")
        else:
            command = [sys.executable, "-P", "-m", "barco", "status", "--endpoint"]
            return subprocess.run([*command, ",".join(cluster.endpoints)], check=False).returncode
    except (ClusterError, BarcoError) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 1
    return 0


def start(cluster: LocalCluster) -> None:
    """All that do not run yet."""
    cluster.check_free()
    cluster.write()
    for ordinal in range(SIZE):
        if cluster.pid(ordinal) is None:
            cluster.start(ordinal)
    cluster.wait_ready()
    print("three brokers are ready:")
    for ordinal, endpoint in enumerate(cluster.endpoints):
        print(f"  broker {ordinal}  http://{endpoint}  process {cluster.pid(ordinal)}")
    print(
        f"look: .venv/bin/barco status --endpoint {cluster.endpoints[0]}   stop: make cluster-stop"
    )


if __name__ == "__main__":
    sys.exit(main())
