"""What a topic may be called, and what a key or value may be given as."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from barco._native import headers_encode
from barco.limits import KEY_BYTES_MAX
from barco.model.delays import DELAY_HOURS_MAX, DELAYED_TOPIC_BYTES_MAX, HOUR_US
from barco.protocol.batch import TIMESTAMP_US_MIN

Bytes = bytes | bytearray | memoryview | str
Headers = Mapping[str, Bytes] | Iterable[tuple[str, Bytes]]
"""Names, of any case, and values; as pairs a name may come again."""

DEFAULT_ENDPOINT = "127.0.0.1:9250"
"""The discovery port of a broker on this machine."""

_TOPIC = re.compile(r"[a-zA-Z0-9_.-]{1,127}", re.ASCII)
_checked: set[str] = set()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def check_topic(topic: str) -> str:
    """The topic, if brokers take it; ValueError with the rule otherwise."""
    if topic in _checked:
        return topic
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ValueError(
            f"{str(topic)[:160]!r} is not a topic name:"
            " 1 to 127 of a-z A-Z 0-9 _ . -, but not . or .."
        )
    if len(_checked) < 4096:
        _checked.add(topic)
    return topic


def to_bytes(what: str, given: bytes | bytearray | memoryview | str) -> bytes:
    """Bytes as they are, text as UTF-8; TypeError for anything else."""
    if type(given) is bytes:
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, bytes | bytearray | memoryview):
        return bytes(given)
    raise TypeError(f"a {what} is bytes or str, not {type(given).__name__}")


def to_key(given: bytes | bytearray | memoryview | str) -> bytes:
    """A partition key as bytes; ValueError if it is too long."""
    key = to_bytes("key", given)
    if len(key) > KEY_BYTES_MAX:
        raise ValueError(f"a key has at most {KEY_BYTES_MAX} bytes, this one {len(key)}")
    return key


def to_value(given: bytes | bytearray | memoryview | str | None) -> bytes | None:
    """A value as bytes; None: the event has none."""
    return None if given is None else to_bytes("value", given)


def to_headers(given: Headers | None) -> bytes | None:
    """Headers as a batch has them; None: there are none. ValueError if no event can have them."""
    if not given:
        return None
    pairs = given.items() if isinstance(given, Mapping) else given
    return headers_encode([(name.lower(), to_bytes("header", value)) for name, value in pairs])


def check_timestamp(timestamp_us: int | None) -> None:
    """ValueError unless it is None or microseconds since 1970, from the year 1 on."""
    if timestamp_us is not None and not TIMESTAMP_US_MIN <= timestamp_us < 2**63:
        raise ValueError(
            f"a timestamp is microseconds since 1970, from the year 1 on: {timestamp_us}"
        )


def due_us(
    topic: str,
    timestamp_us: int | None,
    deliver_at: datetime | None,
    deliver_after: float | timedelta | None,
) -> int | None:
    """When an event is to be in its topic, in microseconds since 1970; None: now. ValueError if it
    can not be meant."""
    if deliver_at is None and deliver_after is None:
        return None
    if timestamp_us is not None or (deliver_at is not None and deliver_after is not None):
        raise ValueError("one of deliver_at, deliver_after and timestamp_us")
    if len(topic) > DELAYED_TOPIC_BYTES_MAX:
        raise ValueError(f"topics of delayed events have at most {DELAYED_TOPIC_BYTES_MAX} letters")
    now = time.time_ns() // 1000
    if deliver_at is not None:
        if deliver_at.tzinfo is None:
            raise ValueError("deliver_at is a datetime with a time zone")
        due = (deliver_at - _EPOCH) // timedelta(microseconds=1)
    else:
        span = deliver_after if isinstance(deliver_after, timedelta) else None
        seconds = span.total_seconds() if span is not None else deliver_after
        assert not isinstance(seconds, timedelta) and seconds is not None, "one of them is given"
        if not 0 <= seconds < 1e9:
            raise ValueError(f"deliver_after is seconds, or a timedelta: {deliver_after}")
        due = now + int(seconds * 1e6)
    if not now - 24 * HOUR_US < due <= now + DELAY_HOURS_MAX * HOUR_US:
        raise ValueError(f"events are due within {DELAY_HOURS_MAX} hours, or were since yesterday")
    return due


def as_endpoints(endpoint: str | Sequence[str]) -> list[str]:
    """One endpoint, several, or several in one string with commas."""
    if isinstance(endpoint, str):
        return [each.strip() for each in endpoint.split(",") if each.strip()]
    return list(endpoint)
