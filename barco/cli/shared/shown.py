"""What a command shows where it asks a broker: a token from a file, never from a command line; and
how it speaks with a broker of its own configuration."""

import os
import stat
import sys

from barco.client.wire.access import HTTPS, Access, read_token
from barco.config import Config, ca_default
from barco.errors import ConfigError
from barco.supervisor.files.credentials import file_named

VARIABLE = "BARCO_TOKEN_FILE"
CATALOG_VARIABLE = "BARCO_CATALOG_TOKEN_FILE"
"""Of a catalog of tables, which is not a broker."""


def token_in(path: str) -> str:
    """What a file has; nothing for no path. ConfigError: it has no token, or can not be read."""
    if not path:
        return ""
    try:
        token = read_token(path)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"a token is to be in {path!r}: {why}") from None
    warn_readable(path)
    return token


def catalog_token_default() -> str:
    """The path that the environment names, if any."""
    return os.environ.get(CATALOG_VARIABLE, "")


def warn_readable(path: str) -> None:
    """One line, where everybody of this machine can read a token."""
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return
    if stat.S_ISREG(mode) and mode & stat.S_IROTH:
        sys.stderr.write(f"barco: everybody here can read the token in {path}: chmod 600 {path}\n")


def own_files(config: Config) -> tuple[str, str]:
    """Certificate and key that this broker shows as a client: its own, where they need one."""
    if not config.tls.client_ca:
        return "", ""
    return str(file_named(config.tls.certificate)), str(file_named(config.tls.key))


def own_access(config: Config, endpoint: str) -> Access:
    """Of a command that has no option for it: with TLS where this broker's own ports have it, whom
    to trust in $BARCO_CA, and the token in $BARCO_TOKEN_FILE, if any. Where clients need a
    certificate it shows the broker's. ConfigError: a file that is named can not be used."""
    token, tls = token_in(os.environ.get(VARIABLE, "")), config.tls
    if not tls.certificate:
        return Access.of(endpoint, token)
    own, key = own_files(config)
    try:
        access = Access.of(HTTPS + endpoint, token, ca=ca_default(), certificate=own, key=key)
        assert access.tls is not None, "it is https://"
        access.tls.context()
    except (OSError, ValueError) as error:
        raise ConfigError(f"to ask {endpoint} with TLS: {error}") from None
    return access
