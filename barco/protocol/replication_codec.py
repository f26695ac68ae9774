"""Messages and journal records of `barco.protocol.replication` to plain maps and back.

`to_map` gives what `barco.protocol.frame` or msgpack can encode: {"t": name, field: value, ...}
with lists for the values within. `from_map` takes nothing else: every type, length and range is
checked; unknown names, missing and additional fields are a `ProtocolError`. `Append` and `Appended`
are no maps: `barco.protocol.append_frame`.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from barco.errors import ProtocolError
from barco.model.generation import (
    Ballot,
    Generation,
    Gid,
    GroupHead,
    Identity,
    Kind,
    Parent,
    Successor,
)
from barco.protocol import replication as r
from barco.types import Epoch, Ordinal, Token

U32 = 2**32 - 1
U63 = 2**63 - 1
U64 = 2**64 - 1
ORDINAL_MAX = 2**16 - 1
PARENTS_MAX = 8
MEMBERS_MAX = 3
VIEWS_MAX = 64

_T = TypeVar("_T")


def to_map(value: r.Message | r.JournalRecord) -> dict[str, Any]:
    """A message or a journal record as a map of plain values."""
    name, fields_ = _OUT[type(value)]
    record = {field: _plain(getattr(value, field)) for field in fields_}
    record["t"] = name
    return record


def from_map(record: Mapping[str, Any]) -> r.Message:
    """The message in a map that a peer sent."""
    value = _read(record, _MESSAGES)
    assert isinstance(value, r.Message)
    return value


def record_from_map(record: Mapping[str, Any]) -> r.JournalRecord:
    """The journal record in a map that was read from disk."""
    value = _read(record, _RECORDS)
    assert isinstance(value, r.JournalRecord)
    return value


def _read(record: Mapping[str, Any], kinds: Mapping[str, type[Any]]) -> Any:
    name = record.get("t")
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ProtocolError(f"no message is called {str(name)[:32]!r}")
    readers = _FIELDS[kind]
    if len(record) != len(readers) + 1:
        raise ProtocolError(f"{name} has fields {sorted(map(str, record))[:16]}")
    try:
        return kind(**{field: reader(record[field]) for field, reader in readers.items()})
    except KeyError as error:
        raise ProtocolError(f"{name} is without {error.args[0]}") from None
    except (AssertionError, ProtocolError) as error:
        # The values' own assertions are about relations, such as "a range is not empty".
        raise ProtocolError(f"{name}: {error}") from None


# --- Out --------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    if type(value) is int:
        return value
    if isinstance(value, Kind):
        return value.value
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, (Generation, Successor, r.View)):
        return [_plain(getattr(value, name)) for name in value.__struct_fields__]
    return value


# --- In ---------------------------------------------------------------------------------------


def _int(low: int, high: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ProtocolError(f"{str(value)[:32]!r} is no integer of {low} to {high}")
        return value

    return read


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ProtocolError(f"{str(value)[:32]!r} is not true or false")
    return value


def _list(value: Any, low: int, high: int) -> list[Any]:
    if not isinstance(value, (list, tuple)) or not low <= len(value) <= high:
        raise ProtocolError(f"{str(value)[:32]!r} is no list of {low} to {high}")
    return list(value)


def _many(reader: Callable[[Any], _T], low: int, high: int) -> Callable[[Any], tuple[_T, ...]]:
    return lambda value: tuple(reader(item) for item in _list(value, low, high))


def _optional(reader: Callable[[Any], _T]) -> Callable[[Any], _T | None]:
    return lambda value: None if value is None else reader(value)


_u32, _u63, _u64 = _int(0, U32), _int(0, U63), _int(0, U64)
_gseq = _int(1, U63)
_ordinal = _int(0, ORDINAL_MAX)
_token = _int(-(2**63), 2**63 - 1)


def _gid(value: Any) -> Gid:
    token, epoch = _list(value, 2, 2)
    return Gid(Token(_token(token)), Epoch(_gseq(epoch)))


def _ballot(value: Any) -> Ballot:
    number, ordinal, session = _list(value, 3, 3)
    return Ballot(_u63(number), Ordinal(_ordinal(ordinal)), _u64(session))


def _identity(value: Any) -> Identity:
    ordinal, uuid = _list(value, 2, 2)
    return Identity(Ordinal(_ordinal(ordinal)), _uuid(uuid))


def _uuid(value: Any) -> bytes:
    if not isinstance(value, bytes) or len(value) not in (0, 16):
        raise ProtocolError("a disk_uuid has 16 bytes")
    return value


def _head(value: Any) -> GroupHead:
    gseq, prev_crc, header_crc, size = _list(value, 4, 4)
    return GroupHead(_gseq(gseq), _u32(prev_crc), _u32(header_crc), _u32(size))


def _parent(value: Any) -> Parent:
    gid, tail = _list(value, 2, 2)
    return Parent(_gid(gid), _u63(tail))


def _generation(value: Any) -> Generation:
    gid, end, leader, session, members, parents = _list(value, 6, 6)
    return Generation(
        _gid(gid),
        _int(-(2**63), 2**63)(end),
        _identity(leader),
        _u64(session),
        _many(_identity, 1, MEMBERS_MAX)(members),
        _many(_parent, 0, PARENTS_MAX)(parents),
    )


def _kind(value: Any) -> Kind:
    try:
        return Kind(value)
    except ValueError:
        raise ProtocolError(f"{str(value)[:32]!r} is no kind of successor") from None


def _successor(value: Any) -> Successor:
    tail, kind, children = _list(value, 3, 3)
    return Successor(_u63(tail), _kind(kind), _many(_generation, 0, 2)(children))


def _accepted(value: Any) -> tuple[Ballot, Successor]:
    ballot, successor = _list(value, 2, 2)
    return _ballot(ballot), _successor(successor)


def _view(value: Any) -> r.View:
    gid, tail, committed, *flags, session = _list(value, 7, 7)
    fenced, leading, committing = map(_bool, flags)
    known = _gid(gid), _u63(tail), _u63(committed)
    return r.View(*known, fenced, leading, committing, _u64(session))


_ordinals = _many(_ordinal, 0, 64)


_FIELDS: dict[type[Any], dict[str, Callable[[Any], Any]]] = {
    r.Fenced: {"gid": _gid, "ballot": _optional(_ballot), "successor": _optional(_successor)},
    r.Gap: {"gid": _gid, "have": _u63},
    r.Unknown: {"gid": _gid},
    r.Prepare: {"gid": _gid, "ballot": _ballot, "session": _u64},
    r.Promise: {
        "gid": _gid,
        "ballot": _ballot,
        "tail": _u63,
        "accepted": _optional(_accepted),
        "suspect": _bool,
    },
    r.Nack: {"gid": _gid, "ballot": _ballot, "promised": _ballot},
    r.Accept: {
        "gid": _gid,
        "ballot": _ballot,
        "value": _successor,
        "sources": _ordinals,
        "session": _u64,
    },
    r.Accepted: {"gid": _gid, "ballot": _ballot},
    r.Decided: {"gid": _gid, "value": _successor, "session": _u64},
    r.Fetch: {"gid": _gid, "first": _gseq, "last": _gseq, "session": _u64},
    r.Fetched: {"gid": _gid, "head": _head},
    r.Expired: {"gid": _gid, "first": _gseq, "prev_crc": _u32},
    r.Ping: {
        "replaces": _uuid,
        "able": _bool,
        "doubts": _ordinals,
        "stamp_us": _u63,
        "echo_us": _u63,
        "position": _u63,
        "views": _many(_view, 0, VIEWS_MAX),
        "aside": _u63,
    },
    r.Unwelcome: {"known": _identity, "gid": _gid},
    r.RolledBack: {"session": _u64, "position": _u63},
    r.Shrunk: {"gid": _gid, "gseq": _u63},
    r.OpenedRecord: {"generation": _generation},
    r.PromisedRecord: {"gid": _gid, "ballot": _ballot},
    r.AcceptedRecord: {"gid": _gid, "ballot": _ballot, "value": _successor},
    r.DecidedRecord: {"gid": _gid, "value": _successor},
    r.DoubtRecord: {"upto": _u63, "beyond": _u63},
    r.AsideRecord: {"gid": _gid, "value": _successor, "tail": _u63},
    r.HeardRecord: {"disk": _identity, "session": _u64, "position": _u63},
}
"""Every field of every kind that is a map, with what reads it; a test holds it against the
dataclasses."""

_RECORDS = {
    "opened": r.OpenedRecord,
    "promised": r.PromisedRecord,
    "accepted": r.AcceptedRecord,
    "decided": r.DecidedRecord,
    "doubt": r.DoubtRecord,
    "aside": r.AsideRecord,
    "heard": r.HeardRecord,
}
_MESSAGES = {kind.__name__.lower(): kind for kind in _FIELDS if kind not in _RECORDS.values()}
_OUT = {
    kind: (name, tuple(_FIELDS[kind]))
    for kinds in (_MESSAGES, _RECORDS)
    for name, kind in kinds.items()
}
