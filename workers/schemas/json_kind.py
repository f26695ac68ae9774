"""JSON Schemas, by jsonschema-rs. What they refer to is what was given with them: nothing is ever
fetched."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

BACKTRACKED_MAX = 10_000
"""Steps that a pattern may go back for one text: a tenth of a millisecond."""

PATTERN_BYTES_MAX, PATTERNS_MAX = 128 * 1024, 256
"""Of the program that a pattern becomes, and of all patterns: they are compiled at once."""


def _patterns(value: Any, found: set[str]) -> set[str]:
    """Those of a schema, and of what is in it."""
    if isinstance(value, dict):
        if isinstance(one := value.get("pattern"), str):
            found.add(one)
        if isinstance(many := value.get("patternProperties"), dict):
            found.update(many)
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        _patterns(each, found)
    return found


def _refused(uri: str) -> Any:
    raise ValueError(f"{uri} is no reference of this schema")


def validator(schema: Any, needed: Mapping[str, Any]) -> Any:
    """Validates values against it; an exception says that it is no schema."""
    if not isinstance(schema, (dict, bool)):
        raise TypeError("a JSON schema is an object, or true or false")
    library = import_module("jsonschema_rs")
    kind = library.validator_cls_for(schema)
    if len(_patterns([schema, *needed.values()], set())) > PATTERNS_MAX:
        raise ValueError(f"more than {PATTERNS_MAX} patterns")
    patterns = library.FancyRegexOptions(
        backtrack_limit=BACKTRACKED_MAX,
        size_limit=PATTERN_BYTES_MAX,
        dfa_size_limit=PATTERN_BYTES_MAX,
    )

    def retrieve(uri: str) -> Any:
        for name, each in needed.items():
            if uri == name or uri.endswith("/" + name):
                return each
        return _refused(uri)

    return kind(schema, retriever=retrieve, pattern_options=patterns)
