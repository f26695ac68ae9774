"""Delayed events: how far ahead one may be due, where it waits, and how it is named meanwhile."""

import re
from typing import NamedTuple

from barco import limits
from barco.errors import RequestError

HOUR_US = 3_600_000_000
DELAY_HOURS_MAX = 168
"""A week: what is later belongs into a calendar."""

WAITING_PREFIX = "__delayed."
"""Before a topic's name: the topic in which its events wait; as in native/http/uri.h."""

DELAYED_TOPIC_BYTES_MAX = limits.TOPIC_NAME_BYTES_MAX - len(WAITING_PREFIX)

_ID = re.compile(r"(\d{1,9})\.(\d{1,19})\.(\d{1,19})", re.ASCII)


def delay_us_max(retention_hours: int) -> int:
    """How far ahead an event may be due, where the broker keeps everything for so many hours; 0:
    for ever.

    What waits is kept as everything is. Retention goes by the log's own clock, which may be a
    quarter faster than time (native/log/clock.c), and who delivers it may be late: three quarters.
    """
    hours = DELAY_HOURS_MAX * HOUR_US
    return min(hours, retention_hours * HOUR_US * 3 // 4) if retention_hours else hours


class DelayedId(NamedTuple):
    """What the answer to a delayed event names it."""

    slice: int
    """Its number in the ring."""
    epoch: int
    offset: int
    """Among those that wait."""

    @classmethod
    def parse(cls, text: str) -> "DelayedId":
        """RequestError: it is none."""
        if not (match := _ID.fullmatch(text)):
            raise RequestError("A delayed event's id is slice.epoch.offset, as its answer has it.")
        found = cls(*map(int, match.groups()))
        if max(found) >= 2**63:
            raise RequestError("A delayed event's id is of numbers below 2^63.")
        return found
