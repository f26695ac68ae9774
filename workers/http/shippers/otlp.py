"""OpenTelemetry's logs over HTTP: each record is an event, as JSON, however it came."""

import json

from barco.errors import RequestError, UnsupportedMediaTypeError
from barco.workers.http.base.context import Context
from barco.workers.http.base.messages import JSON, Request, Response, check_topic, media_type
from barco.workers.http.checking.desk import Checking
from barco.workers.http.shippers.base import FLAWS, Shipping, repeatable, too_large

TOPIC = "otel-logs"
"""Where no topic= is said."""

PROTOBUF = "application/x-protobuf"
_FORMATS = {PROTOBUF: "otlp", JSON: "otlp-json"}


def topic_of(request: Request, default: str = TOPIC) -> str:
    """The topic of a request."""
    return check_topic(request.value("topic") or default)


class Otlp:
    """Handlers of /v1/logs."""

    def __init__(self, context: Context, checking: Checking) -> None:
        self._shipping = Shipping(context, checking)

    async def logs(self, request: Request) -> Response:
        """Stores records; those that can not be are counted in the answer."""
        kind = media_type(request.header("content-type") or "")
        if kind not in _FORMATS:
            raise UnsupportedMediaTypeError(f"The body is to be {PROTOBUF} or {JSON}.")
        topic = topic_of(request)
        shipped = self._shipping.read(_FORMATS[kind], request)
        too_large(shipped)
        if shipped.flaw:
            raise RequestError(f"After {shipped.at} records: this is no ExportLogsServiceRequest.")
        kinds = shipped.kinds()
        topics = [None if flaw else topic for _, _, flaw, _ in kinds]
        for error in (await self._shipping.produce(request, shipped, kinds, topics)).values():
            if error is not None:
                raise repeatable(error)
        rejected = sum(count for _, _, flaw, count in kinds if flaw)
        why = " ".join(dict.fromkeys(FLAWS[flaw] for _, _, flaw, _ in kinds if flaw))
        body = _protobuf(rejected, why) if kind == PROTOBUF else _json(rejected, why)
        return Response(200, body, (("Content-Type", kind),))


def _json(rejected: int, why: str) -> bytes:
    partial = {"rejectedLogRecords": str(rejected), "errorMessage": why}
    return json.dumps({"partialSuccess": partial} if rejected else {}).encode()


def _protobuf(rejected: int, why: str) -> bytes:
    """An ExportLogsServiceResponse."""
    if not rejected:
        return b""
    text = why.encode()
    inner = b"\x08" + _varint(rejected) + b"\x12" + _varint(len(text)) + text
    return b"\x0a" + _varint(len(inner)) + inner


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))
