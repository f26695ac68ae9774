"""What the machine of a replica's logs is told, and what it asks for (`logs.Logs`).

Of the replica's effects it is told `Follow`, `Lead`, `Drain`, `StopLeading`, `Seal` and `Skip`.
"""

from typing import Any, NamedTuple

from barco.cluster.state import effects as fx
from barco.cluster.state import events as ev
from barco.model.generation import Generation, Gid


class CoreState(NamedTuple):
    """How the core's log stands at this moment."""

    gseq: int
    """The last group that was built or taken."""
    header_crc: int
    stable_gseq: int
    stable_crc: int
    settled: bool
    """Nothing that was built or taken has still to become stable."""


# --- Events ---------------------------------------------------------------------------------------


class Arrived(NamedTuple):
    """The next group of this generation, as the replica has found. Of `data` only the length is
    looked at, in bytes."""

    gid: Gid
    data: Any


class Took(NamedTuple):
    """What the core said to `Take`: taken, wait, or why not."""

    gid: Gid
    verdict: str


class Kept(NamedTuple):
    """`Keep` is done; `upto`: the last group that is kept, 0: none."""

    gid: Gid
    upto: int


class Wrote(NamedTuple):
    """`WriteFiles` is done: the log ends, stable, with group `gseq`. `refused`: why the rest was
    not taken; empty: there is none."""

    gid: Gid
    gseq: int
    header_crc: int
    refused: str = ""


class Unwritten(NamedTuple):
    """`WriteFiles` failed: nobody knows what is stable of it."""

    gid: Gid
    reason: str


class Skipped(NamedTuple):
    """`SkipTo` is done."""

    gid: Gid


class Landed(NamedTuple):
    """All groups of the core's generation, which has this epoch, are stable up to `gseq`."""

    gseq: int
    header_crc: int
    epoch: int


class Heard(NamedTuple):
    """What the core had told when `Hear` was asked for has been told here."""


class Done(NamedTuple):
    """`MakeState`, `Note`, `Begin` or `AddSegment` is done. False: there is no segment, because
    the generation has gone by."""

    ok: bool = True


class Look(NamedTuple):
    """The core may rest by now, or have room."""


EventOfLog = Arrived | Took | Kept | Wrote | Unwritten | Skipped
EffectOfReplica = fx.Follow | fx.Lead | fx.Drain | fx.StopLeading | fx.Seal | fx.Skip
LogEvent = EventOfLog | EffectOfReplica | Landed | Heard | Done | Look


# --- Effects --------------------------------------------------------------------------------------


class Take(NamedTuple):
    """Offer the core a group, and tell at once what it `Took`."""

    gid: Gid
    data: Any


class Keep(NamedTuple):
    """Keep these groups, which the core is to have next (`storage.kept`); then tell `Kept`."""

    gid: Gid
    groups: tuple[Any, ...]


class KeptUpTo(NamedTuple):
    """The core need not write the groups up to this one for themselves."""

    gseq: int


class WriteFiles(NamedTuple):
    """Append to a log of files; then tell `Wrote` or `Unwritten`."""

    gid: Gid
    groups: tuple[Any, ...]


class SkipTo(NamedTuple):
    """A log of files begins with group `first` from now on; then tell `Skipped`."""

    gid: Gid
    first: int
    prev_crc: int


class DrainCore(NamedTuple):
    """The core builds and takes nothing more; what is under way goes on."""


class FenceCore(NamedTuple):
    """The core builds, takes and answers nothing more."""


class Show(NamedTuple):
    """The core's groups up to this one are history."""

    gseq: int


class MakeState(NamedTuple):
    """The core's state becomes the one behind the generation's parents; then tell `Done`."""

    generation: Generation


class Note(NamedTuple):
    """Note that a log is whole and ends with group `tail`; then tell `Done`."""

    gid: Gid
    tail: int


class Begin(NamedTuple):
    """The core leaves what it has, and has this generation; then tell `Done`."""

    generation: Generation


class AddSegment(NamedTuple):
    """The core gets the first segment of what it has begun; then tell `Done`."""


class FollowIn(NamedTuple):
    """The core takes groups of a leader from now on."""


class OpenIn(NamedTuple):
    """The core leads from now on: GEN_START may be built."""

    generation: Generation


class Hear(NamedTuple):
    """Tell `Heard`, after all that the core has told so far."""


class AwaitCore(NamedTuple):
    """Tell `Look` when nothing is under way in the core any more."""


class LookAgain(NamedTuple):
    """Tell `Look`, after what is being done just now."""


class Rests(NamedTuple):
    """Tell the replica `Drained`, and where the log ends."""

    gid: Gid


class Tell(NamedTuple):
    """Tell the replica."""

    event: ev.Stable | ev.Refused | ev.IoFailed


LogEffect = (
    Take
    | Keep
    | KeptUpTo
    | WriteFiles
    | SkipTo
    | DrainCore
    | FenceCore
    | Show
    | MakeState
    | Note
    | Begin
    | AddSegment
    | FollowIn
    | OpenIn
    | Hear
    | AwaitCore
    | LookAgain
    | Rests
    | Tell
)
