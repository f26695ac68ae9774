"""How a worker shares its core."""

import os
import subprocess
import sys

import pytest

from barco.workers.process import scheduling

SCRIPT = """
import ctypes, os, struct
from barco.workers.process import scheduling
asked = scheduling.ask_long_slices()
attr = ctypes.create_string_buffer(56)
number = {"x86_64": 315, "aarch64": 275}[os.uname().machine]
ctypes.CDLL(None).syscall(number, 0, attr, 56, 0)
size, policy, flags, nice, priority, runtime = struct.unpack_from("=IIQiIQ", attr)
print(asked, policy, nice, runtime)
"""


def asked(nice: int) -> list[str]:
    """In a process of its own: (whether it was taken, policy, nice, slice in nanoseconds)."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: os.nice(nice),
        timeout=60,
    )
    return done.stdout.split()


def test_slices_are_long_and_nothing_else_changes() -> None:
    major, minor = (int(part) for part in os.uname().release.split(".")[:2])
    if os.uname().machine not in {"x86_64", "aarch64"}:
        pytest.skip("the numbers of the calls are not known here")
    taken, policy, nice, runtime = asked(3)
    assert (taken, policy, nice) == ("True", "0", str(os.nice(0) + 3))
    if (major, minor) >= (6, 12):
        assert int(runtime) == scheduling.SLICE_NS
    assert 4_000_000 < scheduling.SLICE_NS <= 20_000_000, "workers that share a core wait for it"
