"""Consumer groups: who is a member, and which consumer reads which slice.

A pure machine. It runs in the supervisor, which hands it requests from workers and the time, and
sends every new view to all workers; a worker decides nothing about membership by itself. Group
offsets are not here: they are events in the log of the slice that they belong to.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barco import limits
from barco.errors import AlreadyRegisteredError, RequestError, TooManyRequestsError

Reply = dict[str, Any]
View = dict[str, Any]

START_LATEST = "startFromLatest"
START_EARLIEST = "startFromEarliest"

_TOPIC = re.compile(r"[A-Za-z0-9_.-]{1,127}", re.ASCII)

REMOVED_MAX = 4_096
"""Names of vanished groups kept to tell a worker what to forget; past it, it gets everything."""


@dataclass(slots=True)
class Member:
    """One consumer, as registered."""

    consumer_id: str
    group: str
    topics: tuple[str, ...]
    start: str
    session: int
    last_heard: float


@dataclass(slots=True)
class Group:
    """The members of one group, and the version of the view in which it last changed."""

    members: dict[str, Member] = field(default_factory=dict)
    changed: int = 0


class Groups:
    """Membership and assignment of every group of the broker.

    slices: every slice of the ring in token order, as (token of its range, index in the range).
    sessions: numbers for registrations, each larger than the last; of a cluster, no two the same.
    """

    def __init__(
        self,
        slices: Sequence[tuple[int, int]],
        sessions: Callable[[], int] | None = None,
    ) -> None:
        assert slices, "a ring has at least one slice"
        assert list(slices) == sorted(slices), "slices come in token order"
        self._slices = list(slices)
        self._members: dict[str, Member] = {}
        self._groups: dict[str, Group] = {}
        self._removed: dict[str, int] = {}
        self._removed_floor = 0  # A view since this version or later knows of every removal.
        self._version = 1
        self._next_session = sessions if sessions is not None else itertools.count(1).__next__

    @property
    def version(self) -> int:
        """The version of the present view; it grows with every change."""
        return self._version

    def request(self, op: str, args: Mapping[str, Any], now: float) -> Reply:
        """Apply one request of a worker and return its result, or raise a BarcoError.

        op is "register" (consumerId, group, topics, start), "touch" (consumerIds), "goodbye"
        (consumerId) or "view" (since). A changed `version` means that workers need a new view.
        """
        if op == "register":
            return self._register_request(args, now)
        if op == "touch":
            self.touch(_strings(args, "consumerIds"), now)
            return {"version": self._version}
        if op == "goodbye":
            known = self.goodbye(_string(args, "consumerId"))
            return {"version": self._version, "known": known}
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
            now=now,
        )
        member = self._members[_string(args, "consumerId")]
        return {
            "version": self._version,
            "known": known,
            "session": member.session,
            "start": member.start,
        }

    def register(
        self, consumer_id: str, *, group: str, topics: Sequence[str], start: str, now: float
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
        wanted = tuple(sorted(set(topics)))
        member = self._members.get(consumer_id)
        if member is not None:
            if member.group != group or member.topics != wanted:
                raise AlreadyRegisteredError(
                    "The consumer is already registered with a different group or other topics: "
                    "say goodbye first, or choose another consumerId.",
                )
            member.last_heard = now
            member.session = self._next_session()
            self._change(group)
            return True
        self._admit(group)
        self._members[consumer_id] = Member(
            consumer_id, group, wanted, start, self._next_session(), now
        )
        self._groups.setdefault(group, Group()).members[consumer_id] = self._members[consumer_id]
        self._removed.pop(group, None)
        self._change(group)
        return False

    def adopt(self, member: Member) -> None:
        """Take over a registration that another broker has admitted; it replaces what was here."""
        known = self._members.get(member.consumer_id)
        if known is not None and known.session == member.session:
            known.last_heard = max(known.last_heard, member.last_heard)
            return
        if known is not None and known.group != member.group:
            self.goodbye(member.consumer_id)
        self._members[member.consumer_id] = member
        self._groups.setdefault(member.group, Group()).members[member.consumer_id] = member
        self._removed.pop(member.group, None)
        self._change(member.group)

    def member(self, consumer_id: str) -> Member | None:
        """A consumer as registered."""
        return self._members.get(consumer_id)

    def touch(self, consumer_ids: Sequence[str], now: float) -> None:
        """These consumers have been heard of; unknown ones are passed over."""
        for consumer_id in consumer_ids:
            member = self._members.get(consumer_id)
            if member is not None:
                member.last_heard = max(member.last_heard, now)

    def goodbye(self, consumer_id: str) -> bool:
        """Remove a member at once; its slices go to the others. False if it was none."""
        member = self._members.pop(consumer_id, None)
        if member is None:
            return False
        group = self._groups[member.group]
        del group.members[consumer_id]
        self._change(member.group)
        if not group.members:
            del self._groups[member.group]
            self._forget(member.group)
        return True

    def silent(self, now: float) -> list[str]:
        """Members that have not been heard of for too long."""
        limit = limits.CONSUMER_SILENCE_SECONDS
        return [m.consumer_id for m in self._members.values() if now - m.last_heard >= limit]

    def tick(self, now: float) -> bool:
        """Remove members that have been silent for too long; true if there were any."""
        silent = self.silent(now)
        for consumer_id in silent:
            self.goodbye(consumer_id)
        return bool(silent)

    def deadline(self) -> float | None:
        """When `tick` next has something to do, if nobody is heard of until then."""
        if not self._members:
            return None
        return min(m.last_heard for m in self._members.values()) + limits.CONSUMER_SILENCE_SECONDS

    def view(self, since: int = 0) -> View:
        """What workers need to know, as plain values; only what changed after version `since`.

        {"version", "since" (0: everything, replace what you have), "removed": [group],
        "groups": {group: {consumerId: {"session", "start",
        "assigned": {topic: [token, index, token, index, ...]}}}}}
        """
        if since < self._removed_floor or since > self._version:
            since = 0
        groups = {
            name: self._members_view(name)
            for name, group in self._groups.items()
            if group.changed > since
        }
        removed = [name for name, version in self._removed.items() if since and version > since]
        return {"version": self._version, "since": since, "groups": groups, "removed": removed}

    def assignment(self, group: str) -> dict[str, dict[str, list[tuple[int, int]]]]:
        """{consumerId: {topic: slices}}: round-robin over the slices in token order.

        For each topic, among the sorted ids of those who asked for that topic; a consumer is never
        given a topic that it did not ask for, and ids past the number of slices stay idle.
        """
        members = self._groups[group].members
        assigned: dict[str, dict[str, list[tuple[int, int]]]] = {
            consumer_id: {topic: [] for topic in member.topics}
            for consumer_id, member in members.items()
        }
        for topic in {topic for member in members.values() for topic in member.topics}:
            readers = sorted(c for c, member in members.items() if topic in member.topics)
            for position, place in enumerate(self._slices):
                assigned[readers[position % len(readers)]][topic].append(place)
        return assigned

    def _members_view(self, name: str) -> dict[str, Any]:
        assigned = self.assignment(name)
        # Pairs are flattened because a frame is at most eight containers deep.
        return {
            consumer_id: {
                "session": member.session,
                "start": member.start,
                "assigned": {
                    topic: [number for place in places for number in place]
                    for topic, places in sorted(assigned[consumer_id].items())
                },
            }
            for consumer_id, member in sorted(self._groups[name].members.items())
        }

    def _admit(self, group: str) -> None:
        if len(self._members) >= limits.CONSUMERS_MAX:
            raise TooManyRequestsError(
                f"The broker has {limits.CONSUMERS_MAX} consumers, which is its limit."
            )
        if group not in self._groups:
            if len(self._groups) >= limits.GROUPS_MAX:
                raise TooManyRequestsError(
                    f"The broker has {limits.GROUPS_MAX} groups, which is its limit."
                )
        elif len(self._groups[group].members) >= limits.CONSUMERS_PER_GROUP_MAX:
            raise TooManyRequestsError(
                f"The group has {limits.CONSUMERS_PER_GROUP_MAX} consumers, which is the limit."
            )

    def _check_topics(self, topics: Sequence[str]) -> None:
        if not 1 <= len(topics) <= limits.TOPICS_PER_CONSUMER_MAX:
            raise RequestError(f"A consumer asks for 1 to {limits.TOPICS_PER_CONSUMER_MAX} topics.")
        for topic in topics:
            if not _TOPIC.fullmatch(topic) or topic in (".", "..") or topic.startswith("__"):
                raise RequestError(f"{topic[:128]!r} is not the name of a topic to consume.")

    def _change(self, group: str) -> None:
        self._version += 1
        if group in self._groups:
            self._groups[group].changed = self._version

    def _forget(self, group: str) -> None:
        self._removed[group] = self._version
        while len(self._removed) > REMOVED_MAX:
            oldest = next(iter(self._removed))
            self._removed_floor = max(self._removed_floor, self._removed.pop(oldest))


def _check_id(what: str, value: str, length_max: int) -> None:
    # Printable ASCII only: ids end up in headers, logs and metrics of other people.
    if not 1 <= len(value) <= length_max or not (value.isascii() and value.isprintable()):
        raise RequestError(f"The {what} must have 1 to {length_max} printable ASCII characters.")


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
