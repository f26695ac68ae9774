"""Which events of a read are meant: `where=` in words, as the core looks at them.

    key=K  key~part  header.NAME=V  value~part  $.a.b[0]>3  $['a name']!="x"  $.a

What is compared is JSON if it is a number, true, false, null or in quotes, else the text as it
stands. `~` is to have it somewhere, in letters of either case.
"""

import json
import re
from collections.abc import Sequence
from enum import IntEnum
from typing import TypeAlias

from barco.errors import RequestError

CONDITIONS_MAX, STEPS_MAX = 8, 16
"""As the core has them."""

TEXT_BYTES_MAX = 1024
"""Of one condition."""

Condition: TypeAlias = tuple[int, int, bytes, tuple[bytes | int, ...], bytes, bool, float | None]
"""As `_native.render_ndjson` takes them."""


class Of(IntEnum):
    """What of an event is looked at."""

    KEY, HEADER, PATH, BYTES = range(4)


class Test(IntEnum):
    """What is to be true of it."""

    IS_THERE, IS, IS_NOT, HAS, BELOW, AT_MOST, ABOVE, AT_LEAST = range(8)


_TESTS = {
    "": Test.IS_THERE,
    "=": Test.IS,
    "!=": Test.IS_NOT,
    "~": Test.HAS,
    "<": Test.BELOW,
    "<=": Test.AT_MOST,
    ">": Test.ABOVE,
    ">=": Test.AT_LEAST,
}
_SUBJECT = re.compile(
    r"key|value|header\.(?P<name>[a-z0-9#$%&'*+.^_`|-]+)|\$", re.ASCII | re.IGNORECASE
)
_STEP = re.compile(
    r"""\.(?P<plain>[^\s.\[\]=!~<>'"]+)|\[(?P<index>\d{1,9})\]"""
    r"""|\[(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')\]""",
    re.ASCII,
)
_TEST = re.compile(r"\s*(!=|<=|>=|[=~<>]|\Z)\s*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)

_HELP = (
    "A condition is key, value, header.NAME or a path into JSON as $.a.b[0], then one of = != ~ < "
    "<= > >= and what it is compared with, or nothing: it is there."
)


def conditions(given: Sequence[str]) -> tuple[Condition, ...]:
    """As the core takes them; RequestError says what is wrong."""
    if len(given) > CONDITIONS_MAX:
        raise RequestError(f"There are at most {CONDITIONS_MAX} conditions.")
    return tuple(map(_condition, given))


def _condition(text: str) -> Condition:
    if len(text.encode("utf-8", "replace")) > TEXT_BYTES_MAX:
        raise RequestError(f"A condition has at most {TEXT_BYTES_MAX} bytes.")
    subject = _SUBJECT.match(text)
    if subject is None:
        raise _wrong(text)
    of, name, at = Of.PATH, b"", subject.end()
    steps: list[bytes | int] = []
    if subject[0] == "$":
        steps, at = _steps(text, at)
    elif subject["name"] is not None:
        of, name = Of.HEADER, subject["name"].lower().encode()
    else:
        of = Of.KEY if subject[0].lower() == "key" else Of.BYTES
    found = _TEST.match(text, at)
    if found is None:
        raise _wrong(text)
    test, operand = _TESTS[found[1]], text[found.end() :]
    if of == Of.BYTES and test != Test.HAS:
        raise RequestError("Of a whole value one asks what it has in it: value~TEXT.")
    if operand == "" and test not in (Test.IS_THERE, Test.IS, Test.IS_NOT):
        raise _wrong(text)
    compared, quoted, number = _operand(operand)
    if test == Test.HAS:  # Bytes, so that only ASCII has two cases, as the core has it.
        compared = compared.lower()
    return (of, test, name, tuple(steps), compared, quoted, number)


def _steps(text: str, at: int) -> tuple[list[bytes | int], int]:
    steps: list[bytes | int] = []
    while (step := _STEP.match(text, at)) is not None:
        at = step.end()
        if step["index"] is not None:
            steps.append(int(step["index"]))
        elif step["plain"] is not None:
            steps.append(step["plain"].encode())
        else:
            steps.append(_text(step["quoted"]))
    if len(steps) > STEPS_MAX:
        raise RequestError(f"A path has at most {STEPS_MAX} steps.")
    return steps, at


def _operand(text: str) -> tuple[bytes, bool, float | None]:
    """Its bytes, whether it is in quotes, and as a number."""
    if len(text) > 1 and text[0] == text[-1] == '"':
        return _text(text), True, None
    number = float(text) if _NUMBER.fullmatch(text) else None
    return text.encode(), False, number


def _text(quoted: str) -> bytes:
    inner = quoted[1:-1]
    if quoted[0] == "'":
        inner = inner.replace("\\'", "'").replace('"', '\\"')
    try:
        return str(json.loads(f'"{inner}"')).encode()
    except ValueError:  # A surrogate that is half a pair, too.
        raise _wrong(quoted) from None


def _wrong(text: str) -> RequestError:
    return RequestError(f"{text[:100]!r} is no condition. {_HELP}")
