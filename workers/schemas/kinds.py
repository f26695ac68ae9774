"""Reading a schema's text: whether it is one of its kind, and which others are the same.

The libraries that read it are an extra of the installation (`barco[schemas]`).
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from barco.errors import UnprocessableError
from barco.workers.schemas import json_kind, protobuf_rules, words
from barco.workers.schemas.records import Draft, References

Needed = Sequence[tuple[str, Draft]]
"""What a schema refers to, by the names that it has for it; what those need comes before them."""


def draft_of(kind: str, text: str, references: References, needed: Needed) -> Draft:
    """What was given, if it is a schema; 422 if it is none. Takes a while: not in a loop's turn."""
    if kind not in words.KINDS:
        raise words.invalid(f"Invalid schema type {kind[:64]!r}. It is one of {words.KINDS}.")
    if len(text.encode("utf-8", "replace")) > words.SCHEMA_BYTES_MAX:
        raise words.too_large(f"A schema has at most {words.SCHEMA_BYTES_MAX} bytes.")
    try:
        same = _READ[kind](text, needed)
    except UnprocessableError:
        raise
    except ImportError as error:
        raise words.invalid(f"This broker was installed without barco[schemas]: {error}.") from None
    except RecursionError:
        raise words.invalid("Invalid schema: it is nested too deeply.") from None
    except Exception as error:  # noqa: BLE001 - whatever a library says of what is no schema.
        raise words.invalid(f"Invalid schema: {type(error).__name__}: {str(error)[:300]}") from None
    named = [[each.name, each.subject, each.version] for each in references]
    told = json.dumps([kind, same, named]).encode()
    return Draft(kind, text, references, hashlib.sha256(told).digest())


def parsed(text: str) -> Any:
    """JSON that is not nested deeper than may be."""
    try:
        value = json.loads(text)
    except ValueError as error:
        raise words.invalid(f"Invalid schema: it is not JSON: {error}") from None
    layer = [value]
    for _ in range(words.NESTING_MAX):
        layer = [below for each in layer for below in _below(each)]
        if not layer:
            return value
    raise words.invalid(f"Invalid schema: JSON that is nested deeper than {words.NESTING_MAX}.")


def _below(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def avro(text: str, needed: Needed) -> Any:
    """As fastavro reads it, with the types of what it refers to by name."""
    fastavro = import_module("fastavro")
    names: dict[str, Any] = {}
    for _, draft in needed:
        if draft.kind != words.AVRO:
            raise words.invalid("Invalid schema: an Avro schema refers to Avro schemas only.")
        fastavro.parse_schema(parsed(draft.text), named_schemas=names)
    return fastavro.parse_schema(_avro_value(text), named_schemas=names)


def _avro_value(text: str) -> Any:
    """Names of primitive types may stand bare: `string`."""
    bare = text.strip()
    return bare if bare.isalpha() and bare != "null" else parsed(text) or "null"


def _avro_same(text: str, needed: Needed) -> Any:
    avro(text, needed)
    return json.dumps(_plain(_avro_value(text)), sort_keys=True)


def _plain(value: Any) -> Any:
    """Without objects that say nothing but a type."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    return (
        _plain(value["type"])
        if value.keys() == {"type"}
        else {name: _plain(each) for name, each in value.items()}
    )


def _json_same(text: str, needed: Needed) -> Any:
    value = parsed(text)
    json_kind.validator(value, {name: parsed(draft.text) for name, draft in needed})
    return json.dumps(value, sort_keys=True)


def _protobuf_same(text: str, needed: Needed) -> Any:
    """A descriptor in base64 is read, as clients of Python send it; text in the language itself is
    kept as it is."""
    if not text.strip():
        raise words.invalid("Invalid schema: it is empty.")
    found = protobuf_rules.descriptor(text)
    if found is None:
        return " ".join(text.split())
    if not found.IsInitialized() or not (found.message_type or found.enum_type or found.dependency):
        raise words.invalid("Invalid schema: a descriptor without messages.")
    return text


_READ: dict[str, Callable[[str, Needed], Any]] = {
    words.AVRO: _avro_same,
    words.JSON: _json_same,
    words.PROTOBUF: _protobuf_same,
}
