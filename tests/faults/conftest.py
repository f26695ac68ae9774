"""What hurts a broker, and a table of it at the end. Seeds: BARCO_TEST_SEED repeats a run."""

import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # The tests are no package.

from faultlab import fusedisk
from faultlab.fusedisk import FuseDisk
from faultlab.prober import percentile
from faultlab.round import COLUMNS, OUTAGES, TOTALS

from barco.errors import BarcoError
from barco.workers.storage.files import layout

FAILED = pytest.StashKey[bool]()


def new_seed() -> int:
    """A new one, or the one that was asked for."""
    return int(os.environ.get("BARCO_TEST_SEED") or random.randrange(1 << 30))


@pytest.fixture
def seed() -> int:
    """Printed with each scene; the same again with BARCO_TEST_SEED."""
    return new_seed()


@pytest.fixture(scope="module")
def module_seed() -> int:
    """One for all tests of a module."""
    return new_seed()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


def make_root() -> Path:
    """A directory on a file system with direct I/O."""
    for base in (None, Path(__file__).parents[2] / ".pytest_cache"):
        directory = Path(tempfile.mkdtemp(prefix="barco-faults-", dir=base))
        try:
            layout.check_data_dir(directory)
        except BarcoError:
            shutil.rmtree(directory)
            continue
        return directory
    pytest.skip("no file system with direct I/O at hand")


@pytest.fixture
def root(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory of the test's own; kept when it fails."""
    directory = make_root()
    yield directory
    if request.node.stash.get(FAILED, False):
        print(f"kept: {directory}")
    else:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="module")
def module_root(request: pytest.FixtureRequest) -> Iterator[Path]:
    """A directory of the module's own."""
    directory = make_root()
    yield directory
    if not request.session.testsfailed:
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that makes appends of the epoll engine fail or lie: see its source."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler")
    if "LD_PRELOAD" in os.environ:
        pytest.skip("something else is preloaded")
    library = tmp_path_factory.mktemp("shim") / "writes.so"
    source = Path(__file__).parent / "faultlab" / "writes.c"
    command = [compiler, "-O1", "-shared", "-fPIC", "-pthread", "-o", str(library), str(source)]
    subprocess.run([*command, "-ldl"], check=True)
    return library


@pytest.fixture(scope="session")
def disk_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a FUSE disk that fails as it is told."""
    if reason := fusedisk.why_not():
        pytest.skip(reason)
    return fusedisk.build(tmp_path_factory.mktemp("fusedisk"))


@contextlib.contextmanager
def fuse_disks(program: Path, root: Path, count: int) -> Iterator[list[FuseDisk]]:
    """So many, good ones; skips where they can not be mounted."""
    with contextlib.ExitStack() as stack:
        found = []
        for number in range(count):
            try:
                disk = FuseDisk(program, root / f"disk-{number}")
            except AssertionError as error:
                pytest.skip(str(error))
            stack.callback(disk.close)
            found.append(disk)
        yield found


@pytest.fixture
def fuse_disk(disk_program: Path, root: Path) -> Iterator[FuseDisk]:
    """One."""
    with fuse_disks(disk_program, root, 1) as found:
        yield found[0]


@pytest.fixture
def disks(disk_program: Path, root: Path) -> Iterator[list[FuseDisk]]:
    """For a ring of three."""
    with fuse_disks(disk_program, root, 3) as found:
        yield found


@pytest.fixture(scope="module")
def module_disks(disk_program: Path, module_root: Path) -> Iterator[list[FuseDisk]]:
    """For a ring of three that lives as long as the module."""
    with fuse_disks(disk_program, module_root, 3) as found:
        yield found


def table() -> list[str]:
    """What was done to brokers, a line for each kind; none if there was nothing."""
    if not TOTALS:
        return []
    lines = [f"{'':<24}" + "".join(f"{name:>11}" for name in COLUMNS)]
    for name, row in TOTALS.items():
        cells = [
            f"{row[each]:>11.1f}" if "s" == each[-1:] and " " in each else f"{row[each]:>11.0f}"
            for each in COLUMNS
        ]
        lines.append(f"{name:<24}" + "".join(cells))
    if OUTAGES:
        lines.append(f"{'no write for, s':<24}{'ranges':>11}{'p50':>11}{'p99':>11}{'worst':>11}")
    for name, seconds in OUTAGES.items():
        figures = [percentile(seconds, share) for share in (0.5, 0.99, 1.0)]
        lines.append(
            f"{name:<24}{len(seconds):>11}" + "".join(f"{each:>11.2f}" for each in figures)
        )
    return lines


def pytest_sessionfinish(session: pytest.Session) -> None:
    """One of several processes hands its table over; tests/conftest.py prints it."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["faults"] = table()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if lines := table():
        terminalreporter.section("faults")
        terminalreporter.write("\n".join([*lines, ""]))
