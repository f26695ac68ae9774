"""Shapes of the answers of the registry of schemas, by names of the table."""

from typing import Any

_TEXT = {"type": "string"}
_NUMBER = {"type": "integer"}

_SCHEMA: dict[str, Any] = {
    "schema": {"type": "string", "description": "Its text, as it was given."},
    "schemaType": {"enum": ["AVRO", "JSON", "PROTOBUF"], "description": "AVRO is not told."},
    "references": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["name", "subject", "version"],
            "properties": {"name": _TEXT, "subject": _TEXT, "version": _NUMBER},
        },
    },
}
_VERSION: dict[str, Any] = {"subject": _TEXT, "version": _NUMBER, "id": _NUMBER, **_SCHEMA}

SHAPES: dict[str, dict[str, Any]] = {
    "text": _TEXT,
    "registry": {
        "type": "object",
        "description": "Nothing more: clients only look whether it is there.",
        "properties": {},
        "additionalProperties": False,
    },
    "names": {"type": "array", "items": _TEXT},
    "numbers": {"type": "array", "items": _NUMBER},
    "number": _NUMBER,
    "schema": {
        "type": "object",
        "required": ["schema"],
        "properties": {**_SCHEMA, "maxId": _NUMBER},
    },
    "version": {"type": "object", "required": ["subject", "version", "id"], "properties": _VERSION},
    "schemas": {"type": "array", "items": {"type": "object", "properties": _VERSION}},
    "placed": {
        "type": "array",
        "items": {
            "type": "object",
            "required": ["subject", "version"],
            "properties": {"subject": _TEXT, "version": _NUMBER},
        },
    },
    "compatible": {
        "type": "object",
        "required": ["is_compatible"],
        "properties": {
            "is_compatible": {"type": "boolean"},
            "messages": {"type": "array", "items": _TEXT},
        },
    },
    "level": {
        "type": "object",
        "properties": {"compatibilityLevel": _TEXT, "compatibility": _TEXT},
    },
    "mode": {"type": "object", "properties": {"mode": _TEXT}},
}

REFUSED = {
    "type": "object",
    "required": ["error_code", "message"],
    "properties": {"error_code": _NUMBER, "message": _TEXT},
}
"""How this API says what is wrong; who may not ask is told by a problem document."""
