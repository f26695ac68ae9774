"""HTTP from Spark's processes to brokers: plans for the driver, stored chunks for the tasks.

Plain blocking sockets, one connection for each slice that is read: a task has nothing else to do.
Whatever goes wrong with a broker is waited out for `timeout_s`, at another place if there is one:
reading again what is stored gives the same bytes.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from barco.client.wire.access import Access
from barco.client.wire.blocking import Link
from barco.client.wire.http1 import Request, Response
from barco.errors import BarcoError, BusyError, CorruptDataError, NotFoundError, PeerError
from barco.protocol.cursor import Cursor
from barco.types import Epoch, Offset

CHUNKS = "application/vnd.barco.chunks"
SOCKET_SECONDS = 30.0
PAUSE_FIRST_S, PAUSE_MAX_S = 0.05, 1.0
DAMAGED_MAX = 4
"""Answers with damaged chunks for one place, before the task fails: there is no good copy."""


class DataLossError(BarcoError):
    """Events that were to be read are gone: retention was there first, or the topic is deleted."""

    status = 410
    slug = "data-loss"
    title = "Events are gone"

    def __init__(self, detail: str, earliest: int | None = None) -> None:
        super().__init__(detail)
        self.earliest = earliest
        """The first offset that is left; None if nothing is."""


class Brokers:
    """Asks any of some brokers, for the driver."""

    def __init__(self, access: Access, timeout_s: float) -> None:
        self._access = access
        self._timeout_s = timeout_s

    def topics(self) -> list[str]:
        """All of them."""
        return [str(topic["topic"]) for topic in self.get("/v1/topics")["topics"]]

    def slices(self, topic: str, *, split_bytes: int = 0, at: str = "") -> list[dict[str, Any]]:
        """The slices of a topic as the API describes them; NotFoundError if there is none."""
        query: dict[str, Any] = {"splitBytes": split_bytes} if split_bytes else {}
        if at:
            query["at"] = at
        target = f"/v1/topic/{quote(topic)}/slices" + ("?" + urlencode(query) if query else "")
        found: list[dict[str, Any]] = self.get(target)["slices"]
        return found

    def get(self, path: str) -> dict[str, Any]:
        """A JSON document; 404 is a NotFoundError, trouble is waited out."""
        deadline = time.monotonic() + self._timeout_s
        pause = PAUSE_FIRST_S
        while True:
            said = ""
            for endpoint in self._access.endpoints:
                try:
                    return self._ask(endpoint, path)
                except BusyError as error:
                    said = said or str(error)
                except OSError as error:
                    said = said or f"{endpoint}: {error}"
            if time.monotonic() + pause > deadline:
                raise PeerError(f"no broker answers GET {path.partition('?')[0]}: {said}")
            time.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)

    def _ask(self, endpoint: str, path: str) -> dict[str, Any]:
        link = Link(self._access, endpoint, timeout_s=SOCKET_SECONDS)
        try:
            answer = link.exchange(_asking(path, "application/json"))
        finally:
            link.close()
        if answer.status == 200:
            document: dict[str, Any] = json.loads(answer.body)
            return document
        if answer.status == 404:
            raise NotFoundError(answer.words)
        if answer.status == 429 or answer.status >= 500:
            raise BusyError(f"{endpoint} answers {answer.words}")
        raise PeerError(f"{endpoint} answers {answer.words}")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a slice can be read."""

    topic: str
    token: int
    slice: int
    access: Access
    """The owner's endpoint first."""


@dataclass(slots=True)
class _Trouble:
    """What has gone wrong at one place in a slice."""

    deadline: float
    pause: float = PAUSE_FIRST_S
    damaged: int = 0
    said: list[str] = field(default_factory=list)


class SliceFetch:
    """Stored chunks of one slice, request by request, the next one asked for ahead."""

    def __init__(
        self,
        source: Source,
        columns: Sequence[str],
        *,
        fetch_bytes: int,
        timeout_s: float,
        reader: str = "",
    ) -> None:
        """reader: who reads, for people; empty: nobody is told."""
        self._source = source
        self._fields = (("Barco-Reader", reader),) if reader else ()
        self._endpoints = list(source.access.endpoints)
        self._base = f"/v1/topic/{quote(source.topic)}/slices/{source.token}/{source.slice}/events"
        self._query: dict[str, Any] = {"maxBytes": fetch_bytes}
        if set(columns) != {"key", "value", "timestamp"}:
            self._query["columns"] = ",".join(columns)
        self._timeout_s = timeout_s
        self._link: Link | None = None
        self._turn = 0
        self._trouble: _Trouble | None = None
        self.bytes = 0
        self.requests = 0

    def get(self, start: int, end: int) -> tuple[bytes, int, bool]:
        """(chunks, the offset after them, whether they are cut down to the columns).

        DataLossError: they are gone. Any other BarcoError: nobody has served them in time.
        """
        path = self._path(start, end)
        while True:
            try:
                answer = self._exchange(path)
            except OSError as error:
                self._failed(f"{self._endpoint}: {error or type(error).__name__}")
                continue
            if answer.status == 200:
                cursor = Cursor.parse(answer.headers["barco-next-cursor"])
                self.bytes += len(answer.body)
                return answer.body, cursor.offset, "barco-columns" in answer.headers
            self._refused(answer, start)

    def ahead(self, start: int, end: int) -> None:
        """Ask for what comes next while the caller is busy with what it has."""
        if start < end and self._link is not None and not self._link.pending:
            try:
                self._link.send(_asking(self._path(start, end), CHUNKS, self._fields))
            except OSError:
                self._drop()  # It will be told when it is asked for.

    def follow(self, before: "SliceFetch", start: int, end: int) -> None:
        """Ask for the first events on the connection of a fetch that has got all that it wanted,
        if both read from one broker. Called again (its answer was damaged after all): no harm."""
        link = before._link
        if self._link is None and link is not None and link.endpoint == self._endpoint:
            self._link, before._link = link, None
            self.ahead(start, end)

    def good(self) -> None:
        """What `get` gave was right: trouble is over."""
        self._trouble = None

    def damaged(self, why: str) -> None:
        """What `get` gave was not what it should be: try again, elsewhere if possible."""
        self._failed(f"{self._endpoint}: {why}")
        assert self._trouble is not None
        self._trouble.damaged += 1
        if self._trouble.damaged >= DAMAGED_MAX:
            raise CorruptDataError(f"{self._name}: damaged wherever it is read: {why}")

    def close(self) -> None:
        """Give the connection back."""
        self._drop()

    @property
    def _name(self) -> str:
        return f"topic {self._source.topic}, slice {self._source.token}/{self._source.slice}"

    @property
    def _endpoint(self) -> str:
        return self._endpoints[self._turn % len(self._endpoints)]

    def _path(self, start: int, end: int) -> str:
        places = {"from": _cursor(start), "to": _cursor(end)}
        return f"{self._base}?{urlencode(places | self._query, safe=',')}"

    def _exchange(self, path: str) -> Response:
        if self._link is not None and self._link.pending not in ("", path):
            self._drop()
        if self._link is None:
            self._link = Link(self._source.access, self._endpoint, timeout_s=SOCKET_SECONDS)
        if not self._link.pending:
            self._link.send(_asking(path, CHUNKS, self._fields))
        self.requests += 1
        return self._link.receive()

    def _refused(self, answer: Response, start: int) -> None:
        """Raise what waiting does not help; wait otherwise."""
        said = f"{self._endpoint} answers {answer.words}"
        if answer.status == 410:
            earliest = Cursor.parse(answer.problem["earliest"]).offset
            raise DataLossError(
                f"{self._name}: the events from offset {start} to {earliest} are gone", earliest
            )
        if answer.status == 404:
            raise DataLossError(f"{self._name} does not exist any more ({said})")
        if answer.status == 500 and "corrupt" in str(answer.problem.get("type")):
            self.damaged(str(answer.problem.get("detail")))
            return
        if 400 <= answer.status < 421 and "beyond the end" not in said:
            raise PeerError(f"{self._name}: {said}")
        # 204, beyond the end: a replica that has not seen so much yet. 421, 429, 5xx: not now.
        self._failed(said)

    def _failed(self, said: str) -> None:
        self._drop()
        self._turn += 1
        now = time.monotonic()
        trouble = self._trouble
        if trouble is None:
            trouble = self._trouble = _Trouble(now + self._timeout_s)
        trouble.said.append(said)
        if now > trouble.deadline:
            raise PeerError(
                f"{self._name} was not served for {self._timeout_s:g} s: {trouble.said[-1]} "
                f"(at first: {trouble.said[0]})"
            )
        del trouble.said[1:-8]
        if self._turn % len(self._endpoints) == 0:
            time.sleep(trouble.pause)
            trouble.pause = min(2 * trouble.pause, PAUSE_MAX_S)
            self._find_owner()

    def _find_owner(self) -> None:
        """Who leads the slice may have changed: ask, and begin there."""
        try:
            everybody = self._source.access.to(*self._endpoints)
            slices = Brokers(everybody, 0.0).slices(self._source.topic)
        except (BarcoError, OSError, ValueError, KeyError):
            return
        for each in slices:
            if (int(each["token"]), int(each["index"])) == (self._source.token, self._source.slice):
                owner = str(each["endpoint"])
                self._endpoints = list(dict.fromkeys([owner, *self._endpoints]))
                self._turn = 0

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


def _cursor(offset: int) -> str:
    return str(Cursor(Epoch(0), Offset(offset)))


def _asking(path: str, accept: str, fields: Sequence[tuple[str, str]] = ()) -> Request:
    return Request("GET", path, (("Accept", accept), *fields))
