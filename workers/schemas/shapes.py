"""JSON Schemas as programs with which the core says of most values, at once, that they are right
(native/format/shape.h). Whether one is wrong, and why, only a validator says.

A program may ask for more than its schema, never for less: where a keyword is not known here, no
value that it might be about is accepted.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any

from barco import _native
from barco.workers.schemas import breadth, words

NODES_MAX, MEMBERS_MAX, CHOICES_MAX = 4_096, 256, 256
"""Of one program; named members of one object, and values of one `enum`."""

_NULL, _BOOLEAN, _INTEGER, _FRACTION, _STRING, _ARRAY, _OBJECT, _OWN = (1 << at for at in range(8))
_BOUND, _ABOVE, _BELOW = 256, 512, 1_024
_NONE = 0xFFFF_FFFF
"""As in shape.h."""

_NUMBER = _INTEGER | _FRACTION
_ALL = _OWN - 1
_KINDS = {
    "null": _NULL,
    "boolean": _BOOLEAN,
    "integer": _INTEGER,
    "number": _NUMBER,
    "string": _STRING,
    "array": _ARRAY,
    "object": _OBJECT,
}
_FORMS = {"date": 1, "date-time": 2, "uuid": 3}
_EXACT = 1 << 53

_ANY, _NEVER = 0, 1
"""The first two nodes: of every value, and of none."""

_SILENT = frozenset(
    ["$comment", "$defs", "definitions", "title", "description", "default", "examples"]
    + ["deprecated", "readOnly", "writeOnly"]
)
"""They say nothing about values."""

_OUTERMOST = {"$schema", "$id", "id"}
"""Nor do these of the whole schema."""

_FORMATS_CHECKED = tuple(f"http://json-schema.org/draft-0{n}/schema" for n in (4, 6, 7))
_FORMATS_TOLD = tuple(
    f"https://json-schema.org/draft/{each}/schema" for each in ("2019-09", "2020-12")
)

_ABOUT = {
    **dict.fromkeys(("pattern", "contentEncoding", "contentMediaType", "contentSchema"), _STRING),
    **dict.fromkeys(("uniqueItems", "contains", "minContains", "maxContains"), _ARRAY),
    **dict.fromkeys(("prefixItems", "additionalItems", "unevaluatedItems"), _ARRAY),
    **dict.fromkeys(("patternProperties", "propertyNames", "minProperties"), _OBJECT),
    **dict.fromkeys(("maxProperties", "dependencies", "dependentRequired"), _OBJECT),
    **dict.fromkeys(("dependentSchemas", "unevaluatedProperties"), _OBJECT),
}
"""What keywords may be about that no program knows; any other one, about everything."""


class _UnknownError(Exception):
    """No program says anything of this schema."""


class _Node:
    """As in shape.h."""

    def __init__(self, kinds: int = _ALL) -> None:
        self.kinds = kinds
        self.flags = self.form = self.required = self.step = 0
        self.others = self.items = _ANY
        self.items_least = self.chars_least = 0
        self.items_most = self.chars_most = _NONE
        self.least, self.most = float("-inf"), float("inf")
        self.members: list[tuple[bytes, int, int]] = []
        """Name, node, and the number among those that are required."""
        self.choices: list[tuple[int, int, bytes]] = []
        """Kind, number and text."""
        self.all: list[int] = []
        self.any: list[int] = []

    def packed(self, members: int, choices: int, refs: int) -> bytes:
        """With the numbers at which its parts begin."""
        own = _OWN if self.flags or self.kinds != _ALL or not (self.all or self.any) else 0
        return struct.pack(
            "<18I2dq",
            *(self.kinds | self.flags | own, self.form, members, len(self.members)),
            *(self.required, self.others, self.items, self.items_least, self.items_most),
            *(self.chars_least, self.chars_most, choices, len(self.choices)),
            *(refs, len(self.all), refs + len(self.all), len(self.any), 0),
            *(float(self.least), float(self.most), self.step),
        )


def shape_of(schema: Any) -> _native.Shape | None:
    """By a schema that a validator takes. None: nothing can be said. Takes a while."""
    try:
        return _native.Shape(_Program(schema).packed())
    except (_UnknownError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return None


class _Program:
    """While it is made."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        dialect = schema.get("$schema") if isinstance(schema, dict) else None
        name = _FORMATS_TOLD[0] if dialect is None else str(dialect).removesuffix("#")
        if name not in _FORMATS_CHECKED + _FORMATS_TOLD:
            raise _UnknownError
        self.checks_formats = name in _FORMATS_CHECKED
        self.has_bases = breadth.has_bases(schema)
        self._nodes = [_Node(), _Node(0)]
        self._known: dict[int, int] = {}
        """By the schema's identity: references lead to one more than once, and in circles."""
        self._root = self.number(schema)

    def add(self, node: _Node) -> int:
        """Its number."""
        if len(self._nodes) >= NODES_MAX:
            raise _UnknownError
        self._nodes.append(node)
        return len(self._nodes) - 1

    def number(self, schema: Any) -> int:
        """Of the node that it becomes."""
        if isinstance(schema, bool):
            return _ANY if schema else _NEVER
        found = self._known.get(id(schema))
        if found is None:
            node = _Node()
            found = self._known[id(schema)] = self.add(node)
            self._fill(node, schema)
        return found

    def _fill(self, node: _Node, schema: Mapping[str, Any]) -> None:
        for name, value in schema.items():
            if (keyword := _KEYWORDS.get(name)) is not None:
                keyword(self, node, value, schema)
                node.flags |= 0 if name in _ELSEWHERE else _OWN
            elif not (
                name in _SILENT
                or name.startswith("x-")
                or (schema is self.schema and name in _OUTERMOST)
            ):
                node.kinds &= ~_ABOUT.get(name, _ALL)

    def packed(self) -> bytes:
        """As shape.h has it."""
        nodes: list[bytes] = []
        choices: list[bytes] = []
        members: list[bytes] = []
        refs: list[int] = []
        texts = bytearray()
        for each in self._nodes:
            nodes.append(each.packed(len(members), len(choices), len(refs)))
            refs += each.all + each.any
            for text, below, bit in each.members:
                members.append(struct.pack("<4I", len(texts), len(text), below, bit))
                texts += text
            for kind, number, text in each.choices:
                choices.append(struct.pack("<q4I", number, kind, len(texts), len(text), 0))
                texts += text
        counts = len(nodes), len(choices), len(members), len(refs), len(texts)
        head, ends = struct.pack("<6I", *counts, self._root), struct.pack(f"<{len(refs)}I", *refs)
        return b"".join((head, *nodes, *choices, *members, ends, texts))


# --- What keywords ask for ---------------------------------------------------------------------

_Keyword = Callable[[_Program, _Node, Any, Mapping[str, Any]], None]


def _kinds_of(names: Any) -> int:
    kinds = 0
    for each in [names] if isinstance(names, str) else names:
        kinds |= _KINDS.get(each, 0)
    return kinds


def _type(_program: _Program, node: _Node, value: Any, _schema: Mapping[str, Any]) -> None:
    node.kinds &= _kinds_of(value)


def _choice(value: Any) -> tuple[int, int, bytes] | None:
    if value is None:
        return _NULL, 0, b""
    if isinstance(value, bool):
        return _BOOLEAN, int(value), b""
    if isinstance(value, str):
        return _STRING, 0, value.encode()
    if isinstance(value, int) and -_EXACT <= value <= _EXACT:
        return _INTEGER, value, b""
    return None  # Nothing is said of what equals it.


def _enum(_program: _Program, node: _Node, value: Any, _schema: Mapping[str, Any]) -> None:
    choices = [found for each in value if (found := _choice(each)) is not None]
    if node.choices or not choices or len(choices) > CHOICES_MAX:
        node.kinds = 0
    else:
        node.choices = choices


def _const(program: _Program, node: _Node, value: Any, schema: Mapping[str, Any]) -> None:
    _enum(program, node, [value], schema)


def _ref(program: _Program, node: _Node, value: Any, _schema: Mapping[str, Any]) -> None:
    """Only to what is in the same text, by where it is."""
    found = program.schema
    if str(value).split("/")[0] != "#" or "%" in value or program.has_bases:
        node.kinds = 0
        return
    for name in words.pointed(value):
        found = found[int(name)] if isinstance(found, list) else found.get(name)
    node.all.append(program.number(found))


def _all_of(program: _Program, node: _Node, value: Any, _schema: Mapping[str, Any]) -> None:
    node.all += [program.number(each) for each in value]


def _any_of(program: _Program, node: _Node, value: Any, _schema: Mapping[str, Any]) -> None:
    choice = _Node()
    choice.any = [program.number(each) for each in value]
    node.all.append(program.add(choice))


def _one_of(program: _Program, node: _Node, value: Any, schema: Mapping[str, Any]) -> None:
    """Where no two can be right, for none is of another's kind, it is as any of them."""
    kinds = 0
    for each in value:
        known = isinstance(each, dict) and "type" in each and "$ref" not in each
        more = _kinds_of(each["type"]) if known else _ALL
        if kinds & more:
            node.kinds = 0
        kinds |= more
    _any_of(program, node, value, schema)


def _members(program: _Program, node: _Node, _value: Any, schema: Mapping[str, Any]) -> None:
    """All that is said of members, whichever of the keywords comes first."""
    if node.members:
        return
    named = schema.get("properties", {})
    required = list(dict.fromkeys(schema.get("required", ())))
    node.others = program.number(schema.get("additionalProperties", True))
    names = [*named, *(each for each in required if each not in named)]
    if len(names) > MEMBERS_MAX:
        node.kinds &= ~_OBJECT
        return
    bits = {name: at for at, name in enumerate(required)}
    for each in names:
        below = program.number(named[each]) if each in named else node.others
        node.members.append((each.encode(), below, bits.get(each, _NONE)))
    node.required = len(required)


def _items(program: _Program, node: _Node, value: Any, _schema: Mapping[str, Any]) -> None:
    if isinstance(value, list):
        node.kinds &= ~_ARRAY
    else:
        node.items = program.number(value)


def _bounds(_program: _Program, node: _Node, _value: Any, schema: Mapping[str, Any]) -> None:
    """All of them, whichever comes first."""
    names = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    low, above, high, below = found = [schema.get(each) for each in names]
    for each in found:
        is_number = type(each) is int or type(each) is float
        if each is not None and not (is_number and -_EXACT <= each <= _EXACT):
            node.kinds &= ~_NUMBER
            return
    node.flags |= _BOUND
    node.least = node.least if low is None else low
    node.most = node.most if high is None else high
    if above is not None and above >= node.least:
        node.least = above
        node.flags |= _ABOVE
    if below is not None and below <= node.most:
        node.most = below
        node.flags |= _BELOW


def _step(_program: _Program, node: _Node, value: Any, _schema: Mapping[str, Any]) -> None:
    if type(value) is int and 0 < value <= _EXACT:
        node.step = value
    else:
        node.kinds &= ~_NUMBER


def _format(program: _Program, node: _Node, value: Any, _schema: Mapping[str, Any]) -> None:
    """As of 2019 they are only told."""
    if not program.checks_formats:
        return
    if (form := _FORMS.get(value)) is None:
        node.kinds &= ~_STRING
    else:
        node.form = form


def _count(name: str, kind: int) -> _Keyword:
    def keyword(_program: _Program, node: _Node, value: Any, _schema: Mapping[str, Any]) -> None:
        if type(value) is int and 0 <= value < _NONE:
            setattr(node, name, value)
        else:
            node.kinds &= ~kind

    return keyword


_ELSEWHERE = ("$ref", "allOf", "anyOf", "oneOf")
"""What they ask for, other nodes look at."""

_KEYWORDS: dict[str, _Keyword] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "$ref": _ref,
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    **dict.fromkeys(("properties", "required", "additionalProperties"), _members),
    "items": _items,
    "minItems": _count("items_least", _ARRAY),
    "maxItems": _count("items_most", _ARRAY),
    "minLength": _count("chars_least", _STRING),
    "maxLength": _count("chars_most", _STRING),
    **dict.fromkeys(("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"), _bounds),
    "multipleOf": _step,
    "format": _format,
}
