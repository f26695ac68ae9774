"""The data directory's file system and its disk: direct writes, and what makes them durable."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from barco.cli.commands.check.finding import FAULT, GOOD, WARNING, Finding
from barco.errors import DataDirError
from barco.workers.storage.files.layout import DiskSpace, check_data_dir

IN_MEMORY = ("tmpfs", "ramfs")
FAR_AWAY = ("nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "fuse.sshfs", "fuse.glusterfs")
PROVEN = ("ext4", "xfs")


def look(data_dir: Path) -> Iterator[Finding]:
    """Of the directory, or of the one above it that is there."""
    path = data_dir.absolute()
    while not path.exists():
        path = path.parent
    if not path.is_dir():
        yield Finding("file system", FAULT, f"{path} is no directory: correct --data-dir")
        return
    kind = file_system(path)
    if kind in IN_MEMORY:
        words = f"{path} is on {kind}, in memory: a crash of the machine loses all; use ext4 or XFS"
        yield Finding("file system", FAULT, words)
        return
    if kind in FAR_AWAY:
        words = f"{path} is on {kind}, another machine's: use a disk of this one, with ext4 or XFS"
        yield Finding("file system", FAULT, words)
        return
    level = GOOD if kind in PROVEN else WARNING
    advice = "" if kind in PROVEN else ": barco is tried on ext4 and XFS"
    yield Finding("file system", level, f"{path} is on {kind or 'one without a name'}{advice}")
    try:
        space = check_data_dir(path)
    except DataDirError as error:
        yield Finding("direct writes", FAULT, error.detail)
        return
    yield Finding("direct writes", GOOD, "O_DIRECT with O_DSYNC works")
    yield _free(space)
    yield from _device(path)


def file_system(path: Path, mounts: str | None = None) -> str:
    """Its type, as /proc has it: of the last mount on the longest part of a path."""
    text = Path("/proc/self/mountinfo").read_text() if mounts is None else mounts
    found, longest = "", -1
    for line in text.splitlines():
        head, _, tail = line.partition(" - ")
        words = head.split()
        if len(words) < 5 or not tail:
            continue
        point = words[4].encode().decode("unicode_escape")
        if len(point) >= longest and path.is_relative_to(point):
            found, longest = tail.split()[0], len(point)
    return found


def _free(space: DiskSpace) -> Finding:
    words = f"{space.free >> 30} GiB of {space.total >> 30} are free"
    if space.nearly_full:
        return Finding(
            "free space", WARNING, f"{words}: shorten topics.retention_hours, or more disk"
        )
    return Finding("free space", GOOD, words)


def _device(path: Path) -> Iterator[Finding]:
    number = os.stat(path).st_dev
    queue = _queue(os.major(number), os.minor(number))
    if queue is None:
        words = (
            "what is behind the file system is not known here: look that it survives a power cut"
        )
        yield Finding("disk", WARNING, words)
        return
    name = queue.parent.name
    cached, fua = _word(queue / "write_cache"), _word(queue / "fua")
    if cached == "write through":
        yield Finding("disk", GOOD, f"{name} says that what it has taken is durable")
    elif fua == "1":
        yield Finding("disk", GOOD, f"{name} has a cache, and writes through it when asked (FUA)")
    else:
        words = f"{name} has a cache and no FUA: each group costs a flush of all of it"
        yield Finding("disk", WARNING, f"{words}; a disk with power-loss protection is faster")
    if _word(queue / "rotational") == "1":
        yield Finding("disk", WARNING, f"{name} says that it turns: expect 10 ms for each group")


def _queue(major: int, minor: int) -> Path | None:
    """The request queue of a device; of the whole disk, if it is a part of one."""
    device = Path(f"/sys/dev/block/{major}:{minor}")
    for each in (device, device.resolve().parent):
        if stat.S_ISDIR(os.stat(each / "queue").st_mode) if (each / "queue").exists() else False:
            return each.resolve() / "queue"
    return None


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
