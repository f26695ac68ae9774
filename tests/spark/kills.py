"""Killing things while a query runs: what a test of a retry is made of."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def children_of(pid: int) -> list[int]:
    """Process ids of a process's children."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            found += [int(word) for word in (task / "children").read_text().split()]
        except OSError:
            continue
    return found


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    found = children_of(pid)
    for each in found:
        found += children_of(each)
    return found


def command_of(pid: int) -> str:
    """How a process was started."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def python_tasks(jvm: int) -> list[int]:
    """The Python workers of Spark's executors: children of the daemon."""
    daemons = [pid for pid in descendants(jvm) if "barco.spark.base.daemon" in command_of(pid)]
    return [pid for daemon in daemons for pid in children_of(daemon)]


def kill_one(pids: list[int], turn: int) -> int:
    """SIGKILL to one of them; returns how many were killed."""
    if not pids:
        return 0
    try:
        os.kill(pids[turn % len(pids)], signal.SIGKILL)
    except ProcessLookupError:
        return 0
    return 1


@contextmanager
def killing(
    victims: Callable[[int], list[int]], *, first_s: float, pause_s: float, most: int
) -> Iterator[list[float]]:
    """While the block runs, kills one of what `victims` gives again and again, `most` times.

    `victims` is told how many have been killed. Yields the list of when that was.
    """
    times: list[float] = []
    stop = threading.Event()

    def work() -> None:
        stop.wait(first_s)
        while not stop.is_set() and len(times) < most:
            if kill_one(victims(len(times)), len(times)):
                times.append(time.monotonic())
                stop.wait(pause_s)
            else:
                stop.wait(0.01)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield times
    finally:
        stop.set()
        thread.join()


def jvm_of(spark: Any) -> int:
    """The process id of the driver's JVM."""
    return int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())
