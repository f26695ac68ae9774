"""Whether the value of an event is one of its schema: as far as a library says so cheaply, and for
any bytes in bounded time and memory.

JSON is validated, unless its schema may have one part of a value looked at endlessly often. Avro is
decoded, unless its schema says that few bytes may be endlessly many items, or refers to itself: the
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
    if needed or not _is_bounded(schema):
        return None
    fastavro = import_module("fastavro")
    parsed = fastavro.parse_schema(schema)

    def look(value: bytes) -> Flaw | None:
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


def _is_bounded(schema: Any, names: tuple[str, ...] = ()) -> bool:
    """Whether a value has no more parts than bytes, and is not nested deeper than its schema."""
    if isinstance(schema, list):
        return all(_is_bounded(each, names) for each in schema)
    if not isinstance(schema, dict):
        return schema not in names
    if name := schema.get("name"):
        names = (*names, name)
    if schema["type"] == "array" and not _takes_bytes(schema["items"]):
        return False
    inner = None if isinstance(schema["type"], str) else schema["type"]
    parts = [inner, schema.get("items"), schema.get("values")]
    parts += [each["type"] for each in schema.get("fields", ())]
    return all(_is_bounded(each, names) for each in parts if each is not None)


def _takes_bytes(schema: Any) -> bool:
    """Whether every value of it takes a byte at least."""
    if isinstance(schema, str):
        return schema in ("boolean", "int", "long", "float", "double", "bytes", "string")
    if isinstance(schema, list) or schema["type"] in ("array", "map", "enum"):
        return True
    if schema["type"] == "fixed":
        return bool(schema["size"] > 0)
    if schema["type"] in ("record", "error"):
        return any(_takes_bytes(each["type"]) for each in schema["fields"])
    return _takes_bytes(schema["type"])
