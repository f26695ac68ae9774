"""What holds for all tests: `reference` can be imported, and three processes share the work.

`make test` runs pytest in three processes, also on two cores: what starts brokers waits more than
it works. It is in a few groups, each in one process, one test after the other, so that never more
than three are at it; Spark has one session for all; they begin first, for they take longest, and
the rest fills the time that is left.

Three processes look for free ports at a time, and a broker that is started anew has let go of its
own meanwhile. So those that keep theirs are apart: 12,000 faults, 20,000 Spark, 24,000 the library,
28,000 Prometheus; rings have addresses that are made of the process's number.

A whole run tries once more what failed, and names it at the end (RERUN): among thousands of tests
there is one on most days that a machine which stood still for seconds fails. What is named there is
to be looked into all the same. What holds promises is never tried again.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))  # Behind everything else, for tests/barco is not barco.

REAL = ("faults", "scripts", "security", "barco/supervisor", "barco/cli/test_cli.py")
"""Where tests start brokers, or listen where brokers do; and tests/integration."""

SPARK, BROKERS, HALVES = "spark", "brokers", ("integration a-h", "integration i-z")
LONGEST = (*HALVES, SPARK, BROKERS)

ONCE = ("tests/faults/", "tests/simulator/", "tests/barco/cluster/")
"""Where a test fails once for all, whatever the machine did; and what the next one is about."""

PROMISES = re.compile(
    "twice|once|order|overtake|miss|los[et]|gap|none_early|acknowledged|kill|die|crash|stored|left"
)
"""In the names of tests that hold what came out against what went in. Some others have them too."""

SPACE = 20 * 10**9
"""Bytes that a whole run may have on the disk at a time, with some to spare; all are removed."""

FAULTS: list[str] = []
"""Of the process that brokers were hurt in."""


def pytest_report_header() -> list[str]:
    """With too little space hundreds of tests fail, none of which says why."""
    there = tempfile.gettempdir()
    free = shutil.disk_usage(there).free
    if free >= SPACE:
        return []
    return [f"WARNING: {there} has {free >> 20:,} MiB free; all tests together need up to 16 GB"]


def group(test: str) -> str:
    """Whose turn a test waits for, by its name."""
    path = test.partition("::")[0].removeprefix("tests/")
    if path.startswith("spark/") or "test_spark" in path:
        return SPARK
    if path.startswith("integration/"):
        return HALVES[path >= "integration/test_i"]
    return BROKERS if path.startswith(REAL) else path


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hands whole groups out in the order of the collection: LONGEST come first."""
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    return Groups(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first; and an event that is lost once in two runs is lost."""
    turns = {name: turn for turn, name in enumerate(LONGEST)}
    items.sort(key=lambda item: turns.get(group(item.nodeid), len(turns)))
    for item in items:
        path, _, name = item.nodeid.partition("::")
        if path.startswith(ONCE) or PROMISES.search(name):
            item.add_marker(pytest.mark.flaky(reruns=0))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    FAULTS.extend(getattr(node, "workeroutput", {}).get("faults", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if FAULTS:
        terminalreporter.section("faults")
        terminalreporter.write("\n".join([*FAULTS, ""]))
