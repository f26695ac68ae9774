"""What a `Replica` is told: one of these and `now` go into `Replica.step`."""

from dataclasses import dataclass

from barco.model.generation import Generation, Gid, GroupHead, Identity, Successor
from barco.protocol.replication import Message


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. Due at `Replica.deadline`, harmless at any other time."""


@dataclass(frozen=True, slots=True)
class Received:
    """A message, from a peer whose connection told this identity and session.

    The bytes of an `Append` or `Fetched` wait outside until the step's effects are carried out: an
    `AppendForeign` among them takes them, otherwise they are dropped.
    """

    sender: Identity
    session: int
    message: Message


@dataclass(frozen=True, slots=True)
class LinkLost:
    """The connection to a peer was reset, closed or refused. Not for one that went silent."""

    ordinal: int


@dataclass(frozen=True, slots=True)
class Persisted:
    """The journal records of `Persist(serial)`, and of all before it, are stable."""

    serial: int


@dataclass(frozen=True, slots=True)
class Built:
    """This leader has built its next group and submitted it to its own disk (rule L1)."""

    gid: Gid
    head: GroupHead


@dataclass(frozen=True, slots=True)
class Stable:
    """The local log of a generation is stable up to `gseq`; own and foreign appends alike."""

    gid: Gid
    gseq: int
    header_crc: int
    """Of group `gseq`."""


@dataclass(frozen=True, slots=True)
class Followed:
    """What was done of a `steady` generation since the last step: its leader's groups up to `gseq`
    were taken, those up to `tail` are stable and acknowledged, and it said what is committed.
    0: nothing new of that."""

    gid: Gid
    gseq: int
    header_crc: int
    """Of group `gseq`."""
    tail: int
    tail_crc: int
    committed: int


@dataclass(frozen=True, slots=True)
class Drained:
    """Answer to `Drain`: nothing is in flight, and `gseq` (0: none) is the last stable group.

    Every `Built` and `Stable` of the groups that were in flight came before.
    """

    gid: Gid
    gseq: int
    header_crc: int


@dataclass(frozen=True, slots=True)
class IoFailed:
    """An append to this generation failed (rules L4 and S7); None: the journal failed."""

    gid: Gid | None
    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The log did not take a group of `AppendForeign`: it is damaged, or no sequel to what is here.

    `gseq` (0: none) is the last group that was taken; whatever came after it is forgotten.
    """

    gid: Gid
    gseq: int
    header_crc: int
    reason: str


@dataclass(frozen=True, slots=True)
class Corrupted:
    """A scrub or a read found corruption in groups that were stable (rule A4).

    `gseq` is the last group before it: the local log is only that long, and will be repaired.
    """

    gid: Gid
    gseq: int
    header_crc: int


@dataclass(frozen=True, slots=True)
class Resign:
    """This process is about to stop: let the next in line act at once."""


@dataclass(frozen=True, slots=True)
class Elect:
    """Propose to lead the range's open generation now, whatever the failure view says."""

    gid: Gid


@dataclass(frozen=True, slots=True)
class Split:
    """Split the generation that this replica leads.

    children: as they shall be but for epoch and parents, which are filled in at the decision. The
    first keeps the token; their leaders and members may be others than the parent's.
    """

    gid: Gid
    children: tuple[Generation, Generation]


@dataclass(frozen=True, slots=True)
class Move:
    """Give the generation that this replica leads another leader, other members, or both.

    child: as it shall be but for epoch and parents, over the same range. What was handed to this
    range is taken in by the same decision.
    """

    gid: Gid
    child: Generation


@dataclass(frozen=True, slots=True)
class HandOver:
    """Hand the range that this replica leads to its left neighbour (HANDOFF): it has no open
    generation from then on, until that one's leader is `Taught` so and takes it in."""

    gid: Gid


@dataclass(frozen=True, slots=True)
class Absorb:
    """Take over the range behind the one that this replica leads; its generation is `donor`.

    Only where one replica has both ranges (`Settings.token` is None): else who leads the donor is
    asked to `HandOver`.
    """

    gid: Gid
    donor: Generation


@dataclass(frozen=True, slots=True)
class Taught:
    """Members of a generation of another range say what was decided there (rule P8).

    For who is to hold one of its children, and for who is to take in what was handed over. Without
    the word of two of the parent's members (of one, if it has no more) nothing is done; the same
    word may come again.
    """

    parent: Generation
    value: Successor
    by: frozenset[int]
    """Ordinals of those who say the same, each from its own journal."""


Event = (
    Tick
    | Received
    | LinkLost
    | Persisted
    | Built
    | Stable
    | Followed
    | Drained
    | IoFailed
    | Refused
    | Corrupted
    | Resign
    | Elect
    | Split
    | Move
    | HandOver
    | Absorb
    | Taught
)
