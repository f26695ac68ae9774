"""Staged writes as a client makes them: staged with everybody who holds a shard, prepared by most
of them, decided by one note, committed by who leads (workers/writes/staging.py, notes.py).

Lives in one asyncio loop. What is asked here may be asked again, by this client or by the next one
of the name, at any point and after any crash.
"""

import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from barco.client.base.errors import BadAnswerError, TransportError, response_error
from barco.client.wire.access import Access
from barco.client.wire.batching import SliceKey
from barco.client.wire.discovery import Directory
from barco.client.wire.http1 import Request, Response
from barco.client.wire.ring import Ring
from barco.client.wire.transport import Pool
from barco.errors import BarcoError, BrokerError, NotFoundError
from barco.model.note import KEEP_SECONDS_MAX
from barco.protocol.batch import CONTENT_TYPE

TRY_SECONDS = 10.0
PATIENCE_SECONDS = 0.5
"""With who holds a copy, once most of them have theirs."""
HEARD_SECONDS = 5.0
LEFT_OUT_SECONDS = 5.0
"""Whoever was waited for in vain is not asked for so long, as long as the others are enough."""
PAUSE_FIRST_S, PAUSE_MAX_S = 0.02, 0.5
RETRIED = (408, 429, 500, 502, 503, 504, 507)
JSON = ("Content-Type", "application/json")

Rows = dict[str, dict[SliceKey, int]]
"""By topic and slice: how many events."""

Holders = tuple[str, ...]


class AgainError(BrokerError):
    """What was staged can not be committed (most of its copies are gone, or slices have moved):
    nothing of it is visible, and the batch is to be made again."""

    slug = "again"
    title = "The batch is to be made again"
    retryable = True


@dataclass(frozen=True, slots=True)
class DecidedBatch:
    """What the writer's last batch has decided."""

    batch: int
    note: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try to write one batch."""

    batch: int
    name: str


class StagedWrites:
    """The writes of one writer."""

    def __init__(self, access: Access, writer: str, timeout_s: float) -> None:
        self.writer = writer
        self._path = f"/v1/writes/{quote(writer, safe='')}"
        self._access = access
        self._timeout_s = timeout_s
        self._directory = Directory(access)
        self._pool = Pool(access, connections_max=8)
        self._ring: Ring | None = None
        self._heard_at = 0.0
        self._left_out: dict[str, float] = {}
        self._missed: set[str] = set()
        """Who does not have all of the attempt that is under way."""
        self._said = "not all were waited for"
        """Why one of them has not, as it was told last."""

    def close(self) -> None:
        """Closes every connection."""
        self._pool.close()
        self._directory.close()

    async def ring(self) -> Ring:
        """As it was last heard."""
        if self._ring is None:
            self._ring = await self._directory.ring(self._timeout_s)
            self._heard_at = time.monotonic()
        return self._ring

    def begin(self) -> None:
        """Another attempt: everybody has all of what is staged, which is nothing."""
        self._missed.clear()
        if time.monotonic() - self._heard_at > HEARD_SECONDS:
            self._ring = None  # Slices may have moved, and brokers be back.

    # --- The five calls ----------------------------------------------------------------------

    async def last(self) -> DecidedBatch | None:
        """The note of the writer's last batch; None: nothing was decided yet."""
        answer = await self._anywhere(Request("GET", self._path))
        if answer.status == 404:
            raise NotFoundError(
                "the broker that was asked keeps no notes of writers: it is of a version before"
                " pipelines; upgrade every broker of the ring first"
            )
        _check(answer, "read the note")
        try:
            found = json.loads(answer.body)
            if found["note"] is None:
                return None
            return DecidedBatch(int(found["batch"]), str(found["note"]))
        except (ValueError, KeyError, TypeError) as error:
            raise BadAnswerError(f"GET {self._path}: {error!r}") from error

    async def stage(
        self, attempt: Attempt, topic: str, key: SliceKey, first: int, batches: Sequence[bytes]
    ) -> None:
        """Keeps encoded batches for a slice; `first`: the number of the first one there."""
        query = {"topic": topic, "slice": key.slice, "attempt": attempt.name, "seq": first}
        target = f"{self._path}/{attempt.batch}/staged?{urlencode(query)}"
        body = b"".join(batches)
        request = Request("PUT", target, (("Content-Type", CONTENT_TYPE),), body)
        await self._most((await self.ring()).holders[key], request, "stage")

    async def prepare(self, attempt: Attempt, rows: Rows) -> None:
        """Everything that was staged stays, whatever happens, for as long as a note may come."""
        told = {"state": "prepared", "attempts": [attempt.name], "keepSeconds": KEEP_SECONDS_MAX}
        shares = self._shares(await self.ring(), rows)
        requests = {
            holders: Request("PUT", self._write(attempt.batch), (JSON,), _packed(told, share))
            for holders, share in shares.items()
        }
        await _all(self._most(holders, requests[holders], "prepare") for holders in requests)

    async def decide(self, batch: int, note: str) -> None:
        """This note is the batch's, and the batch will be visible. ConflictError: another one was
        first. TransportError and the like: nobody knows, so the writer has to begin anew."""
        told = {"state": "prepared", "attempts": [], "rows": {}, "note": note}
        body = json.dumps(told).encode()
        answer = await self._anywhere(Request("PUT", self._write(batch), (JSON,), body))
        _check(answer, "decide")

    async def commit(self, attempt: Attempt, rows: Rows) -> None:
        """All of it is visible. Repeated, by whomever, it changes nothing."""
        until = time.monotonic() + self._timeout_s
        pause = PAUSE_FIRST_S
        while True:  # As a whole: meanwhile a range may have been split.
            try:
                shares = self._shares(await self.ring(), rows)
                await _all(self._commit(attempt, *each) for each in shares.items())
                return
            except AgainError:
                self._ring = None
                if time.monotonic() + pause > until:
                    raise
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MAX_S)

    async def abandon(self, batch: int) -> None:
        """Gives up what was staged for a batch that can not be decided any more. Once: what is
        left of it expires."""
        ring = await self.ring()
        holders = {each for found in ring.holders.values() for each in found} - ring.away
        await asyncio.gather(*(self._delete(each, batch) for each in sorted(holders)))

    # --- How -----------------------------------------------------------------------------------

    def _write(self, batch: int) -> str:
        return f"{self._path}/{batch}"

    def _shares(self, ring: Ring, rows: Rows) -> dict[Holders, dict[str, dict[str, int]]]:
        """By shard, which is named by those who hold it: events by topic and slice."""
        shares: dict[Holders, dict[str, dict[str, int]]] = {}
        for topic, slices in rows.items():
            for key, count in slices.items():
                share = shares.setdefault(ring.holders[key], {}).setdefault(topic, {})
                share[str(key.slice)] = count
        return shares

    async def _anywhere(self, request: Request) -> Response:
        """An answer that means something, from any process that gives one in time."""
        until = time.monotonic() + self._timeout_s
        pause, turn, said = PAUSE_FIRST_S, 0, "nobody was asked"
        endpoints = [*self._access.endpoints, *self._homes()]
        while True:
            endpoint = endpoints[turn % len(endpoints)]
            turn += 1
            try:
                answer = await self._pool.request(endpoint, request, timeout_s=TRY_SECONDS)
                if answer.status not in RETRIED:
                    return answer
                said = f"{endpoint}: {answer.words}"
            except TransportError as error:
                said = str(error)
            if time.monotonic() + pause > until:
                raise TransportError(f"no answer to {request.method} {self._path}: {said}")
            if turn % len(endpoints) == 0:
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_MAX_S)

    def _homes(self) -> list[str]:
        """Who holds the slice of the writer's name, if that was heard: others may be down."""
        ring = self._ring
        return [] if ring is None else list(ring.holders[ring.slice_of_key(self.writer.encode())])

    async def _most(self, holders: Holders, request: Request, what: str) -> None:
        """Has most of the holders do it; who does not is left out of this attempt. AgainError: not
        enough of them have everything. Another error: a refusal that is for good."""
        needed = len(holders) // 2 + 1
        asked = self._asked(holders, needed)
        if len(asked) < needed:
            raise AgainError(f"cannot {what}: too few of {', '.join(holders)} have everything")
        running = {asyncio.ensure_future(self._insist(each, request)): each for each in asked}
        done = 0
        patience: float | None = None
        try:
            while running:
                timeout = None if patience is None else max(0.0, patience - time.monotonic())
                ended, _ = await asyncio.wait(
                    running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED
                )
                if not ended and timeout is not None:
                    break
                for task in ended:
                    endpoint = running.pop(task)
                    if self._took(endpoint, task.result(), what):
                        done += 1
                if done >= needed and patience is None:
                    patience = time.monotonic() + PATIENCE_SECONDS
        finally:
            for task, endpoint in running.items():
                task.cancel()
                self._leave_out(endpoint)
            await asyncio.gather(*running, return_exceptions=True)
        if done < needed:
            self._ring = None
            raise AgainError(
                f"cannot {what}: too few of {', '.join(holders)} have done it ({self._said})"
            )

    def _asked(self, holders: Holders, needed: int) -> list[str]:
        """Those that have everything so far; those that were waited for in vain only if needed."""
        now = time.monotonic()
        have = [each for each in holders if each not in self._missed]
        away = self._ring.away if self._ring is not None else frozenset()
        soon = [e for e in have if self._left_out.get(e, 0.0) <= now and e not in away]
        if len(soon) < needed:
            return have
        self._missed.update(each for each in have if each not in soon)
        return soon

    def _leave_out(self, endpoint: str) -> None:
        self._missed.add(endpoint)
        self._left_out[endpoint] = time.monotonic() + LEFT_OUT_SECONDS

    def _took(self, endpoint: str, answer: Response | None, what: str) -> bool:
        """Whether it has done it. Raises what every other one would say as well."""
        if answer is not None and answer.ok:
            return True
        self._missed.add(endpoint)
        self._said = f"{endpoint}: {'no answer' if answer is None else answer.words}"
        if answer is None:
            self._left_out[endpoint] = time.monotonic() + LEFT_OUT_SECONDS
        elif answer.status not in (409, 421) and answer.status < 500:
            _check(answer, what)
        return False

    async def _insist(self, endpoint: str, request: Request) -> Response | None:
        """Its answer, other than "not now"; None: there is none, and will be none soon."""
        until = time.monotonic() + self._timeout_s
        pause = PAUSE_FIRST_S
        answer = None
        while True:
            try:
                answer = await self._pool.request(endpoint, request, timeout_s=TRY_SECONDS)
                if answer.status not in RETRIED:
                    return answer
            except TransportError:
                answer = None
            if time.monotonic() + pause > until:
                return answer
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)

    async def _commit(
        self, attempt: Attempt, holders: Holders, share: Mapping[str, Mapping[str, int]]
    ) -> None:
        told = {"state": "committed", "attempts": [attempt.name]}
        request = Request("PUT", self._write(attempt.batch), (JSON,), _packed(told, share))
        until = time.monotonic() + self._timeout_s
        pause, turn, led = PAUSE_FIRST_S, 0, (await self.ring()).endpoints
        leaders = [each for each in holders if each in led.values()]
        endpoints = list(dict.fromkeys([*leaders, *holders]))
        while True:
            endpoint = endpoints[turn % len(endpoints)]
            turn += 1
            try:
                answer = await self._pool.request(endpoint, request, timeout_s=TRY_SECONDS)
            except TransportError as error:
                said = str(error)
            else:
                if answer.ok:
                    break
                said = f"{endpoint}: {answer.words}"
                owner = answer.problem.get("owner") if answer.status == 421 else None
                if owner in endpoints:
                    turn = endpoints.index(owner)
                elif answer.status == 421:
                    raise AgainError(f"slices of the write have moved: {said}")
                elif answer.status not in RETRIED:
                    _check(answer, "commit")
            if time.monotonic() + pause > until:
                raise TransportError(f"nobody committed it for {self._timeout_s:g} s: {said}")
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)
        # Their copies are of no use any more, and each is a file that is kept open.
        others = [each for each in holders if each not in self._missed | {endpoint}]
        await asyncio.gather(*(self._delete(each, attempt.batch) for each in others))

    async def _delete(self, endpoint: str, batch: int) -> None:
        request = Request("DELETE", self._write(batch))
        try:
            await self._pool.request(endpoint, request, timeout_s=PATIENCE_SECONDS)
        except BarcoError:
            return  # It expires there, or goes when its commit is seen in the log.


def _packed(told: Mapping[str, Any], share: Mapping[str, Mapping[str, int]]) -> bytes:
    return json.dumps({**told, "rows": share}).encode()


def _check(answer: Response, what: str) -> None:
    """Raises what it says, if it is no 2xx."""
    if not answer.ok:
        raise response_error(answer.status, answer.headers, answer.body, what)


async def _all(given: Iterable[Any]) -> None:
    """All of them at once; the first failure, when every one has ended."""
    for ended in await asyncio.gather(*given, return_exceptions=True):
        if isinstance(ended, BaseException):
            raise ended
