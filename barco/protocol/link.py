"""The first frame on a connection between workers of two brokers: who calls, and what for.

One port of a worker takes all of them. The caller sends its `Hello` and waits; the other side
answers with its own, or with a refusal and closes; both prove that they know the cluster's secret
(`barco.protocol.door`). What follows depends on the kind: native
hand-off frames, control operations, or replication. A hello is small, and its length is checked
before anything is read.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, fields

from barco.errors import ProtocolError
from barco.limits import PROCESSES_MAX
from barco.model.options import DATA_FORMAT
from barco.protocol.span import newest_common, span_of, words

LINK_OLDEST, LINK_VERSION = 6, 6
"""Of the hello and of everything behind it: the oldest and the newest that are spoken here. Two
workers speak the newest that both know; those that know none in common do not connect."""

HAND_OFF, RPC, REPLICATION = "handoff", "rpc", "replication"
KINDS = (HAND_OFF, RPC, REPLICATION)

OLDEST, NEWEST = "link_version", "link_newest"
TEXT_BYTES_MAX = 64


class Hello(Struct, frozen=True, kw_only=True):
    """A worker, and the shape of the cluster that it was made for."""

    kind: str
    """What the connection is for; the answer repeats it."""
    cluster_uuid: str
    ordinal: int
    disk_uuid: str
    worker: int
    """The number of the process in its broker."""
    token: int
    """Of the range that it holds."""
    session: int
    """Of this start of the worker, never used twice."""
    ring_size: int
    """Brokers at format time, as are slices and workers: the cut of the ring. How many brokers its
    configuration lists it does not say: they may differ while a cluster grows."""
    workers: int
    slices_per_range: int
    format: int = DATA_FORMAT
    """Of its data directory."""
    link_version: int = LINK_OLDEST
    """The oldest that it speaks."""
    link_newest: int = 0 if LINK_OLDEST == LINK_VERSION else LINK_VERSION
    """The newest; 0, and not sent: the same. Those before 2026-11-26 take no further name."""

    def to_message(self) -> dict[str, Any]:
        """Plain values, for a frame."""
        return {name: value for name, value in asdict(self).items() if name != NEWEST or value}


def hello_from(message: Mapping[str, Any]) -> Hello:
    """The hello in a frame; ProtocolError where it is none, or the refusal that came instead."""
    refusal = message.get("refused")
    if isinstance(refusal, str):
        raise ProtocolError(f"refused: {refusal[:500]}")
    if (why := unspoken(message)) is not None:
        raise ProtocolError(why)
    known = {field.name: field.type for field in fields(Hello)}
    span = span_of(message, OLDEST, NEWEST)
    if span is not None and span[1] > LINK_VERSION:  # What it says besides is not for this one.
        message = {name: value for name, value in message.items() if name in known}
    if message.keys() | {NEWEST} != known.keys():
        raise ProtocolError("the first frame is no hello of a worker")
    for name, value in message.items():
        if type(value) is not known[name]:
            raise ProtocolError(f"{name} in a hello is {type(value).__name__}")
        if isinstance(value, str) and len(value) > TEXT_BYTES_MAX:
            raise ProtocolError(f"{name} in a hello has {len(value)} characters")
    return Hello(**message)


def unspoken(message: Mapping[str, Any]) -> str | None:
    """Why nobody here understands who says this hello, in one line; None: its version is spoken, or
    it is no hello. Of another version nothing but the two numbers is looked at."""
    ours, theirs = (LINK_OLDEST, LINK_VERSION), span_of(message, OLDEST, NEWEST)
    if theirs is None or newest_common(ours, theirs) is not None:
        return None
    return f"links of version {words(theirs)} are not spoken here, {words(ours)} is"


def refusal(mine: Hello, theirs: Hello, brokers: int) -> str | None:
    """Why a worker that says this is not let in; None if it is. One line, without secrets.

    brokers: ordinals are below it.
    """
    if (why := unspoken(theirs.to_message())) is not None:
        return why
    if theirs.cluster_uuid != mine.cluster_uuid:
        return "this is another cluster: correct cluster.brokers and cluster.uuid"
    if theirs.kind not in KINDS:
        return f"there is no link of kind {theirs.kind!r}"
    for name in ("ring_size", "workers", "slices_per_range", "format"):
        ours, other = getattr(mine, name), getattr(theirs, name)
        if ours != other:
            return f"{name} is {ours} here and {other} there: make the configurations the same"
    if not 0 <= theirs.ordinal < brokers:
        return f"there is no broker {theirs.ordinal} in a ring of {brokers}"
    if theirs.ordinal == mine.ordinal:
        return f"broker {mine.ordinal} is this one: two brokers have the same ordinal"
    if not 0 <= theirs.worker < PROCESSES_MAX or theirs.session <= 0:
        return f"broker {theirs.ordinal} has no worker {theirs.worker}"
    if not _is_uuid(theirs.disk_uuid):
        return f"broker {theirs.ordinal} has no disk"
    return None


def _is_uuid(text: str) -> bool:
    return len(text) == 32 and set(text) <= set("0123456789abcdef")
