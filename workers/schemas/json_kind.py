"""JSON Schemas, by jsonschema-rs. What they refer to is what was given with them: nothing is ever
fetched."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

BACKTRACKED_MAX = 10_000
"""Steps that a pattern may go back for one text: a tenth of a millisecond."""


def _refused(uri: str) -> Any:
    raise ValueError(f"{uri} is no reference of this schema")


def validator(schema: Any, needed: Mapping[str, Any]) -> Any:
    """Validates values against it; an exception says that it is no schema."""
    if not isinstance(schema, (dict, bool)):
        raise TypeError("a JSON schema is an object, or true or false")
    library = import_module("jsonschema_rs")
    kind = library.validator_cls_for(schema)
    patterns = library.FancyRegexOptions(backtrack_limit=BACKTRACKED_MAX)

    def retrieve(uri: str) -> Any:
        for name, each in needed.items():
            if uri == name or uri.endswith("/" + name):
                return each
        return _refused(uri)

    return kind(schema, retriever=retrieve, pattern_options=patterns)
