"""A directory on a real file system, and the in-memory twin, made importable."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from barco.errors import BarcoError
from barco.workers.storage.files import layout

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A data directory where direct I/O works; /tmp is memory on some machines."""
    for base in (tmp_path, Path(__file__).parents[2] / ".pytest_cache"):
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
