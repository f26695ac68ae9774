"""Messages of the replication protocol: through msgpack and back, and what is refused."""

import typing

import pytest
from msgspec.structs import fields

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
    genesis,
)
from barco.protocol import frame
from barco.protocol import replication as r
from barco.protocol.append_frame import Append, Appended
from barco.protocol.replication_codec import _FIELDS, from_map, record_from_map, to_map

GID = Gid(-(2**63), 7)
WHO = tuple(Identity(each, bytes([each]) * 16) for each in range(3))
BALLOT = Ballot(3, 1, 2**64 - 1)
CHILD = Generation(GID, 2**63, WHO[1], 2**63 + 5, WHO, (Parent(Gid(-(2**63), 6), 41),))
VALUE = Successor(41, Kind.RELEAD, (CHILD,))
HEAD = GroupHead(42, 2**32 - 1, 0, 8192)

FIXED = (Append, Appended)
"""These are no maps (test_append_frame.py)."""

MESSAGES = [
    r.Fenced(GID, BALLOT, VALUE),
    r.Fenced(GID, None, None),
    r.Gap(GID, 0),
    r.Unknown(GID),
    r.Prepare(GID, BALLOT),
    r.Promise(GID, BALLOT, 41, (BALLOT, VALUE), False),
    r.Promise(GID, BALLOT, 0, None, True),
    r.Nack(GID, BALLOT, Ballot(4, 0, 1)),
    r.Accept(GID, BALLOT, VALUE, (0, 2)),
    r.Accepted(GID, BALLOT),
    r.Decided(GID, Successor(0, Kind.HANDOFF, ())),
    r.Fetch(GID, 1, 32),
    r.Fetched(GID, HEAD),
    r.Expired(GID, 7, 1),
    r.Ping(b"r" * 16, True, (2,), 1, 0, 9, (r.View(GID, 5, 4, False, True, True),)),
    r.Unwelcome(WHO[2], GID),
    r.RolledBack(9, 4),
    r.Shrunk(GID, 7),
    r.Shrunk(GID, 0),
]
RECORDS = [
    r.OpenedRecord(genesis(0, 10, (0, 1, 2))),
    r.PromisedRecord(GID, BALLOT),
    r.AcceptedRecord(GID, BALLOT, VALUE),
    r.DecidedRecord(GID, VALUE),
    r.DoubtRecord(7, 3),
    r.HeardRecord(WHO[1], 9, 4),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_messages_come_back(message: r.Message) -> None:
    body = frame.encode(to_map(message))[frame.LENGTH.size :]
    assert from_map(frame.decode(body)) == message


@pytest.mark.parametrize("record", RECORDS)
def test_records_come_back(record: r.JournalRecord) -> None:
    body = frame.encode(to_map(record))[frame.LENGTH.size :]
    assert record_from_map(frame.decode(body)) == record


def test_a_record_is_no_message() -> None:
    with pytest.raises(ProtocolError):
        from_map(to_map(RECORDS[0]))
    with pytest.raises(ProtocolError):
        record_from_map(to_map(MESSAGES[0]))


def test_every_field_has_a_reader() -> None:
    kinds = {*typing.get_args(r.Message), *typing.get_args(r.JournalRecord)} - {*FIXED}
    assert kinds == set(_FIELDS)
    for kind in kinds:
        assert [field.name for field in fields(kind)] == list(_FIELDS[kind]), kind


JUNK = [None, -1, 2**70, 1.5, True, "x", b"x", [], [1], [[]], {}, [None] * 6, [[0, b"short"]]]


@pytest.mark.parametrize("message", [*MESSAGES, *RECORDS], ids=lambda m: type(m).__name__)
def test_junk_in_any_place_is_refused_or_valid(message: r.Message) -> None:
    """Whatever stands in a field, the answer is a value of the right type or a ProtocolError."""
    good = to_map(message)
    read = record_from_map if message in RECORDS else from_map
    for name in good:
        for junk in JUNK:
            with_junk = {**good, name: junk}
            try:
                value = read(with_junk)
            except ProtocolError:
                continue
            assert to_map(value) == with_junk
        with pytest.raises(ProtocolError):
            read({key: value for key, value in good.items() if key != name})
    with pytest.raises(ProtocolError):
        read({**good, "more": 1})


def test_impossible_relations_are_refused() -> None:
    two = to_map(r.Decided(GID, VALUE))
    two["value"][2] = two["value"][2] * 2
    with pytest.raises(ProtocolError):
        from_map(two)


@pytest.mark.parametrize("name", ["append", "appended"])
def test_what_has_a_fixed_layout_is_no_map_any_more(name: str) -> None:
    old = {"t": name, "gid": [0, 7], "gseq": 42, "session": 9, "head": [42, 1, 2, 8192]}
    for known in (old, {**old, "committed": 41}, {key: old[key] for key in list(old)[:4]}):
        with pytest.raises(ProtocolError, match="no message is called"):
            from_map(known)
