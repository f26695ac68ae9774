"""What keeps Spark's Python processes cheap; done by the first of our code that runs in one.

Spark's own daemon, which always plans and which tasks run under unless told otherwise, collects
garbage after each piece of work, over all of pyarrow and numpy: 25 ms of CPU, twice a query for
planning alone. Buffers of some MiB come and go with every batch: by default the C library gives
most of them back to the kernel, which maps and clears each page anew.
"""

import contextlib
import ctypes
import gc
import sys

from barco.types import MiB

DAEMONS = ("pyspark.daemon", "barco.spark.base.daemon")
"""Processes that do nothing but Spark's work. A user's own are left as they are."""

FREEZE_AT = (2, 4, 16)
"""Pieces of work of one process: modules are loaded by the first few."""

KEPT_BYTES, MAPPED_BYTES = 64 * MiB, 32 * MiB
"""Of free memory that a process keeps, at most; of a block that is the kernel's as soon as it is
free, at least. glibc itself goes so far once it has seen a block of 32 MiB come and go."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_works = 0


def settle() -> None:
    """At the beginning of each piece of work: planning, or a task."""
    global _works
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is None or main.name not in DAEMONS:
        return
    _works += 1
    if _works == 1:
        with contextlib.suppress(OSError, AttributeError):  # Not glibc.
            libc = ctypes.CDLL(None)
            libc.mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
            libc.mallopt(_M_TRIM_THRESHOLD, KEPT_BYTES)
    if _works in FREEZE_AT:
        gc.freeze()
