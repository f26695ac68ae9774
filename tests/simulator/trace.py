"""A run as text: short, one line an event, without what only says "still here"."""

from typing import Any

from barco.cluster.state.events import Built, LinkLost, Received, Stable, Tick
from barco.model.generation import Ballot, Generation, Gid, GroupHead, Identity, Successor
from barco.protocol.append_frame import Append, Appended
from barco.protocol.replication import Fetch, Fetched, Gap, Ping, View


def brief(value: Any) -> str:
    """A value in few characters."""
    match value:
        case Gid():
            return f"{value.token}/{value.epoch}"
        case Identity():
            return f"{value.ordinal}" + (f"'{value.disk_uuid[-1]}" if value.disk_uuid else "")
        case Ballot():
            return f"b{value.round}.{value.ordinal}.{value.session % 1000}"
        case GroupHead():
            return f"#{value.gseq}"
        case Successor():
            return f"T{value.tail} {value.kind} " + " ".join(map(brief, value.children))
        case Generation():
            members = ",".join(map(brief, value.members))
            leader = f"{brief(value.leader)}.{value.session % 1000}"
            return f"{brief(value.gid)}..{value.end} by {leader} of {members}"
        case View():
            flags = "fenced " * value.fenced + "leads " * value.leading + "ok" * value.committing
            return f"{brief(value.gid)} {value.tail}/{value.committed} {flags}"
        case tuple():
            return "(" + " ".join(map(brief, value)) + ")"
        case _ if hasattr(value, "__dataclass_fields__"):
            names = [name for name in value.__dataclass_fields__ if not name.endswith("_us")]
            return " ".join([type(value).__name__, *(brief(getattr(value, n)) for n in names)])
        case int() if value > 10**9:
            return f"..{value % 1000}"
        case _:
            return str(value)


def line(time: float, ordinal: int, event: Any) -> str:
    """One event at one broker."""
    if isinstance(event, Received):
        sender = f"{brief(event.sender)}.{event.session % 1000}"
        return f"{time:9.4f}  {ordinal} <- {sender:8} {brief(event.message)}"
    return f"{time:9.4f}  {ordinal}    {'':8} {brief(event)}"


NOISE = (Tick, Ping)
BULK = (LinkLost, Fetched, Fetch, Append, Appended, Gap, Built, Stable)
BULK_LAST = 12
"""Groups are shown only at the very end."""


def lines(trace: Any, *, last: int = 60, everything: bool = False) -> list[str]:
    """The last events that matter."""
    kept: list[str] = []
    for time, ordinal, event in reversed(trace):
        what = getattr(event, "message", event)
        noise = isinstance(what, NOISE) or (isinstance(what, BULK) and len(kept) >= BULK_LAST)
        if everything or not noise:
            kept.append(line(time, ordinal, event))
            if len(kept) == last:
                break
    return kept[::-1]
