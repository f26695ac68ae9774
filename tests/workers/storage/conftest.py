"""A shard's directory on a real file system (O_DIRECT, so not on tmpfs), and both bulk engines."""

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from barco.errors import BarcoError
from barco.workers.storage import layout
from barco.workers.storage.bulk import BulkIo, open_bulk

sys.path.insert(0, str(Path(__file__).parent))  # For `builder`: the tests are no package.

Go = Callable[[Callable[[BulkIo], Coroutine[Any, Any, Any]]], Any]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A data directory where direct I/O works; /tmp is memory on some machines."""
    for base in (tmp_path, Path(__file__).parents[3] / ".pytest_cache"):
        base.mkdir(exist_ok=True)
        directory = Path(tempfile.mkdtemp(dir=base))
        try:
            layout.check_data_dir(directory)
        except BarcoError:
            shutil.rmtree(directory)
            continue
        yield directory
        shutil.rmtree(directory, ignore_errors=True)
        return
    pytest.skip(
        "neither --basetemp nor the checkout allows O_DIRECT: pass --basetemp on ext4 or XFS"
    )


@pytest.fixture
def shard(root: Path) -> Path:
    """An empty shard directory."""
    path = layout.shard_path(root, 0)
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
