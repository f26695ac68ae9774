"""What a poll asks of one worker, and what comes back."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from barco import limits
from barco.workers.cursor import Key
from barco.workers.membership import Member
from barco.workers.reads import Extent


@dataclass(frozen=True, slots=True)
class Said:
    """What is known of the answers that a consumer has got, where its request comes in."""

    received: str | None
    """The last answer that the client says it got; None if it does not say."""
    asker: int
    """The worker that the client's request came to, by its number in the cluster."""
    written: str | None
    """The last answer that this worker has written to the consumer, whole; None: it knows none."""


def holds(name: str, delivery: str, worker: int) -> bool:
    """Whether the answer of that name carried what a worker gave for a delivery."""
    carried, _, without = name.partition("!")
    return carried == delivery and str(worker) not in without.split(",")


def name_of(delivery: str, lost: Iterable[int]) -> str:
    """A name for an answer without what these workers gave: nobody knows what that was."""
    without = ",".join(map(str, sorted(lost)))
    return f"{delivery}!{without}" if without else delivery


class Written:
    """The last answer that this worker has written to each consumer, by name."""

    def __init__(self, consumers_max: int = limits.CONSUMERS_MAX) -> None:
        self._consumers_max = consumers_max
        self._names: dict[Key, str] = {}

    def note(self, key: Key, name: str) -> None:
        """An answer is in its connection, whole."""
        self._names.pop(key, None)  # The newest come last.
        self._names[key] = name
        if len(self._names) > self._consumers_max:
            del self._names[next(iter(self._names))]

    def last(self, key: Key) -> str | None:
        """Its name. None is no harm: what nobody can say was received is given again."""
        return self._names.get(key)


@dataclass(frozen=True, slots=True)
class PollRequest:
    """One pass of a poll over the slices of this worker."""

    member: Member
    budget: int
    stored: bool
    """The budget counts bytes as stored, not as rendered."""
    delivery: str
    """A name for this answer."""
    said: Said
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
