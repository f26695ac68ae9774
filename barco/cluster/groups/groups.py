"""Consumer groups: who is a member, and which consumer reads which slice.

A pure machine. It runs in the supervisor, which hands it requests from workers and the time, and
sends every new view to all workers; a worker decides nothing about membership by itself. Group
offsets are not here: they are events in the log of the slice that they belong to.

What a change costs, here and at the workers, must not grow with the group: a thousand consumers
that start together would pay for it a thousand times. So a view holds the members that changed,
and who reads what (`readers`) is looked at when somebody asks, once for all that came together.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from barco import limits
from barco.cluster.groups.readers import NO_RANK, ReaderInfo, Readers
from barco.errors import AlreadyRegisteredError, RequestError, TooManyRequestsError

Reply = dict[str, Any]
View = dict[str, Any]

START_LATEST = "startFromLatest"
START_EARLIEST = "startFromEarliest"

_Name = TypeVar("_Name")

_TOPIC = re.compile(r"[A-Za-z0-9_.-]{1,127}", re.ASCII)

REMOVED_MAX = 4_096
"""Names of vanished groups and, apart from them, of members that left, kept to tell a worker what
to forget; past it, it gets everything."""


class Member(Struct):
    """One consumer, as registered."""

    consumer_id: str
    group: str
    topics: tuple[str, ...]
    start: str
    session: int
    last_heard: float
    session_ms: int = limits.CONSUMER_SESSION_MS_DEFAULT
    """For how long it may be silent."""
    origin: int = 0
    """The broker that is charged with it; brokers share what there is too little of."""
    weight: int = 1
    """Of two consumers the one of twice the weight gets twice as many slices."""
    ranks: tuple[int, ...] = ()
    """By topic where among its readers it was last; of who was given none there are none."""

    @property
    def ends(self) -> float:
        """When it is no member any more, if nobody hears of it until then."""
        return self.last_heard + self.session_ms / 1000


class Group(Struct):
    """The members of one group, and for each topic those who asked for it."""

    members: dict[str, Member] = field(default_factory=dict)
    readers: dict[str, Readers] = field(default_factory=dict)
    origins: Counter[int] = field(default_factory=Counter)
    """How many there are of each."""


class Groups:
    """Membership and assignment of every group of the broker.

    slices: every slice of the ring in token order, as (token of its range, index in the range).
    sessions: numbers for registrations, each larger than the last; of a cluster, no two the same.
    own_room: whether one more may be admitted here, however many there are of elsewhere.
    origin: who is charged with what is admitted here. ring: how many brokers admit.
    """

    def __init__(
        self,
        slices: Sequence[tuple[int, int]],
        sessions: Callable[[], int] | None = None,
        own_room: Callable[[], bool] = lambda: False,
        *,
        origin: int = 0,
        ring: int = 1,
    ) -> None:
        assert 0 <= origin < ring, "what is admitted here is charged to a broker of the ring"
        assert slices, "a ring has at least one slice"
        assert list(slices) == sorted(slices), "slices come in token order"
        self._slices = list(slices)
        self._members: dict[str, Member] = {}
        self._groups: dict[str, Group] = {}
        # What changed in which version, in this order: live members, those that left a group which
        # has others, and groups that were left by all (and may have begun anew since).
        self._changed: dict[str, int] = {}
        self._left: dict[tuple[str, str], int] = {}
        self._removed: dict[str, int] = {}
        self._removed_floor = 0  # A view since this version or later knows of every removal.
        self._unsettled: set[tuple[str, str]] = set()
        """Of which groups and topics the readers have changed since somebody asked."""
        # When each member ends, or earlier: the number settles what is equal.
        self._heard: list[tuple[float, int, Member]] = []
        self._heard_number = itertools.count()
        self._version = 1
        self._own_room = own_room
        self._origin = origin
        self._ring = ring
        self._next_session = sessions if sessions is not None else itertools.count(1).__next__

    @property
    def version(self) -> int:
        """The version of the present view; it grows with every change."""
        self._settle()
        return self._version

    def request(self, op: str, args: Mapping[str, Any], now: float) -> Reply:
        """Apply one request of a worker and return its result, or raise a BarcoError.

        op is "register" (consumerId, group, topics, start, sessionMs, weight), "touch"
        (consumerIds, and agesMs: how long ago each was heard of), "goodbye" (consumerId) or "view"
        (since). A changed `version` means that workers need a new view.
        """
        if op == "register":
            return self._register_request(args, now)
        if op == "touch":
            self.touch(_strings(args, "consumerIds"), now, args.get("agesMs", ()))
            return {"version": self.version}
        if op == "goodbye":
            known = self.goodbye(_string(args, "consumerId"))
            return {"version": self.version, "known": known}
        if op == "view":
            since = args.get("since", 0)
            return self.view(since if isinstance(since, int) else 0)
        raise RequestError(f"There is no group operation {op[:64]!r}.")

    def _register_request(self, args: Mapping[str, Any], now: float) -> Reply:
        known = self.register(
            _string(args, "consumerId"),
            group=_string(args, "group"),
            topics=_strings(args, "topics"),
            start=_string(args, "start"),
            session_ms=args.get("sessionMs", limits.CONSUMER_SESSION_MS_DEFAULT),
            weight=args.get("weight", 1),
            now=now,
        )
        member = self._members[_string(args, "consumerId")]
        return {
            "version": self.version,
            "known": known,
            "session": member.session,
            "start": member.start,
        }

    def register(
        self,
        consumer_id: str,
        *,
        group: str,
        topics: Sequence[str],
        start: str,
        now: float,
        session_ms: int = limits.CONSUMER_SESSION_MS_DEFAULT,
        weight: int = 1,
    ) -> bool:
        """Make a consumer a member; true if it was one already, with the same parameters.

        Registering again opens a new session: a consumer that crashed and came back under its old
        name must see again what its predecessor was given and never committed.
        """
        _check_id("consumer id", consumer_id, limits.CONSUMER_ID_BYTES_MAX)
        _check_id("group", group, limits.GROUP_NAME_BYTES_MAX)
        self._check_topics(topics)
        if start not in (START_LATEST, START_EARLIEST):
            raise RequestError(f"onNewGroup is {START_LATEST} or {START_EARLIEST}.")
        _check_session(session_ms)
        _check_weight(weight)
        wanted = tuple(sorted(set(topics)))
        member = self._members.get(consumer_id)
        if member is not None:
            if member.group != group or member.topics != wanted:
                raise AlreadyRegisteredError(
                    "The consumer is already registered with a different group or other topics: "
                    "say goodbye first, or choose another consumerId.",
                )
        else:
            self._admit(group)
        session = self._next_session()
        assert member is None or session > member.session, "the later registration counts"
        entering = Member(
            consumer_id,
            group,
            wanted,
            start if member is None else member.start,
            session,
            now,
            session_ms,
            self._origin,
            weight,
        )
        entering.ranks = self.ranks(entering)
        self._enter(entering)
        return member is not None

    def ranks(self, member: Member) -> tuple[int, ...]:
        """By topic where a member is, or the next rank if it is none yet."""
        self._settle()
        readers = self._groups.get(member.group, Group()).readers
        known = member.consumer_id in self._members
        found = []
        for topic in member.topics:
            there = readers.get(topic)
            next_one = 0 if there is None else len(there)
            found.append(there.rank(member.consumer_id) if known and there else next_one)
        return tuple(found)

    def adopt(self, member: Member) -> None:
        """Take over a registration that another broker has admitted; it replaces what was here."""
        known = self._members.get(member.consumer_id)
        alike = known is not None and (known.group, known.topics) == (member.group, member.topics)
        if known is not None and alike and known.session == member.session:
            known.last_heard = max(known.last_heard, member.last_heard)
            said = (member.origin, member.weight, member.ranks)
            if said != (known.origin, known.weight, known.ranks):
                origin, weight, ranks = said
                self._enter(replace(known, origin=origin, weight=weight, ranks=ranks))
            return
        if known is not None and not alike:
            self.goodbye(member.consumer_id)
        self._enter(member)

    def member(self, consumer_id: str) -> Member | None:
        """A consumer as registered."""
        return self._members.get(consumer_id)

    def touch(self, consumer_ids: Sequence[str], now: float, ages_ms: Sequence[int] = ()) -> None:
        """These consumers have been heard of, so long ago; unknown ones are passed over."""
        for consumer_id, age_ms in itertools.zip_longest(consumer_ids, ages_ms, fillvalue=0):
            member = self._members.get(str(consumer_id))
            if member is not None:
                member.last_heard = max(member.last_heard, now - int(age_ms) / 1000)

    def goodbye(self, consumer_id: str) -> bool:
        """Remove a member at once; its slices go to the others. False if it was none."""
        member = self._members.pop(consumer_id, None)
        if member is None:
            return False
        group = self._groups[member.group]
        self._take_out(group, member)
        self._changed.pop(consumer_id, None)
        self._change(())
        self._left[member.group, consumer_id] = self._version
        if not group.members:
            assert not group.readers, "nobody is left to read"
            del self._groups[member.group]
            self._removed.pop(member.group, None)
            self._removed[member.group] = self._version
        self._forget()
        self._check(member.group)
        return True

    def silent(self, now: float) -> list[str]:
        """Members that have not been heard of for too long."""
        return [m.consumer_id for m in self._members.values() if now >= m.ends]

    def tick(self, now: float) -> bool:
        """Remove members that have been silent for too long; true if there were any."""
        silent = self.silent(now)
        for consumer_id in silent:
            self.goodbye(consumer_id)
        return bool(silent)

    def deadline(self) -> float | None:
        """When `tick` next has something to do, if nobody is heard of until then."""
        while self._heard:
            ends, number, member = self._heard[0]
            if self._members.get(member.consumer_id) is not member:
                heapq.heappop(self._heard)
            elif member.ends > ends:
                heapq.heapreplace(self._heard, (member.ends, number, member))
            else:
                return ends
        return None

    def view(self, since: int = 0) -> View:
        """What workers need to know, as plain values; only what changed after version `since`.

        {"version", "since" (0: everything, replace what you have), "removed": [group],
        "groups": {group: {consumerId: None (it left) or {"session", "start", "sessionMs", "weight",
        "assigned": {topic: [token, index, token, index, ...]}}}}}

        Removed groups are to be forgotten first: one that began anew is in "groups" as well.
        """
        self._settle()
        if since < self._removed_floor or since > self._version:
            since = 0
        groups: dict[str, dict[str, Any]] = {}
        if since == 0:
            for name, group in self._groups.items():
                ids = sorted(group.members)
                groups[name] = {each: self._member_view(group.members[each]) for each in ids}
            return {"version": self._version, "since": 0, "groups": groups, "removed": []}
        for name, consumer_id in _after(since, self._left):
            if name in self._groups:
                groups.setdefault(name, {})[consumer_id] = None
        for consumer_id in _after(since, self._changed):
            member = self._members[consumer_id]
            groups.setdefault(member.group, {})[consumer_id] = self._member_view(member)
        removed = _after(since, self._removed)
        return {"version": self._version, "since": since, "groups": groups, "removed": removed}

    def assignment(self, group: str) -> dict[str, dict[str, list[tuple[int, int]]]]:
        """{consumerId: {topic: slices}}, in token order.

        For each topic, among those who asked for that topic, by `Readers`; a consumer is never
        given a topic that it did not ask for, and where there are more than slices some stay idle.
        """
        self._settle()
        members = self._groups[group].members
        return {consumer_id: self._assigned(member) for consumer_id, member in members.items()}

    def _assigned(self, member: Member) -> dict[str, list[tuple[int, int]]]:
        readers = self._groups[member.group].readers
        return {
            topic: [self._slices[number] for number in readers[topic].slices(member.consumer_id)]
            for topic in member.topics
        }

    def _settle(self) -> None:
        """Who reads what, after all that has changed."""
        affected: set[str] = set()
        for name, topic in self._unsettled:
            group = self._groups.get(name)
            if group is not None and topic in group.readers:
                affected |= group.readers[topic].settle()
        self._unsettled.clear()
        if affected:
            self._change(sorted(affected))

    def _take_out(self, group: Group, member: Member) -> None:
        del group.members[member.consumer_id]
        group.origins[member.origin] -= 1
        assert group.origins[member.origin] >= 0, "each counts for one origin, until it goes"
        for topic in member.topics:
            readers = group.readers[topic]
            readers.remove(member.consumer_id)
            self._unsettled.add((member.group, topic))
            if not readers:
                del group.readers[topic]

    def _member_view(self, member: Member) -> dict[str, Any]:
        # Pairs are flattened because a frame is at most eight containers deep.
        return {
            "session": member.session,
            "start": member.start,
            "sessionMs": member.session_ms,
            "weight": member.weight,
            "assigned": {
                topic: [number for place in places for number in place]
                for topic, places in self._assigned(member).items()
            },
        }

    def _enter(self, member: Member) -> None:
        """A new member, or another registration of one with the same group and topics."""
        name = member.consumer_id
        group = self._groups.setdefault(member.group, Group())
        known = group.members.get(name)
        if known is not None:
            group.origins[known.origin] -= 1
        ranks = member.ranks or (NO_RANK,) * len(member.topics)
        for topic, rank in zip(member.topics, ranks, strict=True):
            readers = group.readers.setdefault(topic, Readers(len(self._slices)))
            readers.put(name, ReaderInfo(rank, member.session, member.weight, member.origin))
            self._unsettled.add((member.group, topic))
        group.origins[member.origin] += 1
        self._members[name] = group.members[name] = member
        assert group.origins.total() == len(group.members)
        heapq.heappush(self._heard, (member.ends, next(self._heard_number), member))
        self._left.pop((member.group, name), None)
        self._change((name,))
        self._check(member.group)

    def _admit(self, group: str) -> None:
        own_room = self._own_room()
        if len(self._members) >= limits.CONSUMERS_MAX and not own_room:
            raise TooManyRequestsError(
                f"The broker has {limits.CONSUMERS_MAX} consumers, which is its limit."
            )
        if group not in self._groups:
            if len(self._groups) >= limits.GROUPS_MAX and not own_room:
                raise TooManyRequestsError(
                    f"The broker has {limits.GROUPS_MAX} groups, which is its limit."
                )
        elif self._is_full(self._groups[group]):
            raise TooManyRequestsError(
                f"The group has {limits.CONSUMERS_PER_GROUP_MAX} consumers, which is the limit."
            )

    def _is_full(self, group: Group) -> bool:
        """Of elsewhere as many as there may be leave some room to each broker's own."""
        most = limits.CONSUMERS_PER_GROUP_MAX
        return len(group.members) >= most and group.origins[self._origin] >= most // self._ring

    def _check_topics(self, topics: Sequence[str]) -> None:
        if not 1 <= len(topics) <= limits.TOPICS_PER_CONSUMER_MAX:
            raise RequestError(f"A consumer asks for 1 to {limits.TOPICS_PER_CONSUMER_MAX} topics.")
        for topic in topics:
            if not _TOPIC.fullmatch(topic) or topic in (".", "..") or topic.startswith("__"):
                raise RequestError(f"{topic[:128]!r} is not the name of a topic to consume.")

    def _change(self, consumer_ids: Iterable[str]) -> None:
        self._version += 1
        for consumer_id in consumer_ids:
            assert consumer_id in self._members, "a view holds who is there"
            self._changed.pop(consumer_id, None)  # The newest come last.
            self._changed[consumer_id] = self._version

    def _check(self, group: str) -> None:
        """What holds after this group has changed."""
        assert len(self._changed) == len(self._members), "a view holds who is there"
        assert self._removed_floor <= self._version
        assert len(self._groups) <= len(self._members), "a group has members"
        there = self._groups.get(group)
        if there is not None:
            assert there.members, "a group that everybody left is none"
            assert len(there.members) <= len(self._members)
            assert there.origins.total() == len(there.members), "each is charged once"
            assert there.readers, "who is there asked for a topic"
            assert all(len(each) <= len(there.members) for each in there.readers.values())

    def _forget(self) -> None:
        for gone in (self._removed, self._left):
            while len(gone) > REMOVED_MAX:
                self._removed_floor = max(self._removed_floor, _pop_first(gone))
            assert len(gone) <= REMOVED_MAX


def _pop_first(versions: dict[Any, int]) -> int:
    return versions.pop(next(iter(versions)))


def _after(since: int, versions: dict[_Name, int]) -> list[_Name]:
    """What changed after a version, in its order; of a mapping that is in order itself."""
    newest = itertools.takewhile(lambda item: item[1] > since, reversed(versions.items()))
    return [name for name, _ in newest][::-1]


def _check_id(what: str, value: str, length_max: int) -> None:
    # Printable ASCII only: ids end up in headers, logs and metrics of other people.
    if not 1 <= len(value) <= length_max or not (value.isascii() and value.isprintable()):
        raise RequestError(f"The {what} must have 1 to {length_max} printable ASCII characters.")


def _check_session(value: object) -> None:
    least, most = limits.CONSUMER_SESSION_MS_MIN, limits.CONSUMER_SESSION_MS_MAX
    if type(value) is not int or not least <= value <= most:
        raise RequestError(f"sessionMs is a number from {least:,} to {most:,}.")


def _check_weight(value: object) -> None:
    if type(value) is not int or not 1 <= value <= limits.CONSUMER_WEIGHT_MAX:
        raise RequestError(f"The weight is a number from 1 to {limits.CONSUMER_WEIGHT_MAX}.")


def _string(args: Mapping[str, Any], name: str) -> str:
    value = args.get(name)
    if not isinstance(value, str):
        raise RequestError(f"{name} is missing.")
    return value


def _strings(args: Mapping[str, Any], name: str) -> list[str]:
    value = args.get(name)
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) for v in value):
        raise RequestError(f"{name} is not a list of strings.")
    return list(value)
