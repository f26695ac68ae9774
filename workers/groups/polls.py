"""What a poll asks of one worker, and what comes back."""

import re
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from msgspec import Struct, field

from barco import limits
from barco.workers.groups.cursor import Key
from barco.workers.groups.views import Member
from barco.workers.shard.reads import Extent, Slot


class Said(Struct, frozen=True):
    """What is known of the answers that a consumer has got, where its request comes in."""

    received: str | None
    """The last answer that the client says it got; None if it does not say."""
    asker: int
    """The worker that the client's request came to, by its number in the cluster."""
    written: str | None
    """The last answer that this worker has written to the consumer, whole; None: it knows none."""


# The name of an answer is that of its delivery, and behind "!" the workers of which it has nothing
# ("7") and, of those which have not heard that an earlier one arrived, which one did
# ("7,7=2-9f31c0de-4"). So who has this answer still says, to whoever did not hear it the last time,
# what it had before. The first word is for brokers that know only that one.

_DELIVERY = re.compile("[0-9a-f]{1,16}-[0-9a-f]{8}-[0-9a-f]{1,16}")
"""As `Context.next_delivery` makes them: of a name that comes from outside nothing else is told."""

REMEMBERED_MAX = 32
"""Workers of which a name says what was received before; of more than these it comes again."""


def carried(name: str, worker: int) -> str:
    """The last delivery of which it is known, from the name of the answer that arrived last, that
    what this worker gave for it arrived; empty: of none."""
    delivery, _, without = name.partition("!")
    for each in without.split(","):
        number, _, before = each.partition("=")
        if number == str(worker):
            delivery = ""
            if before:
                return before
    return delivery


def last_of(said: Sequence[Any]) -> str:
    """The name of the last answer that a consumer has, of `Said` as it travels; empty: nobody knows
    of one."""
    received, _, written = said
    return str(written or "") if received is None else str(received)


def holds(name: str, delivery: str, worker: int) -> bool:
    """Whether who has the answer of that name has what a worker gave for a delivery."""
    return carried(name, worker) == delivery


def remembered(name: str) -> set[int]:
    """Workers that had not heard what arrived before the answer of that name."""
    found = (each.partition("=") for each in name.partition("!")[2].split(","))
    numbers = {int(number) for number, _, before in found if before and number.isdecimal()}
    return numbers if len(numbers) <= REMEMBERED_MAX else set()


def name_of(
    delivery: str, lost: Collection[int], unheard: Iterable[int] = (), last: str = ""
) -> str:
    """A name for an answer.

    lost: workers that may have given something which is not in it; nobody knows what that was.
    unheard: those that do not know by now that the consumer has its last answer; last: its name.
    """
    parts, room = [], REMEMBERED_MAX
    for worker in sorted({*lost, *unheard}):
        before = carried(last, worker)
        if room and _DELIVERY.fullmatch(before):
            parts.append(f"{worker},{worker}={before}")
            room -= 1
        elif worker in lost:
            parts.append(str(worker))
    return f"{delivery}!{','.join(parts)}" if parts else delivery


class WrittenAnswer(Struct, frozen=True):
    """One that was written."""

    name: str
    ends: list[tuple[str, int, int]]
    """By topic and number of the slice, where what it carried ends."""
    at: float
    """When, by the monotonic clock that all processes of the machine share."""


class Written:
    """The last answer that this worker has written to each consumer."""

    def __init__(self, consumers_max: int = limits.CONSUMERS_MAX) -> None:
        self._consumers_max = consumers_max
        self._answers: dict[Key, WrittenAnswer] = {}

    def note(self, key: Key, name: str, ends: list[tuple[str, int, int]]) -> None:
        """An answer is in its connection, whole."""
        self._answers.pop(key, None)  # The newest come last.
        self._answers[key] = WrittenAnswer(name, ends, time.monotonic())
        if len(self._answers) > self._consumers_max:
            del self._answers[next(iter(self._answers))]

    def answer(self, key: Key) -> WrittenAnswer | None:
        """None is no harm: what nobody can say was received is given again."""
        return self._answers.get(key)

    def last(self, key: Key) -> str | None:
        """Its name."""
        answer = self._answers.get(key)
        return None if answer is None else answer.name


class PollRequest(Struct, frozen=True):
    """One pass of a poll over the slices of this worker."""

    member: Member
    budget: int
    """0: nothing is to be handed out; it only acknowledges."""
    stored: bool
    """The budget counts bytes as stored, not as rendered."""
    delivery: str
    """A name for this answer."""
    said: Said
    frame: int = 0
    """What stands around an event, in bytes, when it is rendered."""
    first: bool = True
    """Not a later look for the same poll."""
    far: bool = False
    """It came to another broker, which has sent it on."""
    placement: str | None = None
    """Of what the consumer knows that it is to read. It wants to know before it loses any of it;
    None: it does not ask for that."""

    paused: frozenset[Slot] = frozenset()
    """The consumer keeps these, and wants nothing of them now."""

    @property
    def knows(self) -> bool:
        """Whether it may be parted from what it is not to read any more."""
        return self.member.knows(self.placement)


class PollResult(Struct):
    """What one worker has for a consumer."""

    extents: list[Extent] = field(default_factory=list)
    unavailable: list[int] = field(default_factory=list)
    """Slices that could not be read now."""
    direct: bool = False
    """Nothing was looked at: the consumer asks that broker itself."""
    superseded: bool = False
    """The consumer polls anew: whoever sent this poll has given it up, noticed or not."""
