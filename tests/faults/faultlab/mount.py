"""A file system of our own on a loop device, that can be cut off as by a loss of power.

FS_IOC_SHUTDOWN stops a file system at once: with NOLOGFLUSH its journal stays as it is on the
device, so everything that was not made stable is gone after the next mount; with LOGFLUSH the
journal is written first. From then on each operation fails with EIO, as on a dead disk.
"""

import fcntl
import os
import shutil
import subprocess
import time
from pathlib import Path

IMAGE_BYTES = 512 << 20

FS_IOC_SHUTDOWN = 0x8004587D
LOGFLUSH, NOLOGFLUSH = 1, 2


def why_not() -> str:
    """Why this machine cannot do it; empty when it can."""
    if os.geteuid() != 0:
        return "mounting needs root: run the tests as root"
    for tool in ("mkfs.ext4", "mount", "umount"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (apt-get install e2fsprogs mount)"
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices"
    return ""


class Mount:
    """An ext4 image that is mounted at `path`."""

    def __init__(self, root: Path, image_bytes: int = IMAGE_BYTES) -> None:
        self.image, self.path = root / "disk.img", root / "disk"
        self.path.mkdir()
        with self.image.open("wb") as image:
            image.truncate(image_bytes)
        run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", str(self.image))
        self.mounted = False
        self.mount()

    def mount(self) -> None:
        """After a cut: the journal is replayed."""
        run("mount", "-o", "loop", str(self.image), str(self.path))
        self.mounted = True

    def cut(self, how: int) -> None:
        """The power goes."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, FS_IOC_SHUTDOWN, how.to_bytes(4, "little"))
        finally:
            os.close(fd)

    def unmount(self) -> None:
        """Waits for the last user, who was killed a moment ago."""
        unmount(self.path)
        self.mounted = False

    def close(self) -> None:
        """Lazily, if somebody still uses it."""
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.path)], check=False)
            self.mounted = False


def unmount(path: Path) -> None:
    """Waits for the last user, who was killed a moment ago. AssertionError: it stays in use."""
    for attempt in range(100):
        done = subprocess.run(["umount", str(path)], capture_output=True, check=False)
        if done.returncode == 0:
            return
        time.sleep(0.1)
    raise AssertionError(f"cannot unmount: {done.stderr.decode()}, {attempt}")


def run(*command: str) -> None:
    """AssertionError with what it said, if it fails."""
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr.decode()}"
