"""Segments that are sealed while one generation of a replica follows another."""

import asyncio
import os
from pathlib import Path

import pytest
from builder import TOKEN, UUID

from barco.workers.storage import layout, replicas
from barco.workers.storage.bulk import BulkIo
from barco.workers.storage.catalog import SegmentKey
from barco.workers.storage.replicas import ReplicaStore
from barco.workers.storage.retention import Policy

from .conftest import Go

MIB = 1 << 20


class Core:
    """Knows one segment."""

    def export_index(self, index: int) -> bytes:
        return b""

    def segment_summary(self, index: int) -> tuple[int, ...]:
        return (index, 1, 9, 0, 0, 4096, 0, 0)

    def log_state(self) -> dict[str, int]:
        return {"segment": 0, "gseq": 9}


def make(shard: Path, bulk: BulkIo) -> ReplicaStore:
    store = ReplicaStore(
        shard,
        bulk,
        cluster_uuid=UUID,
        token=TOKEN,
        segment_bytes=MIB,
        policy=Policy(0, 0),
        on_error=lambda error: None,
    )
    store._core = Core()  # type: ignore[assignment]
    store.epoch = 2
    return store


def test_the_next_generation_keeps_its_segment(
    shard: Path, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have a segment 0, and the first one's is sealed when the second is open already."""

    async def test(bulk: BulkIo) -> None:
        store = make(shard, bulk)
        new = os.open(shard, os.O_RDONLY)

        async def add_sealed(*args: object) -> None:
            await asyncio.sleep(0)
            store.epoch, store._fds = 3, {0: new}

        monkeypatch.setattr(store._catalog, "add_sealed", add_sealed)
        assert not await store.segment_sealed(2, 0)
        os.fstat(new)
        assert store._fds == {0: new}
        await store.close()

    go(test)


def test_a_sidecar_is_written_by_one_at_a_time(
    shard: Path, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that is full, and the whole generation, are sealed at the same time."""

    async def test(bulk: BulkIo) -> None:
        store = make(shard, bulk)
        writing: list[int] = []

        async def add_sealed(*args: object) -> None:
            writing.append(1)
            await asyncio.sleep(0.02)
            writing.pop()

        def write_sidecar(*args: object) -> None:
            assert not writing

        monkeypatch.setattr(store._catalog, "add_sealed", add_sealed)
        monkeypatch.setattr(replicas, "write_sidecar", write_sidecar)
        one, _ = await asyncio.gather(store.segment_sealed(2, 0), store._seal_core(9))
        assert one
        await store.close()

    go(test)


def test_a_segment_that_was_not_needed_is_not_read_any_more(shard: Path, go: Go) -> None:
    """It was prepared, looked into, and thrown away; then copying made another of its name."""

    async def test(bulk: BulkIo) -> None:
        store = make(shard, bulk)
        key, path = SegmentKey(2, 1), layout.segment_path(shard, 2, 1)
        layout.make_directory(path.parent)
        path.write_bytes(b"old" + bytes(4093))
        store._fds = {1: os.open(path, os.O_RDWR)}
        files = store._catalog.files
        with files.lease(key, path) as fd:
            assert os.fstat(fd).st_ino == path.stat().st_ino
        store._leave()
        assert not path.exists()
        path.write_bytes(b"new" + bytes(4093))
        with files.lease(key, path) as fd:
            assert os.fstat(fd).st_ino == path.stat().st_ino
        await store.close()

    go(test)
