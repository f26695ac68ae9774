"""Limits that stand in native/ and in barco/limits.py say the same, and no #define is dead."""

import re
from functools import cache

from barco import limits, log
from barco.model import access, bearer
from barco.protocol import batch
from barco.workers.http.base import conditions
from barco.workers.http.listening import places
from barco.workers.shard import producers

from . import native

OTHERWISE_NAMED = {
    "ACCESS_RATE_MAX": ("QUOTA_MAX", 1),
    "APPENDS_IN_FLIGHT": ("GROUPS_IN_FLIGHT_MAX", 1),
    "BODY_BYTES_PER_S": ("BODY_BYTES_PER_SECOND_MIN", 1),
    "BODY_GRACE_MS": ("BODY_GRACE_SECONDS", 1000),
    "CHUNK_VALUES_TARGET": ("CHUNK_RAW_BYTES_MAX", 1),
    "GROUP_ALIGN": ("PAGE_BYTES", 1),
    "HEAD_DEADLINE_MS": ("HEAD_SECONDS_MAX", 1000),
    "HTTP1_HEADERS_MAX": ("HEADERS_MAX", 1),
    "HTTP1_HEAD_BYTES_MAX": ("HEAD_BYTES_MAX", 1),
    "HTTP1_REQUEST_LINE_BYTES_MAX": ("REQUEST_LINE_BYTES_MAX", 1),
    "RING_SIZE_MAX": ("BROKERS_MAX", 1),
    "SLICES_MAX": ("SLICES_PER_RANGE_MAX", 1),
}
"""C's name of a limit, Python's, and how many of C's units make one of Python's."""

PASTED = {"COLUMN_BYTES_FIELD", "COLUMN_LENS_FIELD", "COLUMN_LOW_FIELD", "COLUMN_HIGH_FIELD"}
"""Names that C's ## puts together."""

_DEFINE = re.compile(r"^#define (\w+)(\([^)]*\))?[ \t]*([^\n]*)$", re.MULTILINE)
_SUFFIX = re.compile(r"\b(0x[\da-fA-F]+|\d+)(?:u|U|l|L)+\b")


@cache
def defines() -> list[tuple[str, str, str]]:
    """(file, name, what it stands for) of every #define without arguments, guards left out."""
    return [
        (name, found.group(1), found.group(3).strip())
        for name, text in native.sources().items()
        for found in _DEFINE.finditer(native.plain(text))
        if not found.group(2) and found.group(3)
    ]


def number(text: str) -> int | None:
    """What an expression of digits, shifts and sums is worth; None for anything else."""
    plain = _SUFFIX.sub(r"\1", text)
    if not re.fullmatch(r"[\dxa-fA-F\s()<*+/-]+", plain) or not re.search(r"\d", plain):
        return None
    return int(eval(plain, {"__builtins__": {}}))


def test_the_same_limit_in_both_languages() -> None:
    wrong, compared = [], set()
    for file, name, text in defines():
        there, units = OTHERWISE_NAMED.get(name, (name, 1))
        value = number(text)
        if value is None or not hasattr(limits, there):
            continue
        compared.add(name)
        if value != getattr(limits, there) * units:
            wrong.append(f"{file}: {name} is {value}, limits.{there} {getattr(limits, there)}")
    assert not wrong, "\n".join(wrong)
    assert compared >= OTHERWISE_NAMED.keys(), OTHERWISE_NAMED.keys() - compared


BESIDE = {
    "CONDITIONS_MAX": conditions.CONDITIONS_MAX,
    "CONDITION_STEPS_MAX": conditions.STEPS_MAX,
    "FEED_ID_BYTES_MAX": places.ID_BYTES_MAX,
    "GIVEN_ID_BYTES_MAX": log.GIVEN_ID_BYTES_MAX,
    "NAMED_BYTES_MAX": bearer.NAMED_BYTES_MAX,
    "PRODUCER_NAME_MAX": producers.PRODUCER_NAME_MAX,
    "TIMESTAMP_US_MIN": batch.TIMESTAMP_US_MIN,
    "TOKEN_BYTES_MAX": access.TOKEN_BYTES_MAX,
}
"""Of one room alone, by C's name: they stand where they are used."""


ASKED = {"_GNU_SOURCE", "ZSTD_STATIC_LINKING_ONLY"}
"""Words for the headers of others, which show more then."""


def test_a_limit_of_one_room_is_the_same_in_both_languages() -> None:
    found = {name: number(text) for _, name, text in defines() if name in BESIDE}
    assert found == BESIDE


def test_a_limit_stands_once_in_c() -> None:
    names = [name for _, name, text in defines() if hasattr(limits, name) and number(text)]
    assert len(names) > 5 and len(names) == len(set(names)), names


def test_every_define_is_used() -> None:
    text = "\n".join(native.plain(each) for each in native.sources().values())
    words = re.findall(r"\w+", text)
    found = {name for name in re.findall(r"^#\s*define (\w+)", text, re.MULTILINE)}
    dead = [
        name
        for name in found
        if words.count(name) == 1 and name not in PASTED and name not in ASKED
    ]
    assert len(found) > 100 and not dead, dead


def test_the_reader_of_numbers() -> None:
    for text, value in (("128u", 128), ("(1u << 20)", 1 << 20), ("0x4Bu", 75), ("20LL * 60", 1200),
                        ("sizeof(x)", None), ("\"x\"", None), ("()", None)):  # fmt: skip
        assert number(text) == value, text
