"""What brokers tell one another: facts, each with a version, of which the newest wins everywhere.

A fact is about one thing (its kind and key). Merging takes the newer of two, so the order and the
number of times in which facts arrive make no difference: all brokers end with the same.
"""

from __future__ import annotations

import hashlib
import ipaddress
import itertools
import re
import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgpack
from msgspec import Struct

from barco import limits
from barco.cluster.ring.cut import Cut
from barco.cluster.ring.routes import RangeRoute, shaped_route
from barco.cluster.ring.target import Target, unpack_target
from barco.errors import ProtocolError
from barco.model.options import DATA_FORMAT

BROKER, LEADER, CONSUMER, TOPICS = "broker", "leader", "consumer", "topics"
TARGET = "target"
KINDS = (BROKER, LEADER, CONSUMER, TOPICS, TARGET)

ALIVE, SUSPECT, CONFIRMED, DOWN, LEFT = range(5)
"""States of a broker; confirmed: two suspect it independently. Of one incarnation the higher wins;
only the broker itself begins the next one, and so refutes what is said of it."""
STATES = ("alive", "suspect", "suspect", "down", "left")

RANK_END = 2**31
"""No rank of a consumer is so large."""

BUCKETS = 256
"""Facts are compared bucket by bucket: two brokers that agree exchange 2 KiB."""

_LOG = "log_read", "log_noted"
_RANKS = "consumers_ranked"

Key = int | str
Version = tuple[int, ...]
_VERSION_PARTS = {BROKER: 2, LEADER: 2, CONSUMER: 4, TOPICS: 2, TARGET: 1}
_MAX = 2**64
_CIRCLE = {BROKER: 0, CONSUMER: 2, TARGET: 0}
"""The part of a version that is answered by the next number (a broker's incarnation; that a
consumer was heard of; how often a target was told). It has no last value: 0 follows 2^64 - 1, so
any can be answered."""


@dataclass(frozen=True, slots=True, order=True)
class Fact:
    """One versioned fact. Two of the same key compare by version, then by content."""

    kind: str
    key: Key
    version: Version
    packed: bytes = field(repr=False)
    """The whole of it as it travels: msgpack [kind, key, [version], [body]]."""
    body: tuple[Any, ...] = field(compare=False)
    bucket: int = field(compare=False, repr=False)
    check: int = field(compare=False, repr=False)
    """A hash of `packed`; a bucket's digest is the exclusive or of those in it."""

    @property
    def is_dear(self) -> bool:
        """Whether each costs milliseconds to look at: no message tells of one thing twice."""
        return self.kind in (LEADER, TARGET)

    @classmethod
    def make(cls, kind: str, key: Key, version: Version, body: tuple[Any, ...]) -> Fact:
        """A fact of this broker's own; it has to be one that others will take."""
        packed: bytes = msgpack.packb([kind, key, version, body], use_bin_type=True)
        fact = cls.unpack(packed)
        assert (fact.kind, fact.key, fact.version) == (kind, key, version), "as it was meant"
        return fact

    @classmethod
    @lru_cache(maxsize=1024)  # Rumours come several times.
    def unpack(cls, packed: bytes) -> Fact:
        """A fact as it came; ProtocolError if it breaks the rules."""
        if not 0 < len(packed) <= limits.GOSSIP_FACT_BYTES_MAX:
            raise ProtocolError(f"fact of {len(packed)} bytes")
        try:
            given = msgpack.unpackb(packed, raw=False, strict_map_key=True, use_list=False)
            kind, key, version, body = given
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise ProtocolError(f"fact is not one: {str(error)[:200]}") from None
        if not _plausible(kind, key, version) or not isinstance(body, tuple):
            raise ProtocolError("fact of an unknown kind or shape")
        _PARSERS[kind](key, version, body)
        place = hashlib.blake2b(f"{kind} {key}".encode(), digest_size=8).digest()
        check = hashlib.blake2b(packed, digest_size=8).digest()
        return cls(
            kind=kind,
            key=key,
            version=version,
            packed=packed,
            body=body,
            bucket=place[0] % BUCKETS,
            check=int.from_bytes(check, "little"),
        )


def newer(fact: Fact, known: Fact) -> bool:
    """Whether a fact wins over another of the same key: by version, then by content.

    On the circle the newer is the one that is less than half of it ahead.
    """
    assert (fact.kind, fact.key) == (known.kind, known.key), "others are not compared"
    parts = zip(fact.version, known.version, strict=True)
    for part, (one, other) in enumerate(parts):
        if one == other:
            continue
        ahead = (one - other) % _MAX
        if part != _CIRCLE.get(fact.kind) or ahead == _MAX // 2:
            return one > other
        return ahead < _MAX // 2
    if fact.kind == LEADER:  # As tables of routes have it, so that all keep the same of the two.
        return LeaderInfo.of(fact).route > LeaderInfo.of(known).route
    return fact.packed > known.packed


def following(number: int) -> int:
    """The next number on the circle."""
    assert 0 <= number < _MAX, "it is on the circle"
    return (number + 1) % _MAX


def _plausible(kind: Any, key: Any, version: Any) -> bool:
    return (
        isinstance(kind, str)
        and kind in _VERSION_PARTS
        and (isinstance(key, str) if kind == CONSUMER else type(key) is int)
        and isinstance(version, tuple)
        and len(version) == _VERSION_PARTS[kind]
        and all(type(part) is int and 0 <= part < _MAX for part in version)
    )


class BrokerInfo(Struct, frozen=True, kw_only=True):
    """One broker: who it is, where it listens, and how it is."""

    ordinal: int
    disk_uuid: str
    session: int
    """Random for each start of its supervisor."""
    address: str
    ports: tuple[tuple[str, int], ...]
    """(name, number), sorted: the bases of `ports` of its configuration."""
    workers: int
    """Into how many ranges its part of the ring was cut at format time."""
    version: str
    """Of barco."""
    host: str = ""
    """The address at which other brokers call it."""
    processes: tuple[tuple[int, int, int], ...] = ()
    """(number, token of the range that it holds, session or 0 while it is not ready) of each of its
    processes, by number."""
    log: tuple[int, int] = (DATA_FORMAT, DATA_FORMAT)
    """The newest format of logs that it reads, and the newest that it has noted may be in its own
    (`barco.supervisor.files.notes`). A version that does not say so reads the first."""
    ranked: bool = True
    """Whether it can read of consumers' weights and ranks. A version that can says so."""
    incarnation: int = 0
    state: int = ALIVE
    by: int = 0
    """Who says so, for what the broker does not say itself."""

    @property
    def up(self) -> bool:
        """Not known to have gone: alive, or only suspected."""
        return self.state < DOWN

    @property
    def state_name(self) -> str:
        """For people."""
        return STATES[self.state]

    def fact(self) -> Fact:
        """To be spread."""
        # Among the ports, for earlier versions take so many parts of a body, and any names there.
        ports = self.ports
        if self.log != (DATA_FORMAT, DATA_FORMAT):
            ports = (*ports, *zip(_LOG, self.log, strict=True))
        if self.ranked:
            ports = (*ports, (_RANKS, 1))
        who = (self.disk_uuid, self.session, self.address, ports, self.workers, self.version)
        body = (*who, self.host, self.processes, self.by)
        return Fact.make(BROKER, self.ordinal, (self.incarnation, self.state), body)

    @classmethod
    def parse(cls, key: Any, version: Version, body: tuple[Any, ...]) -> BrokerInfo:
        """The opposite; ProtocolError for what cannot be."""
        _check(len(body) == 9 and 0 <= key < limits.BROKERS_MAX and version[1] <= LEFT, BROKER)
        disk_uuid, session, address, ports, workers, barco, host, processes, by = body
        _check(_is_disk(disk_uuid) and _text(address, 253) and _text(barco, 32), BROKER)
        # Answers hold it as it is.
        _check(re.fullmatch(r"[A-Za-z0-9_.:-]*", address) is not None, BROKER)
        _check(isinstance(host, str) and (host == "" or _is_address(host)), BROKER)
        _check(_number(session) and _number(workers, limits.WORKERS_MAX + 1), BROKER)
        _check(_number(by, limits.BROKERS_MAX), BROKER)
        _check(isinstance(ports, tuple) and len(ports) <= 16, BROKER)
        for port in ports:
            _check(isinstance(port, tuple) and len(port) == 2 and _text(port[0], 32), BROKER)
            _check(_number(port[1], limits.PORT_MAX + 1), BROKER)
        _check(_is_table(processes), BROKER)
        return cls(
            ordinal=key,
            disk_uuid=disk_uuid,
            session=session,
            address=address,
            ports=tuple(port for port in ports if port[0] not in (*_LOG, _RANKS)),
            workers=workers,
            version=barco,
            host=host,
            processes=processes,
            log=_formats(dict(ports)),
            ranked=(_RANKS, 1) in ports,
            incarnation=version[0],
            state=version[1],
            by=by,
        )

    @classmethod
    def of(cls, fact: Fact) -> BrokerInfo:
        """What a fact says."""
        return cls.parse(fact.key, fact.version, fact.body)


def _formats(ports: dict[str, int]) -> tuple[int, int]:
    read, noted = (ports.get(name, DATA_FORMAT) for name in _LOG)
    return read, noted


class LeaderInfo(Struct, frozen=True):
    """A range's newest known generation: where it is, who leads it, whether it was handed over. The
    newest epoch wins, and within one that it was."""

    route: RangeRoute
    """Of some cut: whoever knows the cluster's looks whether it fits (`checked_route`)."""

    def fact(self) -> Fact:
        """To be spread."""
        route = self.route
        body = (route.first, route.slices, route.leader, route.members)
        return Fact.make(LEADER, route.token, (route.epoch, int(route.handed)), body)

    @classmethod
    def parse(cls, key: Any, version: Version, body: tuple[Any, ...]) -> LeaderInfo:
        """The opposite; ProtocolError for what cannot be."""
        _check(len(body) == 4 and -(2**63) <= key < 2**63 and version[1] <= 1, LEADER)
        (epoch, handed), (first, slices, leader, members) = version, body
        return cls(shaped_route((first, slices, key, epoch, leader, members, bool(handed))))

    @classmethod
    def of(cls, fact: Fact) -> LeaderInfo:
        """What a fact says."""
        return cls.parse(fact.key, fact.version, fact.body)


class ConsumerInfo(Struct, frozen=True, kw_only=True):
    """A consumer's registration, or that it ended."""

    consumer_id: str
    counter: int
    """A Lamport clock: who registers after having seen another registration is later."""
    ordinal: int
    """The broker that took it."""
    heard: int = 0
    """Grows when the consumer is heard of: what expired at one broker lives on if another one
    has heard of it."""
    removed_at: int = 0
    """When it ended, in seconds since 1970 at the broker that says so; 0: it has not."""
    group: str
    topics: tuple[str, ...]
    start: str
    session_ms: int = limits.CONSUMER_SESSION_MS_DEFAULT
    weight: int = 1
    ranks: tuple[int, ...] = ()
    """By topic its rank among those who read it (`barco.cluster.groups.readers`); none were given
    by a broker that knew of another one that can not read of them."""

    @property
    def session(self) -> int:
        """A number for this registration, the same at all brokers, and no other's."""
        return self.counter * limits.BROKERS_MAX + self.ordinal

    def fact(self) -> Fact:
        """To be spread."""
        version = (self.counter, self.ordinal, self.heard, int(self.removed_at > 0))
        body = (self.group, self.topics, self.start, self.removed_at, self.session_ms)
        if self.weight != 1 or self.ranks:  # Earlier versions take the first five only.
            return Fact.make(CONSUMER, self.consumer_id, version, (*body, self.weight, self.ranks))
        return Fact.make(CONSUMER, self.consumer_id, version, body)

    @classmethod
    def parse(cls, key: Any, version: Version, body: tuple[Any, ...]) -> ConsumerInfo:
        """The opposite; ProtocolError for what cannot be."""
        counter, ordinal, heard, removed = version
        _check(len(body) in (5, 7) and _text(key, limits.CONSUMER_ID_BYTES_MAX), CONSUMER)
        _check(counter < 2**48 and ordinal < limits.BROKERS_MAX and removed <= 1, CONSUMER)
        group, topics, start, removed_at, session_ms, weight, ranks = (*body, 1, ())[:7]
        _check(_number(session_ms, limits.CONSUMER_SESSION_MS_MAX + 1), CONSUMER)
        _check(session_ms >= limits.CONSUMER_SESSION_MS_MIN, CONSUMER)
        _check(_number(removed_at, 2**40) and bool(removed) == (removed_at > 0), CONSUMER)
        _check(_text(group, limits.GROUP_NAME_BYTES_MAX) and _text(start, 32), CONSUMER)
        _check(isinstance(topics, tuple), CONSUMER)
        _check(1 <= len(topics) <= limits.TOPICS_PER_CONSUMER_MAX, CONSUMER)
        _check(all(_text(topic, limits.TOPIC_NAME_BYTES_MAX) for topic in topics), CONSUMER)
        _check(_number(weight, limits.CONSUMER_WEIGHT_MAX + 1) and weight > 0, CONSUMER)
        _check(isinstance(ranks, tuple) and len(ranks) in (0, len(topics)), CONSUMER)
        _check(all(_number(rank, RANK_END) for rank in ranks), CONSUMER)
        # Each once, as `Groups.register` has them: a reader stands in a topic's list once.
        _check(all(one < other for one, other in itertools.pairwise(topics)), CONSUMER)
        return cls(
            consumer_id=key,
            counter=counter,
            ordinal=ordinal,
            heard=heard,
            removed_at=removed_at,
            group=group,
            topics=topics,
            start=start,
            session_ms=session_ms,
            weight=weight,
            ranks=ranks,
        )

    @classmethod
    def of(cls, fact: Fact) -> ConsumerInfo:
        """What a fact says."""
        return cls.parse(fact.key, fact.version, fact.body)


class TopicsInfo(Struct, frozen=True, kw_only=True):
    """A digest of the topic settings that a broker has: where two differ, one has missed some."""

    ordinal: int
    incarnation: int
    counter: int
    digest: str
    count: int

    def fact(self) -> Fact:
        """To be spread."""
        version = (self.incarnation, self.counter)
        return Fact.make(TOPICS, self.ordinal, version, (self.digest, self.count))

    @classmethod
    def parse(cls, key: Any, version: Version, body: tuple[Any, ...]) -> TopicsInfo:
        """The opposite; ProtocolError for what cannot be."""
        _check(len(body) == 2 and 0 <= key < limits.BROKERS_MAX, TOPICS)
        _check(_text(body[0], 64) and _number(body[1]), TOPICS)
        incarnation, counter = version
        return cls(
            ordinal=key, incarnation=incarnation, counter=counter, digest=body[0], count=body[1]
        )

    @classmethod
    def of(cls, fact: Fact) -> TopicsInfo:
        """What a fact says."""
        return cls.parse(fact.key, fact.version, fact.body)


class TargetInfo(Struct, frozen=True, kw_only=True):
    """The brokers of which the cluster shall consist; whoever leads slice 0 keeps it."""

    version: int
    """Of what was told: the target's own, or a later one that answers a lie."""
    packed: bytes
    """As `barco.cluster.ring.target` packs it; of at most TARGET_BYTES_MAX."""

    def fact(self) -> Fact:
        """To be spread; ProtocolError if it is too large for that."""
        return Fact.make(TARGET, 0, (self.version,), (zlib.compress(self.packed),))

    @classmethod
    def parse(cls, key: Any, version: Version, body: tuple[Any, ...]) -> TargetInfo:
        """The opposite; ProtocolError for what cannot be. What is in it the receiver looks at."""
        _check(len(body) == 1 and key == 0 and isinstance(body[0], bytes), TARGET)
        unpacker = zlib.decompressobj()
        try:
            packed = unpacker.decompress(body[0], limits.TARGET_BYTES_MAX)
        except zlib.error as error:
            raise ProtocolError(f"a fact about a {TARGET}: {error}") from None
        _check(unpacker.eof and not unpacker.unused_data, TARGET)
        return cls(version=version[0], packed=packed)

    @classmethod
    def of(cls, fact: Fact) -> TargetInfo:
        """What a fact says."""
        return cls.parse(fact.key, fact.version, fact.body)


def target_in(cut: Cut, fact: Fact) -> Target | None:
    """What a fact wants; None: it is no target of this ring."""
    try:
        return unpack_target(cut, TargetInfo.of(fact).packed)
    except ProtocolError:
        return None  # A line for each would be a flood.


def next_target_fact(target: Target, known: Fact | None) -> Fact:
    """Of who keeps it: it wins over what is known, whatever that is."""
    fact = TargetInfo(version=target.version, packed=target.packed()).fact()
    if known is None or known.body == fact.body or newer(fact, known):
        return fact if known is None or known.body != fact.body else known
    return TargetInfo(version=following(known.version[0]), packed=target.packed()).fact()


_PARSERS: dict[str, Any] = {
    BROKER: BrokerInfo.parse,
    LEADER: LeaderInfo.parse,
    CONSUMER: ConsumerInfo.parse,
    TOPICS: TopicsInfo.parse,
    TARGET: TargetInfo.parse,
}


def _text(value: Any, length_max: int) -> bool:
    return (
        isinstance(value, str)
        and 1 <= len(value) <= length_max
        and value.isascii()
        and value.isprintable()
    )


def _number(value: Any, end: int = _MAX) -> bool:
    return type(value) is int and 0 <= value < end


def _is_disk(value: Any) -> bool:
    """Whether it is a disk's uuid: workers take it apart."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{32}", value) is not None


_ADDRESS = re.compile(r"[0-9a-f.:]+(%[0-9A-Za-z_-]+(\.[0-9A-Za-z_-]+)*)?")
"""What is behind a % is looked up as a name: nothing comes there that can not be an interface's."""


def _is_address(text: str) -> bool:
    """Whether it is an IP address, in the one way to write it."""
    if len(text) > 61 or _ADDRESS.fullmatch(text) is None:
        return False
    try:
        return str(ipaddress.ip_address(text)) == text
    except ValueError:
        return False


def _is_table(given: Any) -> bool:
    """Whether these are processes of a broker: each number and each range once, by number."""
    if not isinstance(given, tuple) or len(given) > limits.PROCESSES_MAX:
        return False
    for each in given:
        if not isinstance(each, tuple) or len(each) != 3:
            return False
        number, token, session = each
        if not _number(number, limits.PROCESSES_MAX) or type(token) is not int:
            return False
        if not _number(session):
            return False
        if not -(2**63) <= token < 2**63:
            return False
    in_order = all(one[0] < other[0] for one, other in itertools.pairwise(given))
    return in_order and len({token for _, token, _ in given}) == len(given)


def _check(fine: bool, kind: str) -> None:
    if not fine:
        raise ProtocolError(f"a fact about a {kind} that cannot be")
