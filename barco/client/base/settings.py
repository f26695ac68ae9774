"""The options of the clients by name and type, so that a type checker finds a misspelt one.

The values, with their defaults and what each is for: `ProducerOptions`, `ConsumerOptions`,
`ReaderOptions`. A test holds the two lists together.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypedDict

from barco.model.token import TOKEN_MIN

Start = (
    Literal["earliest", "latest"]
    | datetime
    | int
    | Mapping[int, str]
    | Mapping[tuple[int, int], str]
)
"""Of a read: an end, a time (with its zone, or in microseconds since 1970), or cursors of slices; a
slice is its number, or (token, number) in a ring of several brokers."""


class TopicSlice(NamedTuple):
    """One slice of a topic, as events name it."""

    topic: str
    slice: int
    token: int = TOKEN_MIN
    """The start of the token range that it is of."""


class ProducerSettings(TypedDict, total=False):
    """See `ProducerOptions`; token: of a user, where brokers ask for one."""

    token: str
    linger_ms: float
    batch_bytes: int
    buffer_bytes: int
    delivery_timeout_s: float
    compress: bool
    connections: int
    pipeline: int
    producer_id: str


class ConsumerSettings(TypedDict, total=False):
    """See `ConsumerOptions`; token: of a user, where brokers ask for one."""

    token: str
    start: Literal["latest", "earliest"]
    consumer_id: str
    poll_bytes: int
    session_seconds: float
    busy_seconds_max: float
    request_timeout_s: float
    weight: int
    on_assigned: Callable[[list[TopicSlice]], Any] | None
    on_revoked: Callable[[list[TopicSlice]], Any] | None


class ReaderSettings(TypedDict, total=False):
    """See `ReaderOptions`; token: of a user, where brokers ask for one."""

    token: str
    start: Start
    follow: bool
    read_bytes: int
    quiet_s: float | None
    timeout_s: float


def parted(settings: Mapping[str, object]) -> tuple[str, dict[str, Any]]:
    """The token, and all the others."""
    rest = dict(settings)
    return str(rest.pop("token", "")), rest
