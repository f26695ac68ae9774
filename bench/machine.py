"""The machine under the measurements: cores, processes, CPU clocks, memory, tools."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "bench"

CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE = CORES[0]
CLIENT_CORE = CORES[1] if len(CORES) > 1 else CORES[0]

MiB = 1 << 20
GiB = 1 << 30


class Missing(Exception):
    """A peer or a tool that is not installed here; the row says so."""


def tool(name: str) -> str:
    """The path of an installed program, or Missing."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if path is None:
        raise Missing(f"{name} is not installed")
    return path


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until(done: Callable[[], bool], seconds: float, what: str) -> None:
    """Poll until done, or raise TimeoutError naming what was waited for."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.01)


def listens(port: int) -> bool:
    """Whether somebody accepts connections on this port."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far, in seconds, to the nanosecond.

    This is the process's own CPU clock (clock_getcpuclockid(3)): all its threads, those that
    io_uring started for it (iou-wrk) and those that have ended included; not the kernel's own.
    """
    return time.clock_gettime((~pid << 3) | 2)


def thread_seconds(pid: int) -> dict[str, float]:
    """CPU time of each live thread by name: tells the uring's own threads (iou-wrk-*) apart."""
    seconds: dict[str, float] = {}
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            name = (task / "comm").read_text().strip()
            spent = int((task / "schedstat").read_text().split()[0]) * 1e-9
        except OSError:
            continue
        seconds[name] = seconds.get(name, 0.0) + spent
    return seconds


def children(pid: int) -> list[int]:
    """Process ids of a process's children, oldest first."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return sorted(found)


def pin(pid: int, *cores: int) -> None:
    """Pin every thread of a process to one core, or to some."""
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            os.sched_setaffinity(int(task.name), cores)
        except (OSError, ValueError):
            continue


def interrupt_core(path: Path) -> int | None:
    """Of our cores the one that takes most interrupts of the disk a path is on; None: none does.

    What the kernel does at the end of a write it does there (/proc/interrupts, proc(5)).
    """
    status = path.stat()
    device = f"/sys/dev/block/{os.major(status.st_dev)}:{os.minor(status.st_dev)}"
    parts = Path(device).resolve().parts[4:]  # After /sys/devices and the bus.
    names = tuple(name + mark for name in parts for mark in ("-", "q"))  # virtio1-req.0, nvme0q1
    head, *lines = Path("/proc/interrupts").read_text().splitlines()
    columns = [int(name.removeprefix("CPU")) for name in head.split()]
    counts = dict.fromkeys(CORES, 0)
    for fields in map(str.split, lines):
        if fields[-1].startswith(names):
            for core, count in zip(columns, fields[1:], strict=False):
                if core in counts:
                    counts[core] += int(count)
    core = max(counts, key=lambda each: counts[each])
    return core if counts[core] else None


def memory(pid: int) -> dict[str, int]:
    """Resident bytes of a process: `rss` now, `peak` since the last memory_peak_reset, `pss`."""
    status = Path(f"/proc/{pid}/status").read_text()
    kib = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if "kB" in line}
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    pss = next(line.split()[1] for line in rollup.splitlines() if line.startswith("Pss:"))
    return {
        "rss": int(kib["VmRSS"]) * 1024,
        "peak": int(kib["VmHWM"]) * 1024,
        "pss": int(pss) * 1024,
    }


def memory_peak_reset(pid: int) -> None:
    """Make `peak` of memory() start again from here."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def stop(process: subprocess.Popen[bytes], seconds: float = 30) -> None:
    """SIGTERM, and SIGKILL to its whole process group if that is not enough."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            kill_group(process)
    if process.stdout:
        process.stdout.close()


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL to a process that leads its group, and to everything in it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait(30)


def drop_cached(directory: Path) -> None:
    """Take a directory's files out of the page cache, so that reading them reads the disk."""
    for file in files(directory):
        fd = os.open(file, os.O_RDONLY)
        try:
            os.fdatasync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def files(directory: Path) -> Iterator[Path]:
    """Every regular file below a directory, in order."""
    return (path for path in sorted(directory.rglob("*")) if path.is_file())


def describe() -> dict[str, object]:
    """What the figures were measured on."""
    models = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": models[0] if models else "unknown",
        "cores": len(CORES),
        "kernel": os.uname().release,
        "load_average": round(os.getloadavg()[0], 2),
    }
