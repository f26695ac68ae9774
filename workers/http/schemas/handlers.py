"""The registry of schemas, in the words that Avro's users speak: under /registry.

It is kept where slice 0 is led; every broker asks there.
"""

import functools
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from barco.errors import (
    BarcoError,
    ForbiddenError,
    RequestError,
    UnauthorizedError,
    UnsupportedMediaTypeError,
)
from barco.model.access import ADMIN, CONSUME, METRICS, PRODUCE, User
from barco.workers.http.base.context import Context
from barco.workers.http.base.messages import (
    Request,
    Response,
    media_type,
    parse_number,
    problem_response,
    read_json,
)
from barco.workers.http.base.needs import allow
from barco.workers.schemas import words

REGISTRY_JSON = "application/vnd.schemaregistry.v1+json"
TAKEN = (REGISTRY_JSON, "application/vnd.schemaregistry+json", "application/json")
READS = (CONSUME, PRODUCE, ADMIN)
"""Whoever has to do with a topic may read what its events look like."""

VERSION_DIGITS_MAX = 10
"""As many as 2^31 - 1 has."""

_CODES = {503: 50003, 504: 50002, 500: 50001, 507: 50001}
_GIVEN = {"schema", "schemaType", "references", "id", "version"}

Handler = Callable[["SchemaRoutes", Request], Awaitable[Response]]


def answer(value: Any, status: int = 200) -> Response:
    """A document of this API."""
    body = json.dumps(value, separators=(",", ":")).encode()
    return Response(status, body, (("Content-Type", REGISTRY_JSON), ("Cache-Control", "no-store")))


def _told(handler: Handler) -> Handler:
    """Errors as this API has them: a code and a message. Who may not is told as everywhere."""

    @functools.wraps(handler)
    async def inner(self: "SchemaRoutes", request: Request) -> Response:
        try:
            return await handler(self, request)
        except (UnauthorizedError, ForbiddenError):
            raise
        except BarcoError as error:
            code = error.fields.get("error_code", _CODES.get(error.status, error.status))
            usual = problem_response(error)
            headers = tuple(each for each in usual.headers if each[0] != "Content-Type")
            body = json.dumps({"error_code": code, "message": error.detail}).encode()
            return Response(error.status, body, (("Content-Type", REGISTRY_JSON), *headers))

    return inner


class SchemaRoutes:
    """Handlers of /registry."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def _look(self, what: str, **args: Any) -> Any:
        return await self._context.change_slice(0, "schema_look", {"what": what, **args})

    async def _change(self, what: str, **args: Any) -> Any:
        return await self._context.change_slice(0, "schema_change", {"what": what, **args})

    @_told
    async def home(self, request: Request) -> Response:
        """Clients look whether there is something."""
        return answer({})

    @_told
    async def kinds(self, request: Request) -> Response:
        """Of schemas."""
        return answer(list(words.KINDS))

    # --- By id ------------------------------------------------------------------------------

    async def _found(self, request: Request) -> dict[str, Any]:
        """A schema by its id, if it is of a subject that the user may read: else it is as if
        there were none."""
        id = parse_number("id", request.variables["number"])
        found: dict[str, Any] = await self._look("id", id=id)
        seen = [each for each in found["versions"] if _sees(request.user, each[0])]
        if not seen:
            raise words.missing(words.SCHEMA_NOT_FOUND, f"Schema {id} not found")
        deleted = _flag(request, "deleted")
        found["versions"] = [each for each in seen if deleted or not each[2]]
        return found

    @_told
    async def schema(self, request: Request) -> Response:
        """Of an id."""
        found = await self._found(request)
        more = {"maxId": found["last"]} if _flag(request, "fetchMaxId") else {}
        return answer(found["told"] | more)

    @_told
    async def schema_text(self, request: Request) -> Response:
        """As it was given."""
        return _text((await self._found(request))["told"])

    @_told
    async def schema_subjects(self, request: Request) -> Response:
        """That have it."""
        found = await self._found(request)
        return answer(_page(request, sorted({each[0] for each in found["versions"]})))

    @_told
    async def schema_versions(self, request: Request) -> Response:
        """Subjects and versions that have it."""
        found = await self._found(request)
        placed = [{"subject": each[0], "version": each[1]} for each in found["versions"]]
        return answer(_page(request, placed))

    @_told
    async def every(self, request: Request) -> Response:
        """Schemas of all subjects."""
        found = await self._look(
            "every",
            prefix=request.value("subjectPrefix") or "",
            deleted=_flag(request, "deleted"),
            latest=_flag(request, "latestOnly"),
        )
        return answer(_page(request, [s for s in found if _sees(request.user, s["subject"])]))

    # --- Subjects ---------------------------------------------------------------------------

    @_told
    async def subjects(self, request: Request) -> Response:
        """Their names."""
        found = await self._look(
            "subjects",
            prefix=request.value("subjectPrefix") or "",
            deleted=_flag(request, "deleted"),
            only=_flag(request, "deletedOnly", "deleted_only"),
        )
        return answer(_page(request, [each for each in found if _sees(request.user, each)]))

    @_told
    async def versions(self, request: Request) -> Response:
        """Numbers of a subject's versions."""
        found = await self._look(
            "versions",
            subject=request.variables["subject"],
            deleted=_flag(request, "deleted"),
            only=_flag(request, "deletedOnly", "deleted_only"),
        )
        return answer(_page(request, found))

    async def _version(self, request: Request) -> dict[str, Any]:
        found: dict[str, Any] = await self._look(
            "version",
            subject=request.variables["subject"],
            version=_number(request),
            deleted=_flag(request, "deleted"),
        )
        return found

    @_told
    async def version(self, request: Request) -> Response:
        """One of them."""
        return answer(await self._version(request))

    @_told
    async def version_text(self, request: Request) -> Response:
        """Its schema, as it was given."""
        return _text(await self._version(request))

    @_told
    async def referring(self, request: Request) -> Response:
        """Ids of schemas that refer to it."""
        args = {"subject": request.variables["subject"], "version": _number(request)}
        return answer(_page(request, await self._look("referring", **args)))

    @_told
    async def register(self, request: Request) -> Response:
        """A new version, or the one that is this schema."""
        subject = words.subject_name(request.variables["subject"])
        return answer(await self._change("register", subject=subject, **_given(request)))

    @_told
    async def find(self, request: Request) -> Response:
        """Which version is this schema."""
        subject, deleted = request.variables["subject"], _flag(request, "deleted")
        return answer(await self._look("find", subject=subject, deleted=deleted, **_given(request)))

    @_told
    async def delete(self, request: Request) -> Response:
        """A version."""
        return answer(
            await self._change(
                "delete",
                subject=request.variables["subject"],
                version=_number(request),
                permanent=_flag(request, "permanent"),
            )
        )

    @_told
    async def delete_all(self, request: Request) -> Response:
        """Of a subject."""
        permanent = _flag(request, "permanent")
        subject = request.variables["subject"]
        return answer(await self._change("delete_all", subject=subject, permanent=permanent))

    # --- Rules ------------------------------------------------------------------------------

    @_told
    async def compatible(self, request: Request) -> Response:
        """Whether a schema may follow a version, or those that the level asks for."""
        number = _number(request) if "version" in request.variables else None
        args = {"subject": request.variables["subject"], "version": number}
        messages = await self._look("compatible", **args, **_given(request))
        told: dict[str, Any] = {"is_compatible": not messages}
        if _flag(request, "verbose"):
            told["messages"] = messages
        return answer(told)

    @_told
    async def config(self, request: Request) -> Response:
        """The level of a subject, or of all."""
        return await self._told_setting(request, "level", words.NO_LEVEL_OF_SUBJECT)

    @_told
    async def mode(self, request: Request) -> Response:
        """Whether there may be new versions."""
        return await self._told_setting(request, "mode", words.NO_MODE_OF_SUBJECT)

    async def _told_setting(self, request: Request, name: str, code: int) -> Response:
        subject = request.variables.get("subject", "")
        found = await self._look("setting", subject=subject)
        value = found[name]
        if not value and subject and not _flag(request, "defaultToGlobal"):
            what = "compatibility level" if name == "level" else "mode"
            raise words.missing(
                code, f"Subject {subject!r} does not have subject-level {what} configured"
            )
        return answer({_NAMES[name][0]: value or found[f"{name}_holds"]})

    @_told
    async def put_config(self, request: Request) -> Response:
        """Another level."""
        return await self._set(request, "level", words.LEVELS, words.INVALID_LEVEL)

    @_told
    async def put_mode(self, request: Request) -> Response:
        """Another mode."""
        return await self._set(request, "mode", words.MODES, words.INVALID_MODE)

    async def _set(
        self, request: Request, name: str, values: tuple[str, ...], code: int
    ) -> Response:
        field = _NAMES[name][1]
        given = _body(request)
        value = given.get(field)
        if not isinstance(value, str) or value.upper() not in values:
            raise words.wrong(code, f"Invalid {field}: it is one of {', '.join(values)}")
        for other in given.keys() - {field}:
            if given[other] is not None:
                raise words.wrong(code, f"{str(other)[:64]!r} is not kept here")
        subject = request.variables.get("subject", "")
        await self._change("set", subject=subject, **{name: value.upper()})
        return answer({field: value.upper()})

    @_told
    async def delete_config(self, request: Request) -> Response:
        """None of its own any more."""
        return await self._unset(request, "level", words.NO_LEVEL_OF_SUBJECT)

    @_told
    async def delete_mode(self, request: Request) -> Response:
        """None of its own any more."""
        return await self._unset(request, "mode", words.NO_MODE_OF_SUBJECT)

    async def _unset(self, request: Request, name: str, code: int) -> Response:
        subject = request.variables.get("subject", "")
        before = await self._change("set", subject=subject, **{name: ""})
        if not before[name] and subject:
            raise words.missing(code, f"Subject {subject!r} does not have one of its own")
        return answer({_NAMES[name][0]: before[name] or (await self._now(name))})

    async def _now(self, name: str) -> str:
        return str((await self._look("setting", subject=""))[f"{name}_holds"])


_NAMES = {"level": ("compatibilityLevel", "compatibility"), "mode": ("mode", "mode")}
"""As answers to GET spell it, and as PUT does."""


def _sees(user: User, subject: str) -> bool:
    """Whether somebody may know of it."""
    topic = words.topic_of(subject)
    return user.may(METRICS) or any(user.may(verb, topic) for verb in READS)


def _flag(request: Request, *names: str) -> bool:
    """Clients of Python write True."""
    value = (request.value(*names) or "false").lower()
    if value not in ("true", "false"):
        raise RequestError(f"The parameter {names[0]} is true or false.")
    return value == "true"


def _text(told: Mapping[str, Any]) -> Response:
    kind = REGISTRY_JSON if told.get("schemaType") != words.PROTOBUF else "text/plain"
    return Response(200, told["schema"].encode(), (("Content-Type", kind),))


def _page(request: Request, found: list[Any]) -> list[Any]:
    offset = request.number("offset", default=0, most=2**31)
    value = request.value("limit")
    if value is None or value == "-1":
        return found[offset:]
    return found[offset : offset + parse_number("limit", value)]


def _number(request: Request) -> int:
    """Of a version: from 1, or the newest."""
    given = request.variables["version"]
    if given in ("latest", "-1"):
        return words.LATEST
    is_number = given.isascii() and given.isdecimal() and len(given) <= VERSION_DIGITS_MAX
    if not is_number or not 1 <= int(given) < 2**31:
        raise words.wrong(
            words.INVALID_VERSION,
            f"The specified version {given[:32]!r} is not a valid version id. Allowed values are"
            ' between [1, 2^31-1] and the string "latest"',
        )
    return int(given)


def _body(request: Request) -> dict[str, Any]:
    kind = request.header("content-type")
    if kind is None or media_type(kind) not in TAKEN:
        raise UnsupportedMediaTypeError(f"The body is to be {REGISTRY_JSON}.")
    given = read_json(request.body)
    if not isinstance(given, dict):
        raise RequestError("The body is to be a JSON object.")
    return given


def _given(request: Request) -> dict[str, Any]:
    """The schema of a body. What is said beside it and would not be kept is refused."""
    given = _body(request)
    for name in given.keys() - _GIVEN:
        if given[name] is not None:
            raise words.invalid(f"{str(name)[:64]!r} of a schema is not kept here")
    text, kind = given.get("schema"), given.get("schemaType") or words.AVRO
    if not isinstance(text, str) or not isinstance(kind, str):
        raise words.invalid("schema is a text, and so is schemaType")
    for name in ("id", "version"):
        if given.get(name) not in (None, -1, 0):
            raise words.wrong(words.NOT_PERMITTED, f"{name} cannot be chosen: no mode is IMPORT")
    return {"kind": kind, "text": text, "references": _references(request, given)}


def _references(request: Request, given: Mapping[str, Any]) -> list[list[Any]]:
    found = []
    references = given.get("references") or []
    if not isinstance(references, list):
        raise words.invalid("references is a list, of what has a name, a subject and a version")
    for each in references:
        try:
            name, subject, version = each["name"], each["subject"], each["version"]
        except (LookupError, TypeError):
            raise words.invalid("A reference has a name, a subject and a version") from None
        if not isinstance(name, str) or not isinstance(subject, str) or type(version) is not int:
            raise words.invalid("A reference has a name, a subject and a version")
        if version != words.LATEST and not 1 <= version < 2**31:
            raise words.invalid("The version of a reference is from 1 to 2^31 - 1, or -1")
        if len(name.encode("utf-8", "replace")) > words.REFERENCE_NAME_BYTES_MAX:
            raise words.invalid("The name of a reference is too long")
        if not request.user.is_everybody:
            allow(request.user, READS, ((words.topic_of(subject), None),))
        found.append([name, subject, version])
    return found
