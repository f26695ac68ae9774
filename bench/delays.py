"""How late are delayed events? `python -m bench.delays`.

One broker on one core, which has nothing else to do; one body of lines makes its events wait, due
at random over some seconds, and one listener hears them. Measured for each: from when it was due,
by this machine's clock, to when its bytes were read here. Bar: p99 of at most 50 ms, none early.
"""

import argparse
import json
import os
import random
import socket
import sys
import time

from bench.machine import CLIENT_CORE
from bench.servers import Broker, broker

P99_MS_MAX = 50.0
LEAD_S = 2.0
"""Until the first is due: all are stored by then."""
PATIENCE_S = 30.0
LINES = "application/vnd.barco.events+x-ndjson"


def listen(port: int) -> socket.socket:
    """One that hears what is new in the topic."""
    heard = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    heard.sendall(b"GET /v1/topic/t/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    head = b""
    while b"\r\n\r\n" not in head:
        head += heard.recv(4096)
    assert head.startswith(b"HTTP/1.1 200"), head
    return heard


def hear(heard: socket.socket, count: int) -> list[float]:
    """Milliseconds that each of so many was late."""
    late: list[float] = []
    rest = b""
    while len(late) < count:
        piece = heard.recv(1 << 16)
        now = time.time()
        assert piece, "the listener was ended"
        *whole, rest = (rest + piece).split(b"\n\n")
        for event in whole:
            data = event.partition(b"data:")[2]
            if data:  # Else a comment.
                late.append((now - json.loads(data)["timestamp"] / 1e6) * 1000)
    return late


def measure(server: Broker, count: int, seconds: float) -> bool:
    """Prints a line; whether the bar passed."""
    server.json("POST", "/v1/topic/t/messages", b"0")
    heard = listen(server.port)
    start, chance = time.time() + LEAD_S, random.Random(1)
    dues = [int((start + chance.random() * seconds) * 1000) for _ in range(count)]
    lines = (
        json.dumps({"key": f"k{number}", "value": number, "deliverAt": due})
        for number, due in enumerate(dues)
    )
    body = "\n".join(lines).encode()
    status, _, told = server.request("POST", "/v1/topic/t/messages", body, Content_Type=LINES)
    assert status == 202 and time.time() < start, told
    late = sorted(hear(heard, count))
    heard.close()
    p50, p99 = (late[int(count * share)] for share in (0.5, 0.99))
    print(
        f"{count} delayed events over {seconds:g} s: p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
        f"max {late[-1]:.1f} ms late; earliest {late[0]:.2f} ms"
    )
    return p99 <= P99_MS_MAX and late[0] >= 0


def main() -> int:
    """0: the bar passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="over which they are due")
    args = parser.parse_args()
    os.sched_setaffinity(0, {CLIENT_CORE})
    with broker() as server:
        return 0 if measure(server, args.events, args.seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
