"""`barco serve` whose supervisor starts and ends processes for ranges when a test says so.

It listens on run/grow in its data directory. A line of JSON comes, {"add": entry},
{"end": token}, or {"idle": seconds} for how long nobody needs one before it is ended; one goes
back: the table as it is then, or {"refused": why}.
"""

import asyncio
import importlib.util
import json
import os
import secrets
import socket
import sys
from pathlib import Path
from typing import Any

from barco.cli import main
from barco.cluster.ring import growing as ring
from barco.errors import BarcoError
from barco.model.ranges import from_plain, to_plain
from barco.supervisor import broker


class GrowingBroker(broker.Broker):
    """The real one, and somebody who calls it."""

    async def run(self) -> int:
        path = self._plan.data_dir / "run" / "grow"
        path.unlink(missing_ok=True)
        async with await asyncio.start_unix_server(self._asked, path):
            return await super().run()

    async def _asked(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(await reader.readline())
        try:
            if "add" in asked:
                self.add_range(from_plain([asked["add"]]).entries[0])
            elif "idle" in asked:
                ring.IDLE_SECONDS = asked["idle"]
            else:
                await self.end_range(int(asked["end"]))
            answer: Any = to_plain(self.table)
        except BarcoError as error:
            answer = {"refused": str(error)}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
        writer.close()


def ask(data_dir: Path, **asked: Any) -> Any:
    """What the supervisor answers."""
    with socket.socket(socket.AF_UNIX) as end:
        end.settimeout(60)
        end.connect(str(data_dir / "run" / "grow"))
        end.sendall(json.dumps(asked).encode() + b"\n")
        return json.loads(end.makefile().readline())


def entry(token: int, first: int, slices: int, members: list[int]) -> dict[str, Any]:
    """Of a range that no cluster was formatted with."""
    return {
        "token": str(token),
        "first": first,
        "slices": slices,
        "number": 0,
        "members": members,
        "genesis": False,
    }


def local_cluster(directory: Path, program: Path) -> Any:
    """Three brokers that run, each started as this program (`scripts/cluster.py`)."""
    path = Path(__file__).resolve().parents[2] / "scripts" / "cluster.py"
    spec = importlib.util.spec_from_file_location("barco_cluster", path)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    sys.modules["barco_cluster"] = script  # Dataclasses look themselves up.
    spec.loader.exec_module(script)
    python = directory / "python"
    python.write_text(f'#!/bin/sh\nshift 3\nexec {sys.executable} -P {program} "$@"\n')
    python.chmod(0o700)
    net = f"127.{50 + os.getpid() % 200}.{secrets.randbelow(250)}"
    hosts = tuple(f"{net}.{number + 1}" for number in range(3))
    made = script.LocalCluster(directory, hosts=hosts, workers=1, tied=True, python=str(python))
    made.write()
    for ordinal in range(3):
        made.start(ordinal)
    made.wait_ready()
    return made


if __name__ == "__main__":
    broker.Broker = GrowingBroker  # type: ignore[misc]
    sys.exit(main(sys.argv[1:]))
