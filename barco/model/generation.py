"""Generations as values: who owns a shard range, from which parents, and what came after.

A generation is one shard range's log under one leader session. Its successor is a write-once
register that its own three members decide: `Successor`.
"""

from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from barco.types import Epoch, Ordinal, Token

GENESIS_EPOCH = Epoch(1)
"""Of every range: empty, known to everybody; its successor records the brokers' identities."""


class Identity(NamedTuple):
    """A broker with this very disk; b"" in genesis, where whoever has the ordinal is meant."""

    ordinal: Ordinal
    disk_uuid: bytes
    """16 bytes, made by `barco format`."""


class Gid(NamedTuple):
    """The name of a generation, unique for ever."""

    token: Token
    """Where its range starts."""
    epoch: Epoch
    """1 + the highest epoch of its parents; far more after an unclean end."""


class Ballot(NamedTuple):
    """One attempt to decide a successor. Never used twice: a session lives as long as a process."""

    round: int
    ordinal: Ordinal
    session: int


class Parent(NamedTuple):
    """A generation that this one continues, and where it ended."""

    gid: Gid
    tail: int
    """T: groups 1 to T are history, nothing after ever existed."""


class GroupHead(NamedTuple):
    """What the machines know of one append group; its bytes travel beside."""

    gseq: int
    prev_crc: int
    """header_crc of the group before; 0 for the first of a generation."""
    header_crc: int
    bytes: int
    """Header, body and padding."""


class Generation(Struct, frozen=True):
    """The record of one generation; immutable."""

    gid: Gid
    end: int
    """The first token after its range; 2^63 at the end of the ring."""
    leader: Identity
    session: int
    """The leader's process that may append; 0 in genesis, which has none."""
    members: tuple[Identity, ...]
    """In the order of succession: the owner of the range, who may take over, who never does."""
    parents: tuple[Parent, ...]

    def __post_init__(self) -> None:
        assert self.gid.token < self.end, "a range is not empty"
        assert self.members and self.leader in self.members

    def has_member(self, identity: Identity) -> bool:
        """Whether this identity may answer for the generation (rule A3)."""
        if identity in self.members:
            return True
        return self.is_genesis and Identity(identity.ordinal, b"") in self.members

    def seat(self, ordinal: int) -> int | None:
        """0 for the owner of the range, 1 for who may take over; None for a stranger."""
        for seat, member in enumerate(self.members):
            if member.ordinal == ordinal:
                return seat
        return None

    @property
    def is_genesis(self) -> bool:
        """Whether it is the empty one that every range starts with."""
        return self.gid.epoch == GENESIS_EPOCH

    @property
    def quorum(self) -> int:
        """How many members decide its successor.

        All of them for genesis: a blank member can not be told from one that has lost its disk, so
        none may be left behind when the identities are recorded.
        """
        return len(self.members) if self.is_genesis else len(self.members) // 2 + 1


def genesis(token: int, end: int, ordinals: tuple[int, ...]) -> Generation:
    """The deterministic first generation of a range; `ordinals` in the order of succession."""
    members = tuple(Identity(Ordinal(ordinal), b"") for ordinal in ordinals)
    return Generation(Gid(Token(token), GENESIS_EPOCH), end, members[0], 0, members, ())


class Kind(StrEnum):
    """What follows a generation."""

    RELEAD = "relead"
    """One child with the same range, or a longer one after a hand-off to it."""
    SPLIT = "split"
    """Two children that share the range; one register, so it is atomic."""
    HANDOFF = "handoff"
    """None: the range goes to the next generation of the left neighbour."""
    UNCLEAN = "unclean"
    """One child; an operator gave up what the lost disks of the members held (D9)."""


class Successor(Struct, frozen=True):
    """The value that is decided for succ(g)."""

    tail: int
    """T of g."""
    kind: Kind
    children: tuple[Generation, ...]

    def __post_init__(self) -> None:
        assert self.tail >= 0
        assert len(self.children) == _CHILDREN[self.kind]


_CHILDREN = {Kind.RELEAD: 1, Kind.SPLIT: 2, Kind.HANDOFF: 0, Kind.UNCLEAN: 1}
