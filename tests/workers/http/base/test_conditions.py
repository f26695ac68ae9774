"""Which events are meant, in words: what is refused, and what the core makes of it, held against
Python's own JSON."""

import json
import random
from typing import Any

import pytest
from reference.core import chunk_encode

from barco import _native
from barco.errors import RequestError
from barco.workers.http.base.conditions import CONDITIONS_MAX, STEPS_MAX, conditions

VALUES: list[bytes | None] = [
    b'{"a": {"b": [1, {"c": "Paris"}]}, "n": 3.0, "t": true, "z": null, "a b": "x"}',
    b'{"a": 5, "n": 3, "n": 12, "at": "2026-11-28T10:00:00Z", "quote\\"d": "\\u0050aris"}',
    b'{"a": "5", "n": 1e2, "id": 12345678901234567891}',
    b"[10, 20, 30]",
    b'"far PARIS"',
    b"no JSON: paris",
    b"\xff\xfe",
    None,
]
KEYS = [b"berlin", b"7", b"10", b"", None, b"\xc3\x9f", b"Berlin-2", b"k"]
HEADERS: list[Any] = [
    (("h", b"one"), ("h", b"two")), (("count", b"4"),), (), (("h", b"ONE"),), (), (), (), (),
]  # fmt: skip


def chosen(*where: str, most: int = 2**62) -> list[int]:
    """The offsets of the events that are meant, in as many pieces as it takes."""
    stored = chunk_encode("t", 1, 2, 0, VALUES, keys=KEYS, headers=HEADERS)
    text, at = b"", 0
    while at < len(VALUES):
        more, after = _native.render_ndjson(
            [stored], at, len(VALUES), 0, most, where=conditions(where)
        )
        assert after > at, "each piece goes on"
        text, at = text + more, after
    return [int(json.loads(line)["offset"]) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("where", "meant"),
    [
        ("key=berlin", [0]),
        ("key~BERLIN", [0, 6]),
        ("key", [0, 1, 2, 3, 5, 6, 7]),
        ("key=", [3]),
        ("key!=berlin", [1, 2, 3, 4, 5, 6, 7]),
        ("key=ß", [5]),
        ("key>8", [2]),  # 7 and 10 are numbers there; texts have no order with one.
        ("key>=berlin", [0, 5, 7]),
        ("header.h=two", [0]),  # The last one's, as they are shown.
        ("header.H~one", [3]),
        ("header.h", [0, 3]),
        ("header.count>=4", [1]),
        ("header.co", []),
        ("$.a", [0, 1, 2]),
        ("$.a=5", [1, 2]),
        ('$.a="5"', [2]),
        ("$.a!=5", [0, 3, 4, 5, 6, 7]),
        ("$.a>4", [1]),  # A text is none, in JSON.
        ('$.a={"b": [1, {"c": "Paris"}]}', []),  # What has parts is like nothing.
        ("$.n=3", [0]),  # As a number; of a name that comes again the last one counts.
        ("$.n>3", [1, 2]),
        ('$.n>"1"', []),
        ("$.n<=12", [0, 1]),
        ("$.n=100", [2]),
        ("$.id=12345678901234567891", [2]),
        ("$.id=12345678901234567890", []),
        ("$.t=true", [0]),
        ("$.z=null", [0]),
        ('$.z="null"', []),
        ("$.z<1", []),  # What is no number has no order with one.
        ("$.t<5", []),
        ("$.a.b[1].c=Paris", [0]),
        ("$.a.b[0]<2", [0]),
        ("$.a.b[2]", []),
        ("$.a.b~paris", [0]),
        ("$['a b']=x", [0]),
        ('$["quote\\"d"]=Paris', [1]),
        ("$['quote\"d']~paris", [1]),
        ("$.at>=2026-11-28", [1]),
        ("$.at<2026-11-28T09", []),
        ("$[1]=20", [3]),
        ("$~paris", [0, 4]),
        ("$", [0, 1, 2, 3, 4]),
        ("value~paris", [0, 4, 5]),
        ("value~\xff", []),
    ],
)
def test_what_is_meant(where: str, meant: list[int]) -> None:
    assert chosen(where) == meant
    for most in (1, 200, 500):
        assert chosen(where, most=most) == meant


def test_what_is_stored_as_it_is_is_looked_at_too() -> None:
    """Nothing of it is unpacked, so the room for it is of its own."""
    value = random.Random(3).randbytes(5000) + b"needle"
    stored = chunk_encode("t", 1, 2, 0, [value], compress=False)
    for where, meant in (("value~NEEDLE", True), ("value~needles", False)):
        text, after = _native.render_ndjson([stored], 0, 1, 0, where=conditions([where]))
        assert (bool(text), after) == (meant, 1)


@pytest.mark.parametrize(
    "value",
    [b'{"a": 1} x', b'{"a": 1', b'{"a": 1,}', b'{"a": 1, "b": \xff}', b'{"a": 1, "b": 01}', b""],
)
def test_of_what_is_nearly_json_no_place_is_found(value: bytes) -> None:
    stored = chunk_encode("t", 1, 2, 0, [value])
    for where, meant in (("$.a", 0), ("$.a=1", 0), ("$.a!=1", 1)):
        text, _ = _native.render_ndjson([stored], 0, 1, 0, where=conditions([where]))
        assert text.count(b"\n") == meant, where


def test_a_quote_within_quotes() -> None:
    stored = chunk_encode("t", 1, 2, 0, [b'{"it\'s": 1}'])
    given = conditions(["$['it\\'s']=1"])
    assert _native.render_ndjson([stored], 0, 1, 0, where=given)[0]


@pytest.mark.parametrize(("where", "meant"), [("$.ab=1", 1), ("$.a", 0), ("$.abc", 0)])
def test_a_name_that_is_escaped_is_that_name_and_no_part_of_it(where: str, meant: int) -> None:
    stored = chunk_encode("t", 1, 2, 0, [b'{"a\\u0062": 1}', b'{"\\u0061bcd": 1}'])
    text, _ = _native.render_ndjson([stored], 0, 2, 0, where=conditions([where]))
    assert text.count(b"\n") == meant


def test_all_have_to_be_true() -> None:
    assert chosen("$.a", "key~ber") == [0]
    assert chosen(*["$.a"] * CONDITIONS_MAX) == [0, 1, 2]


def test_the_core_takes_paths_that_are_as_long_as_they_may_be() -> None:
    assert chosen("$" + ".a" * STEPS_MAX) == []


@pytest.mark.parametrize(
    "where",
    ["", "keys=1", "$a=1", "$..a", "$.a[", "$.a[x]", "header=1", "header.é=1"]
    + ["$.a>", "$.a < ", "key~", "value~", "header.h>="]
    + ["value=1", "value", "$['a]", '$["\\x"]', '$["\\ud800"]', "$.a ! 1", "$.a" * 20]
    + ["$" + ".a" * (STEPS_MAX + 1), "key=" + "x" * 2000],
)
def test_what_is_no_condition_is_refused(where: str) -> None:
    with pytest.raises(RequestError):
        conditions([where])


def test_there_are_not_too_many() -> None:
    with pytest.raises(RequestError, match="at most 8"):
        conditions(["key"] * (CONDITIONS_MAX + 1))


@pytest.mark.parametrize("given", [((9, 0, b"", (), b"", False, None),), ((0,),), [1], (1,)])
def test_the_core_takes_no_others(given: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        _native.render_ndjson([], 0, 1, 0, where=given)


def test_any_place_in_any_value_is_found() -> None:
    """Python's parser says what is there."""
    generator = random.Random(7)
    names = ["a", "b", 'q"', "ü", "\\", ""]

    def made(depth: int) -> Any:
        kind = generator.randrange(7 if depth else 5)
        if kind == 5:
            return [made(depth - 1) for _ in range(generator.randrange(4))]
        if kind == 6:
            return {generator.choice(names): made(depth - 1) for _ in range(4)}
        return [generator.randrange(20), "a", 'b"\\n]}', None, True][kind]

    for _ in range(400):
        value = made(4)
        steps = [generator.choice([*names, 0, 1, 2]) for _ in range(generator.randrange(5))]
        path = "$" + "".join(f"[{json.dumps(step)}]" for step in steps)
        there = value
        for step in steps:
            kind = list if isinstance(step, int) else dict
            try:
                there = there[step] if isinstance(there, kind) else KeyError
            except (KeyError, IndexError):
                there = KeyError
        text = json.dumps(
            value, ensure_ascii=generator.random() < 0.5, indent=generator.choice([None, 1])
        )
        stored = chunk_encode("t", 1, 2, 0, [text.encode()])

        def is_meant(where: str, stored: bytes = stored) -> bool:
            return bool(_native.render_ndjson([stored], 0, 1, 0, where=conditions([where]))[0])

        assert is_meant(path) == (there is not KeyError), (path, text)
        if there is not KeyError and not isinstance(there, dict | list):
            assert is_meant(f"{path}={json.dumps(there, ensure_ascii=False)}"), (path, text)
            assert not is_meant(f'{path}="another"')
