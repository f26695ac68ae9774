"""Whether the value of an event is one of its schema: as far as a library says so cheaply, and for
any bytes in bounded time and memory.

JSON is validated, unless its schema may have one part of a value looked at endlessly often. Avro is
decoded, unless its schema says that few bytes may be endlessly many parts, or refers to itself: the
decoder calls itself for each level, without a bound. Of Protobuf, and of what is said there, only
the schema's id counts.
"""

import io
import json
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from barco import _native
from barco.workers.schemas import breadth, json_kind, kinds, shapes, words
from barco.workers.schemas.records import Draft

LOOKS_MAX = 16_000_000
"""At parts of one value: a third of a second, in which nobody else has the loop."""

TOLD_LOOKS_MAX = 20_000
"""Where a reason is made of all that is wrong with each choice: 40 us for each of them."""

AVRO_PARTS_MAX, AVRO_FEW_PARTS, AVRO_SCHEMA_PARTS_MAX = 2_000_000, 700_000, 10_000
"""Of one value of Avro, of 0.4 us and some 100 bytes each; where they are more than two a byte; and
without arrays and maps, which is what no byte of a value need be spent for."""

AVRO_NESTED_MAX = 200
"""Levels of a value: the decoder calls itself for each."""

REASON_CHARS_MAX, POINTER_CHARS_MAX = 300, 512


class Flaw(NamedTuple):
    """What is wrong with a value."""

    reason: str
    pointer: str | None = None
    """Into a JSON value, RFC 6901; "" is all of it. None: it is no JSON."""


class Judge(NamedTuple):
    """Of one schema."""

    look: Callable[[bytes], Flaw | None]
    """At what is behind the id; None: nothing is wrong."""
    shape: _native.Shape | None = None
    """Passes over most values that are right, many at once. Of others it knows nothing."""


def judge_of(kind: str, text: str, needed: list[tuple[str, str, str]]) -> Judge | None:
    """By a schema and what it refers to (name, kind, text). None: nothing can be said. Takes a
    while: not in a loop's turn."""
    others = [(name, Draft(each, other, (), b"")) for name, each, other in needed]
    try:
        if kind == words.JSON:
            return _json_judge(text, others)
        return _avro_judge(text, others) if kind == words.AVRO else None
    except ImportError:  # This broker was installed without barco[schemas].
        return None


# --- JSON -------------------------------------------------------------------------------------


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODE = json.JSONDecoder(parse_constant=_constant).decode


def _json_judge(text: str, needed: kinds.Needed) -> Judge | None:
    schema = kinds.parsed(text)
    others = {name: kinds.parsed(draft.text) for name, draft in needed}
    looks = breadth.breadth(schema, others)
    if looks is None:
        return None
    validator = json_kind.validator(schema, others)
    is_valid, validate = validator.is_valid, validator.validate
    invalid = import_module("jsonschema_rs").ValidationError
    told_max = TOLD_LOOKS_MAX if breadth.is_told_whole(schema, others) else LOOKS_MAX

    def look(value: bytes) -> Flaw | None:
        work = breadth.work_of(value, looks)
        if work > LOOKS_MAX:
            return Flaw("This has more parts than can be looked at with this schema.")
        try:
            found = _DECODE(value.decode())
            if is_valid(found):
                return None
            if work <= told_max:
                validate(found)
        except RecursionError:
            return Flaw("This JSON is nested too deeply.")
        except invalid as error:
            return Flaw(str(error.message)[:REASON_CHARS_MAX], _pointer(error.instance_path))
        except ValueError as wrong:
            return Flaw(f"This is no JSON: {str(wrong)[:REASON_CHARS_MAX]}.")
        return Flaw("This is not valid, and has too many parts to say where.", "")

    return Judge(look, shapes.shape_of(schema))


def _pointer(path: list[str | int]) -> str:
    steps = (str(each).replace("~", "~0").replace("/", "~1") for each in path)
    return "".join(f"/{each}" for each in steps)[:POINTER_CHARS_MAX]


# --- Avro -------------------------------------------------------------------------------------


def _avro_judge(text: str, needed: kinds.Needed) -> Judge | None:
    schema = _plain(kinds.avro(text, needed))
    if needed or (sizes := avro_sizes(schema)) is None:
        return None
    fastavro = import_module("fastavro")
    parsed = fastavro.parse_schema(schema)

    def look(value: bytes) -> Flaw | None:
        most = min(AVRO_PARTS_MAX, max(AVRO_FEW_PARTS, 2 * len(value)))
        if sizes.parts + sizes.parts_a_byte * len(value) > most:
            return Flaw("This may have more parts than can be looked at with this schema.")
        stream = io.BytesIO(value)
        try:
            fastavro.schemaless_reader(stream, parsed, None)
        except Exception as error:  # noqa: BLE001 - whatever a library says of what is none.
            told = str(error)[:REASON_CHARS_MAX] or type(error).__name__
            return Flaw(f"This can not be decoded with the schema: {told}.")
        left = len(value) - stream.tell()
        return Flaw(f"{left} bytes are left behind what the schema says.") if left else None

    return Judge(look)


_DROPPED = ("logicalType", "aliases", "doc", "default", "__fastavro_parsed", "__named_schemas")


def _plain(schema: Any) -> Any:
    """Without logical types: what is made of a value of theirs may cost more than to read it."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {name: _plain(each) for name, each in schema.items() if name not in _DROPPED}


class AvroSizes(NamedTuple):
    """Of a value, without the items of its arrays and maps."""

    parts: int
    """At most: a null that takes no byte is one, too."""
    bytes: int
    """At least."""
    depth: int
    parts_a_byte: float = 0.0
    """At most, of the items in it and in these; 0: it has none."""


_PRIMITIVE = {
    **dict.fromkeys(("boolean", "int", "long", "bytes", "string"), AvroSizes(1, 1, 1)),
    "null": AvroSizes(1, 0, 1),
    "float": AvroSizes(1, 4, 1),
    "double": AvroSizes(1, 8, 1),
}


def avro_sizes(schema: Any) -> AvroSizes | None:
    """Of a schema as fastavro has parsed it. None: it refers to itself, or no number of bytes says
    how many parts a value has."""
    try:
        return _sizes(schema, {})
    except (_EndlessError, RecursionError, LookupError, TypeError, ValueError):
        return None


class _EndlessError(Exception):
    """There is no bound."""


def _sizes(schema: Any, named: dict[str, AvroSizes | None]) -> AvroSizes:
    """`named`: types by name, each looked at once; None while it is: what leads there is endless.
    A type that others have twice each, in turn, has as many parts as there are paths to it."""
    if isinstance(schema, str):
        found = named.get(schema, _PRIMITIVE.get(schema))
    elif isinstance(schema, list):
        branches = [_sizes(each, named) for each in schema]
        found = _together(branches, max(each.parts for each in branches))
        found = found._replace(bytes=1 + min(each.bytes for each in branches))
    elif isinstance(kind := schema["type"], str) and kind in ("record", "error"):
        named[schema["name"]] = None
        fields = [_sizes(each["type"], named) for each in schema["fields"]]
        found = named[schema["name"]] = _together(fields, sum(each.parts for each in fields))
    elif isinstance(kind, str) and kind in ("enum", "fixed"):
        size = 1 if kind == "enum" else max(0, int(schema["size"]))
        found = named[schema["name"]] = AvroSizes(1, size, 1)
    elif isinstance(kind, str) and kind in ("array", "map"):
        found = _items(kind, schema, named)
    else:
        found = _sizes(kind, named)
    if found is None or found.parts > AVRO_SCHEMA_PARTS_MAX or found.depth > AVRO_NESTED_MAX:
        raise _EndlessError
    return found


def _together(inner: list[AvroSizes], parts: int) -> AvroSizes:
    """What is made of these, one behind the other."""
    return AvroSizes(
        1 + parts,
        sum(each.bytes for each in inner),
        1 + max((each.depth for each in inner), default=0),
        max((each.parts_a_byte for each in inner), default=0.0),
    )


def _items(kind: str, schema: Any, named: dict[str, AvroSizes | None]) -> AvroSizes:
    """Of an array, or a map, whose keys take a byte."""
    each, key = _sizes(schema["items" if kind == "array" else "values"], named), int(kind == "map")
    if each.bytes + key == 0:
        raise _EndlessError
    parts_a_byte = (each.parts + key) / (each.bytes + key)
    return AvroSizes(1, 1, 1 + each.depth, max(each.parts_a_byte, parts_a_byte))
