"""What the registry knows, and which events a change of it is. Pure: nothing waits here.

A change is a list of steps, each a list of events that may be written together; the next step is
written when all of the one before are stable. What is written is taken with `take`, as it is from
the log, so that there is one way for both.
"""

from collections import defaultdict
from collections.abc import Iterable

from barco.workers.schemas import words
from barco.workers.schemas.records import (
    Draft,
    Record,
    References,
    Schema,
    Setting,
    Version,
    Written,
    key_of_schema,
    key_of_version,
    last_written,
)

Steps = list[list[tuple[Written, Record | None]]]
"""Events, with what each says; None: that what had this key is gone."""


class Registry:
    """Schemas by id, subjects by name, and settings."""

    def __init__(self) -> None:
        self._schemas: dict[int, Schema] = {}
        self._same: dict[bytes, int] = {}
        """By identity, the lowest id."""
        self._subjects: dict[str, dict[int, Version]] = {}
        self._settings: dict[str, Setting] = {}
        self._uses: dict[int, set[tuple[str, int]]] = defaultdict(set)
        """By id, the versions that have it, deleted ones too."""
        self.last = 0
        """The highest id ever given, as far as it is known."""
        self.bytes = 0

    # --- What is written --------------------------------------------------------------------

    def take(self, record: Record) -> None:
        """It is in the log."""
        if isinstance(record, Schema):
            self._take_schema(record)
        elif isinstance(record, Version):
            self._drop_version(record.subject, record.number)
            self._subjects.setdefault(record.subject, {})[record.number] = record
            self._uses[record.id].add((record.subject, record.number))
            self.bytes += record.size()
        elif isinstance(record, Setting):
            before = self._settings.pop(record.subject, None)
            self.bytes -= before.size() if before else 0
            if record:
                self._settings[record.subject] = record
                self.bytes += record.size()
        else:
            self.last = max(self.last, record)

    def _take_schema(self, schema: Schema) -> None:
        self._drop_schema(schema.id)
        self._schemas[schema.id] = schema
        known = self._same.setdefault(schema.draft.identity, schema.id)
        self._same[schema.draft.identity] = min(known, schema.id)
        self.last = max(self.last, schema.id)
        self.bytes += schema.draft.size()

    def forget(self, written: Written) -> None:
        """The event, which has no value, is in the log."""
        key, value = written
        assert not value, "it says that something is gone"
        kind, _, rest = key.partition(b"/")
        if kind == b"i":
            self._drop_schema(int(rest))
        elif kind == b"v":
            number, _, subject = rest.partition(b"/")
            self._drop_version(subject.decode(), int(number))
        else:
            self.take(Setting(rest.decode()))

    def _drop_schema(self, id: int) -> None:
        schema = self._schemas.pop(id, None)
        if schema is None:
            return
        self.bytes -= schema.draft.size()
        if self._same.get(schema.draft.identity) == id:
            del self._same[schema.draft.identity]

    def _drop_version(self, subject: str, number: int) -> None:
        known = self._subjects.get(subject, {}).pop(number, None)
        if known is None:
            return
        self.bytes -= known.size()
        self._uses[known.id].discard((subject, number))
        if not self._subjects[subject]:
            del self._subjects[subject]

    # --- What there is ----------------------------------------------------------------------

    def schema(self, id: int) -> Schema:
        """By its number."""
        if (found := self._schemas.get(id)) is None:
            raise words.missing(words.SCHEMA_NOT_FOUND, f"Schema {id} not found")
        return found

    def used(self, id: int, deleted: bool = False) -> list[Version]:
        """Where a schema is; 404 if it is nowhere, and was never."""
        self.schema(id)
        found = [self._subjects[subject][number] for subject, number in sorted(self._uses[id])]
        return [each for each in found if deleted or not each.deleted]

    def subjects(self, prefix: str = "", deleted: bool = False, only: bool = False) -> list[str]:
        """Those that have versions; deleted: those of which all are deleted, too; only: no others
        than these."""
        found = []
        for subject, versions in self._subjects.items():
            gone = all(each.deleted for each in versions.values())
            if subject.startswith(prefix) and (gone if only else deleted or not gone):
                found.append(subject)
        return sorted(found)

    def versions(self, subject: str, deleted: bool = False, only: bool = False) -> list[Version]:
        """Of a subject, by number; 404 without any."""
        found = [
            each
            for _, each in sorted(self._subjects.get(subject, {}).items())
            if (each.deleted if only else deleted or not each.deleted)
        ]
        if not found:
            raise words.missing(words.SUBJECT_NOT_FOUND, f"Subject {subject!r} not found.")
        return found

    def version(self, subject: str, number: int, deleted: bool = False) -> Version:
        """One of them, or the newest."""
        versions = self.versions(subject, deleted)
        if number == words.LATEST:
            return versions[-1]
        for each in versions:
            if each.number == number:
                return each
        raise words.missing(words.VERSION_NOT_FOUND, f"Version {number} not found.")

    def find(self, subject: str, draft: Draft, deleted: bool = False) -> Version:
        """The newest version that is this schema."""
        for each in reversed(self.versions(subject, deleted)):
            schema = self._schemas.get(each.id)
            if schema is not None and schema.draft.identity == draft.identity:
                return each
        raise words.missing(words.SCHEMA_NOT_FOUND, "Schema not found")

    def every(self, prefix: str, *, deleted: bool, latest: bool) -> list[Version]:
        """Versions of all subjects."""
        found: list[Version] = []
        for subject in self.subjects(prefix, deleted):
            versions = self.versions(subject, deleted)
            found += versions[-1:] if latest else versions
        return [each for each in found if each.id in self._schemas]

    def referring(self, subject: str, number: int) -> list[int]:
        """Ids of schemas that mean this version, and that some subject has."""
        found = []
        for schema in self._schemas.values():
            named = {(each.subject, each.version) for each in schema.draft.references}
            if (subject, number) in named and self.used(schema.id):
                found.append(schema.id)
        return sorted(found)

    def needed(self, references: References) -> list[tuple[str, Draft]]:
        """What is meant by these and, before it, what that refers to in turn: each by its name.

        422: there is no such version, or they are too many.
        """
        found: dict[str, Draft] = {}
        open_: set[tuple[str, int]] = set()

        def add(wanted: References) -> None:
            for each in wanted:
                at = (each.subject, each.version)
                if each.name in found:
                    continue
                if at in open_ or len(found) + len(open_) >= words.REFERENCES_MAX:
                    raise words.invalid(f"More than {words.REFERENCES_MAX} references, or a circle")
                known = self._subjects.get(each.subject, {}).get(each.version)
                if known is None or known.id not in self._schemas:
                    raise words.invalid(
                        f"No schema reference found for subject {each.subject!r}"
                        f" and version {each.version}"
                    )
                draft = self._schemas[known.id].draft
                open_.add(at)
                add(draft.references)
                open_.discard(at)
                found[each.name] = draft

        add(references)
        return list(found.items())

    def resolved(self, references: References) -> References:
        """With numbers in the place of `latest`."""
        if len(references) > words.REFERENCES_MAX:
            raise words.invalid(f"A schema has at most {words.REFERENCES_MAX} references")
        found = []
        for each in references:
            number = each.version
            if number == words.LATEST:
                number = self.version(each.subject, number).number
            found.append(type(each)(each.name, each.subject, number))
        return tuple(found)

    def setting(self, subject: str) -> Setting:
        """As it was said of a subject, or of all ("")."""
        return self._settings.get(subject, Setting(subject))

    def level(self, subject: str) -> str:
        """The rule that holds."""
        return self.setting(subject).level or self.setting("").level or words.LEVEL_DEFAULT

    def mode(self, subject: str) -> str:
        """Whether there may be new versions."""
        return self.setting(subject).mode or self.setting("").mode or words.READWRITE

    # --- Changes ----------------------------------------------------------------------------

    def register(self, subject: str, draft: Draft, after: int) -> tuple[Version, Steps]:
        """A new version. `after`: no id up to this one is given."""
        self.writable(subject)
        versions = self._subjects.get(subject, {})
        number = max(versions, default=0) + 1
        known = self._same.get(draft.identity)
        id = max(self.last, after) + 1 if known is None else known
        schema, version = Schema(id, draft), Version(subject, number, id)
        more = version.size() + (draft.size() if known is None else 0)
        count = sum(map(len, self._subjects.values()))
        many = count >= words.VERSIONS_MAX or len(versions) >= words.VERSIONS_OF_ONE_MAX
        if many or self.bytes + more > words.SCHEMAS_BYTES_MAX:
            raise words.too_large(
                "The registry is full: delete subjects, or versions, that nobody needs"
                " (?permanent=true)."
            )
        steps: Steps = [[(version.written(), version)]]
        if known is None:
            steps.insert(0, [(schema.written(), schema)])
        return version, steps

    def writable(self, subject: str) -> None:
        """422 where nothing may be changed."""
        if self.mode(subject) == words.READONLY:
            raise words.wrong(words.NOT_PERMITTED, f"Subject {subject} is in read-only mode")

    def delete(self, subject: str, number: int, permanent: bool) -> tuple[int, Steps]:
        """One version."""
        self.writable(subject)
        version = self.version(subject, number, deleted=True)
        if number == words.LATEST and not permanent:
            version = self.version(subject, number)
        if permanent and not version.deleted:
            raise words.missing(
                words.VERSION_NOT_DELETED,
                f"Subject {subject!r} Version {version.number} was not deleted first before being"
                " permanently deleted",
            )
        if not permanent and version.deleted:
            raise words.missing(
                words.VERSION_DELETED,
                f"Subject {subject!r} Version {version.number} was soft deleted. Set permanent=true"
                " to delete permanently",
            )
        return version.number, self._gone([version], permanent)

    def delete_all(self, subject: str, permanent: bool) -> tuple[list[int], Steps]:
        """Every version of a subject."""
        self.writable(subject)
        versions = self.versions(subject, deleted=True)
        live = [each for each in versions if not each.deleted]
        if permanent and live:
            raise words.missing(
                words.SUBJECT_NOT_DELETED,
                f"Subject {subject!r} was not deleted first before being permanently deleted",
            )
        if not permanent and not live:
            raise words.missing(
                words.SUBJECT_DELETED,
                f"Subject {subject!r} was soft deleted. Set permanent=true to delete permanently",
            )
        gone = versions if permanent else live
        steps = self._gone(gone, permanent)
        if permanent and self.setting(subject):
            steps[0].append((Setting(subject).written(), None))
        return [each.number for each in gone], steps

    def _gone(self, versions: Iterable[Version], permanent: bool) -> Steps:
        versions = list(versions)
        referred = {
            (means.subject, means.version)
            for schema in self._schemas.values()
            if schema.draft.references and self.used(schema.id)
            for means in schema.draft.references
        }
        for each in versions:
            if (each.subject, each.number) in referred:
                raise words.wrong(
                    words.REFERENCED,
                    f"One or more references exist to the schema {{subject={each.subject},"
                    f"version={each.number}}}",
                )
        if not permanent:
            marked = [Version(v.subject, v.number, v.id, deleted=True) for v in versions]
            return [[(each.written(), each) for each in marked]]
        keys = [key_of_version(each.subject, each.number) for each in versions]
        steps: Steps = [[((key, b""), None) for key in keys]]
        if ids := self._unused(versions):
            # So that none of them is given again: before they are gone.
            steps.insert(0, [(last_written(self.last), self.last)])
            steps.append([((key_of_schema(id), b""), None) for id in ids])
        return steps

    def _unused(self, without: list[Version]) -> list[int]:
        """Ids that no version has, apart from these."""
        gone = {(each.subject, each.number) for each in without}
        return sorted(id for id in self._schemas if not self._uses[id] - gone)

    def set(self, setting: Setting) -> Steps:
        """A setting, instead of the one that there was."""
        full = (
            len(self._settings) >= words.SETTINGS_MAX
            or self.bytes + setting.size() > words.SCHEMAS_BYTES_MAX
        )
        if setting and setting.subject not in self._settings and full:
            raise words.too_large("There are too many settings of subjects: delete some.")
        written = setting.written()
        return [[(written, setting if setting else None)]]
