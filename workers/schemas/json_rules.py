"""Whether all values of one JSON Schema are values of another. Pure.

Careful rather than clever: what cannot be shown to be so is said to be wrong, but for `oneOf`,
where it is not looked whether a second branch takes the value as well. Keywords that say nothing of
values are passed over; those that are not known here have to be the same in both.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec import Struct

from barco.errors import UnprocessableError
from barco.workers.schemas import breadth, json_kind, words

_SAYS_NOTHING = frozenset(
    ("$schema", "$id", "id", "$comment", "$defs", "definitions", "$anchor", "title", "description")
    + ("default", "examples", "readOnly", "writeOnly", "deprecated")
    + ("contentEncoding", "contentMediaType", "$vocabulary")
)
_DEFINES = ("$defs", "definitions")
_LEAST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_MOST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_SAME = ("pattern", "multipleOf", "uniqueItems", "format")
"""Of the reader's schema: the same in the writer's, or not there."""

_LOOKED_AT = frozenset(
    (*_LEAST, *_MOST, *_SAME, "type", "enum", "const", "properties", "required", "items", "$ref")
    + ("additionalProperties", "anyOf", "oneOf", "allOf")
)
_BESIDE, _LOOKS, _COMPILED = 16, 250, 10
"""What costs as much as a pair of types: so many parts of a schema that are passed over or compared
as they stand, and looks of a validator (`breadth`); and how many pairs it costs to make a part of a
schema a part of a validator."""

_TYPES = ("null", "boolean", "object", "array", "number", "string")


class Root(Struct):
    """A schema, and those that it refers to by name."""

    schema: Any
    needed: Mapping[str, Any]


def refused(reader: Root, writer: Root) -> list[str]:
    """What of the writer's values the reader's schema may refuse, in words; empty: nothing.

    422: they are too large to be compared.
    """
    return _Comparison(reader, writer).found(reader.schema, writer.schema, "")[: words.MESSAGES_MAX]


class _Comparison:
    def __init__(self, reader: Root, writer: Root) -> None:
        self._roots = reader, writer
        self._left = words.COMPARED_MAX
        self._whole: Any = None
        """A validator of all of the reader's schema, once that was asked for."""
        self._open: set[tuple[int, int]] = set()
        """Pairs that are being looked at: a schema may have itself in it."""

    def _pay(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise words.invalid("The schemas are too large to be compared")

    def _differ(self, new: Any, old: Any) -> bool:
        """As they stand."""
        self._pay(1 + _parts(new)[0] // _BESIDE)
        return bool(new != old)

    def found(self, new: Any, old: Any, at: str) -> list[str]:
        """As `refused`, of parts."""
        self._pay(1)
        new, old = _resolved(new, self._roots[0]), _resolved(old, self._roots[1])
        if new is True or old is False or new == {}:
            return []
        if new is False:
            return [f"{_at(at)}nothing is taken there any more"]
        old = {} if old is True else old
        self._pay((_width(new) + _width(old)) // _BESIDE)
        if (id(new), id(old)) in self._open:
            return []
        pair = (id(new), id(old))
        self._open.add(pair)
        try:
            return list(islice(self._looked(new, old, at), words.MESSAGES_MAX))
        finally:
            self._open.discard(pair)

    def _looked(self, new: dict[str, Any], old: dict[str, Any], at: str) -> Iterator[str]:
        if "allOf" in new:
            for each in (*new["allOf"], _without(new, "allOf")):
                yield from self.found(each, old, at)
        elif "enum" in old or "const" in old:
            yield from self._values(new, old, at)
        elif (word := _choice(old)) is not None:
            for each in old[word]:
                yield from self.found(new, each, at)
        elif "allOf" in old:
            # What is one of them as well as the rest is taken if the one is, or the rest.
            parts = (_without(old, "allOf"), *old["allOf"])
            found = [self.found(new, each, at) for each in parts]
            if all(found):
                yield from found[0]
        elif (word := _choice(new, beside=True)) is not None:
            yield from self._branches(new, old, word, at)
        else:
            yield from self._plainly(new, old, at)

    def _branches(
        self, new: dict[str, Any], old: dict[str, Any], word: str, at: str
    ) -> Iterator[str]:
        for kind in sorted(_types(old)):
            part = {**old, "type": kind}
            if all(self.found(each, part, at) for each in new[word]):
                yield f"{_at(at)}no branch of {word} takes every {kind}"
        yield from self.found(_without(new, word), old, at)

    def _plainly(self, new: dict[str, Any], old: dict[str, Any], at: str) -> Iterator[str]:
        if "enum" in new or "const" in new:
            yield f"{_at(at)}only some values are taken"
        for word in sorted(new.keys() - _LOOKED_AT - _SAYS_NOTHING):
            if self._differ(new[word], old.get(word)):
                yield f"{_at(at)}{word} is another one, and cannot be compared"
        gone = sorted(_types(old) - _types(new))
        if gone:
            yield f"{_at(at)}{', '.join(gone)} is not taken"
        for word in _LEAST:
            if word in new and not (word in old and old[word] >= new[word]):
                yield f"{_at(at)}{word} is {new[word]}"
        for word in _MOST:
            if word in new and not (word in old and old[word] <= new[word]):
                yield f"{_at(at)}{word} is {new[word]}"
        for word in _SAME:
            if new.get(word) not in (None, False) and new[word] != old.get(word):
                yield f"{_at(at)}{word} is another one"
        if "object" in _types(old):
            yield from self._objects(new, old, at)
        if "array" in _types(old) and "items" in new:
            one, other = new["items"], old.get("items", True)
            if isinstance(one, list) or isinstance(other, list):
                if self._differ(one, other):
                    yield f"{_at(at)}items is another list, and cannot be compared"
            else:
                yield from self.found(one, other, f"{at}/items")

    def _objects(self, new: dict[str, Any], old: dict[str, Any], at: str) -> Iterator[str]:
        for name in sorted(set(new.get("required", ())) - set(old.get("required", ()))):
            yield f"{words.below(at, name)}: it is required, and was not"
        takes, had = new.get("properties", {}), old.get("properties", {})
        others, had_others = (each.get("additionalProperties", True) for each in (new, old))
        other = True if "patternProperties" in old else had_others
        for name in sorted(takes.keys() | had.keys()):
            below = words.below(at, name)
            yield from self.found(takes.get(name, others), had.get(name, other), below)
        yield from self.found(others, had_others, f"{at}/*")

    def _spend(self, schema: Any, times: int, within: frozenset[int] = frozenset()) -> None:
        """What a validator walks through for one value at most, so often: what is referred to
        twice counts twice, and that again."""
        self._pay(max(1, times))
        if isinstance(schema, list):
            for each in schema:
                self._spend(each, times, within)
        if not isinstance(schema, dict):
            return
        self._pay(times * breadth.own_looks(schema) // _LOOKS)
        if "$ref" in schema:
            meant = _resolved({"$ref": schema["$ref"]}, self._roots[0])
            if id(meant) not in within:  # Else it goes with the value, which ends.
                self._spend(meant, times, within | {id(meant)})
        for name, each in schema.items():
            if name not in _DEFINES and name not in ("enum", "const"):
                self._spend(each, times, within)

    def _values(self, new: dict[str, Any], old: dict[str, Any], at: str) -> Iterator[str]:
        """The writer's values are few: each is looked at."""
        values = old["enum"] if "enum" in old else [old["const"]]
        self._spend(new, len(values))
        try:
            takes = self._validator(new)
        except UnprocessableError:
            raise
        except Exception as error:  # noqa: BLE001 - what the library says of half a schema.
            yield f"{_at(at)}it cannot be compared: {str(error)[:100]}"
            return
        for each in values:
            if not takes.is_valid(each):
                yield f"{_at(at)}{str(each)[:60]!r} is not taken"

    def _validator(self, new: dict[str, Any]) -> Any:
        root, part = self._roots[0].schema, new
        if new is root and self._whole is not None:
            return self._whole
        count, refers = _parts(new)
        if refers and isinstance(root, dict) and new is not root:
            part = {**new, **{word: root[word] for word in _DEFINES if word in root}}
            count = _parts(part)[0]
        self._pay(_COMPILED * count)
        found = json_kind.validator(part, self._roots[0].needed)
        if new is root:
            self._whole = found
        return found


def _width(schema: Mapping[str, Any]) -> int:
    """How many keywords it has, and what they have, without what is below."""
    return len(schema) + sum(len(each) for each in schema.values() if isinstance(each, list | dict))


def _parts(value: Any) -> tuple[int, bool]:
    """How many parts a schema or a keyword has, and whether something in it refers elsewhere."""
    count, refers = 0, False
    for each in breadth.parts_of(value):
        count += 1
        refers = refers or (isinstance(each, dict) and "$ref" in each)
    return count, refers


def _choice(schema: Mapping[str, Any], beside: bool = False) -> str | None:
    """`anyOf` or `oneOf`, where it says all that there is; beside: or with more beside it."""
    for word in ("anyOf", "oneOf"):
        if word in schema and (beside or not schema.keys() - {word} - _SAYS_NOTHING):
            return word
    return None


def _without(schema: Mapping[str, Any], word: str) -> dict[str, Any]:
    """What is said beside it; nothing, if that says nothing."""
    return {n: each for n, each in schema.items() if n != word and n not in _SAYS_NOTHING}


def _types(schema: Mapping[str, Any]) -> set[str]:
    """`integer` is a part of `number`."""
    given = schema.get("type", [*_TYPES])
    found = {given} if isinstance(given, str) else set(given)
    return found | {"integer"} if "number" in found else found


def _resolved(schema: Any, root: Root) -> Any:
    """What a `$ref` means, within the schema or by the name of a reference."""
    for _ in range(words.NESTING_MAX):
        if not isinstance(schema, dict) or "$ref" not in schema:
            return schema
        if more := _without(schema, "$ref"):
            return {"allOf": [{"$ref": schema["$ref"]}, more]}
        name, _, pointer = str(schema["$ref"]).partition("#")
        schema = root.needed.get(name) if name else root.schema
        for step in words.pointed(pointer):
            schema = schema.get(step) if isinstance(schema, dict) else None
        if schema is None:
            raise words.invalid(f"The reference {name}#{pointer} means nothing")
    raise words.invalid("A reference means itself")


def _at(at: str) -> str:
    return f"{at}: " if at else ""
