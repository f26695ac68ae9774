"""Finding the brokers: any endpoint that answers tells where all slices are."""

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

from barco.client.base.errors import BadAnswerError, DiscoveryError, response_error
from barco.client.wire.access import Access
from barco.client.wire.http1 import Request, split_endpoint
from barco.client.wire.ring import Ring, ring_from_topology, single_endpoint_ring
from barco.client.wire.transport import Pool
from barco.errors import BarcoError, NotFoundError, RequestError
from barco.model.placement import Placement, ring_size_valid

TRY_TIMEOUT_S = 2.0
PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class Brokers:
    """The public endpoints of every broker, in ring order."""

    produce: tuple[str, ...]
    consume: tuple[str, ...]
    ring: Placement | None = None
    """Of a cluster; None for a single broker."""


class Directory:
    """Asks the endpoints it was given, one after the other, until one answers."""

    def __init__(self, access: Access) -> None:
        self._endpoints = access.endpoints
        self._pool = Pool(access, connections_max=1)

    async def ring(self, timeout_s: float) -> Ring:
        """Every slice and its owner; UnauthorizedError where nobody knows the token. A broker
        without a topology gets everything itself."""
        deadline = time.monotonic() + timeout_s
        try:
            topology = await self._ask("/v1/topology", deadline)
        except NotFoundError:
            brokers = await self.brokers(max(0.1, deadline - time.monotonic()))
            return single_endpoint_ring(brokers.produce[0])
        return ring_from_topology(topology)

    async def brokers(self, timeout_s: float) -> Brokers:
        """Where to produce and to consume."""
        answer = await self._ask("/v1/brokers", time.monotonic() + timeout_s)
        try:
            names = list(answer.get("names") or [])
            if not names:
                names = [split_endpoint(self._endpoints[0])[0]]
            produce, consume = int(answer["producerPort"]), int(answer["consumerPort"])
            size = int(answer.get("length", 1))
            ring = None
            if size > 1 and ring_size_valid(size):
                ring = Placement(size, int(answer["slicesPerRange"]))
        except (KeyError, TypeError, ValueError) as error:
            raise BadAnswerError(f"GET /v1/brokers: {error!r}") from error
        return Brokers(
            tuple(join_endpoint(name, produce) for name in names),
            tuple(join_endpoint(name, consume) for name in names),
            ring,
        )

    def close(self) -> None:
        """Closes the connections."""
        self._pool.close()

    async def _ask(self, target: str, deadline: float) -> dict[str, Any]:
        last: BarcoError | None = None
        while True:
            refused = 0
            for endpoint in self._endpoints:
                left = deadline - time.monotonic()
                if left <= 0 and last is not None:
                    break
                try:
                    return await self._get(endpoint, target, min(TRY_TIMEOUT_S, max(left, 0.1)))
                except NotFoundError:
                    raise
                except BarcoError as error:
                    last = error
                    refused += isinstance(error, RequestError) and not error.retryable
            if last is not None and refused == len(self._endpoints):
                raise last  # Another try would say, and show, the same.
            if time.monotonic() + PAUSE_S >= deadline:
                where = ", ".join(self._endpoints)
                raise DiscoveryError(f"no broker answers at {where}: {last}") from last
            await asyncio.sleep(PAUSE_S)

    async def _get(self, endpoint: str, target: str, timeout_s: float) -> dict[str, Any]:
        request = Request("GET", target, (("Accept", "application/json"),))
        answer = await self._pool.request(endpoint, request, timeout_s=timeout_s)
        if answer.status != 200:
            raise response_error(answer.status, answer.headers, answer.body, f"GET {target}")
        try:
            parsed = json.loads(answer.body)
        except ValueError as error:
            raise BadAnswerError(f"GET {target}: not JSON: {error}") from error
        if not isinstance(parsed, dict):
            raise BadAnswerError(f"GET {target}: not a JSON object")
        return parsed


def join_endpoint(host: str, port: int) -> str:
    """HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
