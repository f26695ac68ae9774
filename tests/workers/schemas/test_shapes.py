"""Programs that pass over values: whatever they accept, the validator does too, and of what is
usual they accept all that is right."""

import json
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest

from barco import _native
from barco.workers.schemas import judging, shapes, words

DRAFT_7 = "http://json-schema.org/draft-07/schema#"

ORDER: dict[str, Any] = {
    "$schema": DRAFT_7,
    "type": "object",
    "required": ["id", "when"],
    "additionalProperties": False,
    "properties": {
        "id": {"type": "integer", "minimum": 1, "exclusiveMaximum": 1000, "multipleOf": 3},
        "when": {"type": "string", "format": "date-time"},
        "day": {"type": "string", "format": "date"},
        "price": {"type": "number", "exclusiveMinimum": -0.5, "maximum": 1e6},
        "code": {"type": ["string", "null"], "minLength": 2, "maxLength": 4},
        "state": {"enum": ["new", "paid", None, 7, True]},
        "kind": {"const": "order"},
        "items": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"$ref": "#/$defs/i"}},
        "note": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "object", "required": ["a/b"]}]},
        "both": {"allOf": [{"type": "number"}, {"minimum": 2}]},
        "free": {},
        "tree": {"$ref": "#/$defs/tree"},
    },
    "$defs": {
        "i": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
        "tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
    },
}

BASE = '"id": 3, "when": "2025-11-27T08:00:00Z"'


def held(schema: Any, text: str | bytes) -> bool:
    """Whether the program says so; then the validator has to."""
    value = text.encode() if isinstance(text, str) else text
    shape = shapes.shape_of(schema)
    assert shape is not None
    accepted = shape.run([value], 0, b"", 1) == 1
    if accepted:
        judge = judging.judge_of(words.JSON, json.dumps(schema), [])
        assert judge is not None and judge.look(value) is None, (schema, text)
    return accepted


@pytest.mark.parametrize(
    "more",
    [
        "",
        '"day": "2024-01-28"',
        '"price": -0.25, "price": 12.5e3',
        '"price": 1000000',
        '"code": null',
        '"code": "\\u00e4\\n"',
        '"code": "äöü€"',
        '"state": "paid", "kind": "order"',
        '"state": null',
        '"state": 7',
        '"state": true',
        '"items": [{"n": 1, "m": [{}]}, {"n": -2}]',
        '"note": null',
        '"note": ""',
        '"either": 5',
        '"either": {"a/b": 1}',
        '"both": 2.0',
        '"free": [1, {"x": "\\u0020\\\\"}, false, -1.5E-7, ""]',
        '"tree": [[], [[], []]]',
    ],
)
def test_what_is_usual_is_accepted(more: str) -> None:
    assert held(ORDER, "{" + BASE + (", " if more else "") + more + "}")
    assert held(ORDER, " {\r\n" + more + (",\t" if more else "") + BASE + "} ")


@pytest.mark.parametrize(
    "more",
    [
        '"id": 4',
        '"id": 0',
        '"id": 1002',
        '"id": 3.0',
        '"id": "3"',
        '"when": "2025-11-27T24:00:00Z"',
        '"when": "2025-11-27 08:00:00Z"',
        '"when": "2025-11-27T08:00:00"',
        '"when": "2025-11-27T08:00:60Z"',
        '"free": "\\ud800"',
        '"free": "\\ud83d\\ude00"',
        '"day": "2025-02-30"',
        '"day": "2025-11-27T"',
        '"price": -0.5',
        '"price": 1000000.5',
        '"price": 1e400',
        '"price": NaN',
        '"price": -Infinity',
        '"price": 01',
        '"price": 1.',
        '"price": .5',
        '"price": +1',
        '"price": 1e',
        '"code": "x"',
        '"code": "xxxxx"',
        '"code": "\\ud800"',
        '"code": "a\tb"',
        '"code": "\\x41"',
        '"state": false',
        '"state": 8',
        '"kind": "orders"',
        '"items": []',
        '"items": [{"n": 1}, {"n": 1}, {"n": 1}, {"n": 1}]',
        '"items": [{}]',
        '"items": {"n": 1}',
        '"note": 1',
        '"either": {}',
        '"either": "5"',
        '"both": 1',
        '"free": ' + "1" * 30,
        '"free": [1,]',
        '"free": {"a" 1}',
        '"free": tru',
        '"tree": [1]',
        '"tree": ' + "[" * 80 + "]" * 80,
        '"unknown": 1',
        '"unknown"',
    ],
)
def test_what_is_wrong_or_rare_is_not(more: str) -> None:
    assert not held(ORDER, "{" + BASE + ", " + more + "}")


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b" ",
        b"\xef\xbb\xbf{}",
        b'"\xff"',
        b'"\xc0\x80"',
        b'"\xed\xa0\x80"',
        b'"\xf4\x90\x80\x80"',
    ]
    + [b"[" * 100_000, b'"' + b"a" * 20, b"{}{}", b"nul", b'"\0"', b"\0\0\0\0\1{}", b"1" * 5000],
)
def test_what_is_no_json_is_not_accepted(value: bytes) -> None:
    assert not held({}, value) and not held(True, value)


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ({"pattern": "^a"}, '"a"'),
        ({"uniqueItems": True}, "[1]"),
        ({"contains": {}}, "[1]"),
        ({"prefixItems": [{}]}, "[1]"),
        ({"items": [{}], "$schema": DRAFT_7}, "[1]"),
        ({"patternProperties": {"a": {}}}, "{}"),
        ({"propertyNames": {}}, "{}"),
        ({"minProperties": 0}, "{}"),
        ({"dependentRequired": {}}, "{}"),
        ({"unevaluatedProperties": True}, "{}"),
        ({"not": {"type": "null"}}, "1"),
        ({"if": {}, "then": {}}, "1"),
        ({"format": "email", "$schema": DRAFT_7}, '"a@b.c"'),
        ({"multipleOf": 0.5}, "1"),
        ({"minimum": 10**20}, str(10**21)),
        ({"enum": [[1]]}, "[1]"),
        ({"oneOf": [{"type": "integer"}, {"type": "number", "minimum": 9}]}, "1"),
        ({"oneOf": [{"$ref": "#/$defs/a"}, {"type": "null"}], "$defs": {"a": {}}}, "1"),
        ({"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}}, "1"),
        (  # Up to draft 7 what is beside a reference is not looked at.
            {
                "$schema": DRAFT_7,
                "oneOf": [{"type": "string", "$ref": "#/definitions/a"}, {"type": "integer"}],
                "definitions": {"a": {}},
            },
            "1",
        ),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "1"),
        ({"neverHeardOf": 1}, "1"),
        ({"allOf": [{"neverHeardOf": 1}]}, "1"),
    ],
)
def test_what_is_not_known_is_left_to_the_validator(keyword: Any, value: str) -> None:
    assert not held(keyword, value)


def test_what_is_escaped_or_there_twice_is_no_more_than_it_is() -> None:
    assert not held({"enum": ["a\\n"]}, '"a\\n"')  # A backslash, and the end of a line.
    assert not held({"required": ["a", "b"]}, '{"a": 1, "a": 1}')
    assert held({"required": ["a", "b"]}, '{"a": 1, "a": 1, "b": 1}')


def test_what_two_keywords_say_together() -> None:
    required = {"required": ["a"], "additionalProperties": False}
    assert not held(required, '{"a": 1}')
    assert held({**required, "properties": {"a": {}}}, '{"a": 1}')
    assert not held({"minimum": 1}, "5e-1") and held({"minimum": 1}, "50e-1")
    least = {"minimum": 5, "exclusiveMinimum": 3, "maximum": 7, "exclusiveMaximum": 9}
    assert [held(least, str(n)) for n in (3, 4, 5, 7, 8, 9)] == [False] * 2 + [True] * 2 + [
        False
    ] * 2


def test_a_reference_within_what_has_a_name_of_its_own_is_left_alone() -> None:
    named = {"properties": {"p": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"type": "string"}}}
    defs = {"a": {"$id": "http://x/a", **named}, "b": {"type": "integer"}}
    assert not held({"$ref": "#/$defs/a/properties/p", "$defs": defs}, "1")


def test_of_other_kinds_something_is_known_all_the_same() -> None:
    assert held({"pattern": "^a"}, "1") and held({"uniqueItems": True}, '{"a": "b"}')
    assert held({"format": "email"}, '"none"')  # As of 2019 it is only told.
    assert held({"x-made-by": "us", "title": "T", "$id": "http://a/b"}, "1")
    assert not held({"properties": {"a": {"neverHeardOf": 1}}}, '{"a": 1}')
    assert held({"properties": {"a": {"neverHeardOf": 1}}}, '{"b": 1}')
    assert shapes.shape_of({"$schema": "http://elsewhere/"}) is None


def some_schema(random: random.Random, depth: int) -> Any:
    """Of all that is known and some that is not; most values are wrong by chance now and then."""
    if depth == 0 or random.random() < 0.1:
        return random.choice([True, {}, {"type": "integer"}, {"type": "string"}, {"minimum": 1}])

    def below() -> Any:
        return some_schema(random, depth - 1)

    makers: list[Callable[[], dict[str, Any]]] = [
        lambda: {"type": random.sample(["null", "integer", "number", "string", "object"], 2)},
        lambda: {"type": random.choice(["object", "array", "boolean", "string", "number"])},
        lambda: {"properties": {each: below() for each in random.sample("abcd", 2)}},
        lambda: {"required": random.sample("abcde", random.randrange(3))},
        lambda: {"additionalProperties": random.choice([True, False, below()])},
        lambda: {"items": below()},
        lambda: {"minItems": random.randrange(2), "maxItems": random.randrange(1, 4)},
        lambda: {"minLength": random.randrange(3), "maxLength": random.randrange(1, 6)},
        lambda: {"minimum": random.choice([0, -1.5, 2, 1e15])},
        lambda: {"exclusiveMaximum": random.choice([0, 10.5, 100])},
        lambda: {"multipleOf": random.choice([1, 2, 7])},
        lambda: {"enum": random.sample([1, "a", None, True, "ä", 2.5, [1], 0], 4)},
        lambda: {"const": random.choice([1, "", False, {"a": 1}])},
        lambda: {random.choice(["anyOf", "allOf", "oneOf"]): [below(), below()]},
        lambda: {"not": below()},
        lambda: {"pattern": "a"},
        lambda: {"uniqueItems": True},
        lambda: {"maxProperties": 2},
        lambda: {"format": random.choice(["date", "date-time", "uuid", "email"])},
        lambda: {"$ref": random.choice(["#", "#/$defs/x", "#/$defs/y"])},
    ]
    made: dict[str, Any] = {}
    for maker in random.sample(makers, random.randrange(1, 4)):
        made |= maker()
    return made


def some_text(random: random.Random, depth: int) -> str:
    """JSON, spelt in many ways."""
    space = random.choice(["", "", " ", "\n\t"])
    kind = random.randrange(9 if depth else 6)
    if kind >= 7:
        inside = ",".join(some_text(random, depth - 1) for _ in range(random.randrange(4)))
        return f"{space}[{inside}{space}]"
    if kind == 6:
        members = [
            f'{space}"{random.choice(["a", "b", "c", "d", "e", chr(92) + "u0061", "ä"])}"{space}:'
            + some_text(random, depth - 1)
            for _ in range(random.randrange(4))
        ]
        return "{" + ",".join(members) + space + "}"
    scalars = [
        "null",
        "true",
        "false",
        '"a"',
        '"ä"',
        '"\\n\\u00e9"',
        '"2024-05-06"',
        '""',
        '"bcdefgh"',
    ]
    numbers = [
        "0",
        "-0",
        "1",
        "2.50",
        "1.0",
        "14",
        "-3",
        "1e2",
        "123456789012345678",
        "0.1",
        "9e99",
    ]
    return space + random.choice(scalars if kind < 3 else numbers)


def test_whatever_a_program_accepts_the_validator_does() -> None:
    """By chance, from a seed; and texts that are damaged."""
    chance = random.Random(16)
    accepted = looked = 0
    for _ in range(600):
        schema = some_schema(chance, 3)
        if isinstance(schema, dict):
            defs = {name: some_schema(chance, 2) for name in "xy"}
            schema |= {"$defs": defs, "$schema": chance.choice([DRAFT_7, words_of_2020])}
        shape = shapes.shape_of(schema)
        judge = judging.judge_of(words.JSON, json.dumps(schema), [])
        if shape is None or judge is None:
            continue
        for _ in range(40):
            value = bytearray(some_text(chance, 3).encode())
            if value and chance.random() < 0.2:
                value[chance.randrange(len(value))] = chance.choice(b'{}[]",:\\0\0\xc3 e.')
            looked += 1
            if shape.run([bytes(value)], 0, b"", 1) == 1:
                accepted += 1
                assert judge.look(bytes(value)) is None, (schema, value)
    assert looked > 10_000 and accepted > looked // 20, (looked, accepted)


words_of_2020 = "https://json-schema.org/draft/2020-12/schema"


def test_a_run_goes_from_value_to_value() -> None:
    shape = shapes.shape_of({"type": "integer"})
    assert shape is not None
    values: list[bytes | None] = [
        b"1",
        None,
        b"2",
        b"x",
        b"3",
        b"\0\0\0\0\1" + b"4",
        b"\0\0\0\0\2" + b"5",
    ]
    assert shape.run(values, 0, b"", 1 << 20) == ~3
    assert shape.run(values, 4, b"", 1 << 20) == ~5
    assert shape.run(values, 5, b"\0\0\0\0\1", 1 << 20) == 6  # Another one's begins.
    assert shape.run(values, 0, b"", 1) == 1  # So much is enough for once.
    assert shape.run(values, 7, b"", 1) == 7 and shape.run(values, 99, b"", 1) == 99
    with pytest.raises(ValueError):
        shape.run(values, -1, b"", 1)
    with pytest.raises(TypeError):
        shape.run(["1"], 0, b"", 1)  # type: ignore[list-item]
    for damaged in (b"", b"x" * 24, struct.pack("<6I", 1, 0, 0, 0, 0, 0)):
        with pytest.raises(ValueError):
            _native.Shape(damaged)
