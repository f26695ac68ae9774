"""The token that a request shows; `native/admission/bearer.c` reads it in the same ways."""

import base64
import binascii
from collections.abc import Sequence

from barco.model.access import TOKEN_BYTES_MAX

BEARER = b"bearer "
NAMED_BYTES_MAX = 288
"""Of a name and a token in base64."""

SHIPPERS = ("/elastic", "/services/collector", "/v1/logs", "/loki", "/api/v1/write")
"""What is below is for shippers of logs, which have ways of their own to show a token."""


def is_shippers(path: str) -> bool:
    """Whether it is one of their paths; `native/admission/paths.c` has the same list."""
    return any(path == each or path.startswith(each + "/") for each in SHIPPERS)


def token_in(path: str, headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """What `Authorization: Bearer` has, or what stands for it on such a path; None without exactly
    one."""
    given = [bytes(value) for name, value in headers if name.lower() == b"authorization"]
    if len(given) != 1:
        return None
    scheme, _, rest = given[0].partition(b" ")
    most = TOKEN_BYTES_MAX - len(BEARER)
    token: bytes | None = None
    if scheme.lower() == b"bearer":
        token = rest
    elif not is_shippers(path):
        return None
    elif scheme.lower() == b"splunk":
        token = rest
    elif scheme.lower() in (b"basic", b"apikey") and len(rest) <= NAMED_BYTES_MAX:
        token = _named(rest)
    return token.decode("latin-1") if token and len(token) <= most else None


def _named(text: bytes) -> bytes | None:
    """Of NAME:TOKEN in base64 what is behind the first colon."""
    bare = text.rstrip(b"=")
    if len(text) - len(bare) > 2:
        return None
    try:
        padded = bare + b"=" * (-len(bare) % 4)
        return base64.b64decode(padded, validate=True).partition(b":")[2]
    except binascii.Error:
        return None
