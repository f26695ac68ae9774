"""What was taken last of a producer with an id: for who begins again under it."""

import hashlib
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from barco.errors import NotReadyError
from barco.model.access import User, hash_of
from barco.model.token import token_of
from barco.workers.seams import ReactorLike

PRODUCER_NAME_MAX = 64
"""As the core takes it."""


def inner_id(name: bytes, user: User) -> bytes:
    """The 128 bits by which the core knows a Producer-Id (native/broker/produce_head.c): where
    users are asked for tokens, hashed together with whose it is."""
    if user.name:
        return hashlib.sha256(hash_of(user.name) + name).digest()[:16]
    return struct.pack("=qq", token_of(name), token_of(name + b"\xff"))


def operations(
    reactor: ReactorLike, first: int, leads: Callable[[], bool]
) -> dict[str, Callable[[Mapping[str, Any]], Awaitable[Any]]]:
    """By name."""

    async def producer(args: Mapping[str, Any]) -> list[list[int]]:
        """{"topic", "id": 16 bytes}: [number of the slice in the ring, epoch, sequence]."""
        if not leads():
            raise NotReadyError("This worker does not lead the shard (any more).")
        found = reactor.producer(args["topic"], args["id"])
        return [[first + index, epoch, seq] for index, epoch, seq in found]

    return {"producer": producer}
