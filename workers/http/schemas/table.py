"""The part of the API's table that is the registry of schemas, as Avro's users' clients know it."""

from typing import Any

from barco.workers.http.base.routes import Parameter, Route
from barco.workers.http.schemas.shapes import REFUSED, SHAPES

KIND = "application/vnd.schemaregistry.v1+json"
"""Of bodies and answers; `application/json` is taken as well."""

ROOT = "/registry"
SUBJECT = ROOT + "/subjects/{subject}"
VERSION = SUBJECT + "/versions/{version}"
ID = ROOT + "/schemas/ids/{number}"
_COMPATIBLE = ROOT + "/compatibility/subjects/{subject}/versions"

_DELETED = Parameter("deleted", "Also what is deleted, and not for good.", "boolean")
_ONLY = Parameter("deletedOnly", "Nothing else than that.", "boolean", older=("deleted_only",))
"""The client of Python has names of its own."""
_PREFIX = Parameter("subjectPrefix", "Only subjects that begin so.")
_OFFSET = Parameter("offset", "So many are left out.", "integer")
_LIMIT = Parameter("limit", "At most so many; -1: all.", "integer")
_PERMANENT = Parameter("permanent", "For good: of what was deleted before.", "boolean")
_NORMALIZE = Parameter("normalize", "Understood, and always done.", "boolean")
_VERBOSE = Parameter("verbose", "Also messages: what does not fit.", "boolean")
_GLOBAL = Parameter("defaultToGlobal", "What holds, if nothing is said of it.", "boolean")
_UNUSED = (
    Parameter("subject", "Understood: an id means the same in all subjects."),
    Parameter("format", "Understood: a schema is given as it was sent."),
    Parameter("referenceFormat", "The same of references.", older=("reference_format",)),
)

_SCHEMA = {"$ref": "#/components/schemas/GivenSchema"}
_LEVEL = {"$ref": "#/components/schemas/GivenLevel"}
_MODE = {"$ref": "#/components/schemas/GivenMode"}

_NONE = {404: "There is none, error_code says of what."}
_AWAY = {503: "Nobody leads slice 0, where they are kept."}
_NO_SCHEMA = {422: "It is no schema, or a reference of it means nothing."}


def _route(
    method: str,
    path: str,
    handler: str,
    summary: str,
    *parameters: Parameter,
    body: Any = None,
    answers: dict[int, str] | None = None,
    shape: str = "text",
) -> Route:
    return Route(
        method,
        path,
        f"schemas.{handler}",
        summary,
        "schemas",
        parameters,
        body={} if body is None else {KIND: body, "application/json": body},
        answers={200: "So it is."} | (answers or {}) | _AWAY,
        kinds=(KIND,),
        schema=SHAPES[shape],
        refused=REFUSED,
    )


_get = _route


def _settings(name: str, body: Any, shape: str) -> list[Route]:
    """Of all subjects, and of one."""
    force = (Parameter("force", "Understood.", "boolean"),) if name == "mode" else ()
    wrong = {422: "There is no such one."}
    found = []
    for path, whose in ((f"{ROOT}/{name}", "all"), (f"{ROOT}/{name}/{{subject}}", "a subject")):
        told = f"The {name} of {whose}."
        found += [
            _route("GET", path, name, told, _GLOBAL, answers=_NONE, shape=shape),
            _route(
                *("PUT", path, f"put_{name}", f"Another {name} of {whose}.", *force),
                body=body,
                answers=wrong,
                shape=shape,
            ),
            _route(
                *("DELETE", path, f"delete_{name}", f"No {name} of {whose} alone."),
                answers=_NONE,
                shape=shape,
            ),
        ]
    return found


SCHEMA_ROUTES = (
    _route("GET", ROOT, "home", "Whether there is a registry.", shape="registry"),
    _route("GET", ROOT + "/schemas/types", "kinds", "Kinds of schemas.", shape="names"),
    _route(
        *("GET", ROOT + "/schemas", "every", "Schemas of all subjects that one may read."),
        *(_PREFIX, _DELETED, _OFFSET, _LIMIT),
        Parameter("latestOnly", "Of each subject the newest version.", "boolean"),
        shape="schemas",
    ),
    _route(
        *("GET", ID, "schema", "A schema by its id."),
        *_UNUSED,
        Parameter("fetchMaxId", "Also maxId, the highest id.", "boolean"),
        answers=_NONE,
        shape="schema",
    ),
    _route("GET", ID + "/schema", "schema_text", "Its text.", *_UNUSED, answers=_NONE),
    _route(
        *("GET", ID + "/subjects", "schema_subjects", "The subjects that have it."),
        *(_DELETED, _UNUSED[0], _OFFSET, _LIMIT),
        answers=_NONE,
        shape="names",
    ),
    _route(
        *("GET", ID + "/versions", "schema_versions", "Where it is."),
        *(_DELETED, _UNUSED[0], _OFFSET, _LIMIT),
        answers=_NONE,
        shape="placed",
    ),
    _route(
        *("GET", ROOT + "/subjects", "subjects", "Subjects that one may read."),
        *(_PREFIX, _DELETED, _ONLY, _OFFSET, _LIMIT),
        shape="names",
    ),
    _route(
        *("POST", SUBJECT, "find", "Which version of a subject is this schema."),
        *(_NORMALIZE, _DELETED, *_UNUSED[1:]),
        body=_SCHEMA,
        answers=_NONE | _NO_SCHEMA,
        shape="version",
    ),
    _route(
        *("DELETE", SUBJECT, "delete_all", "Delete all versions of a subject.", _PERMANENT),
        answers=_NONE | {422: "Other schemas refer to one, or the mode is READONLY."},
        shape="numbers",
    ),
    _route(
        *("GET", SUBJECT + "/versions", "versions", "Numbers of a subject's versions."),
        *(_DELETED, _ONLY, _OFFSET, _LIMIT),
        answers=_NONE,
        shape="numbers",
    ),
    _route(
        *("POST", SUBJECT + "/versions", "register", "Register a schema: the version is durable."),
        *(_NORMALIZE, _UNUSED[1]),
        body=_SCHEMA,
        answers={
            409: "It may not follow what there is, by the level of the subject.",
            413: "It is too large, or the registry is full.",
        }
        | _NO_SCHEMA,
        shape="version",
    ),
    _route(
        *("GET", VERSION, "version", "A version, by number or as latest.", _DELETED, *_UNUSED[1:]),
        answers=_NONE | {422: "That is no number of a version."},
        shape="version",
    ),
    _route(
        *("GET", VERSION + "/schema", "version_text", "Its text.", _DELETED, _UNUSED[1]),
        answers=_NONE,
    ),
    _route(
        *("GET", VERSION + "/referencedby", "referring", "Ids of schemas that refer to it."),
        *(_OFFSET, _LIMIT),
        answers=_NONE,
        shape="numbers",
    ),
    _route(
        *("DELETE", VERSION, "delete", "Delete a version.", _PERMANENT),
        answers=_NONE | {422: "Other schemas refer to it, or the mode is READONLY."},
        shape="number",
    ),
    _route(
        *("POST", _COMPATIBLE, "compatible", "Whether a schema may follow, by the level."),
        *(_NORMALIZE, _VERBOSE),
        body=_SCHEMA,
        answers=_NONE | _NO_SCHEMA,
        shape="compatible",
    ),
    _route(
        *("POST", _COMPATIBLE + "/{version}", "compatible", "The same, of one version."),
        *(_NORMALIZE, _VERBOSE),
        body=_SCHEMA,
        answers=_NONE | _NO_SCHEMA,
        shape="compatible",
    ),
    *_settings("config", _LEVEL, "level"),
    *_settings("mode", _MODE, "mode"),
)
