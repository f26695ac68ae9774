"""How much a validator of JSON may have to do for one part of a value: by the schema alone.

A schema may ask for the same part many times: each branch of `anyOf` looks at all of it, and in it
branches may look again. Where references lead in a circle, or through many layers, that grows
exponentially with the depth of the value: 33 bytes can take a minute.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from barco.workers.schemas import words

BREADTH_MAX = 10_000
"""Looks at one part of a value, of 20 ns about: more are as good as endless."""

NESTED_MAX = 255
"""Levels of a value, as the validator has it."""

WORK_MAX = 500_000
"""Steps that it takes to find out: half a second of a thread, about."""

_HERE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")
_HERE_NAMED = ("dependentSchemas", "dependencies")
_OTHERS = ("additionalProperties", "unevaluatedProperties")
_EACH = ("items", "additionalItems", "unevaluatedItems")

_FANCY = re.compile(r"\(\?[=!<>]|\\[1-9kgKGB]|[*+?}]\+")
"""A pattern with one of these may go back and forth, as long as `json_kind` lets it."""

_FANCY_LOOKS, _COMPARED_LOOKS = 4_000, 8
"""What such a pattern costs, and to compare with one object or array of an `enum`."""


class _EndlessError(Exception):
    """Nobody can say, or it has no end."""


class _Part:
    """Of a schema: what else looks at the same part of a value, and what at those below."""

    def __init__(self, own: int) -> None:
        self.own = own
        self.times = 1
        self.here: list[int] = []
        self.named: dict[str, list[int]] = {}
        self.others: list[int] = []
        """At members that are not named,"""
        self.members: list[int] = []
        """and at all of them."""
        self.placed: list[list[int]] = []
        """By their number, items that have a schema of their own."""
        self.each: list[int] = []
        self.items: list[int] = []
        """As with members."""


def breadth(schema: Any, needed: Mapping[str, Any]) -> int | None:
    """How often one part of a value is looked at, at the most. None: there is no bound."""
    try:
        parts = _Parts(schema, needed)
        return _widest(parts.all, parts.root, _order(parts.all))
    except (_EndlessError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None


def is_told_whole(schema: Any, needed: Mapping[str, Any]) -> bool:
    """Whether all that is wrong with some part is made a text of: of each choice that is none."""
    choices = ("anyOf", "oneOf")
    everything = chain.from_iterable(map(parts_of, (schema, *needed.values())))
    return any(
        isinstance(each, dict) and any(map(each.__contains__, choices)) for each in everything
    )


def parts_of(value: Any) -> Iterator[Any]:
    """It, and all that is in it, at any depth; it comes first."""
    left = [value]
    while left:
        each = left.pop()
        yield each
        if isinstance(each, dict):
            left += each.values()
        elif isinstance(each, list):
            left += each


def work_of(value: bytes, looks: int) -> int:
    """Looks at all of its parts, or more."""
    return looks * (1 + value.count(b",") + value.count(b"[") + value.count(b"{"))


class _Parts:
    """All of a schema, and of what it refers to."""

    def __init__(self, schema: Any, needed: Mapping[str, Any]) -> None:
        self._whole, self._needed = schema, needed
        self.all: list[_Part] = []
        self._known: dict[int, int] = {}
        self._has_bases: dict[int, bool] = {}
        self._left: list[tuple[_Part, Any, Any]] = []
        self.root = self._number(schema, schema)
        while self._left:
            self._fill(*self._left.pop())

    def _number(self, schema: Any, document: Any) -> int:
        found = self._known.get(id(schema)) if isinstance(schema, dict) else None
        if found is None:
            found = len(self.all)
            part = _Part(own_looks(schema))
            self.all.append(part)
            if isinstance(schema, dict):
                self._known[id(schema)] = found
                self._left.append((part, schema, document))
        return found

    def _fill(self, part: _Part, schema: Any, document: Any) -> None:
        def numbers(value: Any) -> list[int]:
            return [self._number(each, document) for each in _schemas(value)]

        for name in _HERE:
            part.here += numbers(schema.get(name))
        for name in _HERE_NAMED:
            part.here += numbers(list(schema.get(name, {}).values()))
        for name in ("$ref", "$recursiveRef", "$dynamicRef"):
            if name in schema:
                found, within = self._target(schema[name], document)
                part.here.append(self._number(found, within))
        for name in _OTHERS:
            part.others += numbers(schema.get(name))
        part.members += numbers(list(schema.get("patternProperties", {}).values()))
        part.members += numbers(schema.get("propertyNames"))
        part.items += numbers(schema.get("contains"))
        for name, value in schema.get("properties", {}).items():
            part.named[name] = [self._number(value, document)]
        for name in _EACH:
            value = schema.get(name)
            if isinstance(value, list):
                part.placed += [[number] for number in numbers(value)]
            else:
                part.each += numbers(value)
        part.placed += [[number] for number in numbers(schema.get("prefixItems"))]
        if "unevaluatedProperties" in schema or "unevaluatedItems" in schema:
            part.times = 3  # It is looked again at what is here, for what has looked at a member.

    def _target(self, ref: str, document: Any) -> tuple[Any, Any]:
        base, _, pointer = ref.partition("#")
        found = document
        if base:
            names = [name for name in self._needed if base == name or base.endswith("/" + name)]
            found = document = self._needed[names[0]]
        if id(document) not in self._has_bases:
            self._has_bases[id(document)] = has_bases(document)
        if "%" in pointer or (pointer and pointer[0] != "/") or self._has_bases[id(document)]:
            raise _EndlessError
        for name in words.pointed(pointer):
            found = found[int(name)] if isinstance(found, list) else found[name]
        return found, document


def _schemas(value: Any) -> Iterator[Any]:
    """Of a keyword that has one, a list of them, or some by name."""
    if isinstance(value, list):
        yield from (each for each in value if isinstance(each, (dict, bool)))
    elif isinstance(value, (dict, bool)):
        yield value


def has_bases(schema: Any) -> bool:
    """Whether something in it names itself: a reference may mean what is not where it says."""
    names = ("$anchor", "$dynamicAnchor", "$recursiveAnchor", "$id", "id")
    for each in parts_of(schema):
        mine = names[:3] if each is schema else names
        if isinstance(each, dict) and any(isinstance(each.get(name), (str, bool)) for name in mine):
            return True
    return False


def own_looks(schema: Any) -> int:
    """At a part of a value, for what a schema says itself."""
    if not isinstance(schema, dict):
        return 1
    options = schema.get("enum", ())
    compared = sum(isinstance(each, (dict, list)) for each in options)
    compared += isinstance(schema.get("const"), (dict, list))
    patterns = [schema.get("pattern", ""), *schema.get("patternProperties", ())]
    fancy = sum(_FANCY.search(each) is not None for each in patterns)
    return 1 + fancy * _FANCY_LOOKS + compared * _COMPARED_LOOKS


def _order(parts: list[_Part]) -> list[int]:
    """Each behind what looks at the same part of a value for it."""
    done: list[int] = []
    state = [0] * len(parts)
    for first in range(len(parts)):
        path = [first]
        while path:
            at = path[-1]
            if state[at] == 2:
                path.pop()
                continue
            if state[at] == 1:
                state[at] = 2
                done.append(at)
                path.pop()
                continue
            state[at] = 1
            for below in parts[at].here:
                if state[below] == 1:
                    raise _EndlessError  # It leads to itself without a step into the value.
                if state[below] == 0:
                    path.append(below)
    return done


class _Steps:
    """Looks at what is one level below, by the member or item that it is."""

    def __init__(self, part: _Part, before: list[int]) -> None:
        def looks(at: list[int]) -> int:
            return sum(before[each] for each in at)

        members, items = looks(part.members), looks(part.items)
        self.others = members + looks(part.others)
        self.each = items + looks(part.each)
        self.named = {name: members + looks(below) for name, below in part.named.items()}
        self.placed = [items + looks(below) for below in part.placed]

    def add(self, other: "_Steps", times: int) -> int:
        """What happens besides. How much there was to do."""
        names = other.named.keys() | self.named.keys() if other.others else other.named.keys()
        for name in names:
            more = other.named.get(name, other.others)
            self.named[name] = self.named.get(name, self.others) + times * more
        for at in range(max(len(self.placed), len(other.placed))):
            more = other.placed[at] if at < len(other.placed) else other.each
            if at < len(self.placed):
                self.placed[at] += times * more
            else:
                self.placed.append(self.each + times * more)
        self.others += times * other.others
        self.each += times * other.each
        return 1 + len(names) + len(self.placed)

    def most(self) -> int:
        """Of all of them."""
        return max(self.others, self.each, *self.named.values(), *self.placed)


def _widest(parts: list[_Part], root: int, order: list[int]) -> int:
    """The most looks at any level."""
    local = [0] * len(parts)
    for at in order:
        looks = parts[at].own + parts[at].times * sum(local[below] for below in parts[at].here)
        local[at] = min(looks, BREADTH_MAX + 1)
    now, widest, work = local, local[root], 0
    for _ in range(NESTED_MAX):
        before, now = now, [0] * len(parts)
        steps: dict[int, _Steps] = {}
        for at in order:
            found = steps[at] = _Steps(parts[at], before)
            for below in parts[at].here:
                work += found.add(steps[below], parts[at].times)
            now[at] = min(found.most(), BREADTH_MAX + 1)
            work += 1 + len(found.named) + len(found.placed)
            if work > WORK_MAX:
                raise _EndlessError
        widest = max(widest, now[root])
        if widest > BREADTH_MAX:
            raise _EndlessError
        if now == before or not any(now):
            break
    return widest
