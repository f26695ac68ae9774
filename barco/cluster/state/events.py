"""What a `Replica` is told: one of these and `now` go into `Replica.step`."""

from msgspec import Struct

from barco.model.generation import Generation, Gid, GroupHead, Identity, Successor
from barco.protocol.replication import Message


class Tick(Struct, frozen=True):
    """Time has passed. Due at `Replica.deadline`, harmless at any other time."""


class Received(Struct, frozen=True):
    """A message, from a peer whose connection told this identity and session.

    The bytes of an `Append` or `Fetched` wait outside until the step's effects are carried out: an
    `AppendForeign` among them takes them, otherwise they are dropped.
    """

    sender: Identity
    session: int
    message: Message


class LinkLost(Struct, frozen=True):
    """The connection to a peer was reset, closed or refused. Not for one that went silent."""

    ordinal: int


class Persisted(Struct, frozen=True):
    """The journal records of `Persist(serial)`, and of all before it, are stable."""

    serial: int


class Built(Struct, frozen=True):
    """This leader has built its next group and submitted it to its own disk (rule L1)."""

    gid: Gid
    head: GroupHead


class Stable(Struct, frozen=True):
    """The local log of a generation is stable up to `gseq`; own and foreign appends alike."""

    gid: Gid
    gseq: int
    header_crc: int
    """Of group `gseq`."""


class Followed(Struct, frozen=True):
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


class Drained(Struct, frozen=True):
    """Answer to `Drain`: nothing is in flight, and `gseq` (0: none) is the last stable group.

    Every `Built` and `Stable` of the groups that were in flight came before.
    """

    gid: Gid
    gseq: int
    header_crc: int


class IoFailed(Struct, frozen=True):
    """An append to this generation failed (rules L4 and S7); None: the journal failed."""

    gid: Gid | None
    reason: str


class Refused(Struct, frozen=True):
    """The log did not take a group of `AppendForeign`: it is damaged, or no sequel to what is here.

    `gseq` (0: none) is the last group that was taken; whatever came after it is forgotten.
    """

    gid: Gid
    gseq: int
    header_crc: int
    reason: str


class Corrupted(Struct, frozen=True):
    """A scrub or a read found corruption in groups that were stable (rule A4).

    `gseq` is the last group before it: the local log is only that long, and will be repaired.
    """

    gid: Gid
    gseq: int
    header_crc: int


class Resign(Struct, frozen=True):
    """This process is about to stop: let the next in line act at once."""


class Elect(Struct, frozen=True):
    """Propose to lead the range's open generation now, whatever the failure view says."""

    gid: Gid


class Split(Struct, frozen=True):
    """Split the generation that this replica leads.

    children: as they shall be but for epoch and parents, which are filled in at the decision. The
    first keeps the token; their leaders and members may be others than the parent's.
    """

    gid: Gid
    children: tuple[Generation, Generation]


class Move(Struct, frozen=True):
    """Give the generation that this replica leads another leader, other members, or both.

    child: as it shall be but for epoch and parents, over the same range. What was handed to this
    range is taken in by the same decision.
    """

    gid: Gid
    child: Generation


class HandOver(Struct, frozen=True):
    """Hand the range that this replica leads to its left neighbour (HANDOFF): it has no open
    generation from then on, until that one's leader is `Taught` so and takes it in."""

    gid: Gid


class Absorb(Struct, frozen=True):
    """Take over the range behind the one that this replica leads; its generation is `donor`.

    Only where one replica has both ranges (`Settings.token` is None): else who leads the donor is
    asked to `HandOver`.
    """

    gid: Gid
    donor: Generation


class Taught(Struct, frozen=True):
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
