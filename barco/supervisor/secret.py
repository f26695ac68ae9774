"""The cluster's secret: a file that only the broker's user can read, the same on every broker."""

import os
import secrets
import stat
from pathlib import Path

from barco.addresses import is_loopback
from barco.config import Config
from barco.errors import ConfigError
from barco.supervisor.files.credentials import file_named

SECRET_BYTES = 32
"""Of a secret that is made here, as hexadecimal digits."""

SECRET_CHARS_MIN, SECRET_CHARS_MAX = 32, 4096
"""Of one that was made elsewhere."""


def read_secret(config: Config) -> bytes:
    """The secret of the configured cluster, b"" where it has none; ConfigError says what to do."""
    name, brokers = config.cluster.secret_file, config.cluster.brokers
    if len(brokers) <= 1:
        return b""
    if not name:
        if all(map(is_loopback, (*brokers, config.broker.bind))):
            return b""
        raise ConfigError(
            "cluster.secret_file is not set, and the brokers are not all on this machine: without a"
            " secret anybody in their network could write into the log. Set it to the path of a"
            " file; barco format makes one, which you copy to the other brokers (mode 0600)"
        )
    return _read(file_named(name))


def make_secret(config: Config) -> Path | None:
    """Makes the configured file if there is none, durably; its path if it was made."""
    if len(config.cluster.brokers) <= 1 or not config.cluster.secret_file:
        return None
    path = file_named(config.cluster.secret_file)
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return None
    except OSError as error:
        raise ConfigError(f"cluster.secret_file: cannot make {path}: {error.strerror}") from None
    with open(fd, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(SECRET_BYTES) + "\n")
        file.flush()
        os.fsync(fd)
    return path


def _read(path: Path) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise ConfigError(
            f"cluster.secret_file: there is no {path}: copy it from another broker of the cluster,"
            " or let barco format make it on the first one"
        ) from None
    except OSError as error:
        raise ConfigError(f"cluster.secret_file: cannot read {path}: {error.strerror}") from None
    try:
        mode = os.fstat(fd).st_mode
        # systemd lets the service in by an access list: its mask stands in a group's place.
        given = path.is_relative_to("/run/credentials") and os.fstat(fd).st_uid == 0
        if not stat.S_ISREG(mode) or mode & (0o037 if given else 0o077):
            raise ConfigError(
                f"cluster.secret_file: {path} has to be a file that nobody but its owner can use:"
                f" chmod 600 {path}"
            )
        secret = os.read(fd, SECRET_CHARS_MAX + 1).strip()
    finally:
        os.close(fd)
    if not SECRET_CHARS_MIN <= len(secret) <= SECRET_CHARS_MAX:
        raise ConfigError(
            f"cluster.secret_file: {path} has {len(secret)} bytes: a secret has"
            f" {SECRET_CHARS_MIN} to {SECRET_CHARS_MAX}; remove it, and let barco format make one"
        )
    return secret
