"""Elasticsearch's `_bulk`, as far as a log can do it: documents are added, by index or create."""

import json

from msgspec.structs import replace

from barco import __version__
from barco._native import Shipped
from barco.errors import BarcoError, BusyError, DiskFullError, ForbiddenError, RequestError
from barco.workers.http.base.audit import REFUSALS
from barco.workers.http.base.context import Context
from barco.workers.http.base.messages import JSON, RefusedPart, Request, Response, check_topic
from barco.workers.http.checking.desk import Checking
from barco.workers.http.shippers.base import FLAWS, Kind, Shipping, too_large

OPERATIONS = ("index", "create", "update", "delete")

VERSION = "8.11.0"
"""Whose `_bulk` this is: clients look at the first number before they send anything."""

_HEADERS = (("Content-Type", JSON), ("X-Elastic-Product", "Elasticsearch"))
"""Its official clients refuse to speak to anything that does not say the second one."""

_STORED = b'"status":201,"result":"created","_version":1}}'


ITEM_BYTES = 256
"""Of an answer, for each document, beside what it repeats of the body."""


class Elastic:
    """Handlers of /elastic."""

    def __init__(self, context: Context, checking: Checking) -> None:
        self._context = context
        self._shipping = Shipping(context, checking)

    async def info(self, request: Request) -> Response:
        """What a client asks for first."""
        return _answer(
            {
                "name": f"broker-{self._context.options.ordinal}",
                "cluster_name": "barco",
                "version": {"number": VERSION, "build_flavor": "default", "barco": __version__},
                "tagline": "A log that takes _bulk.",
            }
        )

    async def health(self, request: Request) -> Response:
        """Whether it is worth sending anything: whoever gets an answer may try."""
        return _answer({"cluster_name": "barco", "status": "green", "timed_out": False})

    async def bulk(self, request: Request) -> Response:
        """Stores documents, and says of each what became of it."""
        named = request.variables.get("topic")
        try:
            if named is not None:  # It is told of each document.
                check_topic(named)
        except RequestError as error:
            return _refused(400, error.detail)
        begun_us = self._shipping.now_us()
        shipped = self._shipping.read("bulk", request)
        too_large(shipped)
        if shipped.flaw:
            return _refused(400, f"Line {shipped.at}: {FLAWS[shipped.flaw]}")
        if not shipped.count:
            return _refused(400, "There is nothing in the body.")
        memory = self._context.memory
        granted = await memory.take(shipped.count * ITEM_BYTES + len(request.body))
        try:  # Before anything is stored: then 503 is true.
            return await self._stored(request, shipped, begun_us)
        finally:
            memory.give_back(granted)

    async def _stored(self, request: Request, shipped: Shipped, begun_us: int) -> Response:
        kinds = shipped.kinds()
        errors = [self._wrong(request, kind) for kind in kinds]
        names = [kind[1] or request.variables.get("topic") for kind in kinds]
        topics = [None if error else name for name, error in zip(names, errors, strict=True)]
        outcome = await self._shipping.produce(request, shipped, kinds, topics)
        heads, tails, refused = [], [], dict[tuple[str, int], RefusedPart]()
        for kind, name, topic, error in zip(kinds, names, topics, errors, strict=True):
            why = error if topic is None else outcome[topic]
            if isinstance(why, BarcoError) and why.status in REFUSALS:
                last = refused.get((name or "", why.status), RefusedPart(name or "", 0, why))
                refused[last.topic, why.status] = replace(last, events=last.events + kind[3])
            error = _error_of(why) if isinstance(why, BarcoError) else why
            heads.append(b'{"%s":{"_index":%s,' % (OPERATIONS[kind[0]].encode(), _text(name)))
            tails.append(_STORED if error is None else _tail(*error))
        failed = tails.count(_STORED) < len(tails)
        took = max(0, self._shipping.now_us() - begun_us) // 1000
        before = b'{"took":%d,"errors":%s,"items":[' % (took, b"true" if failed else b"false")
        body = b"".join((before, shipped.items(heads, tails), b"]}\n"))
        told = tuple(refused.values())
        return Response(200, self._context.memory.counted([body]), _HEADERS, refused=told)

    def _wrong(self, request: Request, kind: Kind) -> tuple[int, str, str] | BarcoError | None:
        """Why it can not be stored whatever happens, or status, type and reason of that."""
        _, name, flaw, _ = kind
        topic = name or request.variables.get("topic")
        if flaw:
            kinds = {"syntax": "mapper_parsing_exception", "op": "illegal_argument_exception"}
            return 400, kinds.get(flaw, "illegal_argument_exception"), FLAWS[flaw]
        if topic is None:
            return 400, "action_request_validation_exception", "There is no _index."
        return self._shipping.refusal(request.user, topic)


def _error_of(error: BarcoError) -> tuple[int, str, str]:
    """As clients understand it: they send again what is 429, or above 499."""
    if isinstance(error, ForbiddenError):
        return 403, "security_exception", error.detail
    if isinstance(error, (BusyError, DiskFullError)):
        return 429, "es_rejected_execution_exception", error.detail
    if error.status == 400:
        return 400, "invalid_index_name_exception", error.detail
    if error.status == 404:
        return 404, "index_not_found_exception", error.detail
    return max(error.status, 400), error.slug, error.detail


def _text(value: str | None) -> bytes:
    return json.dumps(value, ensure_ascii=True).encode()


def _tail(status: int, kind: str, reason: str) -> bytes:
    error = json.dumps({"type": kind, "reason": reason}, separators=(",", ":")).encode()
    return b'"status":%d,"error":%s}}' % (status, error)


def _answer(value: object) -> Response:
    return Response(200, json.dumps(value).encode() + b"\n", _HEADERS)


def _refused(status: int, reason: str) -> Response:
    error = {"type": "illegal_argument_exception", "reason": reason}
    body = json.dumps({"error": error, "status": status}).encode() + b"\n"
    return Response(status, body, _HEADERS)
