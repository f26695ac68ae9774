"""Gossip messages and their frames."""

import io
from typing import Any

import pytest

from barco.errors import ProtocolError
from barco.protocol import frame
from barco.protocol.gossip import (
    GOSSIP_VERSION,
    Ack,
    Hello,
    Nack,
    Ping,
    PingRequest,
    Push,
    PushAck,
    Refuse,
    Sync,
    SyncReply,
    Welcome,
    from_frame,
    to_frame,
)

WHO: dict[str, Any] = {
    "protocol": 1,
    "version": "0.1.0",
    "cluster_uuid": "c" * 32,
    "ordinal": 0,
    "disk_uuid": "a" * 32,
    "session": 1,
    "brokers": 3,
    "slices_per_range": 8,
    "workers": 2,
    "format": 1,
}


@pytest.mark.parametrize(
    "message",
    [
        Hello(**WHO),
        Welcome(**WHO, replaces="d" * 32),
        Refuse(reason="no"),
        Ping(number=1, facts=(b"x",)),
        Ack(number=1, about=2),
        PingRequest(number=1, about=2),
        Nack(number=1, about=2, refused=True),
        Push(number=3, facts=(b"x", b"y")),
        PushAck(number=3),
        Sync(digests=bytes(2048)),
        SyncReply(whole=(0, 255), more=True, facts=(b"z",)),
    ],
)
def test_round_trip(message: Any) -> None:
    back = frame.read(io.BytesIO(frame.encode(to_frame(message))))
    assert back is not None
    assert from_frame(back) == message


def test_what_a_later_version_says_besides_is_passed_over_and_of_this_one_refused() -> None:
    later = to_frame(Hello(**WHO | {"protocol": GOSSIP_VERSION}, newest=GOSSIP_VERSION + 1))
    assert from_frame(later | {"more": [1]}) == from_frame(later)
    same = to_frame(Hello(**WHO | {"protocol": GOSSIP_VERSION}))
    assert "newest" not in same, "who came before takes no further name"
    with pytest.raises(ProtocolError):
        from_frame(same | {"more": [1]})


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"type": 7},
        {"type": "gossip"},
        {"type": ["ping"]},
        {"type": "ping"},
        {"type": "ping", "number": -1},
        {"type": "ping", "number": 2**64},
        {"type": "ping", "number": True},
        {"type": "ping", "number": 1, "facts": "abc"},
        {"type": "ping", "number": 1, "facts": ["abc"]},
        {"type": "ping", "number": 1, "what": 1},
        {"type": "ack", "number": 1, "about": 12_288},
        {"type": "nack", "number": 1, "about": 1, "refused": 1},
        {"type": "sync", "digests": b"short"},
        {"type": "sync-reply", "whole": [256], "more": False},
        {"type": "sync-reply", "whole": [True], "more": False},
        {"type": "refuse", "reason": "x" * 1001},
        {"type": "hello", **WHO, "cluster_uuid": "x" * 33},
    ],
)
def test_what_breaks_the_rules_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ProtocolError):
        from_frame(given)
