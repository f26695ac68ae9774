"""The target of the cluster, kept as an event of `__topology` by whoever leads slice 0.

It goes with that slice: through snapshots, changes of leaders, and splits. One change at a time is
made, compared with the version before; it counts when it is stable.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgpack

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.target import Target, unpack_target
from barco.errors import ProtocolError
from barco.workers.seams import ReactorLike
from barco.workers.shard import internal
from barco.workers.shard.appends import Appends

TOPOLOGY = "__topology"
KEY = b"target"
SLICE = 0
"""The slice of the whole ring in which it is kept; there is no smaller ring without it."""


class TargetKeeper:
    """The target as the log has it, where slice 0 is led."""

    def __init__(self, reactor: ReactorLike, appends: Appends, cut: Cut, first: Target) -> None:
        """first: what is wanted as long as nobody has asked for anything."""
        self._reactor = reactor
        self._appends = appends
        self._cut = cut
        self._first = first
        self._lock = asyncio.Lock()
        self.target = first
        """As it is stable."""

    def open(self) -> None:
        """A generation is open, and its first group committed: take up what its log holds."""
        self.target = self.seen()

    def seen(self) -> Target:
        """As the log has it here, whoever leads: a moment later than its leader."""
        kept = self._reactor.compacted(TOPOLOGY)
        found = internal.each(TOPOLOGY, kept, self._read)
        return max((self._first, *found), key=lambda target: target.version)

    def _read(self, given: dict[Any, Any]) -> Target:
        try:
            return unpack_target(self._cut, given["target"])
        except ProtocolError as error:
            raise ValueError(str(error)) from None

    async def change(self, propose: Callable[[Target], Target]) -> Target:
        """What `propose` makes of the target, once it is stable; it may refuse, or change nothing.

        A BarcoError of the append: it was not written, or nobody knows.
        """
        async with self._lock:
            before = self.target
            after = propose(before)
            if after is before:
                return before
            assert after.version == before.version + 1, "each change is one version"
            value = msgpack.packb({"slice": SLICE, "target": after.packed()})
            await asyncio.shield(self._appends.start(TOPOLOGY, SLICE, KEY, value))
            if self.target is before:  # Else another generation was opened meanwhile.
                self.target = after
            return after
