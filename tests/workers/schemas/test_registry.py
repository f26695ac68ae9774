"""Ids, versions, deletions: what the registry knows, and that its log alone says the same."""

import hashlib
from typing import Any

import msgpack
import pytest

from barco.errors import BarcoError
from barco.workers.schemas import words
from barco.workers.schemas.records import Draft, Reference, Setting, id_of_key, read
from barco.workers.schemas.registry import Registry, Steps


def draft(text: str, *references: Reference) -> Draft:
    told = f"{text} {references}".encode()
    return Draft(words.AVRO, text, references, hashlib.sha256(told).digest())


class Logged:
    """A registry, and the log that it is written to."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.log: dict[bytes, bytes] = {}

    def write(self, steps: Steps) -> None:
        for step in steps:
            for (key, value), record in step:
                self.log[key] = value
                if record is None:
                    self.registry.forget((key, value))
                else:
                    self.registry.take(record)

    def register(self, subject: str, given: Draft, after: int = 0) -> tuple[int, int]:
        version, steps = self.registry.register(subject, given, after)
        self.write(steps)
        return version.number, version.id

    def delete(self, subject: str, number: int, permanent: bool = False) -> int:
        found, steps = self.registry.delete(subject, number, permanent)
        self.write(steps)
        return found

    def reread(self) -> Registry:
        """As the next leader has it: values that are gone are not even in a snapshot."""
        found = Registry()
        for key, value in self.log.items():
            found.take(id_of_key(key) if value else 0)
            if value:
                found.take(read(msgpack.unpackb(value)))
        return found


def state(registry: Registry) -> Any:
    subjects = registry.subjects(deleted=True)
    versions = {each: registry.versions(each, deleted=True) for each in subjects}
    ids = sorted({v.id for each in versions.values() for v in each})
    return versions, [registry.schema(id) for id in ids], registry.last, registry.bytes


def refusal(code: int, call: Any, *args: Any) -> None:
    with pytest.raises(BarcoError) as caught:
        call(*args)
    assert caught.value.fields["error_code"] == code


def test_ids_are_of_schemas_and_numbers_of_subjects() -> None:
    logged = Logged()
    assert logged.register("a", draft("x")) == (1, 1)
    assert logged.register("a", draft("y")) == (2, 2)
    assert logged.register("b", draft("y")) == (1, 2)
    assert logged.register("b", draft("z")) == (2, 3)
    assert [(v.subject, v.number) for v in logged.registry.used(2)] == [("a", 2), ("b", 1)]
    assert state(logged.reread()) == state(logged.registry)


def test_an_id_is_never_given_twice() -> None:
    """Not after its schema is gone for good, and not where nobody knows whether it was written."""
    logged = Logged()
    logged.register("a", draft("x"))
    assert logged.register("b", draft("y")) == (1, 2)
    logged.delete("b", 1)
    logged.delete("b", 1, permanent=True)
    refusal(words.SCHEMA_NOT_FOUND, logged.registry.schema, 2)
    again = logged.reread()
    assert again.last == 2
    version, _ = again.register("b", draft("y"), 0)
    assert (version.number, version.id) == (1, 3)
    version, _ = again.register("b", draft("y"), 7)
    assert version.id == 8


def test_deletions() -> None:
    logged = Logged()
    for text in ("x", "y", "z"):
        logged.register("a", draft(text))
    registry = logged.registry
    refusal(words.VERSION_NOT_DELETED, registry.delete, "a", 2, True)
    assert logged.delete("a", words.LATEST) == 3
    assert registry.version("a", words.LATEST).number == 2
    refusal(words.VERSION_DELETED, registry.delete, "a", 3, False)
    refusal(words.VERSION_NOT_FOUND, registry.version, "a", 3)
    assert registry.version("a", 3, deleted=True).id == registry.schema(3).id == 3
    assert logged.register("a", draft("z")) == (4, 3)
    refusal(words.SUBJECT_NOT_DELETED, registry.delete_all, "a", True)
    logged.delete("a", 3, permanent=True)
    assert logged.register("a", draft("w")) == (5, 4)
    numbers, steps = registry.delete_all("a", False)
    logged.write(steps)
    assert numbers == [1, 2, 4, 5] and registry.subjects() == []
    refusal(words.SUBJECT_DELETED, registry.delete_all, "a", False)
    numbers, steps = registry.delete_all("a", True)
    logged.write(steps)
    assert numbers == [1, 2, 4, 5] and registry.bytes == logged.reread().bytes == 0
    refusal(words.SUBJECT_NOT_FOUND, registry.delete_all, "a", True)
    assert registry.last == 4


def test_references_hold_what_they_mean() -> None:
    logged = Logged()
    logged.register("a", draft("x"))
    logged.register("b", draft("y", Reference("X", "a", 1)))
    logged.register("c", draft("z", Reference("Y", "b", 1)))
    registry = logged.registry
    assert [name for name, _ in registry.needed((Reference("Z", "c", 1),))] == ["X", "Y", "Z"]
    assert registry.referring("a", 1) == [2]
    refusal(words.REFERENCED, registry.delete, "a", 1, False)
    refusal(words.REFERENCED, registry.delete_all, "b", False)
    logged.delete("c", 1)
    assert logged.delete("b", 1) == 1
    latest = (Reference("X", "a", words.LATEST),)
    assert registry.resolved(latest) == (Reference("X", "a", 1),)
    refusal(words.INVALID_SCHEMA, registry.needed, (Reference("N", "nobody", 1),))


def test_what_is_meant_by_another_is_not_deleted_for_good() -> None:
    logged = Logged()
    logged.register("a", draft("x"))
    logged.delete("a", 1)
    logged.register("b", draft("y", Reference("X", "a", 1)))
    refusal(words.REFERENCED, logged.registry.delete, "a", 1, True)


def test_settings_and_the_mode() -> None:
    logged = Logged()
    registry = logged.registry
    assert (registry.level("a"), registry.mode("a")) == (words.BACKWARD, words.READWRITE)
    logged.write(registry.set(Setting("", words.FULL, words.READONLY)))
    logged.write(registry.set(Setting("a", mode=words.READWRITE)))
    assert (registry.level("a"), registry.mode("a")) == (words.FULL, words.READWRITE)
    refusal(words.NOT_PERMITTED, registry.register, "b", draft("x"), 0)
    assert logged.register("a", draft("x")) == (1, 1)
    again = logged.reread()
    assert (again.level("b"), again.mode("a")) == (words.FULL, words.READWRITE)
    logged.write(registry.set(Setting("a")))
    assert registry.mode("a") == logged.reread().mode("a") == words.READONLY


def test_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    logged = Logged()
    monkeypatch.setattr(words, "SCHEMAS_BYTES_MAX", 1_000)
    logged.register("a", draft("x" * 300))
    refusal(413, logged.registry.register, "a", draft("y" * 300), 0)
    logged.delete("a", 1)
    logged.delete("a", 1, permanent=True)
    assert logged.register("a", draft("y" * 300)) == (1, 2)
    monkeypatch.setattr(words, "VERSIONS_MAX", 1)
    refusal(413, logged.registry.register, "b", draft("y" * 300), 0)
    monkeypatch.undo()
    monkeypatch.setattr(words, "VERSIONS_OF_ONE_MAX", 1)
    refusal(413, logged.registry.register, "a", draft("z"), 0)
    assert logged.register("b", draft("z"))[0] == 1
    monkeypatch.setattr(words, "SETTINGS_MAX", 1)
    logged.write(logged.registry.set(Setting("a", words.NONE)))
    refusal(413, logged.registry.set, Setting("b", words.NONE))
    logged.write(logged.registry.set(Setting("a", words.FULL)))  # Instead of one that there is.
    logged.write(logged.registry.set(Setting("a")))
