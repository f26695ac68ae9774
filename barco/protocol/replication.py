"""What the members of a shard range say to each other, as values.

`barco.protocol.replication_codec` turns them into maps for a frame and back, and
`barco.protocol.append_frame` the two of a group's usual way into fixed bytes. The raw bytes of a
group travel beside `Append` and `Fetched`, never inside. Who says it (identity and session), the
cluster and the protocol's version are told once, when a connection opens.
"""

from msgspec import Struct

from barco.model.generation import Ballot, Generation, Gid, GroupHead, Identity, Successor
from barco.protocol.append_frame import Append, Appended


class Fenced(Struct, frozen=True):
    """Follower to leader: I have promised this generation to somebody, or know its successor."""

    gid: Gid
    ballot: Ballot | None
    successor: Successor | None


class Gap(Struct, frozen=True):
    """I hold (or have in flight) only what is up to `have`: the group does not follow."""

    gid: Gid
    have: int


class Unknown(Struct, frozen=True):
    """I have no record of this generation: tell me."""

    gid: Gid


class Prepare(Struct, frozen=True):
    """Proposer to acceptors, phase 1. The promise is the fence."""

    gid: Gid
    ballot: Ballot
    session: int = 0
    """Of the generation's record that is meant: two have one name if a disk went back in time. 0:
    any (genesis, or a record that the sender does not know)."""


class Promise(Struct, frozen=True):
    """Acceptor to proposer: nothing is appended by the leader of this generation here any more."""

    gid: Gid
    ballot: Ballot
    tail: int
    """Its last stable group."""
    accepted: tuple[Ballot, Successor] | None
    suspect: bool
    """It has found corruption: this is no promise, only news."""


class Nack(Struct, frozen=True):
    """Acceptor to proposer: `ballot` is too late, `promised` came before."""

    gid: Gid
    ballot: Ballot
    promised: Ballot


class Accept(Struct, frozen=True):
    """Proposer to acceptors, phase 2."""

    gid: Gid
    ballot: Ballot
    value: Successor
    sources: tuple[int, ...]
    """Ordinals of members that hold groups 1 to T."""
    session: int = 0
    """As in `Prepare`."""


class Accepted(Struct, frozen=True):
    """Acceptor to proposer: I hold groups 1 to T and have accepted."""

    gid: Gid
    ballot: Ballot


class Decided(Struct, frozen=True):
    """Anybody to anybody: what follows this generation, for ever."""

    gid: Gid
    value: Successor
    session: int = 0
    """As in `Prepare`."""


class Fetch(Struct, frozen=True):
    """Send me the groups `first` to `last` of this generation."""

    gid: Gid
    first: int
    last: int
    session: int = 0
    """As in `Prepare`."""


class Fetched(Struct, frozen=True):
    """One group, asked for by `Fetch`. Its bytes travel beside."""

    gid: Gid
    head: GroupHead


class Expired(Struct, frozen=True):
    """Retention has removed what was asked for; only of a generation that has ended (rule S8)."""

    gid: Gid
    first: int
    """The oldest group that is left; T + 1 when there is none."""
    prev_crc: int
    """header_crc of the group before; 0 when none is left."""


class View(Struct, frozen=True):
    """One open generation as the sender of a ping sees it."""

    gid: Gid
    tail: int
    """Its last stable group."""
    committed: int
    """gseq up to which it knows the generation committed."""
    fenced: bool
    """The sender has promised it to somebody, or takes no appends for another reason."""
    leading: bool
    """The sender leads it, and its `Lead` is in force."""
    committing: bool
    """It leads, and would commit: a follower is heard of, and nothing waits for long."""
    session: int = 0
    """As in `Prepare`."""


class Ping(Struct, frozen=True):
    """To every member, several times a second and at once when something changes."""

    replaces: bytes
    """disk_uuid of the lost disk that the sender's stands in for (`barco replace`), whose place it
    asks for. b"": nobody's."""
    able: bool
    """False: it will not lead (disk failed, corruption found, about to stop)."""
    doubts: tuple[int, ...]
    """Ordinals that the sender sees as down, or as leading without committing."""
    stamp_us: int
    """The sender's monotonic clock, counted from a number of its process."""
    echo_us: int
    """The receiver's last stamp that the sender has seen; 0: none. Proves a round trip."""
    position: int
    """How far its journal is stable. It never goes back, unless the disk does."""
    views: tuple[View, ...]
    aside: int = 0
    """How often it has set aside what two others had decided without."""


class Unwelcome(Struct, frozen=True):
    """To a freshly formatted broker whose ordinal has a record under another disk: stop."""

    known: Identity
    gid: Gid


class RolledBack(Struct, frozen=True):
    """To a broker whose journal was longer once: its data directory is an old copy."""

    session: int
    """Of its process that is meant."""
    position: int
    """How far its journal was."""


class Shrunk(Struct, frozen=True):
    """To a member whose log was longer once: it told so itself, or acknowledged it. By the leader
    also in answer to a `Gap`: then perhaps nothing is missing."""

    gid: Gid
    gseq: int
    """The last group that it had; 0: none."""


Message = (
    Append
    | Appended
    | Fenced
    | Gap
    | Unknown
    | Prepare
    | Promise
    | Nack
    | Accept
    | Accepted
    | Decided
    | Fetch
    | Fetched
    | Expired
    | Ping
    | Unwelcome
    | RolledBack
    | Shrunk
)

CARRIES_GROUP = (Append, Fetched)
"""Beside these travel the group's bytes."""


def bytes_beside(message: Message) -> int | None:
    """How many travel beside a message; None: it comes alone."""
    if isinstance(message, CARRIES_GROUP):
        return message.head.bytes
    return None


class OpenedRecord(Struct, frozen=True):
    """Journal: this generation exists, and this broker is concerned with it."""

    generation: Generation


class PromisedRecord(Struct, frozen=True):
    """Journal: no ballot below this one is answered for the generation; it is fenced."""

    gid: Gid
    ballot: Ballot


class AcceptedRecord(Struct, frozen=True):
    """Journal: accepted under this ballot (which is promised by it, too)."""

    gid: Gid
    ballot: Ballot
    value: Successor


class DecidedRecord(Struct, frozen=True):
    """Journal: what follows the generation."""

    gid: Gid
    value: Successor


class DoubtRecord(Struct, frozen=True):
    """Journal: records before this one were lost; what was voted in them is not known any more."""

    upto: int
    """Epochs up to this one may be concerned; the highest number: which, is not known yet."""
    beyond: int
    """Added to the number of records, it is the position: a peer has heard of one that far; 0: of
    none."""


class AsideRecord(Struct, frozen=True):
    """Journal: two others have decided what follows a generation, and it was something else here,
    or leaves out what was committed here. What this one held of it and after it is set aside;
    records before this one speak of that. From here on it holds what they hold."""

    gid: Gid
    value: Successor
    tail: int
    """The last group of it here."""


class HeardRecord(Struct, frozen=True):
    """Journal: how far another disk's journal was. Of a disk the last one counts."""

    disk: Identity
    session: int
    """Of its process that said so."""
    position: int


JournalRecord = (
    OpenedRecord
    | PromisedRecord
    | AcceptedRecord
    | DecidedRecord
    | DoubtRecord
    | AsideRecord
    | HeardRecord
)
