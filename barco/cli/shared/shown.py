"""The token that a command shows: from a file, never from a command line."""

import os

from barco.client.wire.access import Access, read_token
from barco.errors import ConfigError

VARIABLE = "BARCO_TOKEN_FILE"


def token_in(path: str) -> str:
    """What a file has; nothing for no path. ConfigError: it has no token, or can not be read."""
    if not path:
        return ""
    try:
        return read_token(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"a token is to be in {path!r}: {error}") from None


def own_access(endpoint: str) -> Access:
    """Of a command that has no option for it: with the token in $BARCO_TOKEN_FILE, if any."""
    return Access.of(endpoint, token_in(os.environ.get(VARIABLE, "")))
