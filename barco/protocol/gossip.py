"""What supervisors say to one another: dataclasses, and the frames that carry them.

A connection begins with `Hello` from the one that opened it; the other answers `Welcome`, or
`Refuse` and closes. Each proves that it knows the cluster's secret (`barco.protocol.door`). Then
both send what they like, in any order; `facts` are opaque here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

from barco import limits
from barco.errors import ProtocolError
from barco.protocol.span import Span, newest_common, span_of

GOSSIP_OLDEST, GOSSIP_VERSION = 4, 4
"""Of this protocol, the oldest and the newest that are spoken here. Two brokers speak the newest
that both know; who knows none of them does not join."""

FACTS_MAX = 20_000
"""In one message; the frame's length bounds them as well."""


class Hello(Struct, frozen=True, kw_only=True):
    """Who is speaking, and the shape of the cluster it was made for."""

    TYPE: ClassVar[str] = "hello"
    protocol: int
    """The oldest that it speaks."""
    version: str
    cluster_uuid: str
    ordinal: int
    disk_uuid: str
    session: int
    brokers: int
    """At format time, as are slices and workers: the cut of the ring. How many its configuration
    lists it does not say: they may differ while a cluster grows."""
    slices_per_range: int
    workers: int
    format: int
    """Of its data directory."""
    replaces: str = ""
    """The disk that this one stands in for (`barco replace`)."""
    newest: int = 0 if GOSSIP_OLDEST == GOSSIP_VERSION else GOSSIP_VERSION
    """The newest that it speaks; 0, and not sent: the same as the oldest."""


class Welcome(Hello, frozen=True, kw_only=True):
    """The other side's own identity: it lets the first one in."""

    TYPE: ClassVar[str] = "welcome"


class Refuse(Struct, frozen=True, kw_only=True):
    """Why not, in one line; the connection ends."""

    TYPE: ClassVar[str] = "refuse"
    reason: str


class Ping(Struct, frozen=True, kw_only=True):
    """Are you there?"""

    TYPE: ClassVar[str] = "ping"
    number: int
    facts: tuple[bytes, ...] = ()


class Ack(Struct, frozen=True, kw_only=True):
    """I am; or, for `about` somebody else, it is."""

    TYPE: ClassVar[str] = "ack"
    number: int
    about: int
    facts: tuple[bytes, ...] = ()


class PingRequest(Struct, frozen=True, kw_only=True):
    """Ask `about` for me."""

    TYPE: ClassVar[str] = "ping-request"
    number: int
    about: int
    facts: tuple[bytes, ...] = ()


class Nack(Struct, frozen=True, kw_only=True):
    """I am well, but have no answer from `about` (yet)."""

    TYPE: ClassVar[str] = "nack"
    number: int
    about: int
    refused: bool = False
    """Nothing listens there."""


class Push(Struct, frozen=True, kw_only=True):
    """News. A `number` above 0 is answered by a `PushAck` when the broker's workers have it."""

    TYPE: ClassVar[str] = "push"
    number: int = 0
    facts: tuple[bytes, ...] = ()


class PushAck(Struct, frozen=True, kw_only=True):
    """The news of that number has been taken."""

    TYPE: ClassVar[str] = "push-ack"
    number: int


class Sync(Struct, frozen=True, kw_only=True):
    """Digests of everything that the sender knows: tell me what differs."""

    TYPE: ClassVar[str] = "sync"
    digests: bytes
    facts: tuple[bytes, ...] = ()
    """The sender's own: a newcomer introduces itself."""


class SyncReply(Struct, frozen=True, kw_only=True):
    """All facts of the buckets that differ, or of the first of them; `more` are left over."""

    TYPE: ClassVar[str] = "sync-reply"
    whole: tuple[int, ...]
    """Buckets that are here in full: what the other one has besides is news to the sender."""
    more: bool
    facts: tuple[bytes, ...] = ()


Message = Ping | Ack | PingRequest | Nack | Push | PushAck | Sync | SyncReply
Greeting = Hello | Welcome | Refuse

_TYPES: dict[str, Any] = {
    each.TYPE: each
    for each in (
        *(Hello, Welcome, Refuse, Ping, Ack, PingRequest),
        *(Nack, Push, PushAck, Sync, SyncReply),
    )
}
_NAMES = {name: tuple(kind.__struct_fields__) for name, kind in _TYPES.items()}
_TEXT_MAX = {"reason": 1_000, "version": 32}
_NUMBER_MAX = 2**64
OLDEST, NEWEST = "protocol", "newest"


def to_frame(message: Message | Greeting) -> dict[str, Any]:
    """Plain values for `barco.protocol.frame`."""
    values = {name: getattr(message, name) for name in _NAMES[message.TYPE]}
    if not values.get(NEWEST, 1):
        del values[NEWEST]  # Brokers before 2026-11-26 take no further name.
    return {"type": message.TYPE} | values


def speaks(greeting: Mapping[str, Any]) -> bool:
    """Whether who greets so speaks a version that is spoken here."""
    theirs = spoken(greeting)
    return theirs is not None and newest_common((GOSSIP_OLDEST, GOSSIP_VERSION), theirs) is not None


def spoken(greeting: Mapping[str, Any]) -> Span | None:
    """The versions of who greets so; None: it does not say."""
    return span_of(greeting, OLDEST, NEWEST)


def from_frame(frame: Mapping[str, Any]) -> Message | Greeting:
    """The message in a frame; ProtocolError if it has not the shape of one."""
    kind = frame.get("type")
    cls = _TYPES.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise ProtocolError(f"no gossip message is of type {str(kind)[:64]!r}")
    values: dict[str, Any] = {}
    span = spoken(frame) if issubclass(cls, Hello) else None
    later = span is not None and span[1] > GOSSIP_VERSION
    for name, value in frame.items():
        if name == "type" or (later and name not in _NAMES[cls.TYPE]):
            continue  # What a later version says besides is not for this one.
        if name not in _NAMES[cls.TYPE] or not _fits(name, value):
            raise ProtocolError(f"a gossip {kind} has no such {name[:64]!r}")
        values[name] = tuple(value) if isinstance(value, list) else value
    try:
        message: Message | Greeting = cls(**values)
    except TypeError:
        raise ProtocolError(f"a gossip {kind} is incomplete") from None
    return message


def _fits(name: str, value: Any) -> bool:
    if name == "facts":
        return (
            isinstance(value, (list, tuple))
            and len(value) <= FACTS_MAX
            and all(isinstance(fact, bytes) for fact in value)
        )
    if name == "digests":
        return isinstance(value, bytes) and len(value) == 8 * 256
    if name == "whole":
        return isinstance(value, (list, tuple)) and all(
            type(bucket) is int and 0 <= bucket < 256 for bucket in value
        )
    if name in ("refused", "more"):
        return isinstance(value, bool)
    if name in ("reason", "version", "cluster_uuid", "disk_uuid", "replaces"):
        return isinstance(value, str) and len(value) <= _TEXT_MAX.get(name, 32)
    if name in ("about", "ordinal"):
        return type(value) is int and 0 <= value < limits.BROKERS_MAX
    return type(value) is int and 0 <= value < _NUMBER_MAX
