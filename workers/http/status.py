"""The broker about itself: status, brokers, topology, metrics, OpenAPI."""

import json
from typing import Any

from barco.errors import BarcoError
from barco.model.placement import ring_order
from barco.workers.http.context import Context
from barco.workers.http.messages import (
    JSON,
    RETRY_AFTER_S,
    Request,
    Response,
    json_response,
)
from barco.workers.http.openapi import document
from barco.workers.http.routes import Route
from barco.workers.metrics import CONTENT_TYPE, exposition

_STATUS_TIMEOUT_S = 1.0


class Status:
    """Handlers of what needs no topic and no group."""

    def __init__(self, context: Context, routes: tuple[Route, ...]) -> None:
        self._context = context
        openapi = document(routes, context.options.version)
        self._openapi = json.dumps(openapi, separators=(",", ":")).encode() + b"\n"

    async def status(self, request: Request) -> Response:
        """200 when every shard of the broker is served, else 503; the body says why."""
        context, options = self._context, self._context.options
        answers = await context.siblings.broadcast("ping", context.here({}), _STATUS_TIMEOUT_S)
        shards = []
        waiting = [] if context.ready else [context.reason]
        for worker, answer in zip(range(len(answers)), answers.values(), strict=True):
            up = not isinstance(answer, BarcoError) and answer["epoch"] > 0
            if not up and (context.ready or worker != options.worker):
                waiting.append(f"Worker {worker} is starting.")
            shard = {"worker": worker, "ready": up}
            if options.ring_size > 1:
                shard |= self._role(worker, answer if up else None)
                if shard["leader"] is None:
                    waiting.append(f"Nobody leads shard {shard['shard']} yet.")
            shards.append(shard)
        body: dict[str, Any] = {
            "status": "starting" if waiting else "ready",
            "version": options.version,
            "engine": context.service.reactor.engine,
            "engineReason": context.service.reactor.engine_reason,
            "worker": options.worker,
            "shards": shards,
            "openToAll": options.insecure_open,
        }
        if options.ring_size > 1:
            body |= {"ordinal": options.ordinal, "ringSize": options.ring_size}
        if not waiting:
            return json_response(body)
        body["reason"] = " ".join(waiting)
        return json_response(body, 503, ("Retry-After", str(RETRY_AFTER_S)))

    def _role(self, worker: int, answer: Any) -> dict[str, Any]:
        """The part that a process of this broker plays for its shard of the ring."""
        shard = self._context.replicas.shard_of((self._context.options.process[0], worker))
        leader = self._context.leaders.leader(shard)
        return {
            "shard": shard,
            "place": worker // self._context.replicas.workers,
            "leading": bool(answer and answer["leading"]),
            "leader": None if leader is None else leader[0],
            "version": answer["epoch"] if answer else None,
        }

    async def brokers(self, request: Request) -> Response:
        """PolarStreams' discovery document, and where every shard is."""
        options = self._context.options
        ports = options.ports
        names = []
        if options.ring_size > 1:
            names = [options.brokers[ordinal] for ordinal in ring_order(options.ring_size)]
        body: dict[str, Any] = {
            "length": options.ring_size,
            "names": names or [options.bind],
            "producerPort": ports.get("produce"),
            "consumerPort": ports.get("consume"),
        }
        if "binary" in ports:
            body["producerBinaryPort"] = ports["binary"]
        body |= {
            "discoveryPort": ports.get("discovery"),
            "metricsPort": ports.get("metrics"),
            "clusterUuid": options.cluster_uuid,
            "version": options.version,
            "workers": options.workers,
            "slicesPerRange": options.slices_per_range,
            "shardEndpoints": options.shard_endpoints,
        }
        return json_response(body)

    async def topology(self, request: Request) -> Response:
        """The ring, its slices and their owners, and the generations."""
        context, options = self._context, self._context.options
        answers = await context.look_all("ping", {}, timeout=_STATUS_TIMEOUT_S)
        shards = []
        for shard, answer in answers.items():
            up = not isinstance(answer, BarcoError)
            seats = context.seats(shard)
            first = shard // options.workers * options.slices_per_range
            owned = context.replicas.slices_of(shard)
            shards.append(
                {
                    **seats,
                    "token": context.token(first),
                    "slices": [owned.start, owned.stop - 1],
                    "up": up and context.leaders.leader(shard) is not None,
                    "version": answer["epoch"] if up else None,
                    "generations": answer["lineage"] if up else [],
                }
            )
        body = {
            "clusterUuid": options.cluster_uuid,
            "ringSize": options.ring_size,
            "slicesPerRange": options.slices_per_range,
            "brokers": self._members(),
            "ranges": [self._range(index) for index in range(options.ring_size)],
            "shards": shards,
        }
        return json_response(body)

    def _members(self) -> list[dict[str, Any]]:
        """All brokers, in the order of the ring."""
        options, ring = self._context.options, self._context.ring
        own = {"ports": options.ports, "diskUuid": options.disk_uuid}
        if options.ring_size == 1:
            name = {"ordinal": options.ordinal, "name": options.bind}
            return [{**name, "token": str(ring.token(0)), **own}]
        return [
            {"ordinal": ordinal, "name": options.brokers[ordinal], "token": str(ring.token(index))}
            | (own if ordinal == options.ordinal else {"ports": options.ports})
            for index, ordinal in enumerate(ring_order(options.ring_size))
        ]

    def _range(self, index: int) -> dict[str, Any]:
        """A token range: who leads it, and each of its slices."""
        context, slices = self._context, self._context.options.slices_per_range
        seats = [context.seats(context.shard(index * slices + each)) for each in range(slices)]
        return {
            "token": context.token(index * slices),
            "leader": seats[0]["ordinal"],
            "replicas": seats[0]["replicas"],
            "slices": [
                {"index": number, "worker": seat["worker"], "endpoint": seat["endpoint"]}
                for number, seat in enumerate(seats)
            ],
        }

    async def metrics(self, request: Request) -> Response:
        """Counters of the whole broker, for Prometheus."""
        context = self._context
        answers = await context.siblings.broadcast("stats", context.here({}), _STATUS_TIMEOUT_S)
        stats = {
            worker: answer
            for worker, answer in enumerate(answers.values())
            if not isinstance(answer, BarcoError)
        }
        workers = context.replicas.processes
        text = exposition(stats, workers=workers, version=context.options.version)
        return Response(200, text, (("Content-Type", CONTENT_TYPE), ("Cache-Control", "no-store")))

    async def openapi(self, request: Request) -> Response:
        """This API as an OpenAPI 3.1 document."""
        return Response(200, self._openapi, (("Content-Type", JSON),))
