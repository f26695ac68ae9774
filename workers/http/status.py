"""The broker about itself: status, brokers, topology, metrics, OpenAPI."""

import json
from typing import Any

from barco.errors import BarcoError
from barco.model.token import TOKEN_MIN
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
        answers = await context.siblings.broadcast("ping", context.everyone({}), _STATUS_TIMEOUT_S)
        shards = []
        waiting = [] if context.ready else [context.reason]
        for worker, answer in answers.items():
            up = not isinstance(answer, BarcoError) and answer["epoch"] > 0
            if not up and (context.ready or worker != options.worker):
                waiting.append(f"Worker {worker} is starting.")
            shards.append({"worker": worker, "ready": up})
        body: dict[str, Any] = {
            "status": "starting" if waiting else "ready",
            "version": options.version,
            "engine": context.service.reactor.engine,
            "engineReason": context.service.reactor.engine_reason,
            "worker": options.worker,
            "shards": shards,
            "openToAll": options.insecure_open,
        }
        if not waiting:
            return json_response(body)
        body["reason"] = " ".join(waiting)
        return json_response(body, 503, ("Retry-After", str(RETRY_AFTER_S)))

    async def brokers(self, request: Request) -> Response:
        """PolarStreams' discovery document, and where every shard is."""
        options = self._context.options
        ports = options.ports
        body: dict[str, Any] = {
            "length": 1,
            "names": [options.bind],
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
        answers = await context.siblings.broadcast("ping", context.everyone({}), _STATUS_TIMEOUT_S)
        shards = []
        for worker, owned in enumerate(context.slices_of):
            answer = answers[worker]
            up = not isinstance(answer, BarcoError)
            shards.append(
                {
                    "worker": worker,
                    "ordinal": options.ordinal,
                    "endpoint": options.shard_endpoints[worker],
                    "token": str(TOKEN_MIN),
                    "slices": [owned.start, owned.stop - 1],
                    "up": up,
                    "version": answer["epoch"] if up else None,
                    "generations": answer["lineage"] if up else [],
                }
            )
        slices = [
            {
                "index": index,
                "worker": context.owner(index),
                "endpoint": options.shard_endpoints[context.owner(index)],
            }
            for index in range(options.slices_per_range)
        ]
        broker = {"ordinal": options.ordinal, "name": options.bind, "ports": options.ports}
        body = {
            "clusterUuid": options.cluster_uuid,
            "ringSize": 1,
            "slicesPerRange": options.slices_per_range,
            "brokers": [{**broker, "token": str(TOKEN_MIN), "diskUuid": options.disk_uuid}],
            "ranges": [
                {
                    "token": str(TOKEN_MIN),
                    "leader": options.ordinal,
                    "replicas": [options.ordinal],
                    "slices": slices,
                }
            ],
            "shards": shards,
        }
        return json_response(body)

    async def metrics(self, request: Request) -> Response:
        """Counters of the whole broker, for Prometheus."""
        context = self._context
        answers = await context.siblings.broadcast("stats", context.everyone({}), _STATUS_TIMEOUT_S)
        stats = {w: answer for w, answer in answers.items() if not isinstance(answer, BarcoError)}
        text = exposition(stats, workers=context.options.workers, version=context.options.version)
        return Response(200, text, (("Content-Type", CONTENT_TYPE), ("Cache-Control", "no-store")))

    async def openapi(self, request: Request) -> Response:
        """This API as an OpenAPI 3.1 document."""
        return Response(200, self._openapi, (("Content-Type", JSON),))
