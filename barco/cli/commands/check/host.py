"""Kernel, io_uring, limits, memory, clock and interrupts of this machine."""

import ctypes
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from barco.cli.commands.check.finding import FAULT, GOOD, WARNING, Finding
from barco.cli.commands.tune import knobs
from barco.config import Config
from barco.errors import ConfigError
from barco.limits import KERNEL_VERSION_FULL
from barco.supervisor import machine
from barco.types import MiB

SETUP = 425
"""io_uring_setup(2), the same number on every architecture."""
PARAMETERS_BYTES = 120
FILES_WANTED = 65_536
"""As the unit has it: 10,000 connections of each worker, and the files of its log."""
LOCKED_WANTED = 64 * MiB
STA_UNSYNC = 0x40
TIMEX_BYTES = 208
_STATUS_OFFSET = 40
"""Of `status` in struct timex, where a long has 8 bytes."""

_libc = ctypes.CDLL(None, use_errno=True)


def look(config: Config) -> Iterator[Finding]:
    """Each of them."""
    yield kernel()
    yield io_uring(config.broker.engine)
    yield files()
    yield locked_memory()
    yield memory(config)
    yield clock()
    yield interrupts()


def kernel(release: str | None = None) -> Finding:
    """Whether it is new enough."""
    release = release or os.uname().release
    try:
        version = machine.check_kernel(release)
    except ConfigError as error:
        return Finding("kernel", FAULT, error.detail)
    if version < KERNEL_VERSION_FULL:
        wanted = ".".join(map(str, KERNEL_VERSION_FULL))
        return Finding("kernel", WARNING, f"Linux {release}: io_uring needs {wanted}; epoll serves")
    return Finding("kernel", GOOD, f"Linux {release}")


def io_uring(engine: str, setup: int = SETUP) -> Finding:
    """Whether the kernel makes one for us."""
    parameters = ctypes.create_string_buffer(PARAMETERS_BYTES)
    fd = _libc.syscall(setup, 4, parameters)
    if fd >= 0:
        os.close(fd)
        return Finding("io_uring", GOOD, "allowed")
    number = ctypes.get_errno()
    switch = Path("/proc/sys/kernel/io_uring_disabled")
    why, advice = (
        os.strerror(number),
        "allow the three calls io_uring_* where the sandbox is set up",
    )
    if number == errno.ENOSYS:
        advice = "the kernel has none: build it with CONFIG_IO_URING"
    elif number == errno.ENOMEM:
        advice = "raise the limit on locked memory (ulimit -l, LimitMEMLOCK=64M)"
    elif switch.exists() and switch.read_text().strip() != "0":
        advice = "sysctl kernel.io_uring_disabled=0"
    level = FAULT if engine == "io_uring" else WARNING
    instead = "" if engine == "io_uring" else "; until then epoll serves, with the same promises"
    return Finding("io_uring", level, f"refused ({why}): {advice}{instead}")


def files() -> Finding:
    """How many may be open."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most in (resource.RLIM_INFINITY, -1) or most >= FILES_WANTED:
        return Finding("open files", GOOD, f"{most:,} at most" if most > 0 else "no limit")
    words = f"{most:,} at most: {FILES_WANTED:,} are wanted (ulimit -Hn, LimitNOFILE=)"
    return Finding("open files", WARNING, words)


def locked_memory() -> Finding:
    """How much may be locked: io_uring's registered buffers are."""
    most = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    if most in (resource.RLIM_INFINITY, -1) or most >= LOCKED_WANTED:
        return Finding("locked memory", GOOD, "enough")
    words = f"{most >> 20} MiB at most: {LOCKED_WANTED >> 20} are wanted (ulimit -l, LimitMEMLOCK=)"
    return Finding("locked memory", WARNING, words)


def memory(config: Config) -> Finding:
    """Whether the budgets of all processes fit."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    workers = machine.worker_count(config)
    processes = workers * (3 if len(config.cluster.brokers) > 1 else 1)
    wanted = processes * config.limits.memory_bytes
    words = f"{processes} processes of {config.limits.memory_bytes >> 20} MiB, of {total >> 20} MiB"
    if wanted > total * 8 // 10:
        return Finding("memory", WARNING, f"{words}: lower limits.memory_bytes, or fewer workers")
    return Finding("memory", GOOD, words)


def clock() -> Finding:
    """Whether somebody sets it. No promise depends on it; timestamps of events do."""
    timex = ctypes.create_string_buffer(TIMEX_BYTES)  # modes 0: it is only read.
    if _libc.adjtimex(timex) < 0:
        return Finding("clock", WARNING, f"cannot be read: {os.strerror(ctypes.get_errno())}")
    status = int.from_bytes(timex.raw[_STATUS_OFFSET:][:4], "little")
    if status & STA_UNSYNC:
        words = "nobody sets it: install chrony or systemd-timesyncd, or timestamps drift"
        return Finding("clock", WARNING, words)
    return Finding("clock", GOOD, "set by somebody who knows")


def interrupts(root: Path = Path("/")) -> Finding:
    """Whether one core takes those of all disks and network cards."""
    knob = knobs.interrupts(root)
    if knob is not None:
        return Finding("interrupts", WARNING, f"{knob.now}: {knob.why}")
    return Finding("interrupts", GOOD, "not all on one core of several")
