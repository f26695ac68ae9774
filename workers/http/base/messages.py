"""Requests and responses as values, and the reading of their parts."""

import functools
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import Struct, field

from barco import limits
from barco._native import Lent
from barco.errors import BarcoError, BusyError, NotAcceptableError, RequestError, UnauthorizedError
from barco.errors import MethodNotAllowedError as MethodNotAllowed
from barco.errors import UnsupportedMediaTypeError as UnsupportedMediaType
from barco.model.access import EVERYBODY, User

JSON = "application/json"
NDJSON = "application/x-ndjson"
PROBLEM = "application/problem+json"
EVENT_STREAM = "text/event-stream"
TEXT = "text/plain; charset=utf-8"

PARAMETERS_MAX = 256
"""A registration with all its topics has 70; nobody needs more."""

KEPT, KEPT_CHARACTERS_MAX = 512, 256
"""What was read of so many queries, and so many Accept headers, is remembered, of so many
characters at most: who consumes says the same all the time."""

RETRY_AFTER_S = 1

Part = bytes | bytearray | memoryview | Lent

_TOPIC = re.compile(r"[A-Za-z0-9_.-]{1,127}", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,19}", re.ASCII)
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})?")


class RefusedPart(Struct, frozen=True):
    """Part of a request that was answered 200, and had no right to that."""

    topic: str
    events: int
    error: BarcoError


class Response(Struct):
    """What the reactor is to answer; Content-Length, Connection and Date are added there. Nobody
    changes it: it is not frozen because to make one that is takes three times as long."""

    status: int
    body: Part | list[Part] = b""
    headers: tuple[tuple[str, str], ...] = ()
    undo: Callable[[], Coroutine[Any, Any, None]] | None = None
    """To be called if the client has gone before it could be sent."""
    written: Callable[[], None] | None = None
    """To be called when the connection has taken all of it, and the client is still there."""
    stream: Callable[[int], Awaitable["Response | None"]] | None = None
    """Begins an answer without an end, instead; what it gives is answered for it."""
    refused: tuple[RefusedPart, ...] = ()
    """What it says of single items, for the log."""

    def head(self) -> bytes:
        """The header lines, each with its line end."""
        lines = []
        for name, value in self.headers:
            # Response splitting: what is reflected from a request never carries a line end.
            assert value.isprintable() and value.isascii(), (name, value)
            lines.append(f"{name}: {value}\r\n")
        return "".join(lines).encode("ascii")


class Soon:
    """An answer that is there once all that it waits for has ended. Where one of that fails, the
    request is handled anew: so it is one that may be repeated."""

    def __init__(self, response: Response) -> None:
        self.response = response
        self.left = 0
        """How much has not ended yet: whoever makes this sets it."""
        self.good = True
        """Whether all that has ended came to a good end."""
        self._then: Callable[[], object] | None = None

    def then(self, done: Callable[[], object]) -> None:
        """Calls `done` when it is so far, which it is not yet."""
        assert self.left > 0 and self._then is None, "else it is there"
        self._then = done

    def ended(self, error: BaseException | None) -> None:
        """One that it waits for has ended; with an error that was no good end."""
        self.left -= 1
        self.good &= error is None
        if not self.left:
            assert self._then is not None, "nothing ends before somebody asks"
            self._then()


def json_response(value: Any, status: int = 200, *headers: tuple[str, str]) -> Response:
    """A JSON document."""
    body = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    return Response(status, body, (("Content-Type", JSON), ("Cache-Control", "no-store"), *headers))


def text_response(text: str, status: int = 200, *headers: tuple[str, str]) -> Response:
    """A line of text."""
    return Response(status, text.encode(), (("Content-Type", TEXT), *headers))


def problem_response(error: BarcoError) -> Response:
    """An error as a problem document (RFC 9457)."""
    document = error.problem()
    headers = [("Content-Type", PROBLEM), ("Cache-Control", "no-store")]
    if isinstance(error, UnauthorizedError):
        headers += (("WWW-Authenticate", each) for each in error.challenges)
    if isinstance(error, MethodNotAllowed):
        headers.append(("Allow", ", ".join(document.pop("allow", []))))
    if error.retryable:
        headers.append(("Retry-After", str(RETRY_AFTER_S)))
    if isinstance(error, BusyError) and error.status == 503:
        headers.append(("Barco-Outcome", "not-written"))
    body = json.dumps(document, separators=(",", ":")).encode() + b"\n"
    return Response(error.status, body, tuple(headers))


def percent_decode(raw: str, *, plus_is_space: bool) -> str:
    """UTF-8 text; a malformed escape or text that is not UTF-8 is a RequestError."""
    if raw.isascii() and "%" not in raw and "+" not in raw:
        return raw
    encoded = raw.encode("latin-1", "replace")
    if plus_is_space:
        encoded = encoded.replace(b"+", b" ")

    def byte(match: re.Match[bytes]) -> bytes:
        if match[1] is None:
            raise RequestError("The address holds a malformed percent escape.")
        return bytes([int(match[1], 16)])

    try:
        return _ESCAPE.sub(byte, encoded).decode()
    except UnicodeDecodeError:
        raise RequestError("The address is not UTF-8.") from None


def parse_query(raw: str) -> Mapping[str, Sequence[str]]:
    """The parameters by name, each with its values in order. It is shared: nobody changes it."""
    return _kept_query(raw) if len(raw) <= KEPT_CHARACTERS_MAX else _read_query(raw)


def _read_query(raw: str) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    if not raw:
        return found
    pairs = raw.split("&", PARAMETERS_MAX)
    if len(pairs) > PARAMETERS_MAX:
        raise RequestError(f"The address has more than {PARAMETERS_MAX} parameters.")
    for pair in pairs:
        name, _, value = pair.partition("=")
        if name:
            decoded = percent_decode(name, plus_is_space=True)
            found.setdefault(decoded, []).append(percent_decode(value, plus_is_space=True))
    return found


_kept_query = functools.lru_cache(KEPT)(_read_query)


class Call(NamedTuple):
    """A request as the core hands it over."""

    number: int
    method: str
    path: str
    query: str
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes


class Request(Struct):
    """One request, its address taken apart. Nobody changes it, as a response."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    headers: Sequence[tuple[bytes, bytes]]
    body: bytes
    variables: Mapping[str, str] = field(default_factory=dict)
    """The variable parts of the path by name."""
    user: User = EVERYBODY
    """Who asks."""
    ticket: int = 0
    """Its number at the core, for what is produced of it."""
    asked: str = ""
    """The query as it came."""

    def header(self, name: str) -> str | None:
        """A header's value; several of a name are joined by commas, as RFC 9110 says."""
        wanted = name.lower().encode()
        values = [v for n, v in self.headers if n.lower() == wanted]
        if len(values) == 1:
            return bytes(values[0]).decode("latin-1")
        return b", ".join(map(bytes, values)).decode("latin-1") if values else None

    def values(self, *names: str) -> list[str]:
        """All values of a parameter, under any of its names."""
        return [value for name in names for value in self.query.get(name, ())]

    def value(self, *names: str) -> str | None:
        """The only value of a parameter, under any of its names; twice is an error."""
        values = self.values(*names)
        if len(values) > 1:
            raise RequestError(f"The parameter {names[0]} is given more than once.")
        return values[0] if values else None

    def required(self, *names: str) -> str:
        """The only value of a parameter that has to be there, and not empty."""
        value = self.value(*names)
        if not value:
            raise RequestError(f"The parameter {names[0]} is missing.")
        return value

    def number(self, name: str, *, default: int, most: int) -> int:
        """A decimal number from 0; what is over `most` is taken as `most`."""
        value = self.value(name)
        if value is None:
            return default
        return min(parse_number(name, value), most)

    def flag(self, name: str, *, default: bool) -> bool:
        """true or false."""
        value = self.value(name)
        if value is None:
            return default
        if value not in ("true", "false"):
            raise RequestError(f"The parameter {name} is true or false.")
        return value == "true"

    def json(self) -> Any:
        """The body as JSON; None if it is empty. 415 if it says that it is something else."""
        given = self.header("content-type")
        if not self.body:
            return None
        if given is not None and media_type(given) != JSON:
            raise UnsupportedMediaType(f"The body is to be {JSON}.")
        return read_json(self.body)


def read_json(body: bytes) -> Any:
    """What a body says; RequestError: it is no JSON, or has text that nothing could pass on."""
    try:
        value = _JSON_DECODER.decode(body.decode())
        if b"\\u" in body:  # Half of a surrogate pair is no text.
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (ValueError, RecursionError):
        raise RequestError("The body is not JSON.") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_JSON_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def media_type(value: str) -> str:
    """A media type without its parameters, in lower case."""
    return value.partition(";")[0].strip().lower()


def parse_number(name: str, value: str) -> int:
    """A decimal number of at most 63 bits: no sign, no blanks, no other script's digits."""
    if not _DECIMAL.fullmatch(value) or (number := int(value)) >= 2**63:
        raise RequestError(f"{name} is not a decimal number between 0 and 2^63 - 1.")
    return number


def check_topic(name: str) -> str:
    """The name, if a client may use it for a topic."""
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        raise RequestError(
            "A topic's name has 1 to 127 of the characters a-z, A-Z, 0-9, '_', '.' and '-', "
            "and is neither '.' nor '..'."
        )
    if name.startswith("__"):
        raise RequestError("Topics whose name begins with '__' are barco's own.")
    return name


def check_group(name: str) -> str:
    """The name, if it can be one of a group."""
    if not 1 <= len(name) <= limits.GROUP_NAME_BYTES_MAX or not (
        name.isascii() and name.isprintable()
    ):
        raise RequestError(
            f"A group's name has 1 to {limits.GROUP_NAME_BYTES_MAX} printable ASCII characters."
        )
    return name


def choose(accept: str | None, offered: Iterable[str]) -> str:
    """The offered media type that the client likes best (RFC 9110 section 12.5.1), else 406.

    Of equal ones the first that is offered; without an Accept header, the first of all.
    """
    offered = tuple(offered)
    if accept is None or not accept.strip():
        return offered[0]
    if len(accept) > KEPT_CHARACTERS_MAX:
        return _choose(accept, offered)
    return _kept_choice(accept, offered)


def _choose(accept: str, offered: tuple[str, ...]) -> str:
    ranges = [_accept_range(part) for part in accept.split(",")[:32] if part.strip()]
    best, best_quality = "", 0.0
    for kind in offered:
        # The most specific range that matches decides: type/subtype, then type/*, then */*.
        matches = [(specific, q) for name, specific, q in ranges if _matches(name, kind)]
        quality = max(matches)[1] if matches else 0.0
        if quality > best_quality:
            best, best_quality = kind, quality
    if not best:
        raise NotAcceptableError(
            "None of the accepted media types is offered.", offered=list(offered)
        )
    return best


_kept_choice = functools.lru_cache(KEPT)(_choose)


def _accept_range(part: str) -> tuple[str, int, float]:
    name, *parameters = [piece.strip().lower() for piece in part.split(";")]
    quality = 1.0
    for parameter in parameters:
        key, _, value = parameter.partition("=")
        if key.strip() == "q":
            match = re.fullmatch(r"(0(\.[0-9]{0,3})?|1(\.0{0,3})?)", value.strip())
            quality = float(match[0]) if match else 0.0
    return name, 2 - (name == "*/*") - name.endswith("/*"), quality


def _matches(accepted: str, kind: str) -> bool:
    if accepted in ("*/*", kind):
        return True
    return accepted.endswith("/*") and kind.startswith(accepted[:-1])
