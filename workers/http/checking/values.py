"""The values of a produce's body, and bodies of some of its events: per request, in Python."""

import binascii
import json
import re
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple, Protocol

from barco import _native
from barco.errors import ProtocolError, RequestError
from barco.model.queues import DEAD_PREFIX
from barco.protocol.batch import base_of, split_batches

EVENT, LINES, BATCH, _CUT, KEYED = range(5)
"""Kinds of bodies, as the core counts them (`enum content`)."""


Headers = tuple[tuple[str, bytes], ...]


class OfBody(NamedTuple):
    """As it is stored elsewhere."""

    value: bytes | None
    key: bytes | None = None
    time_us: int | None = None
    """None: it has none of its own."""
    headers: Headers = ()


class Body(Protocol):
    """Of one produce."""

    values: Collection[bytes | None]
    """None: the event has none."""
    unread: Collection[int]
    """Of these nobody can say what the core makes of them; complete once all values were seen."""

    def line(self, at: int) -> int:
        """Where it is, from 1: the line of a text, or the event of a batch."""

    def event(self, at: int) -> OfBody:
        """With all that it has."""

    def without(self, gone: Collection[int]) -> bytes | None:
        """The same kind of body with the others; None: nothing is left."""


def body_of(content: int, body: bytes, key: bytes | None = None, headers: bytes = b"") -> Body:
    """RequestError: it is malformed. What is not read here as the core reads it is not passed."""
    try:
        if content == BATCH:
            return _Batch(body)
    except ValueError as error:
        raise RequestError(f"The body is no batch: {error}.") from None
    if content == EVENT:
        return _Single(body, key, headers)
    if content == LINES:
        return _Lines(body, key)
    return _Keyed(body)


def bodies_of(batches: bytes) -> Iterator[Body]:
    """Of batches one behind the other. RequestError: they are malformed."""
    try:
        pieces = split_batches(batches)
    except (ProtocolError, ValueError) as error:
        raise RequestError(f"The body is no batch: {error}.") from None
    for each in pieces:
        yield body_of(BATCH, bytes(each))


class _Single:
    unread: Collection[int] = ()

    def __init__(self, body: bytes, key: bytes | None, headers: bytes) -> None:
        self.values: Collection[bytes | None] = (body,)
        self._body, self._key, self._headers = body, key, headers

    def line(self, at: int) -> int:
        return 1

    def event(self, at: int) -> OfBody:
        headers: Headers = ()
        if self._headers:
            # The core reads what it has written.
            one = _native.batch_encode([b""], None, headers=[self._headers])
            _, _, _, _, *more = _native.batch_events(one)[0]
            headers = more[0] if more else ()
        return OfBody(self._body, self._key, None, headers)

    def without(self, gone: Collection[int]) -> bytes | None:
        return None if gone else self._body


class _Lines:
    """One event a line; blank ones are none."""

    unread: Collection[int] = ()

    def __init__(self, body: bytes, key: bytes | None) -> None:
        self._key = key
        lines = body.split(b"\n")
        if b"\r" in body:
            lines = [each.removesuffix(b"\r") for each in lines]
        self._at = [at for at, each in enumerate(lines) if each.strip(b" \t\r")]
        self._lines = [lines[at] for at in self._at]
        self.values: Collection[bytes | None] = self._lines

    def line(self, at: int) -> int:
        return self._at[at] + 1

    def at(self, at: int) -> bytes:
        return self._lines[at]

    def event(self, at: int) -> OfBody:
        return OfBody(self._lines[at], self._key)

    def without(self, gone: Collection[int]) -> bytes | None:
        left = [each for at, each in enumerate(self._lines) if at not in gone]
        return b"\n".join(left) if left else None


class _Read(Collection[bytes | None]):
    """Values that are read when they are looked at: all at once would hold up the loop."""

    def __init__(self, count: int, event: Callable[[int], OfBody]) -> None:
        self._count, self._event = count, event

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[bytes | None]:
        return (self._event(at).value for at in range(self._count))

    def __contains__(self, value: object) -> bool:
        return any(each == value for each in self)


class _Keyed:
    """A JSON object a line, with key, value, timestamp and headers."""

    def __init__(self, body: bytes) -> None:
        self._texts = _Lines(body, None)
        self._unread = set[int]()
        self.unread: Collection[int] = self._unread
        self._values = _native.keyed_values(body)
        if self._values is not None and len(self._values) == len(self._texts.values):
            self.values: Collection[bytes | None] = self._values
        else:  # The core will store none of it; these are read for what is told of them.
            self._values = None
            self.values = _Read(len(self._texts.values), self.event)

    def line(self, at: int) -> int:
        return self._texts.line(at)

    def event(self, at: int) -> OfBody:
        line = self._texts.at(at)
        try:
            event = _enveloped(line)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            if self._values is None:
                self._unread.add(at)
            event = OfBody(line)
        return event if self._values is None else event._replace(value=self._values[at])

    def without(self, gone: Collection[int]) -> bytes | None:
        return self._texts.without(gone)


class _Batch:
    unread: Collection[int] = ()

    def __init__(self, body: bytes) -> None:
        self._events = _native.batch_events(body)
        self._timed = base_of(memoryview(body)) != 0
        self.values: Collection[bytes | None] = [each[3] for each in self._events]

    def line(self, at: int) -> int:
        return at + 1

    def event(self, at: int) -> OfBody:
        _, time_us, key, value, *more = self._events[at]
        own = time_us if self._timed else None
        return OfBody(value, key, own, more[0] if more else ())

    def without(self, gone: Collection[int]) -> bytes | None:
        left = [self.event(at) for at in range(len(self.values)) if at not in gone]
        return packed(left) if left else None


def packed(events: list[OfBody]) -> bytes:
    """Events as a batch; one without a time has the broker's where none has one."""
    times = [each.time_us for each in events if each.time_us is not None]
    return _native.batch_encode(
        [each.value for each in events],
        [each.key for each in events],
        {"timestamp": times} if len(times) == len(events) else None,
        headers=[_native.headers_encode(each.headers) or None for each in events],
    )


def letter(event: OfBody, topic: str, reason: str) -> OfBody:
    """As a dead letter."""
    ours = [(DEAD_PREFIX + "reason", reason.encode()), (DEAD_PREFIX + "topic", topic.encode())]
    kept = [pair for pair in event.headers if not pair[0].startswith(DEAD_PREFIX)]
    try:
        _native.headers_encode([*kept, *ours])
    except ValueError:  # It had as many as an event may have.
        kept = []
    return event._replace(headers=(*kept, *ours))


# --- Lines with keys ---------------------------------------------------------------------------

_DECODE = json.JSONDecoder().raw_decode


def _enveloped(line: bytes) -> OfBody:
    """The event of a line: its value is the text that stands there."""
    text = line.decode()
    members = {name: (value, raw) for name, value, raw in _members(text)}
    time_us = members.get("timestamp", (None, ""))[0]
    headers = members.get("headers", ({}, "{}"))[1]
    return OfBody(
        _bytes(*members["value"]),
        _characters(*members.get("key", (None, ""))),
        time_us if type(time_us) is int else None,
        tuple((name, _characters(each, raw) or b"") for name, each, raw in _members(headers)),
    )


_BASE64 = re.compile(r"""\{[ \t\r]*"base64"[ \t\r]*:[ \t\r]*"([^"\\]*)"[ \t\r]*\}""")


def _bytes(value: object, raw: str) -> bytes | None:
    """What is stored of a member: what base64 stands for, spelt as the core wants it; a key's
    characters; else the text. None of null."""
    if value is None:
        return None
    if (packed_ := _BASE64.fullmatch(raw)) is not None:
        return binascii.a2b_base64(packed_[1], strict_mode=True)
    return raw.encode()


def _characters(value: object, raw: str) -> bytes | None:
    return value.encode() if isinstance(value, str) else _bytes(value, raw)


def _members(text: str) -> list[tuple[str, object, str]]:
    """Of a JSON object the names, the values and their texts. ValueError: it is none."""
    found = []
    at = _space(text, 0)
    if text[at] != "{":
        raise ValueError("no object")
    if text[_space(text, at + 1)] == "}":
        return []
    while True:
        name, at = _DECODE(text, _space(text, at + 1))
        at = _space(text, at)
        if not isinstance(name, str) or text[at] != ":":
            raise ValueError("no member")
        start = _space(text, at + 1)
        value, end = _DECODE(text, start)
        found.append((name, value, text[start:end]))
        at = _space(text, end)
        if text[at] == "}":
            return found
        if text[at] != ",":
            raise ValueError("no end of a member")


def _space(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at
