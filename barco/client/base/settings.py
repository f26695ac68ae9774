"""The options of the clients by name and type, so that a type checker finds a misspelt one.

The values, with their defaults and what each is for: `ProducerOptions`, `ConsumerOptions`,
`ReaderOptions`. A test holds the two lists together.
"""

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

Start = Literal["earliest", "latest"] | int | Mapping[int, str] | Mapping[tuple[int, int], str]
"""Of a read: an end, a time in microseconds since 1970, or cursors of slices; a slice is its
number, or (token, number) in a ring of several brokers."""


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
    request_timeout_s: float


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
