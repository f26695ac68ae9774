"""The lock of a data directory: one broker at a time, and none while an operator's command works.

Knows nothing of what is in the directory.
"""

import fcntl
import os
import time
from pathlib import Path

from barco.errors import DataDirError, InUseError

LOCK = "lock"
LOCK_SECONDS_MAX = 3.0
"""After a SIGKILL of the supervisor its workers may hold the lock for a moment more."""


def open_lock(path: Path, wait_seconds: float = LOCK_SECONDS_MAX) -> int:
    """A descriptor that holds the directory for as long as it, or a copy of it, is open.

    The workers inherit it, so that a directory stays in use until the last of them is gone.
    """
    try:
        fd = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise refusal(path, error) from None
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() >= deadline:
                holder = os.read(fd, 20).decode("ascii", "replace").strip() or "unknown"
                os.close(fd)
                raise InUseError(
                    f"{path} is in use by process {holder}: stop that broker, or use another"
                    " directory"
                ) from None
            time.sleep(0.05)
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def refusal(path: Path, error: OSError) -> DataDirError:
    """What the system refuses of a data directory, in words for the operator."""
    reason = error.strerror or str(error)
    advice = "pass another --data-dir"
    if isinstance(error, PermissionError):
        advice = f"give it to user {os.geteuid()} (chown), or pass another --data-dir"
    return DataDirError(f"cannot use {path} as data directory: {reason}: {advice}")
