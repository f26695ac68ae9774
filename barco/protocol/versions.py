"""Which versions this software speaks with other brokers, and writes: what `/status` tells."""

from collections.abc import Mapping
from typing import Any

from barco.model.options import DIRECTORY_FORMATS, LOG_FORMATS
from barco.protocol.gossip import GOSSIP_OLDEST, GOSSIP_VERSION
from barco.protocol.link import LINK_OLDEST, LINK_VERSION
from barco.protocol.span import Span, newest_common

SPOKEN: Mapping[str, Span] = {
    "link": (LINK_OLDEST, LINK_VERSION),
    "gossip": (GOSSIP_OLDEST, GOSSIP_VERSION),
    "directory": DIRECTORY_FORMATS,
    "log": LOG_FORMATS,
}
"""The oldest and the newest of each: of links between workers, of gossip, of data directories (it
writes the newest), and of the logs in them, which travel as they are."""

BETWEEN = ("link", "gossip", "log")
"""What two brokers of a ring have to have in common."""


def told() -> dict[str, list[int]]:
    """For JSON."""
    return {name: list(span) for name, span in SPOKEN.items()}


def in_common(theirs: Mapping[str, Any], name: str) -> int | None:
    """The newest version of this that they know, too; None: there is none, or they do not say."""
    given = theirs.get(name)
    if not isinstance(given, list) or [type(each) for each in given] != [int, int]:
        return None
    return newest_common(SPOKEN[name], (given[0], given[1]))
