"""Splunk's HTTP event collector. What is answered 200 is durable, so that each ack is true."""

import json
import secrets

from barco._native import Shipped, headers_encode
from barco.errors import BarcoError, BusyError, DiskFullError, ForbiddenError, RequestError
from barco.workers.http.base.context import Context
from barco.workers.http.base.messages import JSON, Request, Response, read_json
from barco.workers.http.checking.desk import Checking
from barco.workers.http.shippers.base import FLAWS, Kind, Shipping, too_large

INDEX = "main"
"""The topic of events that name none."""

CHANNEL = "x-splunk-request-channel"
ACKS_MAX = 4096
"""Asked for at once."""
ACK_BITS = 52
"""Of an id, which is drawn: no two workers have to agree, and every program can count so far."""

SAID = ("host", "source", "sourcetype")
"""Parameters of raw lines that become headers."""

_CODES = {"no-event": 12, "blank-event": 13}
_NO_DATA, _FORMAT, _INDEX, _FAILED, _BUSY, _NO_CHANNEL, _HEALTHY = 5, 6, 7, 8, 9, 10, 17


class Splunk:
    """Handlers of /services/collector."""

    def __init__(self, context: Context, checking: Checking) -> None:
        self._context = context
        self._shipping = Shipping(context, checking)

    async def event(self, request: Request) -> Response:
        """Stores the events of objects."""
        return await self._store(request, self._shipping.read("hec", request))

    async def raw(self, request: Request) -> Response:
        """Stores lines as they stand."""
        said = [(name, value) for name in SAID if (value := request.value(name))]
        try:
            headers = headers_encode([(name, value.encode()) for name, value in said])
        except ValueError:
            return _answer(400, FLAWS["headers"], _FORMAT)
        return await self._store(request, self._shipping.read("lines", request, headers))

    async def ack(self, request: Request) -> Response:
        """Every id was given with an answer that was durable."""
        if not _channel(request):
            return _answer(400, "Data channel is missing", _NO_CHANNEL)
        given = read_json(request.body)  # Splunk's own examples say no type of it.
        acks = given.get("acks") if isinstance(given, dict) else None
        if not isinstance(acks, list) or len(acks) > ACKS_MAX:
            raise RequestError(f'The body is {{"acks": [...]}}, with {ACKS_MAX} ids at most.')
        if not all(type(each) is int and 0 <= each < 2**ACK_BITS for each in acks):
            raise RequestError("An id is a whole number, as it was answered.")
        return Response(200, _json({"acks": {str(each): True for each in acks}}), _HEADERS)

    async def health(self, request: Request) -> Response:
        """Whether it is worth sending anything."""
        return _answer(200, "HEC is healthy", _HEALTHY)

    async def _store(self, request: Request, shipped: Shipped) -> Response:
        too_large(shipped)
        if shipped.flaw:
            code = _CODES.get(shipped.flaw, _FORMAT)
            return _answer(400, FLAWS[shipped.flaw], code, shipped.at)
        if not shipped.count:
            return _answer(400, "No data", _NO_DATA)
        kinds = shipped.kinds()
        topics = [_topic(request, kind) for kind in kinds]
        for topic in topics:  # All of them before the first is stored.
            error = self._shipping.refusal(request.user, topic)
            if isinstance(error, ForbiddenError):
                raise error  # And told in the log, as elsewhere.
            if error is not None:
                return _of(error)
        outcome = await self._shipping.produce(request, shipped, kinds, topics)
        failed = [error for error in outcome.values() if error is not None]
        if failed:
            return _of(max(failed, key=lambda error: error.status))
        given = {"text": "Success", "code": 0}
        if _channel(request):
            given["ackId"] = secrets.randbits(ACK_BITS)
        return Response(200, _json(given), _HEADERS)


_HEADERS = (("Content-Type", JSON), ("Cache-Control", "no-store"))


def _topic(request: Request, kind: Kind) -> str:
    return kind[1] or request.value("index") or INDEX


def _channel(request: Request) -> str | None:
    return request.value("channel") or request.header(CHANNEL)


def _of(error: BarcoError) -> Response:
    """As the collector says it: what is 5xx is sent again."""
    if isinstance(error, (BusyError, DiskFullError)):
        return _answer(503, error.detail, _BUSY)
    if isinstance(error, ForbiddenError) or error.status in (400, 404):
        return _answer(403 if error.status == 403 else 400, error.detail, _INDEX)
    return _answer(error.status, error.detail, _FAILED)


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _answer(status: int, text: str, code: int, event: int | None = None) -> Response:
    given: dict[str, object] = {"text": text, "code": code}
    if event is not None:
        given["invalid-event-number"] = event
    headers = (*_HEADERS, ("Retry-After", "1")) if status == 503 else _HEADERS
    return Response(status, _json(given), headers)
