"""A stream's positions for others to see: nothing about it may hold the stream up."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

pytest.importorskip("pyspark", reason="no pyspark: pip install 'barco[spark]'")

from barco.client.wire.access import Access
from barco.protocol.cursor import Cursor
from barco.spark.read.group import GroupPositions
from barco.types import Epoch, Offset


def at(offset: int) -> Cursor:
    return Cursor(Epoch(1), Offset(offset))


def test_only_what_has_changed_is_told() -> None:
    asked: list[tuple[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, body))
            self.send_response(200)
            self.send_header("Content-Length", "0")  # As every broker tells it.
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        group = GroupPositions("a b", Access.of(["127.0.0.1:9", f"127.0.0.1:{server.server_port}"]))
        for offset in (5, 5, 6):
            group.tell({"t": {0: at(offset), 3: at(7)}})
        server.shutdown()
    first = {"0": str(at(5)), "3": str(at(7))}
    assert asked == [
        ("/v1/groups/a%20b/positions", {"topic": "t", "to": {"slices": slices}})
        for slices in (first, {"0": str(at(6))})
    ]


def test_nobody_there_is_told_once_and_waited_for_never(capsys: pytest.CaptureFixture[str]) -> None:
    group = GroupPositions("g", Access.of("127.0.0.1:9"))
    for offset in range(50):
        group.tell({"t": {0: at(offset)}})
    assert capsys.readouterr().err.count("positions of group g were not stored") == 1
