"""How a catalogue of Iceberg is reached by pyiceberg, and what it says, in words of an operator."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyiceberg.catalog.rest.auth import AuthManager
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitStateUnknownException,
    ForbiddenError,
    OAuthError,
    ServerError,
    ServiceUnavailableError,
    UnauthorizedError,
)
from requests.exceptions import RequestException, SSLError

from barco.errors import BarcoError, OperatorError

REST = ("http://", "https://")
TOKEN_BYTES_MAX = 16 << 10
"""Of a file with a token; a signed one with many claims has 4 KiB."""
UNANSWERED = (
    RequestException,
    CommitStateUnknownException,
    ServiceUnavailableError,
    ServerError,
)
"""What leaves open whether a commit was stored."""

_TOKEN = re.compile(r"[\x21-\x7e]+", re.ASCII)
_REFUSED = (UnauthorizedError, OAuthError, AuthorizationExpiredError)
_LIBRARIES = ("pyiceberg", "requests", "sqlalchemy")
"""What they raise has no class in common."""


class TokenFile(AuthManager):
    """Shows the token that a file has at the moment: those of catalogues are made anew each hour,
    and an export that follows a topic runs for weeks."""

    def __init__(self, path: str) -> None:
        self._path = path

    def auth_header(self) -> str:
        """Of each request."""
        return f"Bearer {token_in(self._path)}"


def token_in(path: str) -> str:
    """What a file has. OperatorError, which does not repeat it: it has no token, or can not be
    read."""
    try:
        with Path(path).open("rb") as file:
            text = file.read(TOKEN_BYTES_MAX + 1).decode("latin-1").strip()
    except OSError as error:
        raise OperatorError(f"a catalog's token is to be in {path!r}: {error.strerror}") from None
    if len(text) > TOKEN_BYTES_MAX or not _TOKEN.fullmatch(text):
        raise OperatorError(f"a catalog's token is to be in {path!r}: printable, and on one line")
    return text


def properties(catalogue: str, warehouse: str, token_file: str) -> dict[str, Any]:
    """As pyiceberg takes them; what else it knows it reads from its own file and variables."""
    if not catalogue.startswith(REST):
        given: dict[str, Any] = {"type": "sql", "uri": catalogue}
        if warehouse:
            there = warehouse if "://" in warehouse else f"file://{os.path.abspath(warehouse)}"
            given["warehouse"] = there
        return given
    given = {"type": "rest", "uri": catalogue}
    if warehouse:  # A name, or whatever this catalogue calls it: not ours to change.
        given["warehouse"] = warehouse
    if token_file:
        token_in(token_file)  # Now, not within a request.
        kind = f"{TokenFile.__module__}.{TokenFile.__qualname__}"
        given["auth"] = {"type": "custom", "impl": kind, "custom": {"path": token_file}}
    return given


@contextmanager
def asked(catalogue: str) -> Iterator[None]:
    """Around what asks a catalogue: OperatorError says what it refused, and what to do."""
    try:
        yield
    except BarcoError:
        raise
    except _REFUSED as error:
        raise OperatorError(
            f"the catalog {catalogue} wants a token that it knows: --catalog-token-file ({error})"
        ) from error
    except ForbiddenError as error:
        raise OperatorError(f"the catalog {catalogue} does not allow it: {error}") from error
    except SSLError as error:
        raise OperatorError(
            f"the catalog {catalogue} speaks no TLS, or has a certificate that is not trusted"
            f" ($REQUESTS_CA_BUNDLE names a file of whom to trust): {_cause(error)}"
        ) from error
    except RequestException as error:
        raise OperatorError(
            f"the catalog {catalogue} gives no answer of a catalog: {_cause(error)}"
        ) from error
    except Exception as error:
        known = isinstance(error, (OSError, ValueError, RuntimeError))
        if not known and type(error).__module__.partition(".")[0] not in _LIBRARIES:
            raise
        raise OperatorError(f"the catalog {catalogue}: {error}") from error


def _cause(error: BaseException) -> str:
    """The innermost reason: what is around it repeats addresses."""
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    return str(reason or error).rpartition(">: ")[2]
