"""Who was refused, and who has administered: lines of the log, each with an id that the answer has.

Never a token, nor what is known of it. A flood of refusals must not fill a disk: of each second
some are told, then how many were not.
"""

import logging
import secrets
from collections.abc import Callable

from barco.model.access import User

REFUSALS_PER_SECOND_MAX = 100
SHOWN_CHARACTERS_MAX = 200
HEADER = "Barco-Request-Id"

log = logging.getLogger("barco.audit")


class Audit:
    """Of one process."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """monotonic: seconds, of any beginning."""
        self._now = monotonic
        self._life = secrets.token_hex(6)
        self._requests = 0
        self._second = 0
        self._told = 0
        self._left_out = 0

    def next_id(self) -> str:
        """Of one request: no other process, also none of an earlier life, has it."""
        self._requests += 1
        return f"{self._life}-{self._requests:x}"

    def refused(
        self, request: str, user: User | None, call: tuple[str, str], status: int, why: str
    ) -> None:
        """It had no right to that. user: None where it was not shown who asks."""
        second = int(self._now())
        if second != self._second:
            self._second, self._told = second, 0
        if self._told >= REFUSALS_PER_SECOND_MAX:
            self._left_out += 1
            return
        self._told += 1
        told = _fields(request, user, call, status) | {"why": why}
        if self._left_out:
            told["left_out"] = self._left_out
        self._left_out = 0
        log.warning("refused", extra=told)

    def administered(
        self, request: str, user: User | None, call: tuple[str, str], status: int
    ) -> None:
        """It has changed something that is not events, or has tried to."""
        log.info("administered", extra=_fields(request, user, call, status))


def _fields(
    request: str, user: User | None, call: tuple[str, str], status: int
) -> dict[str, str | int]:
    method, path = call
    return {
        "request": request,
        "user": "" if user is None else user.name,
        "method": method[:SHOWN_CHARACTERS_MAX],
        "path": path[:SHOWN_CHARACTERS_MAX],
        "status": status,
    }
