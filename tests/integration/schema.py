"""A JSON value held against a JSON Schema of the kinds that /openapi.json has."""

from typing import Any

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
}


def wrong(value: Any, schema: dict[str, Any], where: str = "") -> list[str]:
    """What does not fit, with its place."""
    kind = schema.get("type")
    if isinstance(kind, list):
        if value is None and "null" in kind:
            return []
        (kind,) = set(kind) - {"null"}
    if kind is not None:
        fits = isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
        if not fits:
            return [f"{where}: {value!r} is no {kind}"]
    found = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r}")
    if kind == "array":
        for each in value:
            found += wrong(each, schema["items"], f"{where}[]")
    if kind == "object":
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        missing = [name for name in schema.get("required", ()) if name not in value]
        found += [f"{where}.{name} is missing" for name in missing]
        for name, each in value.items():
            if name in known:
                found += wrong(each, known[name], f"{where}.{name}")
            elif others is False:
                found.append(f"{where}.{name} is not described")
            elif isinstance(others, dict):
                found += wrong(each, others, f"{where}.{name}")
    return found
