"""Child processes that do not outlive whoever started them, however that ends."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

AS_INSTALLED = {"PYTHONDONTWRITEBYTECODE": ""}
"""An installation has its modules compiled. Where a process may not keep what it has compiled each
one begins with that: 0.7 s of CPU instead of 0.3, beside those that are measured."""

# Loaded before any fork: the child must not run the loader.
_libc = ctypes.CDLL(None, use_errno=True)
_starter: tuple[int, ThreadPoolExecutor] | None = None


def die_with(parent: int) -> None:
    """In a child: SIGKILL when the thread that forked it ends; `parent` is its pid."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # It ended before that was said.
        os._exit(1)


def adopt_orphans() -> None:
    """From now on a descendant whose parent ends is this process's own child."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def start_tied(command: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """`subprocess.Popen` of a process that is killed when this one ends, be it by SIGKILL.

    From whichever thread it is called: the kernel looks at the thread that forked, so one thread,
    which lives as long as the interpreter, forks for all. For harnesses: whatever they are killed
    by, no broker stays behind. What is compiled is kept (`AS_INSTALLED`). Raises what Popen raises.
    """
    global _starter
    if _starter is None or _starter[0] != os.getpid():  # A fork has no threads but its own.
        _starter = (os.getpid(), ThreadPoolExecutor(1, thread_name_prefix="start-tied"))
    options["preexec_fn"] = _tie(os.getpid())
    options["env"] = {**(options.get("env") or os.environ), **AS_INSTALLED}
    return _starter[1].submit(lambda: subprocess.Popen(command, **options)).result()


def _tie(parent: int) -> Callable[[], None]:
    return lambda: die_with(parent)
