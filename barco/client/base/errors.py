"""What can go wrong for a client beyond what a broker says, and answers turned into errors.

A refusal by a broker is raised as the class of `barco.errors` that its problem document names
(`NotFoundError`, `SequenceGapError`, `TooLargeError`, …), so one tree serves both ends. Here are
the rest: no answer at all, a delivery given up, the client itself used wrongly or too fast.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from barco import errors
from barco.errors import BarcoError, BusyError, CursorExpiredError, PeerError

NOT_WRITTEN = "not-written"
"""Never visible to anybody: safe to send again, under any name."""
UNKNOWN = "unknown"
"""May be stored: safe to send again only with the same producer id and sequence."""


class TransportError(PeerError):
    """No answer: refused, lost, timed out, or not HTTP. `outcome` says whether it was sent."""

    slug = "transport"
    title = "No answer"
    retryable = True

    def __init__(self, detail: str = "", *, outcome: str = UNKNOWN) -> None:
        super().__init__(detail)
        self.outcome = outcome


class ConnectError(TransportError):
    """The connection could not be opened, so nothing was sent."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail, outcome=NOT_WRITTEN)


class RequestTimeoutError(TransportError):
    """The broker did not answer in time."""


class DiscoveryError(PeerError):
    """No broker told where the slices are."""

    slug = "discovery"
    title = "No broker answers"
    retryable = True


class BadAnswerError(PeerError):
    """An answer of status 2xx that does not hold what the contract says."""

    slug = "bad-answer"
    title = "The broker's answer makes no sense"


class ClosedError(BarcoError):
    """The client is closed, or was not started."""

    slug = "closed"
    title = "The client is closed"


class DeserializeError(BarcoError):
    """A program's own function has refused a value; `fields` has the `event`."""

    slug = "deserialize"
    title = "The value is not of its type"


class ForkedError(ClosedError):
    """The client belongs to the process that this one was forked off."""

    slug = "forked"
    title = "The client is another process's"


class BufferFullError(BusyError):
    """The producer's buffer has no room: the broker takes events more slowly than they come."""

    slug = "buffer-full"
    title = "The producer's buffer is full"


class DeliveryError(BarcoError):
    """An event was given up at its deadline. `outcome` is NOT_WRITTEN or UNKNOWN."""

    slug = "delivery"
    title = "The event was not acknowledged in time"
    retryable = True

    def __init__(self, detail: str = "", *, outcome: str = UNKNOWN) -> None:
        super().__init__(detail)
        self.outcome = outcome
        self.written: bool | None = False if outcome == NOT_WRITTEN else None  # type: ignore[misc]


def response_error(
    status: int, headers: Mapping[str, str], body: bytes, context: str = ""
) -> BarcoError:
    """The typed error for an answer that is not 2xx."""
    problem = parse_problem(body)
    slug = str(problem.get("type", "")).removeprefix(errors.PROBLEM_PREFIX)
    kind = _BY_SLUG.get(slug) or _by_status(status, headers)
    if issubclass(kind, errors.SequenceGapError):
        problem.setdefault("expected", expected_sequence(problem))
    said = (problem.get(name) for name in ("detail", "message", "title"))
    reason = str(next(filter(None, said), kind.title))
    extra = {
        name: value
        for name, value in problem.items()
        if name not in ("type", "title", "status", "detail")
    }
    where = f"{context}: " if context else ""
    return kind(f"{where}{reason} (HTTP {status})", **extra)


def parse_problem(body: bytes) -> dict[str, Any]:
    """The members of a problem document; a body that is none becomes its `detail`."""
    try:
        problem = json.loads(body) if body else {}
    except ValueError:
        problem = None
    if isinstance(problem, dict):
        return problem
    return {"detail": body[:200].decode("utf-8", "replace").strip()}


def expected_sequence(fields: Mapping[str, Any]) -> int | None:
    """The sequence that the answer to a gap names; None if it names none."""
    for name in ("expected", "expectedSeq", "expected_seq"):
        value = fields.get(name)
        if isinstance(value, int | str) and str(value).isdecimal():
            return int(value)
    return None


def not_written(status: int, headers: Mapping[str, str]) -> bool:
    """True if a refusal promises that nothing was stored (promise D4)."""
    if 400 <= status < 500 or status == 507:
        return True
    return status == 503 and headers.get("barco-outcome", "") == NOT_WRITTEN


def _by_status(status: int, headers: Mapping[str, str]) -> type[BarcoError]:
    if status >= 500 and not_written(status, headers):
        return errors.DiskFullError if status == 507 else BusyError
    if status >= 500:
        return errors.OutcomeUnknownError if status in (502, 503, 504) else errors.BrokerError
    return _BY_STATUS.get(status, errors.RequestError)


def _walk(kind: type[BarcoError]) -> Iterator[type[BarcoError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _walk(child)


# What can come over HTTP: the classes of barco.errors, none of those above.
_BY_SLUG: dict[str, type[BarcoError]] = {
    kind.slug: kind for kind in _walk(BarcoError) if kind.__module__ == errors.__name__
}
_BY_SLUG |= {
    # The C core tells some cases apart more finely.
    "event-too-large": errors.TooLargeError,
    "body-too-large": errors.TooLargeError,
    "too-many-topics": BusyError,
}
_BY_STATUS: dict[int, type[BarcoError]] = {
    401: errors.UnauthorizedError,
    403: errors.ForbiddenError,
    404: errors.NotFoundError,
    405: errors.MethodNotAllowedError,
    409: errors.ConflictError,
    410: CursorExpiredError,
    413: errors.TooLargeError,
    415: errors.UnsupportedMediaTypeError,
    421: errors.MisdirectedError,
    422: errors.UnprocessableError,
    429: errors.TooManyRequestsError,
}
