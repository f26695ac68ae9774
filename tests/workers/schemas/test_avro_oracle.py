"""Own rules of schema resolution against those of Apache's library, on pairs made at random."""

import json
import random
from typing import Any

import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import parse

from barco.workers.schemas import avro_rules, kinds

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NESTED = ("record", "record", "enum", "fixed", "array", "map", "union")
PAIRS = 250


class Making:
    """Writers' schemas, and readers' that differ from them here and there."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._names = 0

    def schema(self, depth: int) -> Any:
        kind = self._random.choice(PRIMITIVES + (NESTED if depth else ()))
        if kind in PRIMITIVES:
            return kind
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            return {"type": kind, inner: self.schema(depth - 1)}
        if kind == "union":
            return self._union([self.schema(depth - 1) for _ in range(self._random.randint(1, 3))])
        self._names += 1
        found: dict[str, Any] = {"type": kind, "name": f"N{self._names}"}
        if kind == "fixed":
            return found | {"size": self._random.randint(1, 2)}
        if kind == "enum":
            symbols = self._random.sample("abcd", self._random.randint(1, 4))
            more = {"default": symbols[0]} if self._random.random() < 0.3 else {}
            return found | {"symbols": symbols} | more
        names = self._random.sample("xyz", self._random.randint(1, 3))
        return found | {"fields": [{"name": n, "type": self.schema(depth - 1)} for n in names]}

    def _union(self, branches: list[Any]) -> Any:
        distinct = {}
        for each in branches:
            if isinstance(each, dict):
                distinct[each.get("name", each["type"])] = each
            elif isinstance(each, str):
                distinct[each] = each
        return list(distinct.values()) or "null"

    def other(self, given: Any) -> Any:
        chance = self._random.random()
        if isinstance(given, str):
            return self._random.choice(PRIMITIVES) if chance < 0.3 else given
        if isinstance(given, list):
            branches = [self.other(each) for each in given]
            self._random.shuffle(branches)
            return self._union(branches)
        found = dict(given)
        for inner in found.keys() & {"items", "values"}:
            found[inner] = self.other(found[inner])
        if "symbols" in found and chance < 0.4:
            found["symbols"] = self._random.sample("abcd", self._random.randint(1, 4))
            found.pop("default", None)
        if "size" in found and chance < 0.3:
            found["size"] = self._random.randint(1, 2)
        if "fields" in found:
            fields = [each | {"type": self.other(each["type"])} for each in found["fields"]]
            if chance < 0.3:
                more = {"default": 0} if chance < 0.2 else {}
                fields.append({"name": "w", "type": "int", **more})
            found["fields"] = fields
        return found


@pytest.mark.parametrize("seed", range(4))
def test_the_same_as_apache_s(seed: int) -> None:
    making, seen = Making(seed), set()
    for _ in range(PAIRS):
        writer = making.schema(3)
        reader = making.other(writer)
        texts = [json.dumps(each) for each in (reader, writer)]
        types = [avro_rules.Types().of(kinds.avro(text, ())) for text in texts]
        messages = avro_rules.unreadable(*types)
        checker = ReaderWriterCompatibilityChecker()
        told = checker.get_compatibility(*(parse(text) for text in texts)).compatibility
        assert (not messages) == (told is SchemaCompatibilityType.compatible), (texts, messages)
        seen.add(not messages)
    assert seen == {True, False}
