"""Whether a value is one of its schema: what is said of wrong ones, and what a look may cost."""

import io
import json
from typing import Any

import fastavro
import pytest

from barco.workers.schemas import breadth, judging, words
from barco.workers.schemas.judging import Flaw


def judge(schema: Any, kind: str = words.JSON) -> judging.Judge:
    found = judging.judge_of(kind, json.dumps(schema), [])
    assert found is not None
    return found


def flaw(schema: Any, value: bytes, kind: str = words.JSON) -> Flaw:
    found = judge(schema, kind).look(value)
    assert found is not None, value
    return found


# --- JSON -------------------------------------------------------------------------------------


def test_where_it_is_wrong_is_a_pointer() -> None:
    schema = {"additionalProperties": {"additionalProperties": {"items": {"type": "string"}}}}
    found = flaw(schema, b'{"a/b": {"~": ["x", 1]}}')
    assert found.pointer == "/a~1b/~0/1" and "string" in found.reason
    assert flaw({"type": "object"}, b"[]").pointer == ""
    deep = flaw({"additionalProperties": {"type": "string"}}, json.dumps({"n" * 9000: 1}).encode())
    assert deep.pointer is not None and len(deep.pointer) == judging.POINTER_CHARS_MAX
    assert len(flaw({"const": 1}, b'"' + b"x" * 9000 + b'"').reason) <= judging.REASON_CHARS_MAX


@pytest.mark.parametrize(
    "value",
    [b"", b"{", b"NaN", b"-Infinity", b'"\xff"', b"\xef\xbb\xbf1", b"9" * 5000, b"[" * 100_000]
    + [b'{"a": 1}x', b"'a'", b"[1,]", b'"\n"'],
)
def test_what_is_no_json_has_no_pointer(value: bytes) -> None:
    found = flaw({}, value)
    assert found.pointer is None and "JSON" in found.reason


def test_the_last_of_two_members_counts() -> None:
    schema = {"properties": {"a": {"type": "integer"}}}
    assert judge(schema).look(b'{"a": "x", "a": 1}') is None
    assert flaw(schema, b'{"a": 1, "a": "x"}').pointer == "/a"


# --- How much there may be to look at -----------------------------------------------------------

ANY_JSON = [
    {"type": "array", "items": {"$ref": "#"}},
    {"type": "object", "additionalProperties": {"$ref": "#"}},
]
TWO = {"anyOf": [{}, {}]}
TWICE = {"anyOf": [{"items": {"$ref": "#"}, "maxItems": 3}, {"items": {"$ref": "#"}}]}


def layers(count: int) -> dict[str, Any]:
    """Each of which looks twice at the next one."""
    made: dict[str, Any] = {"D0": {"type": "string"}}
    for n in range(count):
        below = {"items": {"$ref": f"#/$defs/D{n}"}}
        made[f"D{n + 1}"] = {"anyOf": [below, {**below, "minItems": 1}]}
    return {"$ref": f"#/$defs/D{count}", "$defs": made}


@pytest.mark.parametrize(
    ("schema", "looks"),
    [
        (True, 1),
        ({"properties": {"a": {}, "b": {"properties": {"c": {}}}}}, 1),
        ({"anyOf": [{}, {"allOf": [{}, {}]}]}, 5),
        ({"anyOf": ANY_JSON}, 4),  # Circles, in which nothing is looked at twice.
        ({"properties": {"l": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}}, 2),
        ({"properties": {"l": {}}, "patternProperties": {"l": {"$ref": "#"}}}, 3),
        (layers(3), 16),
        ({"allOf": [{"properties": {"a": TWO}}, {"additionalProperties": TWO}]}, 6),
        ({"allOf": [{"additionalProperties": TWO}, {"properties": {"a": TWO}}]}, 6),
        ({"prefixItems": [{"anyOf": [{}, {}]}], "items": {}}, 3),
        ({"enum": [1, "a", [1], {}]}, 17),
        ({"items": {"pattern": "^(?=a)"}}, 4_001),
        ({"items": {"pattern": "^a+$"}}, 1),
        (TWICE, None),
        ({"patternProperties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}, None),
        ({"dependentSchemas": {"a": TWICE["anyOf"][0]}, "items": {"$ref": "#"}}, None),
        (layers(40), None),
        ({"$ref": "#"}, None),
        ({"allOf": [{"$ref": "#"}]}, None),
        ({"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}}, None),
        ({"$ref": "#/nowhere"}, None),
    ],
)
def test_how_often_one_part_is_looked_at(schema: Any, looks: int | None) -> None:
    assert breadth.breadth(schema, {}) == looks


def test_what_others_are_referred_to_counts() -> None:
    needed = {"twice.json": {"anyOf": [{}, {}]}}
    assert breadth.breadth({"items": {"$ref": "twice.json"}}, needed) == 4
    assert breadth.breadth({"items": {"$ref": "http://x/twice.json#/anyOf/0"}}, needed) == 2
    assert breadth.breadth({"$ref": "other.json"}, needed) is None


def test_of_what_may_take_for_ever_only_the_id_counts() -> None:
    """33 bytes took 39 s, and each level more than doubled that."""
    for schema in (TWICE, layers(60)):
        assert judging.judge_of(words.JSON, json.dumps(schema), []) is None


def test_what_has_too_many_parts_for_its_schema_is_refused() -> None:
    schema = {"items": {"enum": [{"a": n} for n in range(1_000)]}}
    looks = breadth.breadth(schema, {})
    assert looks == 8_001
    assert judge(schema).look(json.dumps([{"a": 999}] * 100).encode()) is None
    found = flaw(schema, json.dumps([{"a": 999}] * 5_000).encode())
    assert found.pointer is None and "more parts" in found.reason


def test_where_a_reason_would_be_long_it_is_short() -> None:
    """Each choice has reasons of its own, of each part: not all of them are collected."""
    choices = {"anyOf": [{"items": {"type": "string"}}, {"items": {"type": "null"}}]}
    assert "any of" in flaw(choices, b"[" + b"1," * 50 + b"1]").reason
    found = flaw(choices, b"[" + b"1," * 100_000 + b"1]")
    assert found.pointer == "" and "too many parts" in found.reason
    # Where there are no choices the first reason is the only one.
    found = flaw({"items": {"type": "string"}}, b"[" + b"1," * 100_000 + b"1]")
    assert found.pointer == "/0"


# --- Avro -------------------------------------------------------------------------------------

RECORD = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": ["null", "string"]}],
}


def avro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def test_avro_is_decoded_to_its_end() -> None:
    value = avro(RECORD, {"a": 7, "b": "x"})
    assert judge(RECORD, words.AVRO).look(value) is None
    assert "1 bytes are left" in flaw(RECORD, value + b"x", words.AVRO).reason
    for cut in range(len(value)):
        assert "decoded" in flaw(RECORD, value[:cut], words.AVRO).reason
    assert "decoded" in flaw(RECORD, b"\x0e\x09", words.AVRO).reason  # A branch that is none.


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def record(*types: Any, name: str = "R") -> dict[str, Any]:
    fields = [{"name": f"f{at}", "type": each} for at, each in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields}


@pytest.mark.parametrize(
    ("schema", "bounded"),
    [
        (array("long"), True),
        (array("null"), False),  # Ten bytes are 2**62 of them.
        (array(record()), False),
        (array(record("null")), False),
        (array(record("null", "int")), True),
        (array(record(record("null", name="S"))), False),
        (array({"type": "fixed", "name": "F", "size": 0}), False),
        (array({"type": "fixed", "name": "F", "size": 1}), True),
        (array(["null"]), True),  # The branch's number is a byte.
        (array(array("null")), False),
        (array({"type": "map", "values": "null"}), True),
        (array({"type": "enum", "name": "E", "symbols": ["A"]}), True),
        ({"type": "map", "values": array("null")}, False),
        (["null", array("null")], False),
        (record("int", array("null")), False),
        (record("int", ["null", "R"]), False),  # It refers to itself.
        (record(["null", array("R")]), False),
        (record({"type": "map", "values": "R"}), False),
        (record(["null", record(["null", "R"], name="S")]), False),  # And not by the nearest.
        (record(record("int", name="S"), "S"), True),  # What it has twice is not itself.
        (record({"type": "fixed", "name": "F", "size": 2**80}), True),
        ("string", True),
    ],
)
def test_of_which_avro_few_bytes_are_few_parts(schema: Any, bounded: bool) -> None:
    assert (judging.judge_of(words.AVRO, json.dumps(schema), []) is not None) == bounded


def test_no_byte_is_endlessly_many_parts() -> None:
    """Each record has the one before twice: 2**40 nulls, in a value of no byte."""
    twice = [record("null", name="R0")]
    twice += [record(f"R{at - 1}", f"R{at - 1}", name=f"R{at}") for at in range(1, 41)]
    assert judging.judge_of(words.AVRO, json.dumps(record(*twice, name="T")), []) is None
    few = judge(record(*twice[:4], name="T"), words.AVRO)
    assert few.look(b"") is None and few.look(b"x") is not None


def test_avro_is_not_nested_beyond_the_decoders_stack() -> None:
    for levels, there in ((20, True), (judging.AVRO_NESTED_MAX, False)):
        chain = [record("int", name="R0")]
        chain += [record(f"R{at - 1}", name=f"R{at}") for at in range(1, levels)]
        schema = json.dumps(record(["null", *chain], name="T"))
        assert (judging.judge_of(words.AVRO, schema, []) is not None) == there


def test_a_byte_of_an_array_is_not_thousands_of_parts() -> None:
    """Each item is a byte, and a thousand nulls: what may be more than can be looked at is none."""
    wide = judge(array(record("boolean", *["null"] * 1000)), words.AVRO)
    few = judging.AVRO_FEW_PARTS // 1002 - 10
    item = dict.fromkeys([f"f{at}" for at in range(1001)]) | {"f0": True}
    value = avro(array(record("boolean", *["null"] * 1000)), [item] * 3)
    assert wide.look(value) is None
    found = wide.look(bytes(few + 20))
    assert found is not None and "more parts" in found.reason
    found = wide.look(bytes(few))  # The block's end, and more behind it.
    assert found is not None and "left" in found.reason


def test_large_avro_that_is_ordinary_is_looked_at() -> None:
    schema = array(record("double", ["null", "string"], name="Row"))
    value = avro(schema, [{"f0": 1.5, "f1": None}] * 110_000)
    assert len(value) > 900_000 and judge(schema, words.AVRO).look(value) is None
    dense = judge(array(record("int", "string", ["null", "int"], name="Row")), words.AVRO)
    for size, more in ((1_000_000, False), (1_300_000, True)):  # 5 parts in 3 bytes at least.
        found = dense.look(b"\x01" * size)
        assert found is not None and ("more parts" in found.reason) == more


def test_of_protobuf_and_of_references_in_avro_only_the_id_counts() -> None:
    assert judging.judge_of(words.PROTOBUF, 'syntax = "proto3";', []) is None
    needed = [("S", words.AVRO, json.dumps(record("int", name="S")))]
    assert judging.judge_of(words.AVRO, json.dumps(record("S")), needed) is None
