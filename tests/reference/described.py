"""An answer held against what /openapi.json says of it."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import jsonschema

from barco.errors import BarcoError
from barco.workers.http.base.openapi import document
from barco.workers.http.base.routes import Router
from barco.workers.http.table import ROUTES

BYTES_MAX = 256 * 1024
"""What is longer has many events, which look like the first."""

_ROUTER = Router(ROUTES)
_PRODUCE = ("POST", "/v1/topic/{topic}/messages")


@cache
def described() -> dict[str, Any]:
    """The whole document."""
    return document(ROUTES, "0")


@cache
def _validator(name: str) -> Any:
    components = {"components": described()["components"]}
    return jsonschema.Draft202012Validator({"$ref": f"#/components/schemas/{name}", **components})


def wrong(
    method: str, path: str, status: int, headers: Mapping[str, str], body: bytes
) -> list[str]:
    """What does not fit: the status, the media type, or the body of JSON or of lines."""
    if (told := _answer(method, path, status)) is None:
        return []
    where = f"{method} {path} {status}"
    kind = headers.get("content-type", "").partition(";")[0]
    if not body or status == 204:
        return [f"{where}: it has a body"] if body else []
    if kind not in (contents := told.get("content", {})):
        return [f"{where}: {kind} is not told"]
    name = contents[kind]["schema"].get("$ref", "").rpartition("/")[2]
    if kind == "application/x-ndjson":
        name, body = "Line", body.partition(b"\n")[0]
    if not name or len(body) > BYTES_MAX:
        return []
    return [
        f"{where}: {fault.json_path}: {fault.message:.300}"
        for fault in _validator(name).iter_errors(json.loads(body))
    ]


def check(method: str, path: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
    """AssertionError: it is not what is told."""
    faults = wrong(method, path, status, headers, body)
    assert not faults, "\n".join(faults)


def _answer(method: str, path: str, status: int) -> dict[str, Any] | None:
    """What is told of it; None: nothing is, and need not be."""
    if method in ("HEAD", "OPTIONS") or not 200 <= status < 600:
        return None
    try:
        route, _, _ = _ROUTER.find(method, path.partition("?")[0])
    except BarcoError:
        if method != "POST" or not path.endswith("/messages") or path.count("/") != 4:
            return None
        key = _PRODUCE
    else:
        if route is None:
            return None
        key = route.method, route.path
    answers = described()["paths"][key[1]][key[0].lower()]["responses"]
    if str(status) not in answers and status >= 300:
        own = [
            each
            for code, each in answers.items()
            if code >= "400" and len(each.get("content", ())) > 1
        ]
        return own[0] if own else described()["components"]["responses"]["Problem"]
    told: dict[str, Any] = answers.get(str(status), {})
    return told
