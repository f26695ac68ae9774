"""What can go wrong: whose fault it is, its HTTP status, and whether trying again can help.

The first level says whose fault it is, because that is what a caller decides on:

    BarcoError
      RequestError     the client's: the request is wrong, and stays wrong (4xx)
      BusyError        nobody's: the broker is full or not ready; nothing was written; try again
      BrokerError      the broker's: its disk, its data, its code (5xx)
      PeerError        another process's: it sent what it must not send, or it went away
      OperatorError    the operator's: the configuration, the machine, the data directory

A bug in barco is an assertion, not one of these. Over HTTP each becomes a problem document
(RFC 9457) with the stable `type` of its class.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

PROBLEM_PREFIX = "urn:barco:problem:"
"""Problem types are names, not addresses (RFC 9457 section 3.1.1 allows any URI)."""


class BarcoError(Exception):
    """Anything that barco reports; one of its five branches is always meant."""

    status: ClassVar[int] = 500
    """The HTTP status that a worker answers with."""
    slug: ClassVar[str] = "internal"
    """The stable name, the last part of the problem type."""
    title: ClassVar[str] = "Internal error"
    retryable: ClassVar[bool] = False
    """Whether the same call can succeed later, unchanged."""
    written: ClassVar[bool | None] = False
    """For a produce: False, nothing was written; None, the outcome is unknown."""
    exit_code: ClassVar[int] = 1
    """What the command line exits with."""

    def __init__(self, detail: str = "", **fields: Any) -> None:
        """`fields` go into the problem document beside the detail (such as `limit`)."""
        super().__init__(detail or self.title)
        self.fields = fields

    @property
    def detail(self) -> str:
        """One sentence about this case."""
        return str(self.args[0])

    @property
    def problem_type(self) -> str:
        """The URI that identifies this kind of problem."""
        return PROBLEM_PREFIX + self.slug

    def problem(self) -> dict[str, Any]:
        """The members of the problem document (RFC 9457)."""
        standard = {
            "type": self.problem_type,
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        return standard | self.fields


# --- The client's ---------------------------------------------------------------------------


class RequestError(BarcoError):
    """The request is wrong; sending it again does not help."""

    status = 400
    slug = "bad-request"
    title = "Bad request"


class FarTimestampError(RequestError):
    """Of a time that is far from now, in a topic that takes no such one."""

    slug = "implausible-timestamp"
    title = "Implausible timestamp"


class UnknownNameError(RequestError):
    """A parameter or a field that there is not: misspelt, perhaps."""

    slug = "unknown-name"
    title = "Unknown parameter or field"


class UnauthorizedError(RequestError):
    """No credentials, or wrong ones."""

    status = 401
    slug = "unauthorized"
    title = "Unauthorized"
    challenges: tuple[str, ...] = ()
    """How a token is shown, for WWW-Authenticate."""


class ForbiddenError(RequestError):
    """Understood, and not allowed: a reserved topic, for one."""

    status = 403
    slug = "forbidden"
    title = "Forbidden"


class QuotaUsedUpError(ForbiddenError):
    """The user has as much of something as its quota says, and keeps it until it is deleted."""

    slug = "quota-used-up"
    title = "The user's quota is used up"


class StaleProducerError(ForbiddenError):
    """A newer epoch of the same producer id has written: this producer is a zombie."""

    slug = "stale-producer"
    title = "A newer producer with this id has taken over"


class NotFoundError(RequestError):
    """No such resource."""

    status = 404
    slug = "not-found"
    title = "Not found"


class TopicNotFoundError(NotFoundError):
    """The topic does not exist, and is not created on first use."""

    slug = "topic-not-found"
    title = "Topic not found"


class MethodNotAllowedError(RequestError):
    """The path exists, the method does not."""

    status = 405
    slug = "method-not-allowed"
    title = "Method not allowed"


class NotAcceptableError(RequestError):
    """None of the accepted media types can be produced."""

    status = 406
    slug = "not-acceptable"
    title = "Not acceptable"


class ConflictError(RequestError):
    """At odds with the state of the broker."""

    status = 409
    slug = "conflict"
    title = "Conflict"


class SequenceGapError(ConflictError):
    """An idempotent producer skipped a sequence number; `expected` says which one."""

    slug = "sequence-gap"
    title = "Producer sequence has a gap"


class NotRegisteredError(ConflictError):
    """The consumer is unknown, was fenced, or has expired: register again."""

    slug = "not-registered"
    title = "Consumer is not registered"


class AlreadyRegisteredError(ConflictError):
    """The consumer id is registered with another group or other topics."""

    slug = "already-registered"
    title = "Consumer is already registered"


class CursorExpiredError(RequestError):
    """The events at the cursor are gone; `earliest` is the first that is left."""

    status = 410
    slug = "cursor-expired"
    title = "Events are gone"


class LengthRequiredError(RequestError):
    """A body needs Content-Length or chunked transfer coding."""

    status = 411
    slug = "length-required"
    title = "Length required"


class TooLargeError(RequestError):
    """An event or a body is over its limit; `limit` says which."""

    status = 413
    slug = "too-large"
    title = "Content too large"


class UriTooLongError(RequestError):
    """The request line is over its limit."""

    status = 414
    slug = "uri-too-long"
    title = "URI too long"


class UnsupportedMediaTypeError(RequestError):
    """A content coding or type that is not taken."""

    status = 415
    slug = "unsupported-media-type"
    title = "Unsupported media type"


class UnprocessableError(RequestError):
    """Understood, and wrong in itself: a schema that is none, an event that is not as it should."""

    status = 422
    slug = "unprocessable"
    title = "Unprocessable content"


class MisdirectedError(RequestError):
    """The slice belongs to another worker and forwarding was refused; `owner` has its address."""

    status = 421
    slug = "misdirected"
    title = "Misdirected request"


class HeadTooLargeError(RequestError):
    """The request's head is over its limit."""

    status = 431
    slug = "head-too-large"
    title = "Request header fields too large"


# --- Nobody's ---------------------------------------------------------------------------------


class BusyError(BarcoError):
    """Not now; nothing was written, so trying again is safe."""

    status = 503
    slug = "busy"
    title = "Busy"
    retryable = True


class TooManyRequestsError(BusyError):
    """This client, or all together, ask for more than there is."""

    status = 429
    slug = "too-many-requests"
    title = "Too many requests"


class QuotaExceededError(TooManyRequestsError):
    """The user has, or asks for, more than its quota just now."""

    slug = "quota-exceeded"
    title = "The user's quota is exceeded"


class NotReadyError(BusyError):
    """Starting, recovering or draining."""

    slug = "not-ready"
    title = "Not ready"


class NoLeaderError(NotReadyError):
    """Nobody leads the slice at the moment: another broker is about to take it over."""

    slug = "no-leader"
    title = "No leader"


# --- The broker's -----------------------------------------------------------------------------


class BrokerError(BarcoError):
    """The broker failed."""


class OutcomeUnknownError(BrokerError):
    """The events may or may not have been written; only a producer id makes a retry safe."""

    status = 504
    slug = "outcome-unknown"
    title = "Outcome unknown"
    retryable = True
    written = None


class DiskFullError(BrokerError):
    """No space is left for the next segment; nothing was written."""

    status = 507
    slug = "disk-full"
    title = "Disk full"
    retryable = True


class CorruptDataError(BrokerError):
    """Stored bytes do not match their checksum: told, counted, never served."""

    slug = "corrupt-data"
    title = "Stored data is corrupt"


# --- Another process's --------------------------------------------------------------------------


class PeerError(BarcoError):
    """The other end of a connection broke the rules, or is gone."""

    status = 502
    slug = "peer"
    title = "Peer failed"
    written = None


class ProtocolError(PeerError):
    """Bytes that are not what the protocol says."""

    slug = "protocol"
    title = "Protocol violation"


class PeerGoneError(PeerError):
    """The connection ended before the answer."""

    status = 503
    slug = "peer-gone"
    title = "Peer is gone"
    retryable = True


# --- The operator's -----------------------------------------------------------------------------


class OperatorError(BarcoError):
    """Something outside of barco has to be changed before it can run; the message says what."""

    slug = "operator"
    title = "Cannot run as configured"


class ConfigError(OperatorError):
    """The configuration is refused (exit code 78, EX_CONFIG of sysexits.h)."""

    slug = "config"
    title = "Configuration refused"
    exit_code = 78


class DataDirError(OperatorError):
    """The data directory cannot be used: not ours, not writable, or of another shape."""

    slug = "data-dir"
    title = "Data directory refused"
    exit_code = 78


class CertificateError(OperatorError):
    """A certificate or a key is not there, is not what it should be, or would be written over."""

    slug = "certificate"
    title = "Certificate refused"


class InUseError(OperatorError):
    """A port or a data directory is held by another process; it may be free later."""

    slug = "in-use"
    title = "In use"
    retryable = True


class CrashLoopError(OperatorError):
    """A worker died again and again; the message is its last word."""

    slug = "crash-loop"
    title = "A worker keeps dying"


def _error_classes() -> dict[str, type[BarcoError]]:
    """By slug. Of those that share one the most general: what it adds is in the detail."""
    found: dict[str, type[BarcoError]] = {BrokerError.slug: BrokerError}
    todo = [BarcoError]
    while todo:
        cls = todo.pop()
        found.setdefault(cls.slug, cls)
        todo += cls.__subclasses__()
    return found


def pack_error(error: BarcoError) -> dict[str, Any]:
    """An error as plain values."""
    return {"slug": error.slug, "detail": error.detail, "fields": error.fields}


def unpack_error(given: Mapping[str, Any]) -> BarcoError:
    """The error again, of its own class; of an unknown one, a failure of the broker."""
    cls = _error_classes().get(str(given.get("slug")), BrokerError)
    fields = given.get("fields")
    return cls(str(given.get("detail", "")), **(fields if isinstance(fields, dict) else {}))
