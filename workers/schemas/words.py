"""What the registry's API says: kinds of schemas, levels, modes, codes of errors, and bounds."""

from typing import Any

from barco.errors import ConflictError, NotFoundError, TooLargeError, UnprocessableError
from barco.types import KiB, MiB

AVRO, JSON, PROTOBUF = KINDS = ("AVRO", "JSON", "PROTOBUF")

NONE, BACKWARD, FORWARD, FULL = "NONE", "BACKWARD", "FORWARD", "FULL"
_ALL = "_TRANSITIVE"
LEVELS = (NONE, BACKWARD, BACKWARD + _ALL, FORWARD, FORWARD + _ALL, FULL, FULL + _ALL)
LEVEL_DEFAULT = BACKWARD

READWRITE, READONLY = MODES = ("READWRITE", "READONLY")

LATEST = -1
"""As the number of a version: the newest that is not deleted."""

SCHEMA_BYTES_MAX = 256 * KiB
"""Of one schema's text: it is parsed and compared where slice 0 is led."""

SCHEMAS_BYTES_MAX = 8 * MiB
"""Of all of them together, with what names them: in memory, and in each snapshot of that log."""

VERSIONS_MAX = 20_000
SUBJECT_BYTES_MAX = 255
"""A topic's name and what may be around it."""

REFERENCES_MAX = 64
"""Of one schema; and so many others may be needed to read it, with what these refer to."""

REFERENCE_NAME_BYTES_MAX = 512
NESTING_MAX = 64
"""Of JSON in a schema's text: parsers and comparers call themselves for each."""

MESSAGES_MAX = 16
"""Why a schema may not follow another one: more are not looked for."""

COMPARED_MAX = 200_000
"""Pairs of types of two schemas that are compared: a second of Python, about."""

COMPARED_BYTES_MAX = 4 * MiB
"""Of texts that one question may read, with what they refer to: three seconds, about."""

SETTINGS_MAX, VERSIONS_OF_ONE_MAX = 4_096, 1_000
"""Of subjects, and versions of one of them."""

SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 40401, 40402, 40403
SUBJECT_DELETED, SUBJECT_NOT_DELETED = 40404, 40405
VERSION_DELETED, VERSION_NOT_DELETED = 40406, 40407
NO_LEVEL_OF_SUBJECT, NO_MODE_OF_SUBJECT = 40408, 40409
INVALID_SCHEMA, INVALID_VERSION, INVALID_LEVEL, INVALID_MODE = 42201, 42202, 42203, 42204
NOT_PERMITTED, REFERENCED = 42205, 42206


def missing(code: int, text: str) -> NotFoundError:
    """There is no such thing."""
    return NotFoundError(text, error_code=code)


def wrong(code: int, text: str) -> UnprocessableError:
    """It is understood, and cannot be."""
    return UnprocessableError(text, error_code=code)


def invalid(text: str) -> UnprocessableError:
    """It is no schema."""
    return wrong(INVALID_SCHEMA, text)


def incompatible(subject: str, messages: list[str]) -> ConflictError:
    """It does not go together with what the subject has."""
    told = "; ".join(messages)
    return ConflictError(
        f"Schema being registered is incompatible with an earlier schema of subject {subject!r}:"
        f" {told}",
        error_code=409,
    )


def too_large(text: str) -> TooLargeError:
    """It is more than there is room for."""
    return TooLargeError(text, error_code=413)


def subject_name(given: Any) -> str:
    """The name, if a subject can have it."""
    if not isinstance(given, str) or not given.strip() or not given.isprintable():
        raise wrong(INVALID_SCHEMA, "A subject's name is printable, and not empty.")
    if len(given.encode("utf-8", "replace")) > SUBJECT_BYTES_MAX:
        raise wrong(INVALID_SCHEMA, f"A subject's name has at most {SUBJECT_BYTES_MAX} bytes.")
    return given


def topic_of(subject: str) -> str:
    """The topic whose keys or values a subject describes, as its name says; else the name itself.
    What somebody may do with that topic, they may do with the subject."""
    for ending in ("-value", "-key"):
        if len(subject) > len(ending) and subject.endswith(ending):
            return subject[: -len(ending)]
    return subject


def pointed(pointer: str) -> list[str]:
    """The names in a JSON pointer (RFC 6901), the outermost first."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def below(at: str, name: object) -> str:
    """A path to a part of a schema, of a length that can be shown."""
    return f"{at}/{str(name)[:64]}"[-512:]
