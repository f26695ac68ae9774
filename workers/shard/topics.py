"""The topics of a shard: their settings, kept as events in `__topics` on every shard.

Settings are the same everywhere: a change goes to all shards, and of two that cross each other the
later stamp wins on each. A topic without settings exists while it has events.
"""

import asyncio
import hashlib
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgpack
from msgspec import Struct, field
from msgspec.structs import asdict

from barco import limits
from barco.errors import QuotaUsedUpError, TooManyRequestsError
from barco.model.access import USER_NAME_MAX
from barco.model.options import CHECKS, COMPRESSIONS, OFF, TIMESTAMPS
from barco.workers.seams import ReactorLike
from barco.workers.shard import internal
from barco.workers.shard.appends import Appends

log = logging.getLogger("barco.worker")

TOPICS = "__topics"

VERSION_MAX = 2**48
"""Of a record: each change adds one. A later one could never be overruled."""

_NAME = re.compile(rf"[a-zA-Z0-9_.-]{{1,{limits.TOPIC_NAME_BYTES_MAX}}}")


class TopicRecord(Struct, frozen=True, kw_only=True):
    """What was last decided about a topic."""

    topic: str
    version: int
    """Grows with each change; with `changed_us` and `author` it orders changes the same for all."""
    changed_us: int
    author: int
    """The worker that took the request."""
    created_us: int
    retention_hours: int | None = None
    retention_bytes: int | None = None
    """None: as configured for the broker; 0: no limit."""
    compression: str | None = None
    """Of `barco.model.options.COMPRESSIONS`; None: as configured for the broker."""
    timestamps: str | None = None
    """Of `barco.model.options.TIMESTAMPS`; None: the first of them."""
    schema_check: str | None = None
    """Of `barco.model.options.CHECKS`, what becomes of values that are none of their schema; None:
    off."""
    deleted: bool = False
    owner: str = ""
    """The user who made it; empty where nobody had to show who asks."""
    ends: dict[int, int] = field(default_factory=dict)
    """Where the slices of this shard ended when the topic was deleted."""

    @property
    def stamp(self) -> tuple[int, int, int]:
        """The order of changes."""
        return (self.version, self.changed_us, self.author)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for messages; `ends` belongs to one shard and is left out, and so are an
        owner and a check that there are not: digests are as those of brokers that know of none."""
        left_out = {"ends"}
        left_out |= {name for name in ("owner", "schema_check") if not getattr(self, name)}
        return {name: value for name, value in asdict(self).items() if name not in left_out}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "TopicRecord":
        """The opposite; names of a later version are passed over. ValueError: it is no record."""
        known = set(cls.__struct_fields__)
        record = cls(**{name: value for name, value in given.items() if name in known})
        record.check()
        return record

    def check(self) -> None:
        """ValueError for what no broker has decided: others hand records on, and the log keeps
        them."""
        name, numbers = self.topic, (self.version, self.changed_us, self.author, self.created_us)
        if not isinstance(name, str) or not _NAME.fullmatch(name) or name.startswith("__"):
            raise ValueError(f"{str(name)[:64]!r} is no topic")
        optional = tuple(
            each for each in (self.retention_hours, self.retention_bytes) if each is not None
        )
        ends = self.ends if isinstance(self.ends, dict) else {-1: -1}
        for number in (*numbers, *optional, *ends, *ends.values()):
            if type(number) is not int or not 0 <= number < 2**63:
                raise ValueError(f"a topic's record has a number {str(number)[:32]!r}")
        if self.version > VERSION_MAX or type(self.deleted) is not bool:
            raise ValueError("a topic's record has a version that nobody reaches")
        if self.compression not in (None, *COMPRESSIONS):
            raise ValueError(f"compression {str(self.compression)[:32]!r}")
        if self.timestamps not in (None, *TIMESTAMPS):
            raise ValueError(f"timestamps {str(self.timestamps)[:32]!r}")
        if self.schema_check not in (None, *CHECKS):
            raise ValueError(f"schema_check {str(self.schema_check)[:32]!r}")
        if not isinstance(self.owner, str) or len(self.owner) > USER_NAME_MAX:
            raise ValueError("a topic's owner is no user's name")


def _hash(record: TopicRecord) -> int:
    told = repr(sorted(record.to_dict().items())).encode()
    return int.from_bytes(hashlib.blake2b(told, digest_size=8).digest(), "big")


class TopicRegistry:
    """The topics that this shard knows."""

    def __init__(self, reactor: ReactorLike, appends: Appends, slices: range) -> None:
        self._reactor = reactor
        self._appends = appends
        self.slices = slices
        """Of the shard. Settings are written in the first one."""
        self._records: dict[str, TopicRecord] = {}
        self.on_deleting: Callable[[str], Awaitable[None]] | None = None
        """Waited for before a deletion is in the log: were it behind it, who leads next after a
        crash in between would know of the one and not of the other."""
        self.on_deleted: Callable[[str], Awaitable[None]] | None = None
        """Told once the deletion is in the log."""
        self._digest = 0
        """Of all records together: each change takes its old hash out and puts the new one in."""
        self._heard: tuple[int, int] | None = None
        """Of their stream, its bounds when it was looked at."""
        self._owned: Counter[str] = Counter()
        """By user, how many topics there are that it made."""

    def digest(self) -> tuple[str, int]:
        """(a hash of all decisions, how many): the same on every shard that knows the same."""
        return f"{self._digest:016x}", len(self._records)

    def _keep(self, record: TopicRecord) -> None:
        known = self._records.get(record.topic)
        self._digest ^= _hash(record) ^ (0 if known is None else _hash(known))
        if known is not None and not known.deleted:
            assert self._owned[known.owner] > 0, "it was counted when it was kept"
            self._owned[known.owner] -= 1
        self._owned[record.owner] += not record.deleted
        self._records[record.topic] = record

    def open(self) -> None:
        """A generation is open: take up the settings that its log holds."""
        told = {record.topic for record in self._records.values() if not record.deleted}
        self._records.clear()
        self._digest = 0
        self._owned.clear()
        for record in internal.each(TOPICS, self._reactor.compacted(TOPICS), TopicRecord.from_dict):
            # Several of one topic, where ranges have become one: each was kept in its first slice.
            known = self._records.get(record.topic)
            if known is None or known.stamp < record.stamp:
                self._keep(record)
            if record.deleted:
                self._cut(record)
        exist = self.names()
        for topic in exist:
            self._tell(topic, True)
        for topic in sorted(told.difference(exist)):  # Known to an earlier generation only.
            self._reactor.topic_set(topic, False)

    def follow(self) -> None:
        """`open`, if the log has more of them than when this was asked last."""
        end = self._reactor.stream_ends(TOPICS, self.slices.start)
        if end != self._heard:
            self._heard = end
            self.open()

    def _tell(self, topic: str, exists: bool) -> None:
        checked = self.schema_check(topic) != OFF
        self._reactor.topic_set(
            topic, exists, self.compression(topic), self.any_time(topic), checked
        )

    def _cut(self, record: TopicRecord) -> None:
        for name, index, start, _, _ in self._reactor.streams(record.topic):
            if start < record.ends.get(index, 0):
                self._reactor.truncate_stream(name, index, record.ends[index])

    def names(self) -> list[str]:
        """Topics that exist on this shard, without the internal ones."""
        found = {record.topic for record in self._records.values() if not record.deleted}
        for topic, _, start, end, _ in self._reactor.streams():
            record = self._records.get(topic)
            # A deleted topic that was written to again exists again.
            if record is None or not record.deleted or end > start:
                found.add(topic)
        return sorted(name for name in found if not name.startswith("__"))

    def deleted(self) -> set[str]:
        """Topics that were deleted, and have nothing since."""
        gone = {record.topic for record in self._records.values() if record.deleted}
        return gone.difference(self.names())

    def known(self) -> int:
        """How many topics the shard has heard of, deleted ones too."""
        return max(len(self._records), self._reactor.stats().get("topics", 0))

    def exists(self, topic: str) -> bool:
        """Whether `names` has it, without a look at all others."""
        record = self._records.get(topic)
        if topic.startswith("__"):
            return False
        if record is not None and not record.deleted:
            return True
        streams = self._reactor.streams(topic)
        return any(record is None or end > start for _, _, start, end, _ in streams)

    def record(self, topic: str) -> TopicRecord | None:
        """The last decision about a topic, deletion included."""
        return self._records.get(topic)

    def retention(self, topic: str) -> tuple[int | None, int | None]:
        """(hours, bytes) of a topic; None where the broker's own setting holds."""
        record = self._records.get(topic)
        if record is None or record.deleted:
            return (None, None)
        return (record.retention_hours, record.retention_bytes)

    def compression(self, topic: str) -> str | None:
        """How the broker packs a topic; None where the broker's own setting holds."""
        record = self._records.get(topic)
        return None if record is None or record.deleted else record.compression

    def any_time(self, topic: str) -> bool:
        """Whether a topic takes producers' timestamps however far from now."""
        record = self._records.get(topic)
        return record is not None and not record.deleted and record.timestamps == "any"

    def schema_check(self, topic: str) -> str:
        """What becomes of values that are none of their schema."""
        record = self._records.get(topic)
        return OFF if record is None or record.deleted else record.schema_check or OFF

    def describe(self, topic: str | None) -> dict[str, Any]:
        """{topic: {"record", "exists", "streams": [[slice, start, end, last timestamp]]}}."""
        if topic is None:
            existing = set(self.names())
            wanted = existing | set(self._records)
        else:  # As cheap with a hundred thousand others.
            existing = {topic} if self.exists(topic) else set()
            wanted = {topic}
        found: dict[str, Any] = {}
        for name in wanted:
            record = self._records.get(name)
            if record is None and name not in existing:
                continue
            found[name] = {
                "record": record.to_dict() if record else None,
                "exists": name in existing,
                "streams": [],
            }
        for name, index, start, end, last in self._reactor.streams(topic):
            if name in found:
                found[name]["streams"].append([index, start, end, last])
        return found

    async def apply(self, record: TopicRecord, most: int = 0) -> None:
        """Take a decision, unless a later one is known; returns when it is stable. most: of topics
        that its owner may have, for one that there is not yet."""
        known = self._records.get(record.topic)
        if known is not None and known.stamp >= record.stamp:
            return
        if most and self._owned[record.owner] >= most and not self.exists(record.topic):
            raise QuotaUsedUpError(
                f"{record.owner} has {self._owned[record.owner]} topics, and a quota of {most}: "
                "delete some, or have it raised (barco users quota)."
            )
        if known is None and len(self._records) >= limits.TOPICS_MAX:
            raise TooManyRequestsError(
                f"The broker has {limits.TOPICS_MAX} topics with settings, which is its limit."
            )
        if record.deleted and self.on_deleting is not None:
            await self.on_deleting(record.topic)
            if (now := self._records.get(record.topic)) is not None and now.stamp >= record.stamp:
                return  # Somebody else was faster.
        stored = record.to_dict() | {"ends": record.ends}
        if record.deleted:
            stored["ends"] = {
                index: end for _, index, _, end, _ in self._reactor.streams(record.topic)
            }
        key = record.topic.encode()
        future = self._appends.start(TOPICS, self.slices.start, key, msgpack.packb(stored))
        self._keep(TopicRecord.from_dict(stored))
        self._tell(record.topic, not record.deleted)
        await asyncio.shield(future)
        if record.deleted:
            self._cut(self._records[record.topic])
            if self.on_deleted is not None:
                await self.on_deleted(record.topic)

    async def adopt(self, described: Iterable[Mapping[str, Any]]) -> int:
        """Take decisions that a sibling knows and this shard slept through; returns how many."""
        taken = 0
        for entry in described:
            try:
                if entry["record"] is None:
                    continue
                record = TopicRecord.from_dict(entry["record"])
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                log.error("a sibling's record of a topic is none: %s", error)
                continue
            known = self._records.get(record.topic)
            if known is None or known.stamp < record.stamp:
                await self.apply(record)
                taken += 1
        return taken
