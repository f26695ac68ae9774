"""What a topic may be called, and what a key or value may be given as."""

import re

_TOPIC = re.compile(r"[a-zA-Z0-9_.-]{1,127}", re.ASCII)
_checked: set[str] = set()


def check_topic(topic: str) -> str:
    """The topic, if brokers take it; ValueError with the rule otherwise."""
    if topic in _checked:
        return topic
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ValueError(
            f"{topic!r} is not a topic name: 1 to 127 of a-z A-Z 0-9 _ . -, but not . or .."
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
