"""Spans of versions: the oldest and the newest of a protocol that somebody speaks. What the
versions are is none of its business."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Span: TypeAlias = tuple[int, int]
"""The oldest and the newest."""


def span_of(hello: Mapping[str, Any], oldest: str, newest: str) -> Span | None:
    """What a hello says under these two names; None: it is none. A newest that is missing or 0 is
    the oldest; one that is no number is below every version."""
    given = hello.get(oldest)
    if type(given) is not int:
        return None
    most = hello.get(newest) or given
    return given, most if type(most) is int else 0


def newest_common(ours: Span, theirs: Span) -> int | None:
    """The newest version of both; None: they have none in common."""
    newest = min(ours[1], theirs[1])
    return newest if max(ours[0], theirs[0]) <= newest else None


def words(span: Span) -> str:
    """ "6", or "6 to 9"."""
    oldest, newest = span
    return str(oldest) if oldest == newest else f"{oldest} to {newest}"
