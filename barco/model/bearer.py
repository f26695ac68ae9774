"""The token that a request shows; `native/admission/bearer.c` reads it in the same ways."""

import base64
import binascii
from collections.abc import Sequence

from barco.model.access import TOKEN_BYTES_MAX

NAMED_BYTES_MAX = 288
"""Of a name and a token in base64."""

SHIPPERS = ("/elastic", "/services/collector", "/v1/logs", "/loki", "/api/v1/write")
"""What is below is for shippers of logs, which have ways of their own to show a token."""

BEARER_CHALLENGE = 'Bearer realm="barco"'
BASIC_CHALLENGE = 'Basic realm="barco", charset="UTF-8"'
"""What a 401 says, each in a field; `native/broker/answer.c` says the same."""

CERTIFICATE = b":certificate"
"""The name in the client's certificate, where that says who asks: the core puts it among the
headers. No client can: no name of a header begins with a colon."""

Shown = tuple[str | None, str | None]
"""A token, and whose it has to be (None: that is not said). No token: nobody shows anything, or
whoever it is by the name of a certificate."""


def is_shippers(path: str) -> bool:
    """Whether it is one of their paths; `native/admission/paths.c` has the same list."""
    return any(path == each or path.startswith(each + "/") for each in SHIPPERS)


def shown_in(path: str, headers: Sequence[tuple[bytes, bytes]]) -> Shown:
    """What `Authorization` says, as Bearer, Basic, or what stands for them on such a path; nothing
    with more than one. Without any, what the client's certificate says."""
    given = [bytes(value) for name, value in headers if name.lower() == b"authorization"]
    if not given:
        return None, _certified(headers)
    if len(given) > 1:
        return None, None
    scheme, _, rest = given[0].partition(b" ")
    scheme = scheme.lower()
    name, token = b"", b""
    if scheme == b"bearer" or (scheme == b"splunk" and is_shippers(path)):
        token = rest
    elif scheme == b"basic" or (scheme == b"apikey" and is_shippers(path)):
        name, token = _named(rest)
    if not 0 < len(token) <= TOKEN_BYTES_MAX:
        return None, None
    return token.decode("latin-1"), name.decode("latin-1") if scheme == b"basic" else None


def challenges(headers: Sequence[tuple[bytes, bytes]]) -> tuple[str, ...]:
    """How to show a token, for whom none was found. Who has shown a bearer's is not told of names
    and passwords: a browser would open a dialog of its own, and not let a page ask."""
    given = [bytes(value) for name, value in headers if name.lower() == b"authorization"]
    bare = len(given) == 1 and given[0].lower().startswith(b"bearer ")
    return (BEARER_CHALLENGE,) if bare else (BEARER_CHALLENGE, BASIC_CHALLENGE)


def _certified(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    return next((str(value, "latin-1") for name, value in headers if name == CERTIFICATE), None)


def _named(text: bytes) -> tuple[bytes, bytes]:
    """Of NAME:TOKEN in base64 both; empty if it is none."""
    bare = text.rstrip(b"=")
    if len(text) > NAMED_BYTES_MAX or len(text) - len(bare) > 2:
        return b"", b""
    try:
        packed = base64.b64decode(bare + b"=" * (-len(bare) % 4), validate=True)
    except binascii.Error:
        return b"", b""
    name, _, token = packed.partition(b":")
    return name, token
