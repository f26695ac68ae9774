"""The registry of schemas of a cluster, for commands. Programs that write Avro use the client of
their serializer; the base address is `http://HOST:PORT/registry`.
"""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from barco.client.admin import AsyncAdmin, Document
from barco.client.base.errors import BadAnswerError
from barco.client.base.loopthread import Closing, LoopThread
from barco.client.base.names import DEFAULT_ENDPOINT
from barco.client.wire.access import Endpoints

LATEST = "latest"


class AsyncSchemas(AsyncAdmin):
    """Asks any of the brokers it was given."""

    async def subjects(self, prefix: str = "") -> list[Document]:
        """The newest version of each subject that the user may read."""
        return await self._listed(prefix, "latestOnly=true")

    async def versions(self, subject: str) -> list[Document]:
        """All versions of a subject, by number; those that are deleted, and not for good, too:
        there may be events of them."""
        found = await self._listed(subject, "deleted=true")
        return [each for each in found if each.get("subject") == subject]

    async def _listed(self, prefix: str, which: str) -> list[Document]:
        target = f"/registry/schemas?subjectPrefix={quote(prefix, safe='')}&{which}"
        found = await self._answer("GET", target)
        if not isinstance(found, list):
            raise BadAnswerError("no list of schemas in the answer")
        return found

    async def version(self, subject: str, version: str = LATEST) -> Document:
        """A version, with its schema."""
        return dict(await self._answer("GET", f"{_subject(subject)}/versions/{quote(version)}"))

    async def add(self, subject: str, schema: Document) -> Document:
        """A new version, or the one that is this schema already."""
        return dict(await self._answer("POST", f"{_subject(subject)}/versions", schema))

    async def check(self, subject: str, schema: Document) -> list[str]:
        """Why a schema may not follow what the subject has; empty: it may."""
        target = f"/registry/compatibility{_subject(subject).removeprefix('/registry')}/versions"
        found = dict(await self._answer("POST", f"{target}?verbose=true", schema))
        messages = [str(each) for each in found.get("messages", ())]
        return messages or ([] if found.get("is_compatible") else ["it is not compatible"])

    async def _answer(self, method: str, target: str, body: Document | None = None) -> Any:
        answer = await self._request(method, target, body)
        try:
            return json.loads(answer.body)
        except ValueError as error:
            raise BadAnswerError(f"{target}: not JSON: {error}") from error


def _subject(name: str) -> str:
    return f"/registry/subjects/{quote(name, safe='')}"


def schema_of(text: str, kind: str, references: Sequence[tuple[str, str, int]] = ()) -> Document:
    """As a body has it."""
    named = [{"name": n, "subject": s, "version": v} for n, s, v in references]
    return {"schema": text, "schemaType": kind, "references": named}


class Schemas(Closing):
    """As AsyncSchemas, for threads."""

    def __init__(
        self, endpoint: Endpoints = DEFAULT_ENDPOINT, *, timeout_s: float = 10.0, token: str = ""
    ) -> None:
        self._asked = AsyncSchemas(endpoint, timeout_s=timeout_s, token=token)
        self._thread = LoopThread("barco-schemas")

    def subjects(self, prefix: str = "") -> list[Document]:
        """The newest version of each subject that the user may read."""
        return self._thread.run(self._asked.subjects(prefix))

    def versions(self, subject: str) -> list[Document]:
        """All versions of a subject, by number; those that are deleted, and not for good, too."""
        return self._thread.run(self._asked.versions(subject))

    def version(self, subject: str, version: str = LATEST) -> Document:
        """A version, with its schema."""
        return self._thread.run(self._asked.version(subject, version))

    def add(self, subject: str, schema: Document) -> Document:
        """A new version, or the one that is this schema already."""
        return self._thread.run(self._asked.add(subject, schema))

    def check(self, subject: str, schema: Document) -> list[str]:
        """Why a schema may not follow what the subject has; empty: it may."""
        return self._thread.run(self._asked.check(subject, schema))

    def close(self) -> None:
        """Closes the connections. Idempotent."""
        if not self._thread.closed:
            self._thread.run(self._asked.close())
            self._thread.close()
