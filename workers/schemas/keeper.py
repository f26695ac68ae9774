"""Who keeps the registry: whoever leads slice 0, in the topic `__schemas` of that slice's log.

One change at a time is made; it counts when it is stable. A leader that others have replaced can
make none, for its appends are fenced: so ids go up by one in the whole ring, and mean the same at
each broker.
"""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from barco.errors import BarcoError, BusyError, NotReadyError
from barco.workers.schemas import kinds, rules, words
from barco.workers.schemas.records import (
    Draft,
    Record,
    Setting,
    Version,
    Written,
    id_of_key,
    read,
    references_of,
)
from barco.workers.schemas.registry import Registry, Steps
from barco.workers.seams import ReactorLike
from barco.workers.shard import internal
from barco.workers.shard.appends import Appends

SCHEMAS = "__schemas"
SLICE = 0
"""The slice of the whole ring in which it is kept; there is no smaller ring without it."""

READ_AT_ONCE_MAX, CHANGES_MAX = 16, 64
"""Schemas that wait to be read, and changes to be made."""

WRITTEN_AT_ONCE = 512
"""Records of a change that are under way."""

Args = Mapping[str, Any]
_T = TypeVar("_T")

log = logging.getLogger("barco.worker")


class SchemaKeeper:
    """The registry, where slice 0 is led."""

    def __init__(
        self,
        reactor: ReactorLike,
        appends: Appends,
        leads: Callable[[], bool],
        serves: Callable[[], bool],
    ) -> None:
        """leads: whether slice 0 is of this shard. serves: whether a follower was heard of lately,
        so that nobody else can have begun to lead."""
        self._reactor = reactor
        self._appends = appends
        self._leads = leads
        self._serves = serves
        self._lock = asyncio.Lock()
        self._registry: Registry | None = None
        """None where slice 0 is not led. Another one with each generation."""
        self._given = 0
        """The highest id that was tried, for of what failed nobody knows whether it is stored."""
        self._beside, self._reading = ThreadPoolExecutor(1, "schemas"), 0
        """One at a time: they take the loop's turns, and others need the default executor."""
        self._changes: set[asyncio.Task[Any]] = set()
        self._looks = {
            "id": self._by_id,
            "every": self._every,
            "subjects": self._subjects,
            "versions": self._versions,
            "version": self._version,
            "referring": self._referring,
            "find": self._find,
            "compatible": self._compatible,
            "setting": self._setting,
            "ids": self._ids,
            "judged": self._judged,
        }
        self._makes = {
            "register": self._register,
            "delete": self._delete,
            "delete_all": self._delete_all,
            "set": self._set,
        }

    def open(self) -> None:
        """A generation is open, and its first group committed: take up what its log holds."""
        self._registry = None
        if not self._leads():
            return
        registry = Registry()
        kept = self._reactor.compacted(SCHEMAS)
        for key, _ in kept:
            registry.take(id_of_key(key))
        for record in internal.each(SCHEMAS, kept, read):
            registry.take(record)
        self._registry = registry

    def close(self) -> None:
        """Somebody else leads, or nobody yet."""
        self._registry = None

    def operations(self) -> dict[str, Callable[[Args], Awaitable[Any]]]:
        """By name."""
        return {"schema_look": self._look, "schema_change": self._change}

    def _kept(self) -> Registry:
        if self._registry is None:
            raise NotReadyError("The schemas are not kept here (any more).")
        return self._registry

    async def _look(self, args: Args) -> Any:
        """{"what": which question, ...}."""
        registry = self._kept()
        if not self._serves():
            raise NotReadyError("Who keeps the schemas has not heard of its followers for a while.")
        return await self._looks[args["what"]](registry, args)

    async def _change(self, args: Args) -> Any:
        """{"what": which change, ...}. It goes on when whoever asked has gone: what is in the log
        has to be known here."""
        if len(self._changes) >= CHANGES_MAX:
            raise BusyError("Too many changes of schemas wait.")
        task = asyncio.create_task(self._changed(self._makes[args["what"]], args))
        self._changes.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._changes.discard(task)
        if not task.cancelled():
            task.exception()  # Whoever asked may not be there to hear of it.

    async def _changed(
        self, make: Callable[[Registry, Args], Awaitable[tuple[_T, Steps]]], args: Args
    ) -> _T:
        async with self._lock:
            registry = self._kept()
            answer, steps = await make(registry, args)
            for step in steps:
                for at in range(0, len(step), WRITTEN_AT_ONCE):
                    await self._write(registry, step[at : at + WRITTEN_AT_ONCE])
            return answer

    async def _write(self, registry: Registry, step: list[tuple[Written, Record | None]]) -> None:
        """All of it, or a BarcoError; what is stable by then is known."""
        if self._registry is not registry:
            raise NotReadyError("The schemas are not kept here (any more).")
        begun: list[tuple[Written, Record | None, asyncio.Future[int]]] = []
        failure: BarcoError | None = None
        for (key, value), record in step:
            self._given = max(self._given, id_of_key(key))
            try:
                future = self._appends.start(SCHEMAS, SLICE, key, value)
            except BarcoError as error:
                failure = error
                break
            begun.append(((key, value), record, future))
        for written, record, future in begun:
            try:
                await future
            except BarcoError as error:
                failure = failure or error
                continue
            if record is None:
                registry.forget(written)
            else:
                registry.take(record)
        if failure is not None:
            raise failure

    # --- Questions --------------------------------------------------------------------------

    async def _by_id(self, registry: Registry, args: Args) -> dict[str, Any]:
        """{"id"}: with where it is, deleted versions last in a list of their own."""
        schema = registry.schema(args["id"])
        used = registry.used(schema.id, deleted=True)
        return {
            "told": schema.told(),
            "kind": schema.draft.kind,
            "last": registry.last,
            "versions": [[each.subject, each.number, each.deleted] for each in used],
        }

    async def _every(self, registry: Registry, args: Args) -> list[dict[str, Any]]:
        found = registry.every(args["prefix"], deleted=args["deleted"], latest=args["latest"])
        size = sum(len(registry.schema(each.id).draft.text) for each in found)
        if size > words.SCHEMAS_BYTES_MAX:
            raise words.too_large(
                "They are too many for one answer: say subjectPrefix, or latestOnly."
            )
        return [_told(registry, each) for each in found]

    async def _subjects(self, registry: Registry, args: Args) -> list[str]:
        return registry.subjects(args["prefix"], args["deleted"], args["only"])

    async def _versions(self, registry: Registry, args: Args) -> list[int]:
        found = registry.versions(args["subject"], args["deleted"], args["only"])
        return [each.number for each in found]

    async def _version(self, registry: Registry, args: Args) -> dict[str, Any]:
        version = registry.version(args["subject"], args["version"], args["deleted"])
        return _told(registry, version)

    async def _referring(self, registry: Registry, args: Args) -> list[int]:
        version = registry.version(args["subject"], args["version"], deleted=True)
        return registry.referring(version.subject, version.number)

    async def _find(self, registry: Registry, args: Args) -> dict[str, Any]:
        registry.versions(args["subject"], args["deleted"])  # 404 of its own kind.
        draft, _ = await self._draft(registry, args)
        return _told(registry, registry.find(args["subject"], draft, args["deleted"]))

    async def _setting(self, registry: Registry, args: Args) -> dict[str, str]:
        """{"subject"}: as it was said of it, and what holds."""
        subject = args["subject"]
        found = registry.setting(subject)
        return {
            "level": found.level,
            "mode": found.mode,
            "level_holds": registry.level(subject),
            "mode_holds": registry.mode(subject),
        }

    async def _ids(self, registry: Registry, args: Args) -> list[int]:
        """{"subject"}: of its versions, the newest one's last; none: there is no such subject."""
        return [
            registry.version(args["subject"], number).id
            for number in _live(registry, args["subject"])
        ]

    async def _judged(self, registry: Registry, args: Args) -> dict[str, Any]:
        """{"id"}: what values are checked with."""
        draft = registry.schema(args["id"]).draft
        needed = registry.needed(draft.references)
        others = [[name, each.kind, each.text] for name, each in needed]
        return {"kind": draft.kind, "text": draft.text, "needed": others}

    async def _compatible(self, registry: Registry, args: Args) -> list[str]:
        """{"subject", "version": None for all that the level asks for, and the schema}: why not."""
        subject, number = args["subject"], args["version"]
        draft, needed = await self._draft(registry, args)
        level = registry.level(subject)
        if number is None:
            numbers = rules.compared(level, _live(registry, subject))
        else:
            numbers = [registry.version(subject, number).number]
            if level == words.NONE:
                return []
        return await self._against(registry, subject, level, (draft, needed), numbers)

    async def _against(
        self, registry: Registry, subject: str, level: str, new: rules.Known, numbers: list[int]
    ) -> list[str]:
        olds = []
        known = {each.number: each for each in registry.versions(subject)} if numbers else {}
        for number in numbers:
            old = registry.schema(known[number].id).draft
            olds.append((number, (old, registry.needed(old.references))))
        if not olds:
            return []
        return await self._aside(rules.against, level, new, olds)

    async def _aside(self, function: Callable[..., _T], *args: Any) -> _T:
        """In a thread, when it has its turn."""
        if self._reading >= READ_AT_ONCE_MAX:
            raise BusyError("Too many schemas wait to be read.")
        self._reading += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._beside, functools.partial(function, *args))
        finally:
            self._reading -= 1

    async def _draft(self, registry: Registry, args: Args) -> tuple[Draft, kinds.Needed]:
        """Of {"kind", "text", "references"}."""
        references = registry.resolved(references_of(args["references"]))
        needed = registry.needed(references)
        draft = await self._aside(kinds.draft_of, args["kind"], args["text"], references, needed)
        return draft, needed

    # --- Changes ----------------------------------------------------------------------------

    async def _register(self, registry: Registry, args: Args) -> tuple[dict[str, Any], Steps]:
        """{"subject", and the schema}: the same one again is no change."""
        subject = words.subject_name(args["subject"])
        draft, needed = await self._draft(registry, args)
        try:
            return _told(registry, registry.find(subject, draft)), []
        except BarcoError:
            pass  # It is a new one.
        registry.writable(subject)
        level = registry.level(subject)
        numbers = rules.compared(level, _live(registry, subject))
        messages = await self._against(registry, subject, level, (draft, needed), numbers)
        if messages:
            raise words.incompatible(subject, messages)
        version, steps = registry.register(subject, draft, self._given)
        return {"subject": subject, "version": version.number, "id": version.id}, steps

    async def _delete(self, registry: Registry, args: Args) -> tuple[int, Steps]:
        return registry.delete(args["subject"], args["version"], args["permanent"])

    async def _delete_all(self, registry: Registry, args: Args) -> tuple[list[int], Steps]:
        return registry.delete_all(args["subject"], args["permanent"])

    async def _set(self, registry: Registry, args: Args) -> tuple[dict[str, str], Steps]:
        """{"subject", "level", "mode"}: "" takes it back; what is not there stays. Answers how it
        was."""
        subject = words.subject_name(args["subject"]) if args["subject"] else ""
        before = registry.setting(subject)
        level, mode = (args.get(name, getattr(before, name)) for name in ("level", "mode"))
        after = Setting(subject, level, mode)
        told = {"level": before.level, "mode": before.mode}
        return told, [] if after == before else registry.set(after)


def _live(registry: Registry, subject: str) -> list[int]:
    """Numbers of versions; none of a new subject."""
    try:
        return [each.number for each in registry.versions(subject)]
    except BarcoError:
        return []


def _told(registry: Registry, version: Version) -> dict[str, Any]:
    schema = registry.schema(version.id)
    names = {"subject": version.subject, "version": version.number, "id": version.id}
    return names | schema.told()
