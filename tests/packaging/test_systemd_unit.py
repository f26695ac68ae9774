"""The systemd unit, as systemd itself judges it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parents[2] / "packaging" / "systemd" / "barco.service"
EXPOSURE_MAX = 1.5

with_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None,
    reason="no systemd-analyze here: apt-get install systemd",
)


def analyzed(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """What systemd-analyze says; where there is none that can, the test is for another machine."""
    done = subprocess.run(
        ["systemd-analyze", *args],
        env={**os.environ, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "Failed to" in done.stderr and "manager" in done.stderr:
        pytest.skip("systemd-analyze fails here: run the test where systemd does")
    return done


def test_the_contract_with_the_supervisor() -> None:
    lines = UNIT.read_text("utf-8").splitlines()
    told = ("Type=notify", "KillMode=mixed", "RestartPreventExitStatus=2 78", "UMask=0077")
    told += ("WatchdogSec=15", "LoadCredential=barco:/etc/barco/credentials", "User=barco")
    for line in (*told, "Nice=-10", "ExecReload=/bin/kill -HUP $MAINPID"):
        assert line in lines


def test_a_broker_of_several_is_confined_as_one_alone() -> None:
    """barco@.service is barco.service, for another file and another directory."""
    alone = UNIT.read_text("utf-8").splitlines()
    several = UNIT.with_name("barco@.service").read_text("utf-8").splitlines()
    assert len(alone) == len(several)
    changed = {(one, other) for one, other in zip(alone, several, strict=True) if one != other}
    keys = {one.partition("=")[0] for one, _ in changed}
    assert keys == {
        *("Description", "AssertPathExists", "ExecStart", "StateDirectory", "RuntimeDirectory"),
        "MemoryMax",  # Of all that the machine has, each would take the most.
    }
    for one, other in changed:
        assert "%i" in other or one == "MemoryMax=80%"


def _filtered(names: list[str]) -> set[str]:
    """System calls of these names and groups, as the systemd of this machine has them."""
    calls = set()
    for name in names:
        if name.startswith("@"):
            done = analyzed("syscall-filter", "--no-pager", name)
            assert done.returncode == 0, done.stderr
            lines = [line.strip() for line in done.stdout.splitlines()[1:]]
            calls |= _filtered([line for line in lines if line and not line.startswith("#")])
        else:
            calls.add(name)
    return calls


@with_systemd
def test_what_a_worker_asks_of_the_kernel_is_allowed() -> None:
    """A call that is refused costs nothing but time, so nobody would notice."""
    allowed: set[str] = set()
    for line in UNIT.read_text("utf-8").splitlines():
        if line.startswith("SystemCallFilter="):
            names = line.removeprefix("SystemCallFilter=")
            if names.startswith("~"):
                allowed -= _filtered(names[1:].split())
            else:
                allowed |= _filtered(names.split())
    memory = ["mmap", "munmap", "madvise", "mlock", "fallocate", "fadvise64"]
    rings = ["io_uring_setup", "io_uring_enter", "io_uring_register", "io_setup", "io_submit"]
    cores = ["sched_setaffinity", "sched_setattr", "sched_getscheduler", "getpriority", "prlimit64"]
    assert not {*memory, *rings, *cores, "pwritev2", "statx"} - allowed


@with_systemd
@pytest.mark.parametrize("name", ["barco.service", "barco@.service"])
def test_systemd_accepts_it_and_finds_it_confined(tmp_path: Path, name: str) -> None:
    unit = tmp_path / name
    unit.write_text(UNIT.with_name(name).read_text("utf-8").replace("/usr/bin/barco", "/bin/true"))
    done = analyzed("verify", str(unit))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    done = analyzed("security", "--offline=yes", str(unit))
    if (match := re.search(r"exposure level for \S+: ([0-9.]+)", done.stdout)) is None:
        pytest.skip("this systemd-analyze cannot judge a file: systemd 250 or newer can")
    assert float(match[1]) <= EXPOSURE_MAX
