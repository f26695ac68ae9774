"""A small API server on loopback: one StatefulSet, read and watched over HTTP."""

import json
import queue
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

PATH = "/apis/apps/v1/namespaces/ns/statefulsets"

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{{name: here, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: pod, user: {{token: secret-token}}}}]
contexts: [{{name: here, context: {{cluster: here, user: pod}}}}]
current-context: here
"""


class ApiServer:
    """Speaks of `barco` in the namespace `ns`; `with` starts and ends it."""

    def __init__(self, directory: Path, replicas: int = 3) -> None:
        self.spec: dict[str, Any] = {
            "replicas": replicas,
            "serviceName": "peers",
            "selector": {"matchLabels": {"app": "barco"}},
            "template": {},
        }
        self.version = 1
        self.status = 0
        """An answer that everything gets; 0: none."""
        self.watches: list[queue.Queue[dict[str, Any] | None]] = []
        self.asked: list[str] = []
        self.wrong: list[str] = []
        """Requests that the real one would refuse."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.kubeconfig = directory / "kubeconfig"
        self.kubeconfig.write_text(KUBECONFIG.format(port=self.http.server_address[1]))

    def __enter__(self) -> Self:
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.cut()
        self.http.shutdown()
        self.http.server_close()

    def document(self) -> dict[str, Any]:
        return {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {
                "name": "barco",
                "namespace": "ns",
                "resourceVersion": str(self.version),
            },
            "spec": dict(self.spec),
        }

    def change(self, **spec: Any) -> None:
        """Watches hear of it."""
        self.spec |= spec
        self.version += 1
        for each in list(self.watches):
            each.put({"type": "MODIFIED", "object": self.document()})

    def cut(self) -> None:
        """All watches end, as at a restart of the server."""
        for each in list(self.watches):
            each.put(None)

    def answer(self, to: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(to.path)
        asked = parse_qs(parts.query)
        self.asked.append(to.path)
        if to.headers.get("Authorization") != "Bearer secret-token":
            self.wrong.append(f"without its token: {to.path}")
        if self.status:
            return self.say(to, self.status, {"kind": "Status", "code": self.status})
        if parts.path == f"{PATH}/barco":
            return self.say(to, 200, self.document())
        if parts.path == PATH and asked.get("watch", [""])[0].lower() == "true":
            # The Role names one object: a watch of all is not allowed.
            if asked.get("fieldSelector") != ["metadata.name=barco"]:
                self.wrong.append(to.path)
            return self.stream(to)
        return self.say(to, 404, {"kind": "Status", "code": 404})

    def say(self, to: BaseHTTPRequestHandler, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        to.send_response(status)
        to.send_header("Content-Type", "application/json")
        to.send_header("Content-Length", str(len(data)))
        to.end_headers()
        to.wfile.write(data)

    def stream(self, to: BaseHTTPRequestHandler) -> None:
        news: queue.Queue[dict[str, Any] | None] = queue.Queue()
        news.put({"type": "ADDED", "object": self.document()})
        self.watches.append(news)
        to.send_response(200)
        to.send_header("Content-Type", "application/json")
        to.send_header("Transfer-Encoding", "chunked")
        to.end_headers()
        try:
            while (event := news.get()) is not None:
                data = json.dumps(event).encode() + b"\n"
                to.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                to.wfile.flush()
            to.wfile.write(b"0\r\n\r\n")
        except OSError:
            pass
        finally:
            self.watches.remove(news)
