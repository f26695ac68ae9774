"""What a `Replica` asks for; carried out in the order given."""

from msgspec import Struct

from barco.model.generation import Generation, Gid, GroupHead
from barco.protocol.replication import JournalRecord, Message


class Send(Struct, frozen=True):
    """Send to the peer with this ordinal; best effort.

    For an `Append` the group's bytes are found by (gid, gseq): in the arena while it is in flight
    or recent, on disk otherwise.
    """

    ordinal: int
    message: Message


class Persist(Struct, frozen=True):
    """Append these records to the journal, make them stable, then tell `Persisted(serial)`.

    In order: serials grow by one, and a later one is never stable before an earlier.
    """

    serial: int
    records: tuple[JournalRecord, ...]


class AppendForeign(Struct, frozen=True):
    """Append the group that came with the message of this step; then tell `Stable`."""

    gid: Gid
    head: GroupHead


class Serve(Struct, frozen=True):
    """Send `Fetched` for the groups `first` to `last` to a peer, or as many of them as is polite.

    All are stable here. A peer that got too few asks again.
    """

    ordinal: int
    gid: Gid
    first: int
    last: int


class Commit(Struct, frozen=True):
    """Groups up to `gseq` are committed and stable here: visible; a leader's answers may leave."""

    gid: Gid
    gseq: int


class Lead(Struct, frozen=True):
    """Open this generation as its leader: GEN_START is group 1. The parents' groups are here."""

    generation: Generation


class Follow(Struct, frozen=True):
    """This is the range's open generation, led by somebody else (or, not yet, by this broker)."""

    generation: Generation


class Drain(Struct, frozen=True):
    """Submit no more appends to this generation; when none is in flight, tell `Drained`.

    A leader builds no more groups of it; calls that are waiting for one keep waiting.
    """

    gid: Gid


class StopLeading(Struct, frozen=True):
    """Build no more groups of this generation; every pending call ends as "unknown" (rule L5)."""

    gid: Gid
    reason: str


class Seal(Struct, frozen=True):
    """The generation ended with group `tail`. Whatever a log holds after it never existed."""

    gid: Gid
    tail: int


class Skip(Struct, frozen=True):
    """The log of a generation that has ended goes on with group `first`; what is here before it is
    older than what the others keep, and goes."""

    gid: Gid
    first: int
    prev_crc: int
    """header_crc of group `first` - 1."""


class Stop(Struct, frozen=True):
    """This process must not go on: its journal failed, or its disk is not the one it should be."""

    reason: str
    refused: bool = False
    """The others do not let this disk in: to start again would change nothing."""


class Warn(Struct, frozen=True):
    """Tell the operator, at once: what is promised no longer holds by itself."""

    reason: str


Effect = (
    Send
    | Persist
    | AppendForeign
    | Serve
    | Commit
    | Lead
    | Follow
    | Drain
    | StopLeading
    | Seal
    | Skip
    | Stop
    | Warn
)
