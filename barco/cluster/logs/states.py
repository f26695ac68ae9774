"""The states of the machine of a replica's logs (`logs.Logs`): where generations are, and steps."""

from enum import Enum, auto


class At(Enum):
    """Where a generation is (`logs` says what each means)."""

    AWAITED = auto()
    COMING = auto()
    BEGINNING = auto()
    CORE = auto()
    LEFT = auto()
    FILES = auto()
    WHOLE = auto()


class Step(Enum):
    """What the first change waits for; a lead goes through all of them."""

    TURN = auto()  # Nothing: it is to begin.
    REST = auto()  # A lead: that the core's log rests, before its state becomes another one.
    STATE = auto()  # A lead: `MakeState`.
    LEAVE = auto()  # That the core's log rests, before it is left; or the log that is sealed.
    NOTE = auto()  # `Note`, of either.
    BEGIN = auto()
    SEGMENT = auto()  # A lead: `AddSegment`.
