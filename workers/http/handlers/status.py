"""The broker about itself: status, brokers, topology, metrics, OpenAPI."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from barco.errors import BarcoError, NotAcceptableError
from barco.model.options import cluster_mark
from barco.model.ranges import process_of
from barco.protocol.versions import told
from barco.workers.http.base.context import Context
from barco.workers.http.base.messages import (
    JSON,
    RETRY_AFTER_S,
    Request,
    Response,
    choose,
    json_response,
)
from barco.workers.http.base.openapi import document
from barco.workers.http.base.routes import Route
from barco.workers.http.handlers.growing import drains
from barco.workers.http.handlers.measures import named
from barco.workers.http.handlers.ring import (
    described_brokers,
    described_ranges,
    described_routes,
    described_shards,
    described_target,
)
from barco.workers.http.handlers.standing import leaders_say, look
from barco.workers.process.exposition import OPEN_METRICS, PROMETHEUS
from barco.workers.process.metrics import exposition

_STATUS_TIMEOUT_S = 1.0
_ANSWERS_AT_ONCE = 8


class Status:
    """Handlers of what needs no topic and no group."""

    def __init__(self, context: Context, routes: tuple[Route, ...]) -> None:
        self._context = context
        openapi = document(routes, context.options.version)
        self._look: asyncio.Task[None] | None = None
        self._waiting: list[asyncio.Future[Response]] = []
        self._openapi = json.dumps(openapi, separators=(",", ":")).encode() + b"\n"

    async def status(self, request: Request) -> Response:
        """200 when every slice can be written through the broker, else 503 with why not; and
        whether it is in sync.

        Who asks while somebody else is being answered gets the same answer: many are no more work
        for other brokers than one, and little here.
        """
        waiter: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._answer_all())
        return await waiter

    async def _answer_all(self) -> None:
        """A few in each turn of the loop: hundreds at once would hold up everybody else."""
        while self._waiting:
            look = asyncio.ensure_future(self._looked())
            await asyncio.wait([look])
            waiting, self._waiting = self._waiting, []
            for number, waiter in enumerate(waiting, 1):
                if waiter.done():  # It was given up.
                    continue
                if (error := look.exception()) is not None:
                    waiter.set_exception(error)
                else:
                    waiter.set_result(look.result())
                if number % _ANSWERS_AT_ONCE == 0:
                    await asyncio.sleep(0)

    async def _looked(self) -> Response:
        body = await self.told()
        if body["status"] == "ready":
            return json_response(body)
        return json_response(body, 503, ("Retry-After", str(RETRY_AFTER_S)))

    async def told(self) -> dict[str, Any]:
        """What GET /status has in its body."""
        options = self._context.options
        found, cluster, leaves = await asyncio.gather(
            look(self._context), self._cluster(), self._leaves()
        )
        body: dict[str, Any] = {
            "status": "ready" if found.ready else "starting",
            "inSync": found.in_sync,
            "version": options.version,
            "versions": told(),
            "engine": self._context.service.reactor.engine,
            "engineReason": self._context.service.reactor.engine_reason,
            "nice": options.nice,
            "worker": options.worker,
            "shards": found.shards,
            "openToAll": options.insecure_open,
            "tls": self._context.service.sealing(),
        }
        if options.ring_size > 1:
            # Whether brokers prove to one another that they know a secret (cluster.secret_file).
            body |= {"ordinal": options.ordinal, "clusterSecret": options.secret}
            body["mutualTls"] = self._context.service.sealing_between()
            body |= _peers(options.ordinal, cluster)
            body["routes"] = self._routes(cluster)
        if leaves is not None:
            body["leaves"] = leaves
        if found.waits:
            body["waits"] = True
        if found.degraded:
            body["degraded"] = found.degraded
        if not found.ready:
            body["reason"] = " ".join(found.waiting)
        return body

    async def _leaves(self) -> Any:
        """What is to be done before this broker may go, if the target does not name it (any more);
        None as long as nobody says."""
        options, target = self._context.options, self._context.service.target.heard
        if options.ring_size == 1 or options.ordinal in target.workers:
            return None
        try:
            told = await drains(self._context, {}, _STATUS_TIMEOUT_S)
        except BarcoError:
            return None
        return next((each for each in told["brokers"] if each["ordinal"] == options.ordinal), None)

    def _routes(self, cluster: Mapping[str, Any]) -> dict[str, Any]:
        """What is wrong with the routes, in words; the supervisor knows best who said what."""
        context = self._context
        faults = list(cluster.get("routes", {}).get("faults", []))
        for token in context.leaders.without():
            numbers = context.ranges.numbers_of(token)
            faults.append(f"nobody is known to lead slices {numbers[0]} to {numbers[-1]}")
        return {"version": context.ranges.routes.version, "faults": faults}

    async def ready(self, request: Request) -> Response:
        """200 when the broker is ready, with ?insync when it is in sync as well; else 503."""
        thorough = request.value("insync") == "" or request.flag("insync", default=False)
        found = await look(self._context, thorough=thorough)
        body: dict[str, Any] = {"ready": found.ready}
        if self._context.options.restored:  # For who is restored beside it, and has no token yet.
            body["restored"] = True
        if found.disk_full:
            body["diskFull"] = True
        if thorough:
            body["inSync"] = found.in_sync
        if reasons := found.waiting + found.degraded:
            body["reason"] = " ".join(found.waiting) or "; ".join(found.degraded)
        if not reasons:
            return json_response(body)
        return json_response(body, 503, ("Retry-After", str(RETRY_AFTER_S)))

    async def _cluster(self) -> dict[str, Any]:
        """What the supervisor says of the other brokers; nothing if it does not answer."""
        if self._context.options.ring_size == 1:
            return {}
        try:
            async with asyncio.timeout(_STATUS_TIMEOUT_S):
                return await self._context.supervisor.request("cluster", {})
        except (BarcoError, TimeoutError):
            return {}

    async def brokers(self, request: Request) -> Response:
        """PolarStreams' discovery document, and where every shard is."""
        options = self._context.options
        ports = options.ports
        cluster = options.ring_size > 1
        neighbours = self._context.service.neighbours
        ordinals = neighbours.ordinals if cluster else [options.ordinal]
        body: dict[str, Any] = {
            "length": options.ring_size,
            "names": [neighbours.host(n) for n in ordinals],
            "producerPort": ports.get("produce"),
            "consumerPort": ports.get("consume"),
        }
        if "binary" in ports:
            body["producerBinaryPort"] = ports["binary"]
        body |= {
            "discoveryPort": ports.get("discovery"),
            "metricsPort": ports.get("metrics"),
            "cluster": cluster_mark(options.cluster_uuid),
            "version": options.version,
            "workers": options.workers,
            "slicesPerRange": options.slices_per_range,
            "shardEndpoints": self._context.service.neighbours.endpoints,
        }
        if options.restored:
            body["restored"] = True
        if cluster:
            body["brokers"] = described_brokers(self._context)
        return json_response(body)

    async def topology(self, request: Request) -> Response:
        """The ring, its slices and their owners, and the generations."""
        copies = request.value("copies") == "" or request.flag("copies", default=False)
        return json_response(await self.ring(copies=copies))

    async def ring(self, *, copies: bool) -> dict[str, Any]:
        """The body of GET /v1/topology. copies: leaders are asked about their followers."""
        context, options = self._context, self._context.options
        asked = context.siblings.broadcast("ping", context.everyone({}), _STATUS_TIMEOUT_S)
        said = None
        if copies:
            answers, said = await asyncio.gather(asked, leaders_say(context))
        else:
            answers = await asked
        return {
            "cluster": cluster_mark(options.cluster_uuid),
            "ringSize": options.ring_size,
            "slicesPerRange": options.slices_per_range,
            "brokers": described_brokers(context),
            "ranges": described_ranges(context),
            "shards": described_shards(context, answers),
            **described_routes(context, answers, said),
            "target": described_target(context),
        }

    async def metrics(self, request: Request) -> Response:
        """Counters of the whole broker, for Prometheus, or as OpenMetrics where that is asked."""
        context = self._context
        kind = _kind_of_metrics(request)
        each = request.flag("workers", default=False)
        answers, cluster, more = await asyncio.gather(
            context.siblings.broadcast("stats", context.everyone({}), _STATUS_TIMEOUT_S),
            self._cluster(),
            named(context, request),
        )
        stats = {
            process_of(peer)[1]: answer
            for peer, answer in answers.items()
            if not isinstance(answer, BarcoError)
        }
        text = exposition(
            stats,
            workers=len(context.processes),
            about={
                "version": context.options.version,
                "broker": str(context.options.ordinal),
                "cluster": cluster_mark(context.options.cluster_uuid),
            },
            more=more,
            each=each,
            gossip=cluster.get("gossip", {}),
            open_metrics=kind == OPEN_METRICS,
        )
        return Response(200, text, (("Content-Type", kind), ("Cache-Control", "no-store")))

    async def openapi(self, request: Request) -> Response:
        """This API as an OpenAPI 3.1 document."""
        return Response(200, self._openapi, (("Content-Type", JSON),))


def _kind_of_metrics(request: Request) -> str:
    """Who accepts neither gets Prometheus' own, as ever."""
    kinds = {each.partition(";")[0]: each for each in (PROMETHEUS, OPEN_METRICS)}
    try:
        return kinds[choose(request.header("accept"), kinds)]
    except NotAcceptableError:
        return PROMETHEUS


def _peers(ordinal: int, cluster: Mapping[str, Any]) -> dict[str, Any]:
    """The other brokers in the body of /status."""
    refusals = cluster.get("refusals", {})
    peers = []
    for broker in cluster.get("brokers", []):
        if broker["ordinal"] != ordinal:
            kept = ("ordinal", "address", "state", "connected", "version", "incarnation", "topics")
            peers.append({name: broker[name] for name in kept if name in broker})
    return {"peers": peers, "refusals": refusals}
