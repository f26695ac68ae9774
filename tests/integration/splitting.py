"""`barco serve` whose workers do what a test says: split what they lead, answer an operation.

Each worker listens on run/tell-<number> in its data directory. A line of JSON comes: {"split":
[first, second]} or {"move": child}, each {"token", "end", "leader", "members"} where a member is
[ordinal, disk] and a leader one of them with its session; {"append": [topic, slice], "values":
[...]}, to what it leads; {"deaf": true}: it is not told what its range came of, for as long as it
lives; {"known": ordinal}: that broker's word counts, as if a target had named it; {"renew": true}:
end the generation that it leads; {"retain": true}: what retention does, as if everything were old;
or {"op": name, "args": {...}}. One goes back.
"""

import asyncio
import base64
import json
import runpy
import socket
import sys
from pathlib import Path
from typing import Any

import barco.workers.worker as workers
from barco.cli import main
from barco.cluster.state import events as ev
from barco.errors import BarcoError
from barco.model.generation import Generation, Gid, Identity
from barco.supervisor import broker
from barco.supervisor.children.starts import Starter
from barco.types import Epoch, Ordinal, Token

sys.path.insert(0, str(Path(__file__).parent))
from growing import GrowingBroker


class ToldWorker(workers.Worker):
    """The real one, and somebody who tells it what to do."""

    async def run(self) -> int:
        path = Path(self._options.data_dir) / "run" / f"tell-{self._options.worker}"
        path.unlink(missing_ok=True)
        async with await asyncio.start_unix_server(self._told, path):
            return await super().run()

    async def _told(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told = json.loads(await reader.readline())
        answer: Any = None
        try:
            if "split" in told:
                self._split(told["split"])
            elif "move" in told:
                self._move(told["move"])
            elif "deaf" in told:
                self._replica._origins._wants = lambda: False
                self._replica._origins._taught = lambda *told: None  # What it has asked already.
                self._replica.driver._inputs._received = lambda *told: None
            elif "known" in told:
                self._service.voices._named.add(told["known"])
            elif "renew" in told:
                self._replica.driver.renew()
            elif "retain" in told:
                await self._replica.left.look()
                answer = await self._replica.left.retain(2**62)
            elif "append" in told:
                answer = [await self._append(*told["append"], each) for each in told["values"]]
            elif "op" in told:
                answer = await self._service.operation(told["op"], told["args"])
            else:
                role = self._replica.driver.status()["role"]
                answer = [self._session, self._options.disk_uuid, role]
        except BarcoError as error:
            answer = {"refused": f"{error.slug}: {error}"}
        writer.write(json.dumps(answer, default=_plain).encode() + b"\n")
        await writer.drain()
        writer.close()

    async def _append(self, topic: str, index: int, value: str) -> int:
        """The offset of an event that is committed."""
        return await self._service.appends.start(topic, index, b"k", value.encode())

    def _split(self, told: list[dict[str, Any]]) -> None:
        generation = self._replica.driver.generation
        assert generation is not None
        first, second = map(_child, told)
        self._replica.driver.post(ev.Split(generation.gid, (first, second)))

    def _move(self, told: dict[str, Any]) -> None:
        generation = self._replica.driver.generation
        assert generation is not None
        self._replica.driver.post(ev.Move(generation.gid, _child(told)))


class SplittingBroker(GrowingBroker):
    """Whose workers are such."""

    def __init__(self, *args: Any) -> None:
        plan, identity, table, listeners, usual, *rest = args
        starter = Starter((sys.executable, "-P", str(Path(__file__).resolve())), usual.lock)
        super().__init__(plan, identity, table, listeners, starter, *rest)


def _child(told: dict[str, Any]) -> Generation:
    members = tuple(Identity(Ordinal(at), bytes.fromhex(disk)) for at, disk in told["members"])
    leader, session = told["leader"]
    return Generation(
        Gid(Token(told["token"]), Epoch(1)), told["end"], members[leader], session, members, ()
    )


def _plain(value: Any) -> Any:
    return base64.b64encode(value).decode()


def tell(data_dir: Path, worker: int, **told: Any) -> Any:
    """What the worker answers; None where nobody is there."""
    with socket.socket(socket.AF_UNIX) as end:
        end.settimeout(60)
        try:
            end.connect(str(data_dir / "run" / f"tell-{worker}"))
            end.sendall(json.dumps(told).encode() + b"\n")
            line = end.makefile().readline()
        except OSError:
            return None
        return json.loads(line) if line else None


if __name__ == "__main__":
    if sys.argv[1].startswith("worker "):
        workers.Worker = ToldWorker  # type: ignore[misc]
        runpy.run_module("barco.workers", run_name="__main__", alter_sys=True)
    else:
        broker.Broker = SplittingBroker  # type: ignore[misc]
        sys.exit(main(sys.argv[1:]))
