"""How a task asks: one connection for the slices of one broker, the next answer on its way."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("pyspark", reason="no pyspark: pip install 'barco[spark]'")

from barco.client.wire.access import Access
from barco.protocol.cursor import Cursor
from barco.spark.base.fetch import SliceFetch, Source
from barco.types import Epoch, Offset


class Broker:
    """Answers with its path, and notes who asked when."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.news = threading.Condition()
        self.refuse = False
        broker = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                parts = self.path.split("/")
                if len(parts) < 7:  # Who owns the slice now?
                    self.send_error(404)
                    return
                with broker.news:
                    broker.asked.append((parts[6], self.client_address[1]))
                    broker.news.notify_all()
                if broker.refuse:
                    broker.refuse = False
                    self.close_connection = True
                    return
                body = self.path.encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Barco-Next-Cursor", str(Cursor(Epoch(0), Offset(10))))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.endpoint = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def wait_for(self, count: int) -> None:
        with self.news:
            assert self.news.wait_for(lambda: len(self.asked) >= count, 10)

    def fetch(self, slice_: int) -> SliceFetch:
        source = Source("t", 0, slice_, Access.of(self.endpoint))
        return SliceFetch(source, ("key",), fetch_bytes=1, timeout_s=10)


@pytest.fixture
def broker():
    found = Broker()
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_the_next_slice_is_asked_for_on_the_same_connection(broker):
    first, second = broker.fetch(1), broker.fetch(2)
    assert b"/1/events" in first.get(0, 10)[0]
    second.follow(first, 0, 10)
    broker.wait_for(2)  # Before anybody waits for its answer.
    second.follow(first, 0, 10)  # The first one's answer was damaged: it asks again, by itself.
    assert b"/1/events" in first.get(0, 10)[0]
    assert b"/2/events" in second.get(0, 10)[0]
    first.close()
    second.close()
    assert [slice_ for slice_, _ in broker.asked] == ["1", "2", "1"]
    assert broker.asked[0][1] == broker.asked[1][1] != broker.asked[2][1]


def test_a_connection_that_ends_while_it_was_asked_ahead_costs_a_request(broker):
    first, second = broker.fetch(1), broker.fetch(2)
    first.get(0, 10)
    broker.refuse = True
    second.follow(first, 0, 10)
    broker.wait_for(2)
    assert b"/2/events" in second.get(0, 10)[0]
    assert [slice_ for slice_, _ in broker.asked][:2] == ["1", "2"] and len(broker.asked) >= 3
    second.close()


def test_another_brokers_slice_is_asked_for_when_it_is_wanted(broker):
    other = Broker()
    first, second = broker.fetch(1), other.fetch(2)
    first.get(0, 10)
    second.follow(first, 0, 10)
    assert other.asked == []
    assert b"/2/events" in second.get(0, 10)[0]
    first.close()
    second.close()
    other.server.shutdown()
    other.server.server_close()
