"""What metrics tell of topics and groups by name, where somebody asks for that: of the ranges that
this broker leads, so that each slice is told once in a cluster."""

import asyncio
import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from barco.errors import BarcoError, RequestError
from barco.model.access import matches
from barco.workers.groups.offsets import LAGS_MAX
from barco.workers.http.base.context import Context
from barco.workers.http.base.messages import Request
from barco.workers.process.exposition import Family, Sample

_TIMEOUT_S = 1.0

SERIES_MAX, GROUPS_MAX, PATTERNS_MAX = 10_000, 100, 64
"""In one answer: a Prometheus takes so many each time without harm. A group is a question to each
process that leads here."""

TOPIC_EVENTS, TOPIC_KEPT = "topic_events", "topic_events_kept"
GROUP_LAG, GROUPS_LEFT_OUT = "group_lag_events", "groups_left_out"
SERIES_LEFT_OUT = "series_left_out"

HELP = {
    TOPIC_EVENTS: "Events of a topic that were ever stored, in the slices that are led here.",
    TOPIC_KEPT: "Those of them that are still there.",
    GROUP_LAG: "Events that a consumer group has still to commit, in the slices that are led here.",
    GROUPS_LEFT_OUT: "Groups that were asked for and are too many.",
    SERIES_LEFT_OUT: "Series that were asked for and are too many.",
}

_Series = dict[str, dict[tuple[tuple[str, str], ...], int]]
"""By name, and by labels."""


async def named(context: Context, request: Request) -> list[Family]:
    """The families for `topics`, `groups` and `slices` of the query; of groups that nobody names
    the positions that are furthest behind."""
    topics, groups = patterns(request, "topics"), patterns(request, "groups")
    by_slice = request.flag("slices", default=False)
    if not groups:
        furthest = [await _furthest_behind(context)]
        return furthest if not topics else [*await _named(context, topics, (), by_slice), *furthest]
    return await _named(context, topics, groups, by_slice)


async def _furthest_behind(context: Context) -> Family:
    asked = await _ask(context, "lags", {"most": LAGS_MAX})
    lags = heapq.nlargest(LAGS_MAX, itertools.chain(*asked))
    samples = [
        Sample(lag, {"group": group, "topic": topic, "slice": str(at)})
        for lag, group, topic, at in lags
    ]
    return Family(GROUP_LAG, "gauge", HELP[GROUP_LAG], samples)


async def _named(
    context: Context, topics: Sequence[str], groups: Sequence[str], by_slice: bool
) -> list[Family]:
    found: _Series = {}
    left_out = 0
    if topics:
        for answer in await _ask(context, "topics", {"topic": None}):
            _add_topics(found, topics, answer, by_slice=by_slice)
    if groups:
        names = sorted({name for each in await _ask(context, "groups", {}) for name in each})
        wanted = [name for name in names if _any_of(groups, name)]
        left_out = max(0, len(wanted) - GROUPS_MAX)
        for name in wanted[:GROUPS_MAX]:
            for answer in await _ask(context, "positions", {"group": name}):
                _add_group(found, name, answer, by_slice=by_slice)
    too_many = Family(GROUPS_LEFT_OUT, "gauge", HELP[GROUPS_LEFT_OUT], [Sample(left_out)])
    return [*_families(found), too_many]


def patterns(request: Request, name: str) -> list[str]:
    """A parameter's names, and beginnings of names before a `*`."""
    given = [each for each in (request.value(name) or "").split(",") if each]
    if len(given) > PATTERNS_MAX:
        raise RequestError(f"The parameter {name} has {PATTERNS_MAX} patterns at most.")
    return given


def _any_of(wanted: Iterable[str], name: str) -> bool:
    return any(matches(pattern, name) for pattern in wanted)


async def _ask(context: Context, op: str, args: Mapping[str, Any]) -> list[Any]:
    """Answers of the processes that lead here; who does not answer is told of by workers_up."""
    asked = context.leading_here(args)
    if not asked:
        return []
    answers = await context.siblings.broadcast(op, asked, _TIMEOUT_S)
    await asyncio.sleep(0)  # Many groups are asked for: others have their turn.
    return [each for each in answers.values() if not isinstance(each, BarcoError)]


def _add_topics(
    found: _Series, wanted: Sequence[str], answer: Mapping[str, Any], *, by_slice: bool
) -> None:
    for topic, entry in answer.items():
        if not entry["exists"] or not _any_of(wanted, topic):
            continue
        for number, start, end, _ in entry["streams"]:
            labels = _labels(by_slice, number, topic=topic)
            _count(found, TOPIC_EVENTS, labels, end)
            _count(found, TOPIC_KEPT, labels, end - start)


def _add_group(
    found: _Series, group: str, answer: Iterable[Mapping[str, Any]], *, by_slice: bool
) -> None:
    for each in answer:
        labels = _labels(by_slice, each["slice"], group=group, topic=each["topic"])
        lag = max(0, each["end"] - max(each["committed"], each["start"]))
        _count(found, GROUP_LAG, labels, lag)


def _labels(by_slice: bool, number: int, **names: str) -> tuple[tuple[str, str], ...]:
    return (*names.items(), *((("slice", str(number)),) if by_slice else ()))


def _count(found: _Series, name: str, labels: tuple[tuple[str, str], ...], more: int) -> None:
    series = found.setdefault(name, {})
    series[labels] = series.get(labels, 0) + more


def _families(found: _Series) -> Iterator[Family]:
    """In the order of their labels, so that the same are left out each time."""
    room = SERIES_MAX
    left_out = 0
    for name, series in found.items():
        kept = sorted(series.items())[:room]
        room -= len(kept)
        left_out += len(series) - len(kept)
        kind = "counter" if name == TOPIC_EVENTS else "gauge"
        yield Family(name, kind, HELP[name], [Sample(value, dict(at)) for at, value in kept])
    yield Family(SERIES_LEFT_OUT, "gauge", HELP[SERIES_LEFT_OUT], [Sample(left_out)])
