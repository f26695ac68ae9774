"""What is pushed to Grafana Loki, and Prometheus' remote write."""

from barco.errors import RequestError, UnsupportedMediaTypeError
from barco.workers.http.base.context import Context
from barco.workers.http.base.messages import JSON, Request, Response, media_type
from barco.workers.http.checking.desk import Checking
from barco.workers.http.shippers.base import FLAWS, Shipping, repeatable, too_large
from barco.workers.http.shippers.otlp import PROTOBUF, topic_of

LINES, SAMPLES = "loki", "metrics"
"""Topics where no topic= is said."""

_HISTOGRAM = "Native histograms are not taken: send_native_histograms: false."


class Grafana:
    """Handlers of /loki/api/v1/push and /api/v1/write."""

    def __init__(self, context: Context, checking: Checking) -> None:
        self._shipping = Shipping(context, checking)

    async def push(self, request: Request) -> Response:
        """Stores lines; all of them or, of one that is malformed, none."""
        kind = media_type(request.header("content-type") or "")
        if kind == JSON:
            return await self._store(request, "loki-json", LINES)
        if kind != PROTOBUF:
            raise UnsupportedMediaTypeError(f"The body is to be {PROTOBUF} or {JSON}.")
        return await self._store(request, "loki", LINES, self._shipping.unpacked(request))

    async def write(self, request: Request) -> Response:
        """Stores samples, as `push` does lines."""
        given = request.header("content-type") or ""
        if media_type(given) != PROTOBUF or "v2" in given.partition(";")[2]:
            raise UnsupportedMediaTypeError(f"The body is to be {PROTOBUF}, a WriteRequest of 1.0.")
        return await self._store(request, "remote-write", SAMPLES, self._shipping.unpacked(request))

    async def _store(
        self, request: Request, format: str, default: str, body: bytes | None = None
    ) -> Response:
        topic = topic_of(request, default)
        shipped = self._shipping.read(format, request, body=body)
        too_large(shipped)
        if shipped.flaw:
            why = _HISTOGRAM if shipped.flaw == "op" else FLAWS[shipped.flaw]
            raise RequestError(f"After {shipped.at} entries: {why}")
        kinds = shipped.kinds()
        topics = [topic] * len(kinds)
        for error in (await self._shipping.produce(request, shipped, kinds, topics)).values():
            if error is not None:
                raise repeatable(error)
        return Response(204)
