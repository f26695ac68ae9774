"""Administration: topics, groups, status. `Admin` for threads, `AsyncAdmin` for asyncio.

Answers are the documents of the HTTP API as dictionaries (see `GET /openapi.json`); a refusal is
an error of `barco.errors`. What only reads is tried again while brokers are busy or away.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from barco.client.base.errors import BadAnswerError, TransportError, response_error
from barco.client.base.loopthread import Closing, LoopThread
from barco.client.base.names import DEFAULT_ENDPOINT, check_topic
from barco.client.wire.access import Access, Endpoints
from barco.client.wire.codec import Event
from barco.client.wire.http1 import Request, Response
from barco.client.wire.transport import Pool
from barco.errors import BarcoError, BusyError
from barco.model.access import QUOTAS, hash_of

Document = dict[str, Any]
PAUSE_S = 0.1
TRY_TIMEOUT_S = 15.0


class AsyncAdmin:
    """Asks any of the brokers it was given. Everything can also be done with curl."""

    def __init__(
        self, endpoint: Endpoints = DEFAULT_ENDPOINT, *, timeout_s: float = 10.0, token: str = ""
    ) -> None:
        access = Access.of(endpoint, token)
        self._endpoints = access.endpoints
        self._timeout_s = timeout_s
        self._pool = Pool(access, connections_max=2)

    async def status(self) -> Document:
        """How the broker is, also if it is not ready yet (`ready` says so)."""
        answer = await self._request("GET", "/status", accept=(503,))
        return self._document(answer, "/status")

    async def brokers(self) -> Document:
        """The brokers and their ports."""
        return await self._get("/v1/brokers")

    async def topology(self, *, copies: bool = False) -> Document:
        """The ring: members, generations, shards, endpoints. copies: how each range is copied as
        well, which its leader is asked for."""
        return await self._get("/v1/topology?copies" if copies else "/v1/topology")

    async def set_target(self, target: Document) -> Document:
        """Say of which brokers the cluster shall consist: {"cluster", "version", "brokers"} as
        PUT /v1/topology takes it. What it is then."""
        return self._document(await self._request("PUT", "/v1/topology", target), "the target")

    async def drains(self, without: Sequence[int] = ()) -> Document:
        """Of brokers that the target does not name what is still on them alone. without: as if
        these had left as well."""
        given = ",".join(map(str, without))
        return await self._get(f"/v1/drains?without={given}" if given else "/v1/drains")

    async def metrics(self) -> str:
        """Prometheus' text format."""
        return (await self._request("GET", "/metrics")).body.decode()

    async def figures(self) -> Document:
        """Of each broker a few of its metrics as numbers, and how long produces take of late."""
        return await self._get("/v1/figures")

    async def topics(self) -> list[Document]:
        """Every topic with its settings."""
        return self._list(await self._get("/v1/topics"), "topics")

    async def topic(self, topic: str) -> Document:
        """One topic with its slices; NotFoundError if there is none."""
        return await self._get(f"/v1/topics/{check_topic(topic)}")

    async def slices(self, topic: str) -> list[Document]:
        """Owner, bounds and generations of each slice of a topic."""
        answer = await self._get(f"/v1/topic/{check_topic(topic)}/slices")
        return self._list(answer, "slices")

    async def create_topic(
        self,
        topic: str,
        *,
        retention_hours: int | None = None,
        retention_bytes: int | None = None,
        compression: str | None = None,
        timestamps: str | None = None,
        schema_check: str | None = None,
    ) -> Document:
        """Creates a topic, or changes the settings given here. 0 is no limit.

        `compression`: "lz4" or "none", of what the broker packs itself. `timestamps`:
        "plausible" (of the last 10 years or the next day) or "any". `schema_check`: "off", "warn",
        "reject" or "dead", of values that are not of a schema of the topic's.
        """
        given = {
            "retentionHours": retention_hours,
            "retentionBytes": retention_bytes,
            "compression": compression,
            "timestamps": timestamps,
            "schemaCheck": schema_check,
        }
        settings = {name: value for name, value in given.items() if value is not None}
        target = f"/v1/topics/{check_topic(topic)}"
        return self._document(await self._request("PUT", target, settings), target)

    async def delete_topic(self, topic: str) -> None:
        """Deletes a topic and its events."""
        await self._request("DELETE", f"/v1/topics/{check_topic(topic)}")

    async def cancel_delayed(self, topic: str, id: str) -> None:
        """A delayed event (`Ack.delayed`) is not delivered; NotFoundError: it was already."""
        path = f"/v1/topic/{check_topic(topic)}/delayed/{quote(id, safe='')}"
        await self._request("DELETE", path)

    async def groups(self) -> list[Document]:
        """Every group that has members or positions."""
        return self._list(await self._get("/v1/groups"), "groups")

    async def group(self, group: str) -> Document:
        """Members, positions and lag of a group."""
        return await self._get(f"/v1/groups/{quote(group, safe='')}")

    async def seek(self, group: str, topic: str, to: str | Mapping[int, str]) -> Document:
        """Moves a group's positions: "earliest", "latest", "timestamp:<µs>" or {slice: cursor}."""
        target = f"/v1/groups/{quote(group, safe='')}/positions"
        place: Any = to if isinstance(to, str) else {"slices": {str(k): v for k, v in to.items()}}
        body = {"topic": check_topic(topic), "to": place}
        return self._document(await self._request("PUT", target, body), target)

    async def delete_group(self, group: str) -> None:
        """Forgets a group's positions; it must have no members."""
        await self._request("DELETE", f"/v1/groups/{quote(group, safe='')}")

    async def resend_dead(self, topic: str, letters: Sequence[Event]) -> Document:
        """Produces dead letters of a topic to it again and marks them: 100 at most, as `read` gives
        them. How many were `done`, came from `others`, are `gone`, were `marked`; `left`: not come
        to, `why`. Where an answer was lost some may be there twice."""
        return await self._letters("resend", topic, letters)

    async def drop_dead(self, topic: str, letters: Sequence[Event]) -> Document:
        """Gives dead letters of a topic up: 100 at most, as `read` gives them. The answer is as of
        `resend_dead`."""
        return await self._letters("drop", topic, letters)

    async def _letters(self, action: str, topic: str, letters: Sequence[Event]) -> Document:
        places = [
            {"token": str(each.token), "slice": each.slice, "offset": str(each.offset)}
            for each in letters
        ]
        (dead,) = {each.topic for each in letters}
        target = f"/v1/topic/{check_topic(topic)}/dead/{action}"
        answer = await self._request("POST", target, {"letters": places, "dead": dead})
        return self._document(answer, target)

    async def users(self) -> list[Document]:
        """Every user and its grants."""
        return self._list(await self._get("/v1/users"), "users")

    async def set_user(
        self,
        name: str,
        *,
        token: str = "",
        grants: Sequence[str] | None = None,
        keep: bool = False,
        requests_per_second: int | None = None,
        bytes_per_second: int | None = None,
        connections: int | None = None,
        topics: int | None = None,
        groups: int | None = None,
        staged_bytes: int | None = None,
    ) -> Document:
        """Adds a user, who needs a token and grants, or changes what is given here. Only the
        token's SHA-256 is sent. keep: the last token goes on as well. Of requests and bytes each
        worker answers so many a second, and has so many connections and staged bytes; topics and
        groups are those that the user has made; 0: without end."""
        rates = (requests_per_second, bytes_per_second)
        quotas = zip(QUOTAS, (*rates, connections, topics, groups, staged_bytes), strict=True)
        body: Document = {name: value for name, value in quotas if value is not None}
        body |= {} if grants is None else {"grants": list(grants)}
        if token:
            body |= {"sha256": hash_of(token).hex(), "keep": keep}
        target = f"/v1/users/{quote(name, safe='')}"
        return self._document(await self._request("PUT", target, body), target)

    async def remove_user(self, name: str) -> None:
        """Removes a user: its tokens are nobody's."""
        await self._request("DELETE", f"/v1/users/{quote(name, safe='')}")

    async def close(self) -> None:
        """Closes the connections."""
        self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _get(self, target: str) -> Document:
        return self._document(await self._request("GET", target), target)

    async def _request(
        self,
        method: str,
        target: str,
        body: Document | None = None,
        accept: Sequence[int] = (),
    ) -> Response:
        headers = [("Accept", "*/*")]
        if body is not None:
            headers.append(("Content-Type", "application/json"))
        encoded = b"" if body is None else json.dumps(body).encode()
        request = Request(method, target, tuple(headers), encoded)
        deadline = time.monotonic() + self._timeout_s
        while True:
            last: BarcoError | None = None
            for endpoint in self._endpoints:
                left = max(0.1, deadline - time.monotonic())
                try:
                    answer = await self._pool.request(
                        endpoint, request, timeout_s=min(TRY_TIMEOUT_S, left)
                    )
                    if answer.ok or answer.status in accept:
                        return answer
                    what = f"{method} {target}"
                    raise response_error(answer.status, answer.headers, answer.body, what)
                except (TransportError, BusyError) as error:
                    # A change may have been made by a broker that did not answer: every one of
                    # them sets a state, so making it again does no harm.
                    last = error
            assert last is not None
            if isinstance(last, TransportError) or time.monotonic() + PAUSE_S >= deadline:
                raise last
            await asyncio.sleep(PAUSE_S)

    def _document(self, answer: Response, what: str) -> Document:
        try:
            parsed = json.loads(answer.body)
        except ValueError as error:
            raise BadAnswerError(f"{what}: not JSON: {error}") from error
        if not isinstance(parsed, dict):
            raise BadAnswerError(f"{what}: not a JSON object")
        return parsed

    def _list(self, document: Document, name: str) -> list[Document]:
        found = document.get(name)
        if not isinstance(found, list):
            raise BadAnswerError(f"no list of {name} in the answer")
        return found


class Admin(Closing):
    """As AsyncAdmin, for threads."""

    def __init__(
        self, endpoint: Endpoints = DEFAULT_ENDPOINT, *, timeout_s: float = 10.0, token: str = ""
    ) -> None:
        self._admin = AsyncAdmin(endpoint, timeout_s=timeout_s, token=token)
        self._thread = LoopThread("barco-admin")

    def status(self) -> Document:
        """How the broker is, also if it is not ready yet."""
        return self._thread.run(self._admin.status())

    def brokers(self) -> Document:
        """The brokers and their ports."""
        return self._thread.run(self._admin.brokers())

    def topology(self, *, copies: bool = False) -> Document:
        """The ring: members, generations, shards, endpoints."""
        return self._thread.run(self._admin.topology(copies=copies))

    def set_target(self, target: Document) -> Document:
        """Say of which brokers the cluster shall consist; what it is then."""
        return self._thread.run(self._admin.set_target(target))

    def drains(self, without: Sequence[int] = ()) -> Document:
        """Of brokers that the target does not name what is still on them alone. without: as if
        these had left as well."""
        return self._thread.run(self._admin.drains(without))

    def metrics(self) -> str:
        """Prometheus' text format."""
        return self._thread.run(self._admin.metrics())

    def figures(self) -> Document:
        """Of each broker a few of its metrics as numbers, and how long produces take of late."""
        return self._thread.run(self._admin.figures())

    def topics(self) -> list[Document]:
        """Every topic with its settings."""
        return self._thread.run(self._admin.topics())

    def topic(self, topic: str) -> Document:
        """One topic with its slices; NotFoundError if there is none."""
        return self._thread.run(self._admin.topic(topic))

    def slices(self, topic: str) -> list[Document]:
        """Owner, bounds and generations of each slice of a topic."""
        return self._thread.run(self._admin.slices(topic))

    def create_topic(
        self,
        topic: str,
        *,
        retention_hours: int | None = None,
        retention_bytes: int | None = None,
        compression: str | None = None,
        timestamps: str | None = None,
        schema_check: str | None = None,
    ) -> Document:
        """Creates a topic, or changes the settings given here. 0 is no limit.

        `compression`: "lz4" or "none", of what the broker packs itself. `timestamps`:
        "plausible" (of the last 10 years or the next day) or "any". `schema_check`: "off", "warn",
        "reject" or "dead", of values that are not of a schema of the topic's.
        """
        creation = self._admin.create_topic(
            topic,
            retention_hours=retention_hours,
            retention_bytes=retention_bytes,
            compression=compression,
            timestamps=timestamps,
            schema_check=schema_check,
        )
        return self._thread.run(creation)

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic and its events."""
        self._thread.run(self._admin.delete_topic(topic))

    def cancel_delayed(self, topic: str, id: str) -> None:
        """A delayed event (`Ack.delayed`) is not delivered; NotFoundError: it was already."""
        self._thread.run(self._admin.cancel_delayed(topic, id))

    def groups(self) -> list[Document]:
        """Every group that has members or positions."""
        return self._thread.run(self._admin.groups())

    def group(self, group: str) -> Document:
        """Members, positions and lag of a group."""
        return self._thread.run(self._admin.group(group))

    def seek(self, group: str, topic: str, to: str | Mapping[int, str]) -> Document:
        """Moves a group's positions: "earliest", "latest", "timestamp:<µs>" or {slice: cursor}."""
        return self._thread.run(self._admin.seek(group, topic, to))

    def delete_group(self, group: str) -> None:
        """Forgets a group's positions; it must have no members."""
        self._thread.run(self._admin.delete_group(group))

    def resend_dead(self, topic: str, letters: Sequence[Event]) -> Document:
        """Produces dead letters of a topic to it again and marks them: 100 at most, as `read` gives
        them. How many were `done`, came from `others`, are `gone`, were `marked`; `left`: not come
        to, `why`. Where an answer was lost some may be there twice."""
        return self._thread.run(self._admin.resend_dead(topic, letters))

    def drop_dead(self, topic: str, letters: Sequence[Event]) -> Document:
        """Gives dead letters of a topic up: 100 at most, as `read` gives them. The answer is as of
        `resend_dead`."""
        return self._thread.run(self._admin.drop_dead(topic, letters))

    def users(self) -> list[Document]:
        """Every user and its grants."""
        return self._thread.run(self._admin.users())

    def set_user(
        self,
        name: str,
        *,
        token: str = "",
        grants: Sequence[str] | None = None,
        keep: bool = False,
        requests_per_second: int | None = None,
        bytes_per_second: int | None = None,
        connections: int | None = None,
        topics: int | None = None,
        groups: int | None = None,
        staged_bytes: int | None = None,
    ) -> Document:
        """Adds a user, or changes what is given here; only the token's SHA-256 is sent."""
        changed = self._admin.set_user(
            name,
            token=token,
            grants=grants,
            keep=keep,
            requests_per_second=requests_per_second,
            bytes_per_second=bytes_per_second,
            connections=connections,
            topics=topics,
            groups=groups,
            staged_bytes=staged_bytes,
        )
        return self._thread.run(changed)

    def remove_user(self, name: str) -> None:
        """Removes a user: its tokens are nobody's."""
        self._thread.run(self._admin.remove_user(name))

    def close(self) -> None:
        """Closes the connections. Idempotent."""
        if not self._thread.closed:
            self._thread.run(self._admin.close())
            self._thread.close()
