"""Schema resolution, row by row as Avro's specification has it, and what types within types do."""

import json
import time
from typing import Any

import pytest

from barco.errors import UnprocessableError
from barco.workers.schemas import avro_rules, kinds, words


def found(reader: Any, writer: Any) -> list[str]:
    read, written = (
        avro_rules.Types().of(kinds.avro(json.dumps(each), ())) for each in (reader, writer)
    )
    return avro_rules.unreadable(read, written)


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F") -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def mapping(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


A, B = {"name": "a", "type": "int"}, {"name": "b", "type": "string"}
B_DEFAULT = B | {"default": ""}
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PROMOTED = {
    *(("int", to) for to in ("long", "float", "double")),
    *(("long", to) for to in ("float", "double")),
    *(("float", "double"), ("string", "bytes"), ("bytes", "string")),
}
"""From the writer's to the reader's, by the specification."""


@pytest.mark.parametrize("writer", PRIMITIVES)
@pytest.mark.parametrize("reader", PRIMITIVES)
def test_primitives(reader: str, writer: str) -> None:
    assert (not found(reader, writer)) == (reader == writer or (writer, reader) in PROMOTED)


NODE = record({"name": "v", "type": "int"}, {"name": "next", "type": ["null", "R"]})
NODE_LONG = record({"name": "v", "type": "long"}, {"name": "next", "type": ["null", "R"]})


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (array("long"), array("int")),
        (mapping("string"), mapping("bytes")),
        (enum("x", "y", "z"), enum("x", "y")),
        (enum("x", default="x"), enum("x", "y")),
        (enum("x", name="n.E"), enum("x", name="m.E")),
        (fixed(4), fixed(4)),
        (record(A, B_DEFAULT), record(A)),
        (record(A), record(A, B)),
        (record(B, A), record(A, B)),
        (record(A, name="n.R"), record(A, name="m.R")),
        (record(A, name="New", aliases=["R"]), record(A)),
        (record(A, name="n.New", aliases=["m.Old"]), record(A, name="m.Old")),
        (record({"name": "c", "type": "int", "aliases": ["a"]}), record(A)),
        (["null", "int"], "int"),
        (["null", "int"], ["int", "null"]),
        (["null", "long"], "int"),
        ("long", ["int", "long"]),
        (record({"name": "a", "type": ["null", "int"], "default": None}), record(A)),
        (NODE_LONG, NODE),
        (decimal(9, 2), decimal(9, 2)),
        (decimal(9, 2), "bytes"),
        ([record(B, name="S"), record(A)], record(A)),
    ],
)
def test_what_can_be_read(reader: Any, writer: Any) -> None:
    assert not found(reader, writer)


@pytest.mark.parametrize(
    ("reader", "writer", "word"),
    [
        (array("int"), array("long"), "/array"),
        (array("int"), mapping("int"), "map"),
        (mapping("int"), mapping("string"), "/map"),
        (enum("x"), enum("x", "y"), "lacks y"),
        (enum("x", name="E2"), enum("x"), "E2"),
        (fixed(4), fixed(5), "5"),
        (fixed(4, "G"), fixed(4), "G"),
        (fixed(4), "bytes", "fixed"),
        (record(A, B), record(A), "/b"),
        (record(A, name="S"), record(A), "S"),
        (record(A, name="New", aliases=["Other"]), record(A), "New"),
        (record(A), record({"name": "a", "type": "string"}), "/a"),
        (["null", "int"], "string", "union"),
        ("int", ["int", "null"], "null"),
        (["null", "int"], ["null", "string"], "string"),
        (NODE, NODE_LONG, "/v"),
        (decimal(9, 2), decimal(9, 3), "decimal"),
        ("string", enum("x"), "enum"),
        ([record(B, name="S"), record(B)], record(A), "union"),
    ],
)
def test_what_can_not_be_read(reader: Any, writer: Any, word: str) -> None:
    assert word in "; ".join(found(reader, writer))


def test_a_guess_about_a_type_within_itself_goes_with_what_it_was_made_for() -> None:
    """The first branch is tried, and its tail taken for readable as long as it is; it is not, and
    so neither is the tail by itself."""

    def link(space: str, kind: str) -> dict[str, Any]:
        up = record({"name": "up", "type": f"{space}.L"}, name=f"{space}.T")
        tail = {"name": "t", "type": ["null", up]}
        return record(tail, {"name": "v", "type": kind}, name=f"{space}.L")

    def both(a: Any, b: Any) -> Any:
        return record({"name": "a", "type": a}, {"name": "b", "type": b}, name="Top")

    writer = both(link("n", "string"), "n.T")
    branches = [link("m", "int"), link("k", "string")]
    assert not found(both(branches, "k.T"), writer)
    assert found(both(branches, "m.T"), writer)


def test_many_symbols_are_compared_at_once() -> None:
    """Not each with each, which would be 400 million."""
    symbols = [f"s{each}" for each in range(20_000)]
    began = time.process_time()
    assert not found(enum(*symbols), enum(*symbols))
    assert time.process_time() - began < 1.5, "it takes 0.05 s, and each with each 3.4 s"


def test_what_is_too_large_is_not_compared() -> None:
    wide = [record({"name": "a", "type": "int"}, name=f"R{each}") for each in range(1_000)]
    with pytest.raises(UnprocessableError) as caught:
        found(wide, wide)
    assert caught.value.fields["error_code"] == words.INVALID_SCHEMA
