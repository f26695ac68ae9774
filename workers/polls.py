"""What a poll asks of one worker, and what comes back."""

from dataclasses import dataclass, field

from barco.workers.membership import Member
from barco.workers.reads import Extent


@dataclass(frozen=True, slots=True)
class PollRequest:
    """One pass of a poll over the slices of this worker."""

    member: Member
    budget: int
    stored: bool
    """The budget counts bytes as stored, not as rendered."""
    delivery: str
    """A name for this answer."""
    received: str | None
    """The last answer that the client says it got; None if it does not say."""
    frame: int = 0
    """What stands around an event, in bytes, when it is rendered."""
    first: bool = True
    """Not a later look for the same poll."""


@dataclass(slots=True)
class PollResult:
    """What one worker has for a consumer."""

    extents: list[Extent] = field(default_factory=list)
    unavailable: list[int] = field(default_factory=list)
    """Slices that could not be read now."""
    superseded: bool = False
    """The consumer polls anew: whoever sent this poll has given it up, noticed or not."""
