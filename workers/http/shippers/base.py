"""What the endpoints for shippers have in common: bodies are read by the core, one by one."""

from collections.abc import Mapping, Sequence

from barco._native import Shipped, snappy_unpack
from barco.errors import (
    BarcoError,
    ForbiddenError,
    OutcomeUnknownError,
    RequestError,
    TooLargeError,
)
from barco.model.access import PRODUCE, User
from barco.workers.http.base.context import Context
from barco.workers.http.base.messages import Request, check_topic
from barco.workers.http.base.needs import allow
from barco.workers.http.checking.desk import Checking

BATCH_OWN_BYTES = 4096
"""Of a batch, beside its columns: so much less than a request may have."""

_DAY_US = 86_400 * 1_000_000
TIME_BACK_US, TIME_AHEAD_US = 3650 * _DAY_US, _DAY_US - 60 * 1_000_000
"""What a time may be away from now; the broker's clock stands for another one. A topic that takes
any time is not asked: a shipper's clock is seldom meant so."""

Kind = tuple[int, str | None, str, int]
"""Operation, name, flaw and number of some events."""


SECTION_BYTES_MAX = 64 << 20
"""Of a column of a batch: SECTION_RAW_MAX of native/format/format.h."""


class Shipping:
    """Reads bodies, and produces what was read."""

    def __init__(self, context: Context, checking: Checking) -> None:
        self._context, self._checking = context, checking

    def unpacked(self, request: Request) -> bytes:
        """What snappy has packed, which no Content-Encoding need say."""
        most = self._context.options.request_bytes_max
        try:
            return snappy_unpack(request.body, most)
        except OverflowError:
            raise TooLargeError("The body is larger when it is unpacked.", limit=most) from None
        except ValueError:
            raise RequestError("The body is not what snappy has packed.") from None

    def read(
        self, format: str, request: Request, headers: bytes = b"", body: bytes | None = None
    ) -> Shipped:
        """The events of a body; what is wrong with it is told by `flaw`."""
        options, now_us = self._context.options, self.now_us()
        most = min(options.request_bytes_max - BATCH_OWN_BYTES, SECTION_BYTES_MAX)
        return Shipped(
            format,
            request.body if body is None else body,
            min(options.event_bytes_max, most),
            most,
            now_us - TIME_BACK_US,
            now_us + TIME_AHEAD_US,
            headers,
        )

    def now_us(self) -> int:
        """By the wall clock, as shippers' times are."""
        return self._context.service.wall_us()

    def refusal(self, user: User, topic: str) -> BarcoError | None:
        """Why nothing can be stored there by this user; None: it can."""
        try:
            check_topic(topic)
            allow(user, (PRODUCE,), [(topic, None)])
        except (RequestError, ForbiddenError) as error:
            return error
        return None

    async def produce(
        self,
        request: Request,
        shipped: Shipped,
        kinds: Sequence[Kind],
        topics: Sequence[str | None],
    ) -> Mapping[str, BarcoError | None]:
        """Stores the events, each kind in its topic (None: nowhere). By topic None, it is durable,
        or why it is not. One topic after the other."""
        outcome: dict[str, BarcoError | None] = {}
        known_only = bool(request.user.quota.topics)
        for topic in dict.fromkeys(each for each in topics if each is not None):
            wanted = bytes(each == topic for each in topics)
            batch = shipped.batch(wanted, self.now_us())
            try:
                made = self._context.service.made
                await self._checking.look(topic, batch, True)
                await made.produce(request.ticket, topic, batch, known_only)
                outcome[topic] = None
            except BarcoError as error:
                outcome[topic] = error
        return outcome


FLAWS = {
    "no-memory": "The worker has no memory left for this request.",
    "too-many": "There are more than 131,072 events in the body.",
    "too-many-kinds": "There are more than 256 indices in the body.",
    "too-large": "The events of the body take more than limits.request_bytes_max.",
    "event-too-large": "The event is larger than limits.event_bytes_max.",
    "syntax": "This is not the JSON that it is to be.",
    "no-event": "There is no event.",
    "blank-event": "The event is empty.",
    "time": "The time is to be seconds since 1970, with or without a fraction.",
    "key": "The key is longer than 32 KiB.",
    "headers": "What is said of the event takes more than 16 KiB.",
    "op": "A log only takes index and create: what is stored is never changed.",
}
"""What the core finds wrong with a body, or with an event of it, in words."""

LARGE = frozenset(("too-many", "too-many-kinds", "too-large", "event-too-large"))


def repeatable(error: BarcoError) -> BarcoError:
    """Of those who send again what is 429, 502, 503 or 504, and not what is 500."""
    return OutcomeUnknownError(error.detail) if error.status == 500 else error


def too_large(shipped: Shipped) -> None:
    """TooLargeError for a body of which smaller ones could be made."""
    if shipped.flaw in LARGE - {"event-too-large"}:
        raise TooLargeError(FLAWS[shipped.flaw])
