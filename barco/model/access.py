"""Who may do what: users, what each was granted, and the decision. Values, nothing else.

A user is known by the SHA-256 of a token; tokens themselves are nowhere. docs/access.md says why.
"""

import hashlib
import hmac
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from msgspec import Struct

from barco import limits
from barco.errors import ConflictError, RequestError, TooManyRequestsError

PRODUCE, CONSUME, ADMIN, METRICS, CLUSTER, USERS = VERBS = (
    *("produce", "consume", "admin"),
    *("metrics", "cluster", "users"),
)
ON_TOPICS = frozenset((PRODUCE, CONSUME, ADMIN))
ON_GROUPS = frozenset((CONSUME, ADMIN))

EVERY = "*"
"""As a pattern: all names. As a name that is asked for: all of them, which only that pattern is."""

TOKEN_PREFIX = "barco_"
"""So that who finds one in a file knows what it is."""

HASH_BYTES = 32
TOKEN_BYTES_MAX = 128
"""Longer ones are nobody's, unhashed."""

OWNED_BY = ":"
"""Between a user's name and what is the user's own: no name of a user has it."""

USER_NAME_MAX = 32
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{USER_NAME_MAX}}}", re.ASCII)
_TOPICS = re.compile(r"[a-zA-Z0-9_.-]{0,127}\*|[a-zA-Z0-9_.-]{1,127}", re.ASCII)
_GROUPS = re.compile(r"[!-)+-9;-~]{0,128}\*|[!-)+-9;-~]{1,128}", re.ASCII)
"""Printable, no blank, neither * nor : within."""


def is_user_name(text: str) -> bool:
    """Whether a user can be called so."""
    return _NAME.fullmatch(text) is not None


def hash_of(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode("latin-1", "replace")).digest()


def matches(pattern: str, name: str) -> bool:
    """Whether a name is that pattern, or begins with what is before its `*`."""
    return name.startswith(pattern[:-1]) if pattern.endswith(EVERY) else name == pattern


class Grant(Struct, frozen=True):
    """One thing that a user may do."""

    verb: str
    topics: str = ""
    groups: str = ""
    """Patterns; empty where the verb has no such objects."""

    @classmethod
    def parse(cls, text: str) -> "Grant":
        """VERB, VERB:TOPICS or VERB:TOPICS:GROUPS; RequestError says what is wrong."""
        verb, *patterns = text.split(OWNED_BY)
        if verb not in VERBS:
            raise RequestError(f"A grant begins with one of {', '.join(VERBS)}: {text[:64]!a}.")
        most = (verb in ON_TOPICS) + (verb in ON_GROUPS)
        if len(patterns) > most or (verb in ON_TOPICS and not patterns):
            shape = OWNED_BY.join((verb.upper(), *("TOPICS", "GROUPS")[:most]))
            raise RequestError(f"A grant of {verb} is {shape}: {text[:64]!a} is not.")
        topics, groups = [*patterns, "", ""][:2]
        if most == 2 and len(patterns) < 2:
            groups = EVERY
        if most and not _TOPICS.fullmatch(topics):
            raise RequestError(f"{topics[:64]!a} is no topic, nor the beginning of one and a *.")
        if most == 2 and not _GROUPS.fullmatch(groups):
            raise RequestError(f"{groups[:64]!a} is no group, nor the beginning of one and a *.")
        return cls(verb, topics, groups)

    def __str__(self) -> str:
        return OWNED_BY.join(each for each in (self.verb, self.topics, self.groups) if each)

    def allows(self, verb: str, topic: str | None, group: str | None) -> bool:
        """None: no such object is touched."""
        if verb != self.verb or (topic is not None and not matches(self.topics, topic)):
            return False
        return group is None or matches(self.groups, group)


QUOTAS = {
    "requestsPerSecond": "requests",
    "bytesPerSecond": "bytes",
    "connections": "connections",
    "topics": "topics",
    "groups": "groups",
    "stagedBytes": "staged",
}
"""Names in documents, and the fields of `Quota`, in its order."""

FIRST_QUOTAS = 2
"""So many of them every broker knows, also those of an earlier version."""


class Quota(Struct, frozen=True):
    """How much of everything a user may have; 0: without end."""

    requests: int = 0
    """A second, of each worker."""
    bytes: int = 0
    """Of bodies a second, those that come and those that are answered, of each worker."""
    connections: int = 0
    """At each worker."""
    topics: int = 0
    """That this user has made, in the whole cluster; a produce makes none then."""
    groups: int = 0
    """That this user has begun, in the whole cluster, and that have positions."""
    staged: int = 0
    """Bytes of writes that are not committed, of each process that holds a shard."""

    def described(self) -> dict[str, int]:
        """For documents."""
        return {name: getattr(self, field) for name, field in QUOTAS.items()}

    @classmethod
    def checked(cls, *values: Any) -> "Quota":
        """RequestError for what none is. In the order of QUOTAS, the last ones may be left out."""
        for name, value in zip(QUOTAS, values, strict=False):
            if type(value) is not int or not 0 <= value <= limits.QUOTA_MAX:
                raise RequestError(f"{name} is a whole number from 0 to {limits.QUOTA_MAX}.")
        return cls(*values)

    def to_plain(self) -> list[int]:
        """For the log; only what is used, so that brokers of an earlier version understand it."""
        values = [getattr(self, field) for field in QUOTAS.values()]
        while len(values) > FIRST_QUOTAS and not values[-1]:
            values.pop()
        return values


class User(Struct, frozen=True):
    """Who may ask, for what, and for how much of it."""

    name: str
    hashes: tuple[bytes, ...] = ()
    """Of the tokens that are this user's: one, or two while one takes the other's place."""
    grants: tuple[Grant, ...] = ()
    quota: Quota = Quota()

    @property
    def is_everybody(self) -> bool:
        """Whether nobody had to show who asks."""
        return not self.name

    def may(self, verb: str, topic: str | None = None, group: str | None = None) -> bool:
        """Whether it was granted; what was not is refused."""
        assert verb in VERBS, verb
        assert topic is None or verb in ON_TOPICS
        assert group is None or verb in ON_GROUPS
        return any(grant.allows(verb, topic, group) for grant in self.grants)

    def own(self, name: str) -> str:
        """How a name that this user chose (of a consumer, a writer) is spelt inside: nobody else
        can mean the same."""
        return f"{self.name}{OWNED_BY}{name}" if self.name else name

    def described(self) -> dict[str, Any]:
        """For documents: nothing that shows who it is."""
        return {
            "name": self.name,
            "tokens": len(self.hashes),
            "grants": list(map(str, self.grants)),
            **self.quota.described(),
        }

    def to_plain(self) -> list[Any]:
        """For the log, and for other processes of the cluster."""
        grants = list(map(str, self.grants))
        return [self.name, list(self.hashes), grants, self.quota.to_plain()]

    @classmethod
    def checked(cls, name: Any, hashes: Any, grants: Any, quota: Any = (0, 0)) -> "User":
        """RequestError for what no user is."""
        if not isinstance(name, str) or not is_user_name(name):
            raise RequestError("A user's name has 1 to 32 of the characters a-z, A-Z, 0-9, _, -.")
        if not isinstance(hashes, list) or not 1 <= len(hashes) <= 2:
            raise RequestError("A user has one token, or two while one is replaced.")
        if not all(isinstance(each, bytes) and len(each) == HASH_BYTES for each in hashes):
            raise RequestError("What is known of a token is its SHA-256.")
        if not isinstance(grants, list) or len(grants) > limits.GRANTS_MAX:
            raise RequestError(f"grants is a list of at most {limits.GRANTS_MAX} texts.")
        if not all(isinstance(each, str) for each in grants):
            raise RequestError("A grant is a text.")
        if not isinstance(quota, (list, tuple)) or not FIRST_QUOTAS <= len(quota) <= len(QUOTAS):
            raise RequestError(f"A quota is {FIRST_QUOTAS} to {len(QUOTAS)} numbers.")
        parsed = dict.fromkeys(Grant.parse(each) for each in grants)
        return cls(name, tuple(dict.fromkeys(hashes)), tuple(parsed), Quota.checked(*quota))


ALL = tuple(
    Grant(verb, EVERY if verb in ON_TOPICS else "", EVERY if verb in ON_GROUPS else "")
    for verb in VERBS
)
"""Of whoever is the first."""

EVERYBODY = User("", (), ALL)
"""Who asks where `access.required` is off."""


@dataclass(frozen=True)
class AccessTable:
    """All users, as one event of `__access` has them."""

    version: int = 0
    """Of changes; 0: nobody has changed anything yet."""
    users: Mapping[str, User] = field(default_factory=dict)

    @cached_property
    def _by_hash(self) -> dict[bytes, User]:
        return {each: user for user in self.users.values() for each in user.hashes}

    @cached_property
    def digest(self) -> bytes:
        """Tells this table from every other one."""
        return hashlib.sha256(repr(self.to_plain()).encode()).digest()

    def find(self, token: str, name: str | None = None) -> User | None:
        """Whose token that is, and whose it was said to be; None: nobody's, or not so."""
        given = hash_of(token)
        user = self._by_hash.get(given)
        if user is None or not any(hmac.compare_digest(given, each) for each in user.hashes):
            return None
        return user if name is None or name == user.name else None

    def with_user(self, user: User) -> "AccessTable":
        """With this one, or this one changed; a refusal is a RequestError."""
        taken = {each for each in user.hashes if self._by_hash.get(each, user).name != user.name}
        if taken:
            raise ConflictError("Another user has this token.")
        if user.name not in self.users and len(self.users) >= limits.USERS_MAX:
            raise TooManyRequestsError(f"There are {limits.USERS_MAX} users, which is the limit.")
        return self._next({**self.users, user.name: user})

    def without(self, name: str) -> "AccessTable":
        """Without this user, who is there."""
        return self._next({each: user for each, user in self.users.items() if each != name})

    def _next(self, users: Mapping[str, User]) -> "AccessTable":
        if not any(user.may(USERS) for user in users.values()):
            raise ConflictError("Nobody could say any more who may do what: one user keeps that.")
        return replace(self, version=self.version + 1, users=users)

    def for_core(self) -> bytes:
        """Of each token what the C core needs to answer produces (`native/admission/access.h`)."""
        entries = []
        numbers = {name: number for number, name in enumerate(self.users)}
        for digest, user in sorted(self._by_hash.items()):
            topics = [each.topics.encode() for each in user.grants if each.verb == PRODUCE]
            quota, number = user.quota, numbers[user.name]
            connections = min(quota.connections, 2**32 - 1)
            rates = (number, quota.requests, quota.bytes, connections)
            fixed = struct.pack("<HQQIBH", *rates, quota.topics > 0, len(topics))
            entries += [digest, hash_of(user.name), fixed]
            entries += [bytes((len(each),)) + each for each in topics]
        return b"".join(entries)

    def to_plain(self) -> dict[str, Any]:
        """For the log, and for other processes of the cluster."""
        return {"version": self.version, "users": [u.to_plain() for u in self.users.values()]}

    @classmethod
    def from_plain(cls, given: Any) -> "AccessTable":
        """The opposite; ValueError: no broker has written it."""
        try:
            version, listed = given["version"], given["users"]
            if type(version) is not int or not 0 <= version < 2**63 or type(listed) is not list:
                raise ValueError("a table of users has a version and a list")
            if len(listed) > limits.USERS_MAX:
                raise ValueError("a table has too many users")
            users = [User.checked(*each) for each in listed]
        except (TypeError, LookupError, RequestError) as error:
            raise ValueError(f"a table of users: {str(error)[:100]}") from None
        return cls.of(users, version)

    @classmethod
    def of(cls, users: Iterable[User], version: int = 0) -> "AccessTable":
        """ValueError: two have a name, or a token."""
        listed = list(users)
        by_name = {user.name: user for user in listed}
        table = cls(version, by_name)
        hashes = sum(len(user.hashes) for user in listed)
        if len(by_name) != len(listed) or len(table._by_hash) != hashes:
            raise ValueError("two users of a table have a name or a token")
        return table
