"""Who may do what, kept as an event of `__access` by whoever leads slice 0, as the target is.

One change at a time is made; it counts when it is stable. Until the first one the users are those
whom the operator has named in a file (`barco users first`).
"""

import asyncio
import logging
from collections.abc import Callable

import msgpack

from barco import limits
from barco.errors import NotReadyError, RequestError
from barco.model.access import AccessTable
from barco.workers.seams import ReactorLike
from barco.workers.shard.appends import Appends

ACCESS = "__access"
KEY = b"users"
SLICE = 0
"""The slice of the whole ring in which it is kept; there is no smaller ring without it."""

UNREADABLE = (
    "The log has users that this version can not read, so nobody is let in by it: start the version"
    " that wrote them, or make users anew (docs/access.md)."
)

log = logging.getLogger("barco.worker")


class AccessKeeper:
    """The users as the log has them, where slice 0 is led."""

    def __init__(self, reactor: ReactorLike, appends: Appends, first: AccessTable) -> None:
        """first: who is known as long as nobody has changed anything."""
        assert first.version == 0, "what the log has is never older"
        self._reactor = reactor
        self._appends = appends
        self._first = first
        self._lock = asyncio.Lock()
        self._readable = True
        self.table = first
        """As it is stable."""

    def open(self) -> None:
        """A generation is open, and its first group committed: take up what its log holds.

        An event that can not be read may have removed somebody, or the first users: so none of an
        earlier table counts then, unlike with other internal topics, where it is passed over.
        """
        self.table, self._readable = self._first, True
        for _, value in self._reactor.compacted(ACCESS):
            try:
                found = unpacked(value)
            except ValueError as error:
                self._readable = False
                log.error("%s (%s)", UNREADABLE, error)
            else:
                if found.version > self.table.version:
                    self.table = found

    def check(self) -> None:
        """NotReadyError: what the log has can not be read, and `table` is not to be believed."""
        if not self._readable:
            raise NotReadyError(UNREADABLE)

    async def change(
        self, propose: Callable[[AccessTable], AccessTable], anew: bool = False
    ) -> AccessTable:
        """What `propose` makes of the table, once it is stable; it may refuse, or change nothing.

        anew: also where what the log has can not be read, which is lost by that.
        A BarcoError of the append: it was not written, or nobody knows.
        """
        async with self._lock:
            if not anew:
                self.check()
            before = self.table
            after = propose(before)
            if after is before:
                return before
            assert after.version == before.version + 1, "each change is one version"
            value = packed(after)
            await asyncio.shield(self._appends.start(ACCESS, SLICE, KEY, value))
            if self.table is before:  # Else another generation was opened meanwhile.
                self.table, self._readable = after, True
            return after


def packed(table: AccessTable) -> bytes:
    """For the log and for other processes; RequestError: it is larger than that may be."""
    value: bytes = msgpack.packb({"slice": SLICE, "access": table.to_plain()})
    if len(value) > limits.ACCESS_BYTES_MAX:
        raise RequestError(
            f"All users together take {len(value)} bytes, of {limits.ACCESS_BYTES_MAX} that may be:"
            " grant patterns rather than names."
        )
    return value


def unpacked(value: bytes) -> AccessTable:
    """The opposite; ValueError: nobody has packed that."""
    if not 0 < len(value) <= limits.ACCESS_BYTES_MAX:
        raise ValueError("a table of users is too large, or nothing")
    try:
        given = msgpack.unpackb(value, strict_map_key=True)
        return AccessTable.from_plain(given["access"])
    except (TypeError, LookupError, msgpack.UnpackException) as error:
        raise ValueError(f"a table of users: {str(error)[:100]}") from None
