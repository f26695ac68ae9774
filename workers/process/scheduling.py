"""How the kernel shares a core between a worker and whoever else runs there."""

import ctypes
import logging
import os
import struct

SLICE_NS = 10_000_000
"""What a worker asks the scheduler for at a time; the kernel's own is 1 to 3 ms. It gets no more of
the core for that: who asks for shorter slices goes before it when it wakes up (EEVDF, Linux 6.12
and later). Among those are the kernel's own threads that finish a write where the disk knows no
FUA: behind a worker that is busy they waited for a tick of 4 ms, and with them every append.
Workers that share a core wait for each other's slice: with 100 ms a ring took twice the CPU."""

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
_ATTR = struct.Struct("=IIQiIQQQ")
"""struct sched_attr (sched_setattr(2)): size, policy, flags, nice, priority, runtime, two more."""

log = logging.getLogger("barco.worker")


def pin(core: int | None) -> None:
    """One worker, one core: its caches stay warm, and nobody else of ours runs there."""
    if core is None:
        return
    try:
        os.sched_setaffinity(0, {core})
    except OSError as error:
        log.warning("cannot pin to core %d: %s", core, error.strerror)


def ask_long_slices() -> bool:
    """False where the kernel or the machine does not know how, which costs nothing but time."""
    number = _SCHED_SETATTR.get(os.uname().machine)
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False  # Whoever chose another policy had reasons.
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    attr = ctypes.create_string_buffer(_ATTR.pack(_ATTR.size, 0, 0, nice, 0, SLICE_NS, 0, 0))
    return bool(ctypes.CDLL(None).syscall(number, 0, attr, 0) == 0)
