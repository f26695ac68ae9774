"""Who writes, for people: writers with what they staged, and what they committed last."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

from barco.workers.writes.marks import Marks
from barco.workers.writes.staged import Write

WRITERS_MAX = 1000
"""Told of at once: those that committed last. Marks that are looked at are not more."""


class StagedHere(Protocol):
    """What is staged in this process (staging.py)."""

    writes: dict[tuple[str, int], Write]
    marks: Marks

    def monotonic(self) -> float: ...


def jobs_of(staging: StagedHere) -> dict[str, Any]:
    """Of a leader: what is staged here, and the last marks, newest first."""
    now = staging.monotonic()
    return {
        "staged": [
            {
                "writer": write.writer,
                "batch": write.batch,
                "prepared": write.plan is not None,
                "rows": sum(sum(write.rows([attempt]).values()) for attempt in write.attempts),
                "bytes": write.bytes,
                "attempts": list(write.attempts)[:WRITERS_MAX],
                "topics": sorted({s[0] for each in write.attempts.values() for s in each}),
                "idle": now - write.touched,
            }
            for write in islice(staging.writes.values(), WRITERS_MAX)
        ],
        "marks": [
            [writer, stream[0], mark.batch, mark.rows, mark.at_us]
            for writer, stream, mark in islice(staging.marks.newest(), WRITERS_MAX)
        ],
    }


def writers_of(told: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What leaders have said, by writer and batch: what is staged, then who committed last."""
    staged: dict[tuple[str, int], dict[str, Any]] = {}
    marks: dict[str, list[Sequence[Any]]] = {}
    for each in told:
        for given in each["staged"]:
            _add(staged, given)
        for mark in each["marks"]:
            marks.setdefault(mark[0], []).append(mark)
    found = [
        write | {"attempts": len(write["attempts"]), "topics": sorted(write["topics"])}
        for write in staged.values()
    ]
    done = [_committed(writer, given) for writer, given in marks.items()]
    done.sort(key=lambda each: each["at"], reverse=True)
    return found + done[:WRITERS_MAX]


def _add(staged: dict[tuple[str, int], dict[str, Any]], given: Mapping[str, Any]) -> None:
    """One leader's share of a write."""
    empty: dict[str, Any] = {
        "writer": given["writer"],
        "batch": str(given["batch"]),
        "state": "staged",
        "rows": 0,
        "bytes": 0,
        "attempts": set(),
        "topics": set(),
        "idleSeconds": given["idle"],
    }
    write = staged.setdefault((given["writer"], given["batch"]), empty)
    write["rows"] += given["rows"]
    write["bytes"] += given["bytes"]
    write["attempts"] |= set(given["attempts"])
    write["topics"] |= set(given["topics"])
    write["idleSeconds"] = min(write["idleSeconds"], given["idle"])
    if given["prepared"]:
        write["state"] = "prepared"


def _committed(writer: str, marks: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The last batch of which slices have something."""
    batch = max(mark[2] for mark in marks)
    last = [mark for mark in marks if mark[2] == batch]
    return {
        "writer": writer,
        "batch": str(batch),
        "state": "committed",
        "rows": sum(mark[3] for mark in last),
        "topics": sorted({mark[1] for mark in last}),
        "at": max(mark[4] for mark in last),
    }
