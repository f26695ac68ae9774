"""What becomes of an event whose handler fails: how often it is tried, when again, and then."""

import logging
from dataclasses import dataclass
from typing import Any, TypedDict

from barco.model.queues import DELIVERIES_MAX

RETRY_S, PAUSE_S_MAX = 0.1, 60.0

_log = logging.getLogger("barco.client")


class HandlingTerms(TypedDict, total=False):
    """See `AsyncConsumer.handle`."""

    max_deliveries: int
    retry_seconds: float
    dead: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """As it was asked for."""

    max_deliveries: int = 0
    """0: it is tried for ever."""
    retry_seconds: float = RETRY_S
    dead: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.max_deliveries <= DELIVERIES_MAX:
            raise ValueError(f"max_deliveries is from 0, for ever, to {DELIVERIES_MAX:,}")
        if not 0 <= self.retry_seconds <= PAUSE_S_MAX:
            raise ValueError(f"retry_seconds is from 0 to {PAUSE_S_MAX:g}")

    def is_over(self, failed: int, error: Exception) -> bool:
        """Whether it is given up after so many tries; the log says so."""
        over = 0 < self.max_deliveries <= failed
        if over:
            _log.warning("an event failed %d times and is given up", failed, exc_info=error)
        else:
            _log.info("an event failed, for the time %d: %r", failed, error)
        return over

    def pause(self, failed: int) -> float:
        """Before it is tried again."""
        return min(self.retry_seconds * float(2 ** min(failed - 1, 32)), PAUSE_S_MAX)

    def verdict(self, failed: int, error: Exception) -> dict[str, Any]:
        """How it is given up."""
        reason = f"{type(error).__name__}: {error}"
        return {"reason": reason, "count": failed, "dead": self.dead}
