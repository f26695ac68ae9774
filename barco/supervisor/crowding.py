"""Too many connections: how many a worker may have, and what is said when they are not enough."""

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from barco import limits

log = logging.getLogger("barco.supervisor")


def connections_max(files: int, peers: int) -> int:
    """Connections that one process of the broker may have, if it may have so many files open. Pure.

    files: the limit on open files. peers: the processes of the whole cluster.
    """
    spare = files // limits.FILES_SPARE_SHARE
    left = files - limits.FILES_OF_WORKER - spare - limits.FILES_OF_PEER * peers
    return max(limits.CONNECTIONS_FLOOR, min(limits.CONNECTIONS_MAX, left))


class Crowding:
    """Says once a minute at most that connections were closed or refused."""

    def __init__(self, files: int, most: int) -> None:
        self._files = files
        self._most = most
        self._told = (0, 0)
        self._next = 0.0
        if most < limits.CONNECTIONS_MAX:
            log.warning(
                "the limit on open files (%d) leaves a worker %d connections, not %d: raise"
                " LimitNOFILE, or the hard limit of ulimit -n",
                *(files, most, limits.CONNECTIONS_MAX),
            )

    def look(self, stats: Iterable[Mapping[str, Any]], now: float) -> None:
        """stats: the workers' figures as they are now. now: seconds of any clock."""
        every = list(stats)
        closed, refused = (
            sum(int(one.get(name, 0)) for one in every)
            for name in ("connections_idle_closed", "connections_refused")
        )
        told = self._told
        if (closed, refused) == told or now < self._next:
            return
        self._told = closed, refused
        self._next = now + limits.CROWDING_SECONDS
        log.warning(
            "too many connections: %d idle ones were closed for others, %d new ones refused with"
            " 503 (a worker takes %d, with %d open files): find out who opens them, or raise"
            " LimitNOFILE",
            *(max(0, closed - told[0]), max(0, refused - told[1]), self._most, self._files),
        )
