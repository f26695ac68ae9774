"""The twin of a spool."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgpack

from barco.errors import BusyError
from barco.workers.storage.files.spool import StagedRecord


class MemorySpool:
    """Files of records; a power cut leaves what was synced."""

    def __init__(self) -> None:
        self.files: dict[str, Any] = {}
        self.full = False

    async def recover(self) -> list[tuple[Any, list[Any]]]:
        for file in self.files.values():
            file.closed, file.lock = False, asyncio.Lock()
        return [(file, list(file.records)) for file in self.files.values()]

    async def create(self, name: str, meta: dict[str, Any]) -> Any:
        file = SimpleNamespace(name=name, lock=asyncio.Lock(), records=[], synced=0, closed=False)
        await self.append(file, meta, b"")
        self.files[name] = file
        return file

    async def append(self, file: Any, meta: dict[str, Any], body: bytes) -> Any:
        if self.full:
            raise BusyError("The disk has no room.")
        packed = msgpack.unpackb(msgpack.packb(meta))
        file.records.append(StagedRecord(packed, len(file.records), len(body), 0))
        file.bodies = [*getattr(file, "bodies", ()), body]
        await asyncio.sleep(0)
        return file.records[-1]

    async def append_all(self, file: Any, entries: Sequence[tuple[dict[str, Any], Any]]) -> Any:
        return [await self.append(file, meta, bytes(body)) for meta, body in entries]

    async def sync(self, file: Any) -> None:
        await asyncio.sleep(0)
        file.synced = len(file.records)

    async def read(self, file: Any, records: Sequence[Any]) -> list[bytes]:
        await asyncio.sleep(0)
        return [file.bodies[record.offset] for record in records]

    async def remove(self, file: Any) -> None:
        file.closed = True
        self.files.pop(file.name, None)

    def close(self, files: Sequence[Any]) -> None:
        pass

    def cut_power(self) -> None:
        for name, file in list(self.files.items()):
            del file.records[file.synced :], file.bodies[file.synced :]
            if not file.records:
                del self.files[name]
