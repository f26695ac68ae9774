"""A stand-in for OpenTelemetry's collector: it takes spans by OTLP over HTTP, as its own messages
read them."""

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

SECONDS = 60.0
"""Generous: it only ends what has failed."""


class Collector:
    """Serves until it is closed. `status` is what it answers."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.spans: list[Any] = []
        self.resources: list[dict[str, str]] = []
        self.posts = 0
        self.status = 200
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.path == "/v1/traces"
                assert self.headers["Content-Type"] == "application/x-protobuf"
                outer.posts += 1
                if outer.status == 200:
                    outer.take(ExportTraceServiceRequest.FromString(body))
                said = ExportTraceServiceResponse().SerializeToString()
                self.send_response(outer.status)
                self.send_header("Content-Length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self.endpoint = f"http://{host}:{self._server.server_port}/v1/traces"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def take(self, request: Any) -> None:
        for each in request.resource_spans:
            told = {a.key: a.value.string_value for a in each.resource.attributes}
            self.resources.append(told)
            for scope in each.scope_spans:
                self.spans += scope.spans

    def of(self, trace: str) -> list[Any]:
        """All spans of a trace, the first ones first."""
        found = [span for span in list(self.spans) if span.trace_id.hex() == trace]
        return sorted(found, key=lambda span: (span.start_time_unix_nano, span.end_time_unix_nano))

    def until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, [span.name for span in self.spans]
            time.sleep(0.05)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
