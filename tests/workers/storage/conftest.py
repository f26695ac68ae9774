"""A shard's directory, and both bulk engines."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import BulkIo, open_bulk

sys.path.insert(0, str(Path(__file__).parent))  # For `builder`: the tests are no package.

Go = Callable[[Callable[[BulkIo], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture
def shard(root: Path) -> Path:
    """An empty shard directory."""
    path = layout.range_path(root, 0)
    path.mkdir()
    return path


@pytest.fixture(params=["pyuring", "threads"])
def engine(request: pytest.FixtureRequest) -> str:
    """The two ways to do bulk work."""
    if request.param == "pyuring":
        bulk = open_bulk()
        bulk.close()
        if bulk.engine != "pyuring":
            pytest.skip("no io_uring here, or no pyuring: pip install pyuring, kernel 6.1 or newer")
    return str(request.param)


@pytest.fixture
def go() -> Go:
    """Runs `test(bulk)` in an event loop of its own, with threads for bulk work."""

    def run(test: Callable[[BulkIo], Coroutine[Any, Any, Any]], engine: str = "threads") -> Any:
        async def main() -> Any:
            bulk = open_bulk(engine)
            try:
                return await test(bulk)
            finally:
                bulk.close()

        return asyncio.run(main())

    return run
