"""Files of certificates and keys: read whole, and written so that there is always a whole one."""

import os
import stat
from pathlib import Path

from barco.errors import CertificateError

CERTIFICATE_BYTES_MAX = 64 * 1024
"""Of a file with one certificate, or one key: a chain of RSA ones has 10 KiB."""
LEAF_DAYS = 365
"""A broker's or a client's: a year is as long as a key that is copied about should be believed."""
CA_DAYS, CA_DAYS_MAX = 3650, 36_500
"""A cluster's own authority: to change it means to visit every broker and client at once."""
WARN_DAYS = 30
"""Before its end a certificate is told of: time to be on holiday, and to renew it."""

CERTIFICATE, KEY = ".crt", ".key"
NEW = ".new"
"""Behind the name of one that is complete, and not in its place yet."""


def read(path: Path) -> bytes:
    """What is in a file. CertificateError: it cannot be read, or is too large to be one."""
    try:
        with path.open("rb") as file:
            data = file.read(CERTIFICATE_BYTES_MAX + 1)
    except OSError as error:
        raise CertificateError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > CERTIFICATE_BYTES_MAX:
        raise CertificateError(f"{path} is too large to be a certificate or a key")
    return data


def make_directory(path: Path) -> None:
    """A directory for keys, if there is none."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise CertificateError(f"cannot make {path}: {error.strerror}") from None


def refuse_existing(paths: list[Path], advice: str) -> None:
    """CertificateError if one of these is there; before anything is written."""
    if there := [str(path) for path in paths if path.exists()]:
        raise CertificateError(f"{', '.join(there)} would be written over: {advice}")


def write(contents: dict[Path, bytes]) -> None:
    """All of these, in their order: each is complete, and on the disk, before any takes its place.

    A key has its mode before it has anything in it. Who is cut off in between leaves the old file
    or the new one, and none that is half there; of a certificate and its key, put first, one may be
    new and one old: `settle` puts the other in its place.
    """
    try:
        for path, data in contents.items():
            _complete(path.with_name(path.name + NEW), data, path.suffix == KEY)
        for path in contents:
            os.replace(path.with_name(path.name + NEW), path)
        for directory in {path.parent for path in contents}:
            sync_directory(directory)
    except OSError as error:
        raise CertificateError(
            f"cannot write {error.filename}: {error.strerror}; what was there is still there"
        ) from None


def place(new: Path) -> None:
    """Put one that was complete when a run was cut off in its place."""
    assert new.suffix == NEW, "anything else is nobody's to move"
    os.replace(new, new.with_suffix(""))
    sync_directory(new.parent)


def closed(path: Path) -> bool:
    """Whether nobody but its owner can use a file."""
    return not stat.S_IMODE(path.stat().st_mode) & 0o077


def sync_directory(path: Path) -> None:
    """Make renames in it durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _complete(path: Path, data: bytes, secret: bool) -> None:
    path.unlink(missing_ok=True)  # Of a run that was cut off: its mode may be anything.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        if not secret:
            os.fchmod(file.fileno(), 0o644)
        file.flush()
        os.fsync(file.fileno())
