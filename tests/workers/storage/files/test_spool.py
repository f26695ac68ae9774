"""Spool files: what a crash leaves of them is what was staged, up to where it is torn."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from barco.errors import BusyError, CorruptDataError
from barco.workers.storage.files.bulk import ThreadBulk
from barco.workers.storage.files.spool import Spool


@pytest.fixture
def bulk() -> Iterator[ThreadBulk]:
    opened = ThreadBulk()
    yield opened
    opened.close()


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


def test_what_is_appended_is_found_again(tmp_path: Path, bulk: ThreadBulk) -> None:
    async def test() -> None:
        spool = Spool(tmp_path / "staged", bulk, free_min=0)
        assert await spool.recover() == []
        file = await spool.create("q/1", {"writer": "q"})
        records = [await spool.append(file, {"n": n}, b"x" * n * 1000) for n in range(5)]
        await spool.sync(file)
        assert await spool.read(file, records[3:]) == [b"x" * 3000, b"x" * 4000]
        spool.close([file])
        ((again, found),) = await Spool(tmp_path / "staged", bulk).recover()
        assert [record.meta for record in found] == [{"writer": "q"}, *({"n": n} for n in range(5))]
        assert again.end == file.end
        await spool.remove(again)
        assert again.closed and list((tmp_path / "staged").iterdir()) == []

    run(test)


def test_records_appended_together_are_found_one_by_one(tmp_path: Path, bulk: ThreadBulk) -> None:
    async def test() -> None:
        spool = Spool(tmp_path / "staged", bulk, free_min=0)
        await spool.recover()
        file = await spool.create("q/1", {"writer": "q"})
        told = [({"n": n}, memoryview(b"%d" % n * 1000)) for n in range(4)]
        records = await spool.append_all(file, told)
        assert await spool.read(file, records) == [bytes(body) for _, body in told]
        spool.close([file])
        os.truncate(file.path, records[2].offset + 1)  # A crash in the middle of the write.
        ((again, found),) = await Spool(tmp_path / "staged", bulk).recover()
        assert [record.meta for record in found[1:]] == [{"n": 0}, {"n": 1}]
        assert found[1:] == records[:2]
        spool.close([again])

    run(test)


def test_a_cut_at_every_place(tmp_path: Path, bulk: ThreadBulk) -> None:
    async def test() -> None:
        spool = Spool(tmp_path / "staged", bulk, free_min=0)
        await spool.recover()
        file = await spool.create("q", {"writer": "q"})
        ends = [file.end]
        for n in range(4):
            await spool.append(file, {"n": n}, os.urandom(50))
            ends.append(file.end)
        spool.close([file])
        whole = file.path.read_bytes()
        for size in range(len(whole) + 1):
            file.path.write_bytes(whole[:size])
            found = await spool.recover()
            expected = sum(end <= size for end in ends)
            assert sum(len(records) for _, records in found) == expected
            assert file.path.exists() == (expected > 0)
            spool.close([each for each, _ in found])
        for at in range(len(whole)):
            file.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            found = await spool.recover()
            assert sum(len(records) for _, records in found) == sum(end <= at for end in ends)
            spool.close([each for each, _ in found])

    run(test)


def test_damage_and_a_full_disk(tmp_path: Path, bulk: ThreadBulk) -> None:
    async def test() -> None:
        spool = Spool(tmp_path / "staged", bulk, free_min=0)
        await spool.recover()
        file = await spool.create("q", {})
        record = await spool.append(file, {}, b"abc")
        with file.path.open("r+b") as damaged:
            damaged.seek(record.offset)
            damaged.write(b"X")
        with pytest.raises(CorruptDataError):
            await spool.read(file, [record])
        full = Spool(tmp_path / "staged", bulk, free_min=1 << 60)
        with pytest.raises(BusyError):
            await full.append(file, {}, b"abc")
        with pytest.raises(BusyError):
            await full.create("r", {})
        assert len(list((tmp_path / "staged").iterdir())) == 1
        await spool.remove(file)

    run(test)
