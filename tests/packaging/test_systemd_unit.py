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
    for line in (*told, "Nice=-10", "ExecReload=/bin/kill -HUP $MAINPID"):
        assert line in lines


@with_systemd
@pytest.mark.parametrize("right", [True, False])
def test_the_drop_in_of_the_operations_page_is_one(tmp_path: Path, right: bool) -> None:
    page = (UNIT.parents[2] / "docs" / "operations.md").read_text("utf-8")
    (drop_in,) = re.findall(r"```ini\n(\[Service\]\n.*?)```", page, re.DOTALL)
    if not right:  # As one would write it that does not know.
        drop_in = drop_in.replace("ExecStart=\n", "")
    unit = tmp_path / "barco.service"
    (tmp_path / "barco.service.d").mkdir()
    for path, text in (
        (unit, UNIT.read_text("utf-8")),
        (tmp_path / "barco.service.d" / "cluster.conf", drop_in.replace("User=barco", "User=root")),
    ):
        path.write_text(text.replace("/usr/bin/barco", "/bin/true"))
    done = analyzed("verify", "barco.service", SYSTEMD_UNIT_PATH=f"{tmp_path}:")
    assert (done.returncode == 0) == right, done.stderr


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
def test_systemd_accepts_it_and_finds_it_confined(tmp_path: Path) -> None:
    unit = tmp_path / "barco.service"
    unit.write_text(UNIT.read_text("utf-8").replace("/usr/bin/barco", "/bin/true"))
    done = analyzed("verify", str(unit))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    done = analyzed("security", "--offline=yes", str(unit))
    if (match := re.search(r"exposure level for barco.service: ([0-9.]+)", done.stdout)) is None:
        pytest.skip("this systemd-analyze cannot judge a file: systemd 250 or newer can")
    assert float(match[1]) <= EXPOSURE_MAX
