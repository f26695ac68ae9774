"""Crash images of a live ext4: clones of the file that it is on, taken while a broker writes.

An ext4 is in a file on an XFS with reflink, both on loop devices, the ext4 with direct I/O so that
what its device was given is in the file. FICLONE copies the file at one moment, in a few
milliseconds: what a power cut leaves of a device without a cache of its own. An image is mounted
like a disk after the power came back: the journal is replayed.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from faultlab import mount

HOST_BYTES = 2 << 30
"""Of a sparse file: the ext4, and what changes between its images."""

DISK_BYTES = 256 << 20
FICLONE = 0x40049409


def why_not() -> str:
    """Why this machine cannot do it; empty when it can."""
    if reason := mount.why_not():
        return reason
    if shutil.which("mkfs.xfs") is None:
        return "mkfs.xfs is not installed (apt-get install xfsprogs)"
    known = Path("/proc/filesystems").read_text().split()
    return "" if "xfs" in known else "this kernel has no XFS"


class ReflinkDisk:
    """An ext4, mounted at `path`, of which images can be taken while it is used."""

    def __init__(self, root: Path) -> None:
        """AssertionError: something cannot be made or mounted."""
        self._root = root
        self._host, self.path = root / "host", root / "disk"
        self._mounted: list[Path] = []
        self._images = 0
        backing = root / "host.img"
        _sparse(backing, HOST_BYTES)
        mount.run("mkfs.xfs", "-q", "-m", "reflink=1", str(backing))
        self._mount(backing, self._host)
        self._file = self._host / "disk.img"
        _sparse(self._file, DISK_BYTES)
        mount.run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", str(self._file))
        self._loop = _direct_loop(self._file)
        try:
            self._mount(self._loop, self.path)
        except AssertionError:
            self.close()
            raise

    def image(self) -> Path:
        """What would be on the disk if the power went now."""
        self._images += 1
        target = self._host / f"image-{self._images}.img"
        with self._file.open("rb") as source, target.open("wb") as made:
            fcntl.ioctl(made.fileno(), FICLONE, source.fileno())
        return target

    def mounted(self, image: Path) -> Path:
        """Where an image is now; its journal is replayed."""
        place = Path(tempfile.mkdtemp(dir=self._root, prefix=image.stem + "-"))
        self._mount(image, place)
        return place

    def forget(self, image: Path, place: Path) -> None:
        """It is not needed any more, and nobody uses it."""
        mount.unmount(place)
        self._mounted.remove(place)
        image.unlink()

    def _mount(self, source: Path, place: Path) -> None:
        place.mkdir(exist_ok=True)
        options = [] if source.is_block_device() else ["-o", "loop"]
        mount.run("mount", *options, str(source), str(place))
        self._mounted.append(place)

    def close(self) -> None:
        """Lazily, if somebody still uses it."""
        for place in reversed(self._mounted):
            subprocess.run(["umount", "-l", str(place)], check=False)
        self._mounted.clear()
        if os.path.exists(self._loop):
            subprocess.run(["losetup", "-d", str(self._loop)], check=False, capture_output=True)


def _sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def _direct_loop(path: Path) -> Path:
    command = ["losetup", "--find", "--show", "--direct-io=on", str(path)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stderr.decode()}"
    return Path(done.stdout.decode().strip())
