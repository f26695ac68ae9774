"""What a topic's values are checked with: the schemas of its subject, as who keeps them says.

Nothing is refused by what was heard before a request came: a schema that was registered a moment
ago counts. What is known goes on to be used while nobody can be asked.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from barco.errors import BarcoError, NotFoundError
from barco.types import KiB
from barco.workers.http.base.context import Context
from barco.workers.schemas import judging, words
from barco.workers.schemas.judging import Flaw, Judge

ID_BYTES = 5
"""A zero and the id of the schema, before a value."""

FRESH_S = 10.0
"""Then it is asked which ids a subject has, for some may be deleted, and there may be a newer
version for what names none."""

ASK_S = 0.05
"""Between two questions about a topic, whoever sends what."""

TURN_S = 0.002
"""Then others have the loop."""

RUN_BYTES, RUN_VALUES = 256 * KiB, 512
"""Of values that are read, and passed over, at once."""

SUBJECTS_MAX, JUDGES_MAX = 1_024, 512
"""That are kept in memory; a compiled schema may be some hundred KiB."""

_NO_ID = Flaw("The value does not begin with the id of a schema: a zero and four bytes.")
_NO_JSON = Flaw("The subject's newest version is no JSON Schema, so a value needs a schema's id.")
_NO_VERSION = Flaw("The subject has no version.")


class Subject:
    """Of one topic."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ids: list[int] = []
        """The newest version's last."""
        self.asked_s: float | None = None
        self.lock = asyncio.Lock()
        """One question at a time."""


class Subjects:
    """Those of the topics that are checked."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._subjects: dict[str, Subject] = {}
        self._judges: dict[int, tuple[str, Judge | None]] = {}
        """By id, with the kind: what an id means never changes."""

    async def flaws(
        self, topic: str, values: Collection[bytes | None], is_json: bool
    ) -> dict[int, Flaw]:
        """What is wrong, by the number in the body. NotReadyError: nobody can say now. is_json:
        values may name no schema; then the newest version counts, if that is a JSON Schema."""
        came_s = self._now_s()
        subject = self._subject(f"{topic}-value")
        try:
            await self._ask(subject, came_s - FRESH_S)
        except BarcoError:
            if subject.asked_s is None:
                raise
        found = await self._judged(subject, values, is_json)
        if not found or (subject.asked_s or 0.0) >= came_s:
            return found
        before = subject.ids
        await self._ask(subject, came_s)
        return found if subject.ids == before else await self._judged(subject, values, is_json)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def _subject(self, name: str) -> Subject:
        found = self._subjects.get(name)
        if found is None:
            if len(self._subjects) >= SUBJECTS_MAX:
                del self._subjects[next(iter(self._subjects))]
            found = self._subjects[name] = Subject(name)
        return found

    async def _ask(self, subject: Subject, since_s: float) -> None:
        """Have its ids as they were then, or later."""
        async with subject.lock:
            if subject.asked_s is not None and subject.asked_s >= since_s:
                return
            if subject.asked_s is not None:
                await asyncio.sleep(min(ASK_S, max(0.0, subject.asked_s + ASK_S - self._now_s())))
            began_s = self._now_s()
            subject.ids = await self._look("ids", subject=subject.name)
            subject.asked_s = began_s

    async def _look(self, what: str, **args: Any) -> Any:
        return await self._context.change_slice(0, "schema_look", {"what": what, **args})

    async def _judge(self, id: int) -> tuple[str, Judge | None]:
        found = self._judges.get(id)
        if found is None:
            told: Mapping[str, Any] = await self._look("judged", id=id)
            args = told["kind"], told["text"], [tuple(each) for each in told["needed"]]
            judge = await asyncio.to_thread(judging.judge_of, *args)
            if len(self._judges) >= JUDGES_MAX:
                del self._judges[next(iter(self._judges))]
            found = self._judges[id] = (told["kind"], judge)
        return found

    async def _judged(
        self, subject: Subject, values: Collection[bytes | None], is_json: bool
    ) -> dict[int, Flaw]:
        found: dict[int, Flaw] = {}
        judges: dict[bytes, Judge | Flaw | None] = {b"": _NO_ID}
        """By what names the schema before the value."""
        if is_json:
            judges[b""] = await self._newest(subject)
        now_s = asyncio.get_running_loop().time
        until_s, first = now_s() + TURN_S, 0
        for run in _runs(values):
            at = 0
            while at < len(run):
                value = run[at]
                lead = b"" if value is None or value[:1] != b"\0" else value[:ID_BYTES]
                if lead not in judges:
                    id = int.from_bytes(lead[1:], "big") if len(lead) == ID_BYTES else 0
                    judges[lead] = await self._of_id(subject, id)
                judge = judges[lead]
                end = at
                if isinstance(judge, Judge) and judge.shape is not None:
                    end = judge.shape.run(run, at, lead, RUN_BYTES)
                if end < 0 and ~end > at:
                    end = ~end  # Perhaps that one names another schema.
                elif end <= at:  # Of the value here nobody has said that it is right.
                    flaw = _flaw(judge, value, len(lead))
                    if flaw is not None:
                        found[first + at] = flaw
                    end = at + 1
                at = end
                if now_s() > until_s:
                    await asyncio.sleep(0)
                    until_s = now_s() + TURN_S
            first += len(run)
        return found

    async def _newest(self, subject: Subject) -> Judge | Flaw | None:
        """For JSON that names no schema."""
        if not subject.ids:
            return _NO_VERSION
        judge = await self._of_id(subject, subject.ids[-1])
        if isinstance(judge, Flaw):
            return judge
        return judge if (await self._judge(subject.ids[-1]))[0] == words.JSON else _NO_JSON

    async def _of_id(self, subject: Subject, id: int) -> Judge | Flaw | None:
        if id not in subject.ids:
            return Flaw(f"Its schema {id} is of no version of the subject {subject.name}.")
        try:
            return (await self._judge(id))[1]
        except NotFoundError:  # It was deleted a moment ago.
            return Flaw(f"Its schema {id} is not there any more.")


def _runs(values: Collection[bytes | None]) -> Iterator[list[bytes | None]]:
    """Some at a time: those of keyed lines are read when they are looked at."""
    run: list[bytes | None] = []
    size = 0
    for value in values:
        run.append(value)
        size += RUN_BYTES // RUN_VALUES + len(value or b"")
        if size >= RUN_BYTES:
            yield run
            run, size = [], 0
    yield run


def _flaw(judge: Judge | Flaw | None, value: bytes | None, start: int) -> Flaw | None:
    if value is None or judge is None:
        return None
    return judge if isinstance(judge, Flaw) else judge.look(value[start:])
