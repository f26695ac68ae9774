"""The users that a broker knows before anybody has been added: a file of the operator's.

One line for each: a name, and the SHA-256 of the token. Nothing in it is secret, but who can write
there says who may do everything: so it is the broker's user's alone, as the cluster's secret is.
"""

import os
import re
import stat
from pathlib import Path
from typing import Any

from barco.config import Config
from barco.errors import ConfigError
from barco.types import KiB

NAME = "first-users"
BYTES_MAX = 64 * KiB

_LINE = re.compile(r"([a-zA-Z0-9_-]{1,32}) ([0-9a-f]{64})", re.ASCII)


def access_options(config: Config, data_dir: Path) -> dict[str, Any]:
    """What workers are told of who may do what; ConfigError says what is wrong with the file."""
    if not config.access.required:
        return {"required": False}
    first = read(data_dir / NAME)
    return {"required": True, "certificates": config.access.certificates, "first": first}


def read(path: Path) -> list[tuple[str, str]]:
    """(name, SHA-256 in hexadecimal digits) of each; none where there is no file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        raise ConfigError(f"{path} is no file: it is what barco users first writes, or nothing")
    with open(fd, "rb") as file:
        if mode & 0o077:
            raise ConfigError(
                f"{path} has to be a file that nobody but its owner can use: chmod 600 {path}"
            )
        given = file.read(BYTES_MAX + 1)
    lines = given.decode("latin-1").splitlines()
    found = [_LINE.fullmatch(line) for line in lines]
    names = {match[1] for match in found if match is not None}
    digests = {match[2] for match in found if match is not None}
    if len(given) > BYTES_MAX or not len(names) == len(digests) == len(lines):
        raise ConfigError(
            f"{path} is not what barco users first writes: each line is a name"
            " and a SHA-256, and no name or SHA-256 is there twice"
        )
    return [(match[1], match[2]) for match in found if match is not None]


def add(path: Path, name: str, digest: str) -> None:
    """Add one, durably; ConfigError: there is one of that name, or the file is none."""
    assert _LINE.fullmatch(f"{name} {digest}"), "checked by whoever asks"
    known = read(path)
    if any(each == name for each, _ in known):
        raise ConfigError(f"{path} has a user {name} already")
    text = "".join(f"{each} {of}\n" for each, of in [*known, (name, digest)])
    beside = path.with_name(path.name + ".new")
    beside.unlink(missing_ok=True)
    try:
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "w", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(fd)
        os.replace(beside, path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
