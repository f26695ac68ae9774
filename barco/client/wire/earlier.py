"""What brokers know of a producer that had the same id before: its epoch in each slice.

Who begins under the id takes the next epoch. To go on in the same one would be wrong: what is still
on its way of the other one could take the sequence, and a new batch would pass for stored.
"""

import asyncio
import json
import time
from urllib.parse import quote

from barco.client.base.errors import BadAnswerError, TransportError, response_error
from barco.client.wire.access import Access
from barco.client.wire.batching import Lane, SliceKey
from barco.client.wire.http1 import Request
from barco.client.wire.transport import Pool
from barco.errors import BarcoError
from barco.model.delays import WAITING_PREFIX

TRY_SECONDS = 2.0
PAUSE_FIRST_S, PAUSE_MAX_S = 0.02, 0.5


class EarlierEpochs:
    """For each topic and id, asked once."""

    def __init__(self, pool: Pool, access: Access) -> None:
        self._pool = pool
        self._endpoints = access.endpoints
        self._known: dict[tuple[str, str], asyncio.Task[dict[SliceKey, int]]] = {}
        self._done: set[Lane] = set()

    async def continue_with(self, lane: Lane, timeout_s: float) -> None:
        """Before the lane's first batch goes: its epoch is behind those that were."""
        if lane in self._done:
            return
        asked = (lane.topic, lane.producer_id)
        task = self._known.get(asked)
        if task is None:
            task = self._known[asked] = asyncio.ensure_future(self._ask(*asked, timeout_s))
        try:
            before = await asyncio.shield(task)
        except BarcoError:
            if self._known.get(asked) is task:
                del self._known[asked]  # The next batch asks again.
            raise
        if lane.slice in before:
            lane.producer_epoch = before[lane.slice] + 1
        self._done.add(lane)

    async def _ask(self, topic: str, name: str, timeout_s: float) -> dict[SliceKey, int]:
        until, pause, turn = time.monotonic() + timeout_s, PAUSE_FIRST_S, 0
        plain = topic.removeprefix(WAITING_PREFIX)
        target = f"/v1/topic/{plain}/producers/{quote(name, safe='')}"
        target += "" if plain == topic else "?delayed=1"
        while True:
            endpoint = self._endpoints[turn % len(self._endpoints)]
            turn += 1
            try:
                answer = await self._pool.request(
                    endpoint, Request("GET", target), timeout_s=TRY_SECONDS
                )
                if answer.ok:
                    return _epochs(answer.body)
                raise response_error(answer.status, answer.headers, answer.body, f"GET {target}")
            except BarcoError as error:
                tried = isinstance(error, TransportError) or error.retryable
                if not tried or time.monotonic() + pause > until:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)


def _epochs(body: bytes) -> dict[SliceKey, int]:
    try:
        return {
            SliceKey(int(each["token"]), int(each["index"])): int(each["epoch"])
            for each in json.loads(body)["slices"]
        }
    except (ValueError, KeyError, TypeError) as error:
        raise BadAnswerError(f"what is known of a producer: {error!r}") from error
