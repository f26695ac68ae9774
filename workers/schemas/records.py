"""Events of `__schemas`: one for each schema, each version of a subject, and each setting.

The last one of a key counts. What was removed has no value.
"""

from typing import Any

import msgpack
from msgspec import Struct

from barco.workers.schemas import words
from barco.workers.shard import internal

OVERHEAD = 128
"""Bytes that a record takes beside what is in it, about."""

LAST = b"last"
"""Key of the highest id ever given, where the schema that had it is gone."""

Written = tuple[bytes, bytes]
"""Key and value of an event."""


class Reference(Struct, frozen=True):
    """By `name` a schema means what stands in a version of another subject."""

    name: str
    subject: str
    version: int

    def told(self) -> dict[str, Any]:
        """As the API has it."""
        return {"name": self.name, "subject": self.subject, "version": self.version}


References = tuple[Reference, ...]


class Draft(Struct, frozen=True):
    """A schema that somebody asks about, as it was read."""

    kind: str
    text: str
    references: References
    identity: bytes
    """Of two with the same one, one is as good as the other (`kinds.identity`)."""

    def size(self) -> int:
        """Bytes that it takes."""
        named = sum(len(each.name) + len(each.subject) for each in self.references)
        return OVERHEAD + len(self.text.encode()) + named


class Schema(Struct, frozen=True):
    """With its number, by which the whole ring knows it."""

    id: int
    draft: Draft

    def told(self) -> dict[str, Any]:
        """As the API has it: the kind is told where it is not Avro."""
        found: dict[str, Any] = {"schema": self.draft.text}
        if self.draft.kind != words.AVRO:
            found["schemaType"] = self.draft.kind
        if self.draft.references:
            found["references"] = [each.told() for each in self.draft.references]
        return found

    def written(self) -> Written:
        """As an event."""
        draft = self.draft
        value = {
            "id": self.id,
            "kind": draft.kind,
            "text": draft.text,
            "identity": draft.identity,
            "references": [[r.name, r.subject, r.version] for r in draft.references],
        }
        return key_of_schema(self.id), msgpack.packb(value)


class Version(Struct, frozen=True):
    """That a subject had this schema, as its version so and so."""

    subject: str
    number: int
    id: int
    deleted: bool = False

    def size(self) -> int:
        """Bytes that it takes."""
        return OVERHEAD + 2 * len(self.subject.encode())

    def written(self) -> Written:
        """As an event."""
        value = {
            "subject": self.subject,
            "version": self.number,
            "id": self.id,
            "deleted": self.deleted,
        }
        return key_of_version(self.subject, self.number), msgpack.packb(value)


class Setting(Struct, frozen=True):
    """What holds of a subject, or of all that have none of their own; "": not said."""

    subject: str = ""
    level: str = ""
    mode: str = ""

    def written(self) -> Written:
        """As an event."""
        value = {"subject": self.subject, "level": self.level, "mode": self.mode}
        return b"s/" + self.subject.encode(), msgpack.packb(value) if self else b""

    def __bool__(self) -> bool:
        return bool(self.level or self.mode)

    def size(self) -> int:
        """Bytes that it takes."""
        return OVERHEAD + 2 * len(self.subject.encode())


def key_of_schema(id: int) -> bytes:
    """Of its event; the number is in it, so that it is not given again whatever the value is."""
    return b"i/%d" % id


def id_of_key(key: bytes) -> int:
    """The opposite; 0 for all other keys."""
    return int(key[2:]) if key[:2] == b"i/" and key[2:].isdigit() and len(key) < 22 else 0


def key_of_version(subject: str, number: int) -> bytes:
    """Of its event."""
    return b"v/%d/" % number + subject.encode()


def last_written(id: int) -> Written:
    """That ids up to this one have been given."""
    return LAST, msgpack.packb({"last": id})


Record = Schema | Version | Setting | int


def read(given: dict[Any, Any]) -> Record:
    """What an event says; an int is the highest id ever given. ValueError: nothing of ours."""
    if "last" in given:
        return int(internal.typed(given, {"last": int})["last"])
    if "text" in given:
        return _schema(given)
    if "version" in given:
        found = internal.typed(given, {"version": int, "id": int, "subject": str, "deleted": bool})
        return Version(found["subject"], found["version"], found["id"], found["deleted"])
    found = internal.typed(given, {"subject": str, "level": str, "mode": str})
    if found["level"] not in ("", *words.LEVELS) or found["mode"] not in ("", *words.MODES):
        raise ValueError("no such level or mode")
    return Setting(found["subject"], found["level"], found["mode"])


def _schema(given: dict[Any, Any]) -> Schema:
    kinds = {"id": int, "kind": str, "text": str, "identity": bytes, "references": list}
    found = internal.typed(given, kinds)
    if found["kind"] not in words.KINDS:
        raise ValueError(f"a schema of kind {found['kind'][:32]!r}")
    references = references_of(found["references"])
    return Schema(found["id"], Draft(found["kind"], found["text"], references, found["identity"]))


def references_of(given: Any) -> References:
    """Of lists of a name, a subject and a number; ValueError or TypeError: they are none."""
    found = []
    for name, subject, version in given:
        if type(name) is not str or type(subject) is not str or type(version) is not int:
            raise TypeError("a reference has a name, a subject and a version")
        found.append(Reference(name, subject, version))
    return tuple(found)
