"""What holds for all tests: `reference` can be imported, and two processes share the work.

`make test` runs pytest in two processes. What starts brokers waits more than it works, and wants the
other core for them: all of it is in one process, one test after the other; Spark has one session for
all; the rest goes wherever there is time. What takes longest begins first.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path.append(str(HERE))  # Behind everything else, for tests/barco is not barco.

REAL = ("faults", "integration", "scripts", "security", "barco/supervisor", "barco/cli/test_cli.py")
"""Where tests start brokers, or listen where brokers do."""

FAULTS: list[str] = []
"""Of the process that brokers were hurt in."""


def group(path: str) -> str | None:
    """Whose turn a test waits for, by its path below here."""
    if path.startswith("spark/") or "test_spark" in path:
        return "spark"
    return "brokers" if path.startswith(REAL) else None


@pytest.hookimpl(tryfirst=True)  # Before the names are read in which processes share the work.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if found := group(item.path.relative_to(HERE).as_posix()):
            item.add_marker(pytest.mark.xdist_group(found))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    FAULTS.extend(getattr(node, "workeroutput", {}).get("faults", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FAULTS:
        terminalreporter.section("faults")
        terminalreporter.write("\n".join([*FAULTS, ""]))
