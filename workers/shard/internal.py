"""Internal events as they are found in the log: what cannot be one is passed over, and counted.

They are written by whoever leads a shard, and read by whoever leads it next: nothing that another
member has written there may keep this process from opening the shard.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgpack

_T = TypeVar("_T")

log = logging.getLogger("barco.worker")

_skipped: dict[str, int] = {}


def skipped() -> int:
    """How many events of internal topics were passed over, in all openings of this process."""
    return sum(_skipped.values())


def each(
    topic: str, kept: Iterable[tuple[bytes, bytes]], read: Callable[[dict[Any, Any]], _T]
) -> Iterator[_T]:
    """What `read` makes of each value. Empty values stand for what was removed."""
    passed = 0
    for _, value in kept:
        if not value:
            continue
        try:
            found = read(_map(value))
        except (ValueError, TypeError, LookupError, AssertionError, msgpack.UnpackException):
            passed += 1
            continue
        yield found
    if passed:
        _skipped[topic] = _skipped.get(topic, 0) + passed
        log.error("%d events of %s are none that this program writes: passed over", passed, topic)


def typed(given: Mapping[Any, Any], kinds: Mapping[str, type[Any]]) -> dict[str, Any]:
    """The named values; ValueError where one is missing, of another type, or a number below 0."""
    found = {}
    for name, kind in kinds.items():
        value: Any = given[name]
        if type(value) is not kind or (kind is int and not 0 <= value < 2**63):
            raise ValueError(f"{name} is {str(value)[:32]!r}")
        found[name] = value
    return found


def _map(value: bytes) -> dict[Any, Any]:
    read = msgpack.unpackb(value, strict_map_key=False)
    if not isinstance(read, dict):
        raise TypeError("an internal event is no map")
    return read
