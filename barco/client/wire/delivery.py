"""What an answer to a produce means, and when to try again: pure, a table in code.

Promise D4 is the rule behind it: 2xx is durable; 4xx, 507 and a 503 marked
`Barco-Outcome: not-written` were never stored; anything else, a lost connection and a time-out
included, is unknown, and is retried with the same producer id, epoch and sequence.
"""

import json
from dataclasses import dataclass
from enum import Enum, auto
from random import Random

from barco.client.base.errors import (
    NOT_WRITTEN,
    TransportError,
    expected_sequence,
    not_written,
    parse_problem,
    response_error,
)
from barco.client.wire.batching import Batch, BatchAck
from barco.client.wire.http1 import Response
from barco.errors import BarcoError, NoLeaderError

BACKOFF_FIRST_S = 0.02
BACKOFF_MAX_S = 1.0
RETRY_AFTER_MAX_S = 5.0


class Next(Enum):
    """What to do with a batch now."""

    DONE = auto()  # Stored: resolve its events.
    RETRY = auto()  # The same again, after a pause.
    REROUTE = auto()  # The same again, to whoever owns the slice now.
    RESEQUENCE = auto()  # Again, as the first of a new epoch.
    FAIL = auto()  # Give up: trying again cannot help.


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement of one answer."""

    next: Next
    ack: BatchAck | None = None
    error: BarcoError | None = None
    retry_after_s: float | None = None


def judge(batch: Batch, answer: Response | TransportError, context: str) -> Verdict:
    """What the answer to the batch means. Marks the batch if it may be stored."""
    if isinstance(answer, TransportError):
        if answer.outcome != NOT_WRITTEN:
            batch.maybe_written = True
        return Verdict(Next.REROUTE, error=answer)
    if answer.ok:
        return _stored(batch, answer)
    error = response_error(answer.status, answer.headers, answer.body, context)
    if not not_written(answer.status, answer.headers):
        batch.maybe_written = True
        return Verdict(Next.RETRY, error=error)
    if answer.status == 421:
        return Verdict(Next.REROUTE, error=error)
    if isinstance(error, NoLeaderError):
        return Verdict(Next.REROUTE, error=error)
    if answer.status in (408, 429, 503, 507):
        return Verdict(Next.RETRY, error=error, retry_after_s=retry_after(answer))
    if answer.status == 409 and _forgotten(batch, answer):
        return Verdict(Next.RESEQUENCE, error=error)
    return Verdict(Next.FAIL, error=error)


def pause_s(attempts: int, retry_after_s: float | None, chance: Random) -> float:
    """How long to wait before try number `attempts` + 1: doubling, with jitter of a half."""
    assert attempts >= 1
    ceiling = min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2 ** min(attempts - 1, 16))
    pause: float = ceiling * (0.5 + 0.5 * chance.random())
    if retry_after_s is not None:
        pause = max(pause, min(retry_after_s, RETRY_AFTER_MAX_S))
    return pause


def retry_after(answer: Response) -> float | None:
    """The seconds of a Retry-After header; None if there is none (dates are not used)."""
    try:
        seconds = float(answer.headers.get("retry-after", ""))
    except ValueError:
        return None
    return max(0.0, seconds)


def _forgotten(batch: Batch, answer: Response) -> bool:
    """True if the broker expects the first sequence of a producer, so has never seen it or not
    for a long time. Everything before this batch was acknowledged, and this one was never tried
    with another answer, so a new epoch can neither lose nor repeat an event."""
    if batch.maybe_written or batch.sequence == 0:
        return False
    return expected_sequence(parse_problem(answer.body)) == 0


def _stored(batch: Batch, answer: Response) -> Verdict:
    if answer.status == 204:
        return Verdict(Next.DONE, BatchAck(epoch=0, start_offset=None))
    try:
        body = json.loads(answer.body)
        epoch = int(body["version"])
        if "delayed" in body:
            number, _, offset = map(int, body["delayed"].split("."))
            ack = BatchAck(epoch, offset, number)
        else:
            ack = BatchAck(epoch, int(body["startOffset"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        # Durable all the same (it is a 2xx): where it is stored is only not known.
        ack = BatchAck(epoch=0, start_offset=None)
    return Verdict(Next.DONE, ack)
