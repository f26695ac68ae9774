"""The table at the end of a session, and what all questions share."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = str(Path(__file__).resolve().parent.parent)
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)  # bench.* is no installed package; the tests import it as one.

from bench import servers
from bench.harness import LAB, RESULTS

QUESTION_SECONDS_MAX = 1800


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A question takes minutes: seven rounds of everything it compares."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.timeout(QUESTION_SECONDS_MAX))


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print the table, and keep it."""
    if LAB.results:
        LAB.write()
        terminalreporter.section("the bars of barco")
        terminalreporter.write_line(LAB.table())
        terminalreporter.write_line(f"\nwritten to {RESULTS}")
        if os.environ.get("BARCO_BENCH_PAGE"):
            terminalreporter.write_line(f"and to {LAB.page()}")


@pytest.fixture(scope="module")
def broker() -> Iterator[servers.Broker]:
    """A broker of one worker on an empty log."""
    with servers.broker() as server:
        yield server
