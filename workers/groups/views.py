"""What a worker knows of the consumer groups: the supervisor's latest view, looked things up in."""

import asyncio
import heapq
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from barco import limits
from barco.errors import BarcoError, NotRegisteredError
from barco.model.placement import Placement
from barco.workers.groups.cursor import Key
from barco.workers.seams import SupervisorLike

TOUCH_INTERVAL_S = 10.0
"""How often the supervisor is told of a consumer at most; of its last sign, and how old that is."""

TOUCH_GATHER_S = 0.5
"""Consumers that were heard of are gathered for this long, and told of together."""


@dataclass(slots=True)
class Filling:
    """Who alone fills a consumer's answers, while it has more than they hold."""

    worker: int = -1
    """The last one that did."""
    until: float = 0.0
    """Until when it does."""
    gave: set[int] = field(default_factory=set)
    """Who gave something for the last answer, and is to hear that it arrived."""


@dataclass(frozen=True, slots=True)
class Member:
    """A registered consumer and its slices."""

    consumer_id: str
    group: str
    session: int
    start: str
    assigned: Mapping[str, tuple[int, ...]]
    """By topic the slices, by their numbers in the ring, counted from the lowest token."""
    session_ms: int = limits.CONSUMER_SESSION_MS_DEFAULT
    """For how long it may be silent."""
    weight: int = 1
    """Its part of the slices, against others'."""
    numbers: frozenset[int] = field(init=False, compare=False)
    """All of them."""
    told: set[int] = field(init=False, compare=False, repr=False, default_factory=set)
    """Workers that have seen a poll since it has these slices: others may still hold some for it
    that it has no more, until a poll of it acknowledges them."""
    quiet: dict[int, float] = field(init=False, compare=False, repr=False, default_factory=dict)
    """Workers that had nothing for it when they were last asked, and when that was."""
    filling: Filling = field(init=False, compare=False, repr=False, default_factory=Filling)
    _placement: list[str] = field(init=False, compare=False, repr=False, default_factory=list)
    _slots: dict[tuple[range, int], list[tuple[str, int]]] = field(
        init=False, compare=False, repr=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        numbers = frozenset(number for each in self.assigned.values() for number in each)
        object.__setattr__(self, "numbers", numbers)

    @property
    def key(self) -> tuple[str, int]:
        """Who it is: a consumer that registers again is another one."""
        return (self.consumer_id, self.session)

    @property
    def placement(self) -> str:
        """A name for what it is to read: another one when that has changed."""
        if not self._placement:
            told = repr(sorted((topic, tuple(each)) for topic, each in self.assigned.items()))
            self._placement.append(f"{zlib.crc32(told.encode()):08x}")
        return self._placement[0]

    def knows(self, placement: str | None) -> bool:
        """Whether who has acted on this placement knows what it is to read; None: it does not ask,
        and need not."""
        return placement is None or placement == self.placement

    def slots(self, slices: range, first_slice: int = 0) -> list[tuple[str, int]]:
        """Its (topic, slice) within these slices of a token range, in a fixed order.

        first_slice: the number of the range's first slice. The list is kept: polls ask for it.
        """
        found = self._slots.get((slices, first_slice))
        if found is None:
            found = self._slots[slices, first_slice] = [
                (topic, number - first_slice)
                for topic, numbers in self.assigned.items()
                for number in numbers
                if number - first_slice in slices
            ]
        return found


class GroupView:
    """The view of the groups in force here. Only the supervisor changes it."""

    def __init__(self, supervisor: SupervisorLike, ring: Placement) -> None:
        self._supervisor = supervisor
        slices = ring.slices_per_range
        self._first_slices = {int(ring.token(at)): at * slices for at in range(ring.size)}
        self._version = 0
        self._groups: dict[str, dict[str, Member]] = {}
        self._members: dict[str, Member] = {}
        self._refresh_lock = asyncio.Lock()
        self._refreshed = 0.0
        self._touched: dict[str, float] = {}
        """When the supervisor was told of whom."""
        self._heard: dict[str, float] = {}
        """Whose last sign it has not been told of yet, and when that was."""
        self._due: list[tuple[float, str]] = []
        """When each of these is told of."""
        self._touching: asyncio.Task[None] | None = None
        self._waits: Counter[str] = Counter()
        self._watching: asyncio.Task[None] | None = None
        self.on_change: Callable[[list[Key], list[Key]], None] = lambda gone, moved: None
        """With the keys of the registrations that have ended, and of those whose slices have
        changed."""

    @property
    def version(self) -> int:
        """Of the view in force."""
        return self._version

    @property
    def member_count(self) -> int:
        """Consumers registered at the broker."""
        return len(self._members)

    def apply(self, view: Mapping[str, Any]) -> None:
        """Take a view (see `barco.cluster.groups.groups`): a whole one, or what changed."""
        since = int(view["since"])
        if since > self._version or int(view["version"]) < self._version:
            return  # Not the difference to ours, or overtaken: the next one will do.
        before = self._members.copy() if since == 0 else {}
        if since == 0:
            self._groups.clear()
            self._members.clear()
        for group in view["removed"]:
            for consumer_id in self._groups.pop(group, {}):
                before[consumer_id] = self._members.pop(consumer_id)
        for group, members in view["groups"].items():  # Before it is a member of another one.
            known = self._groups.get(group, {})
            for consumer_id in [name for name in members if name in known]:
                del known[consumer_id]
                before[consumer_id] = self._members.pop(consumer_id)
        for group, members in view["groups"].items():
            read = {n: self._member(group, n, value) for n, value in members.items() if value}
            self._groups.setdefault(group, {}).update(read)
            self._members.update(read)
        self._version = int(view["version"])
        gone: list[Key] = []
        moved: list[Key] = []
        for member in before.values():
            (moved if self.is_current(member.key) else gone).append(member.key)
        self.on_change(gone, moved)

    def _member(self, group: str, consumer_id: str, value: Mapping[str, Any]) -> Member:
        assigned = {}
        for topic, pairs in value["assigned"].items():
            slices = zip(pairs[::2], pairs[1::2], strict=True)
            assigned[topic] = tuple(self._first_slices[token] + index for token, index in slices)
        return Member(
            consumer_id,
            group,
            int(value["session"]),
            str(value["start"]),
            assigned,
            int(value["sessionMs"]),
            int(value["weight"]),
        )

    def get(self, consumer_id: str) -> Member | None:
        """The member of that id in the view in force."""
        return self._members.get(consumer_id)

    def is_current(self, key: tuple[str, int]) -> bool:
        """Whether this session of the consumer is still the one."""
        member = self._members.get(key[0])
        return member is not None and member.key == key

    def groups(self) -> Mapping[str, Mapping[str, Member]]:
        """All groups with their members."""
        return self._groups

    async def require(self, consumer_id: str) -> Member:
        """The member; asks the supervisor before saying that there is none."""
        if (member := self._members.get(consumer_id)) is None:
            await self.refresh()
            member = self._members.get(consumer_id)
        if member is None:
            raise NotRegisteredError(
                "This consumerId is not registered, or it was silent for longer than its "
                "sessionMs: register again."
            )
        return member

    async def at_least(self, version: int) -> None:
        """Catch up with a view that somebody else has seen already."""
        if self._version < version:
            await self.refresh()

    async def refresh(self) -> None:
        """Ask the supervisor for the latest view; callers that come together share the answer."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        async with self._refresh_lock:
            if self._refreshed > asked:
                return
            begun = loop.time()
            self.apply(await self._supervisor.request("view", {"since": self._version}))
            self._refreshed = begun

    def heard_of(self, consumer_id: str) -> None:
        """Pass on, now and then, that a consumer is alive."""
        now = asyncio.get_running_loop().time()
        if consumer_id in self._heard:
            self._heard[consumer_id] = now  # It is told with this one.
            return
        self._heard[consumer_id] = now
        member = self._members.get(consumer_id)
        often = TOUCH_INTERVAL_S
        if member is not None:
            often = min(often, member.session_ms / 1000 / limits.CONSUMER_TELLS)
        due = max(now + TOUCH_GATHER_S, self._touched.get(consumer_id, 0.0) + often)
        heapq.heappush(self._due, (due, consumer_id))
        if self._touching is None or self._touching.done():
            self._touching = asyncio.get_running_loop().create_task(self._touch())

    @contextmanager
    def waiting(self, consumer_id: str) -> Iterator[None]:
        """Around a poll that waits: a client that holds its connection open is alive."""
        self._waits[consumer_id] += 1
        if self._watching is None or self._watching.done():
            self._watching = asyncio.get_running_loop().create_task(self._watch())
        try:
            yield
        finally:
            self._waits[consumer_id] -= 1
            if not self._waits[consumer_id]:
                del self._waits[consumer_id]

    async def _watch(self) -> None:
        while self._waits:
            for consumer_id in self._waits:
                self.heard_of(consumer_id)
            await asyncio.sleep(limits.CONSUMER_SESSION_MS_MIN / 1000 / limits.CONSUMER_TELLS)

    async def _touch(self) -> None:
        """While there is something to tell: of those of whom it may be told again, together."""
        loop = asyncio.get_running_loop()
        while self._heard:
            await asyncio.sleep(TOUCH_GATHER_S)
            now, names = loop.time(), []
            while self._due and self._due[0][0] <= now:
                names.append(heapq.heappop(self._due)[1])
            if names:
                await self._tell(names, now)

    async def _tell(self, names: list[str], now: float) -> None:
        ages_ms = [round(1000 * (now - self._heard.pop(name))) for name in names]
        recent = {n: at for n, at in self._touched.items() if now - at < TOUCH_INTERVAL_S}
        self._touched = recent | dict.fromkeys(names, now)
        try:
            await self._supervisor.request("touch", {"consumerIds": names, "agesMs": ages_ms})
        except BarcoError:
            for name in names:  # Their next request tells it again.
                self._touched.pop(name, None)
