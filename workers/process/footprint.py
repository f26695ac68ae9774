"""Memory that is free again goes back to the system when a worker comes near its budget.

The worker keeps large blocks in its heap (mallopt in the native part), because bodies and answers
of some MiB come and go all the time and fresh pages cost more than the copy into them. What one
kind of load leaves free there, in pieces, may not fit the next kind: then both would be resident.
"""

import asyncio
import ctypes
import functools
import os
import resource
import time
from collections.abc import Callable

from barco.workers.operations.service import ShardService

SHARE = 0.75
"""Of the budget: above it free pages are given back every second, above all of it at once; below
it never, for that costs some milliseconds, and the pages again when they are needed."""

_STARTED = time.time()

CHECK_SECONDS = 0.25
CHECKS_BETWEEN = 4


def resident_bytes() -> int:
    """Resident memory of this process, the log's arena included."""
    return int(os.pread(_statm(), 256, 0).split()[1]) * os.sysconf("SC_PAGE_SIZE")


@functools.cache
def _statm() -> int:
    """Open for the process's life: a flood of connections must not take the last descriptor."""
    return os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)


def count_in(service: ShardService) -> None:
    """What this process takes among the metrics, from now on."""
    _statm()  # While there is a descriptor for it.
    more = service.more_stats
    service.more_stats = lambda: more() | _taken()


def _taken() -> dict[str, float]:
    taken = {
        "process_cpu_seconds": time.process_time(),
        "process_max_fds": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "process_resident_bytes": resident_bytes(),
        "process_start_timestamp_seconds": _STARTED,
    }
    if (open_fds := os.stat("/proc/self/fd").st_size) > 0:  # Linux 6.2 and later count them.
        taken["process_open_fds"] = open_fds
    return taken


def give_back() -> None:
    """Let go of every free page of the heap."""
    ctypes.CDLL(None).malloc_trim(0)


class Footprint:
    """Looked at every CHECK_SECONDS."""

    def __init__(
        self,
        budget_bytes: int,
        *,
        resident: Callable[[], int] = resident_bytes,
        trim: Callable[[], None] = give_back,
    ) -> None:
        self._budget = budget_bytes
        self._resident = resident
        self._trim = trim
        self._checks = 0

    def check(self) -> None:
        """Gives back what is free if the process is large."""
        self._checks += 1
        limit = self._budget
        if self._checks % CHECKS_BETWEEN == 0:
            limit = int(limit * SHARE)
        if self._resident() > limit:
            self._trim()

    async def watch(self) -> None:
        """For as long as the worker lives."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.check()
