"""What may follow a JSON schema, and what may not."""

from typing import Any

import pytest

from barco.errors import UnprocessableError
from barco.workers.schemas.json_kind import PATTERNS_MAX, validator
from barco.workers.schemas.json_rules import Root, refused


def found(new: Any, old: Any) -> list[str]:
    return refused(Root(new, {}), Root(old, {}))


def closed(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return open_(required, **properties) | {"additionalProperties": False}


def open_(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


TEXT, NUMBER, INTEGER = ({"type": each} for each in ("string", "number", "integer"))
LIST = {"type": "array", "items": {"$ref": "#/$defs/node"}}
TREE = {
    "$ref": "#/$defs/node",
    "$defs": {"node": closed(("v",), v=INTEGER, below=LIST)},
}


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (True, TEXT),
        ({}, {}),
        (TEXT, False),
        (NUMBER, INTEGER),
        (TEXT | {"title": "t", "description": "d"}, TEXT),
        ({"type": ["string", "null"]}, TEXT),
        ({"anyOf": [TEXT, {"type": "null"}]}, {"type": ["string", "null"]}),
        ({"oneOf": [TEXT, INTEGER]}, {"oneOf": [INTEGER, TEXT]}),
        (TEXT | {"maxLength": 9}, TEXT | {"maxLength": 8}),
        (INTEGER | {"minimum": 1}, INTEGER | {"minimum": 2}),
        (TEXT | {"pattern": "a"}, TEXT | {"pattern": "a"}),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}),
        (TEXT, {"enum": ["a", "b"]}),
        ({"enum": ["a", "b"]}, {"const": "a"}),
        (open_(a=TEXT), open_(a=TEXT, b=TEXT)),
        (closed(a=TEXT, b=TEXT), closed(a=TEXT)),
        (open_(("a",), a=TEXT), open_(("a", "b"), a=TEXT)),
        ({"type": "array", "items": NUMBER}, {"type": "array", "items": INTEGER}),
        (TREE, TREE),
        ({"allOf": [TEXT, {"maxLength": 3}]}, {"allOf": [TEXT, {"maxLength": 3}]}),
        ({"not": TEXT}, {"not": TEXT}),
    ],
)
def test_what_may_follow(new: Any, old: Any) -> None:
    assert not found(new, old)


@pytest.mark.parametrize(
    ("new", "old", "word"),
    [
        (False, TEXT, "nothing"),
        (INTEGER, NUMBER, "number"),
        (TEXT, {"type": ["string", "null"]}, "null"),
        ({"oneOf": [TEXT, INTEGER]}, {"oneOf": [TEXT, NUMBER]}, "oneOf"),
        (TEXT | {"maxLength": 8}, TEXT | {"maxLength": 9}, "maxLength"),
        (TEXT | {"minLength": 1}, TEXT, "minLength"),
        (INTEGER | {"minimum": 3}, INTEGER | {"minimum": 2}, "minimum"),
        (TEXT | {"pattern": "a"}, TEXT | {"pattern": "b"}, "pattern"),
        (TEXT | {"format": "date"}, TEXT, "format"),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, "'b'"),
        ({"enum": ["a"]}, TEXT, "some values"),
        (open_(a=TEXT, b=TEXT), open_(a=TEXT), "/b"),
        (closed(a=TEXT), closed(a=TEXT, b=TEXT), "/b"),
        (closed(a=TEXT), open_(a=TEXT), "/*"),
        (open_(("a",), a=TEXT), open_(a=TEXT), "/a"),
        (open_(a=INTEGER), open_(a=TEXT), "/a"),
        ({"type": "array", "items": TEXT}, {"type": "array"}, "/items"),
        ({"allOf": [TEXT, {"maxLength": 3}]}, TEXT, "maxLength"),
        ({"not": TEXT}, {"not": INTEGER}, "not"),
        (open_(a=TEXT), open_() | {"patternProperties": {"a": INTEGER}} | closed(), "/a"),
        ({"anyOf": [TEXT, {"type": "null"}], "maxLength": 3}, TEXT, "maxLength"),
        (
            TREE,
            {**TREE, "$defs": {"node": closed(("v",), v=TEXT)}},
            "/v",
        ),
    ],
)
def test_what_may_not(new: Any, old: Any, word: str) -> None:
    assert word in "; ".join(found(new, old))


def test_values_are_not_looked_at_for_ever() -> None:
    """A validator would walk through the last one 2**40 times."""
    defs: dict[str, Any] = {
        f"a{each}": {"allOf": [{"$ref": f"#/$defs/a{each + 1}"}] * 2} for each in range(40)
    }
    inner = open_(a={"$ref": "#/$defs/a0"})
    with pytest.raises(UnprocessableError):
        found(inner | {"$defs": defs | {"a40": TEXT}}, {"enum": [{"a": "x"}]})
    with pytest.raises(UnprocessableError):
        found(inner | {"$defs": defs | {"a40": TEXT}}, {"enum": []})
    assert not found(inner | {"$defs": {"a0": TEXT}}, {"enum": [{"a": "x"}]})
    many = [{"a": str(each)} for each in range(1_000)]
    assert not found({"enum": many}, {"enum": many})


def test_a_reference_to_nothing_or_to_itself() -> None:
    for wrong in ({"$ref": "#/nowhere"}, {"$ref": "#"}):
        with pytest.raises(UnprocessableError):
            found(wrong, TEXT)


def test_patterns_are_few_and_small() -> None:
    """They are compiled at once, and nobody else's turn comes meanwhile."""
    many = {f"a{n}": {"type": "string", "pattern": f"x{n}"} for n in range(PATTERNS_MAX + 1)}
    with pytest.raises(ValueError, match="patterns"):
        validator(open_(**many), {})
    many.popitem()
    assert validator(open_(**many), {}).is_valid({"a0": "x0"})
    with pytest.raises(ValueError):
        validator({"type": "string", "pattern": r"\p{L}{90}"}, {})


NOTHINGS = {f"x{at}": 0 for at in range(3_000)}
NAMES = [f"x{at}" for at in range(3_000)]
OFTEN = {"anyOf": [{"$ref": "#/$defs/d"}] * 100}
MANY = {f"d{at}": TEXT for at in range(2_000)}


@pytest.mark.parametrize(
    ("new", "old"),
    [
        # Each of the values is compared with each.
        (
            {"enum": [{"a": at} for at in range(4_001)]},
            {"enum": [{"a": at} for at in range(4_000)]},
        ),
        # A pair of types may say much, again and again: words that nobody knows, names, values.
        (OFTEN | {"$defs": {"d": NOTHINGS}}, OFTEN | {"$defs": {"d": NOTHINGS | {"x0": 1}}}),
        (
            OFTEN | {"$defs": {"d": {"type": "object", "required": NAMES}}},
            OFTEN | {"$defs": {"d": {"type": "object", "required": NAMES[1:]}}},
        ),
        (
            OFTEN | {"$defs": {"d": {"patternProperties": NOTHINGS}}},
            OFTEN | {"$defs": {"d": {"patternProperties": NOTHINGS | {"x2999": 1}}}},
        ),
        # A validator is made for each value, of all definitions.
        (
            {"$defs": MANY, "properties": {"a": {"anyOf": [{"$ref": "#/$defs/d1"}, INTEGER]}}},
            {"properties": {"a": {"anyOf": [{"const": at} for at in range(100)]}}},
        ),
    ],
)
def test_what_takes_long_is_too_large_to_be_compared(new: Any, old: Any) -> None:
    with pytest.raises(UnprocessableError, match="too large"):
        found(new, old)


def test_ordinary_ones_are_compared_though_they_are_large() -> None:
    codes = [f"code-{at}" for at in range(5_000)]
    assert not found({"enum": [*codes, "more"]}, {"enum": codes})
    enums = {f"d{at}": {"enum": ["a", "b", "c"]} for at in range(200)}
    wide = {name: {"$ref": f"#/$defs/{name}"} for name in enums}
    narrow = {name: {"enum": ["a", "b"]} for name in enums}
    assert not found(open_(**wide) | {"$defs": enums}, open_(**narrow))
    consts = {"anyOf": [{"const": at} for at in range(100)]}
    assert not found({"$defs": MANY, "anyOf": [TEXT, {"type": "integer"}]}, consts)
