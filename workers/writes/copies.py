"""Copies of staged writes among the processes that hold a shard: what one lacks, another has.

Tasks stage with all of them, but one may have been away, or come back to lead.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from barco.errors import BusyError, NotFoundError, OutcomeUnknownError, PeerError
from barco.workers.writes.marks import Marks, Stream
from barco.workers.writes.staged import CommitPlan, Write

Ask = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
"""An operation of another process that holds the shard."""

_log = logging.getLogger("barco.staging")


class Here(Protocol):
    """What is staged in this process (staging.py)."""

    writes: dict[tuple[str, int], Write]
    marks: Marks
    others: Sequence[Ask]
    before: Sequence[Ask]
    slices: range

    async def stage(
        self,
        writer: str,
        batch: int,
        attempt: str,
        stream: Stream,
        seq: int,
        body: bytes,
        /,
        *,
        brought: bool,
    ) -> int: ...

    async def keep_plan(self, write: Write, plan: CommitPlan, /) -> None: ...


def told(staging: Here, args: Mapping[str, Any]) -> dict[str, Any]:
    """Plans of a write, and how many pieces of each attempt and slice are here."""
    write = staging.writes.get((args["writer"], args["batch"]))
    if write is None:
        return {"plans": [], "pieces": []}
    return {
        "plans": [plan.record() for plan in write.plans.values()],
        "pieces": [
            [attempt, *stream, len(pieces)]
            for attempt, streams in write.attempts.items()
            for stream, pieces in streams.items()
        ],
    }


async def bring(staging: Here, writer: str, batch: int, attempts: Sequence[str]) -> None:
    """Copies here what others have of these attempts, and of plans by which a slice has begun.

    BusyError: somebody did not answer, and what there is may be there.
    """
    silent = ""
    for ask in (*staging.others, *staging.before):
        try:
            await _bring(staging, ask, writer, batch, set(attempts))
        except (BusyError, OutcomeUnknownError, PeerError, NotFoundError) as error:
            silent = str(error)
    if silent:
        _log.warning("the write %s/%d: not all copies are at hand: %s", writer, batch, silent)
        raise BusyError("Something of it is missing here, and not all copies are at hand.")


async def _bring(staging: Here, ask: Ask, writer: str, batch: int, attempts: set[str]) -> None:
    there = await ask("staged", {"writer": writer, "batch": batch})
    open_ = {
        mark.plan
        for mark in staging.marks.of(writer).values()
        if mark.batch == batch and not mark.complete
    }
    plans = [plan for plan in map(CommitPlan.of, there["plans"]) if plan.name in open_]
    wanted = attempts.union(*(plan.attempts for plan in plans))
    for attempt, topic, index, count in there["pieces"]:
        if index not in staging.slices:
            continue  # Whoever gives it has, or had, more of the ring.
        write = staging.writes.get((writer, batch))
        known = write.attempts.get(attempt, {}) if write is not None else {}
        for seq in range(len(known.get((topic, index), ())), count if attempt in wanted else 0):
            name = {"writer": writer, "batch": batch, "attempt": attempt}
            body = await ask("staged_piece", {**name, "topic": topic, "slice": index, "seq": seq})
            # A plan of before may name the attempt: for the slices that were here then.
            await staging.stage(writer, batch, attempt, (topic, index), seq, body, brought=True)
    write = staging.writes.get((writer, batch))
    if write is None:
        return
    for plan in plans:
        both = write.rows(plan.attempts), plan.rows
        here, planned = ({s: n for s, n in rows.items() if s[1] in staging.slices} for rows in both)
        if plan.name not in write.plans and here == planned:
            await staging.keep_plan(write, plan)
