"""How late are delayed events, and what does it take to keep many? `python -m bench.delays`.

One broker on one core, which has nothing else to do; one body of lines makes its events wait, due
at random over some seconds, and one listener hears them. Measured for each: from when it was due,
by this machine's clock, to when its bytes were read here. Bar: p99 of at most 50 ms, none early.

With `--waiting 10000000` it is asked what a worker needs to keep so many that are due at random
within some hours: its resident memory, before, after, and after a start with all of them, which has
no buffers of what was sent. Bar: 64 MiB for 10 million.
"""

import argparse
import json
import os
import random
import re
import socket
import sys
import time
from pathlib import Path

from bench.machine import CLIENT_CORE, MiB
from bench.servers import Broker, broker

P99_MS_MAX = 50.0
LEAD_S = 2.0
"""Until the first is due: all are stored by then."""
PATIENCE_S = 30.0
KEPT_BYTES_MAX = 64 * MiB
QUIET_S = 10.0
LINES_EACH, WITHIN_MS = 100_000, 20 * 3_600_000
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


def resident(pid: int) -> int:
    """Bytes."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def known(server: Broker) -> int:
    """Of all that wait, those that are known one by one."""
    _, _, body = server.request("GET", "/metrics")
    (line,) = re.findall(rb"^barco_delayed_known(?:\{.*\})? (\d+)", body, re.MULTILINE)
    return int(line)


def settled(server: Broker) -> int:
    """The resident memory of the worker once nothing changes any more."""
    last, since = -1, time.monotonic()
    (pid,) = server.pids
    while time.monotonic() < since + QUIET_S:
        now = known(server)
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.2)
    return resident(pid)


def fill(server: Broker, count: int) -> float:
    """So many events that are due within hours; the seconds that it takes."""
    chance, began = random.Random(1), time.monotonic()
    for first in range(0, count, LINES_EACH):
        soon = int(time.time() * 1000) + 3_600_000
        some = range(first, min(first + LINES_EACH, count))
        body = "\n".join(
            f'{{"key":"k{number % 1009}","value":{number},'
            f'"deliverAt":{soon + int(chance.random() * WITHIN_MS)}}}'
            for number in some
        )
        status, _, told = server.request(
            "POST", "/v1/topic/t/messages", body.encode(), Content_Type=LINES
        )
        assert status == 202, told
    return time.monotonic() - began


def keep(server: Broker, count: int) -> bool:
    """Prints a line; whether the bar passed."""
    before = settled(server)
    took = fill(server, count)
    after = settled(server)
    server.stop()
    server.start()
    again = settled(server)
    each = (again - before) / count
    print(
        f"{count} delayed events wait, stored in {took:.0f} s: resident {before / MiB:.0f} MiB "
        f"before, {after / MiB:.0f} after, {again / MiB:.0f} after a start of "
        f"{server.start_seconds:.1f} s; {known(server)} known one by one; "
        f"{(again - before) / MiB:.1f} MiB for them, {each:.2f} bytes each"
    )
    return again - before <= KEPT_BYTES_MAX * max(1.0, count / 10_000_000)


def main() -> int:
    """0: the bar passed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10.0, help="over which they are due")
    parser.add_argument("--waiting", type=int, default=0, help="keep so many instead")
    args = parser.parse_args()
    os.sched_setaffinity(0, {CLIENT_CORE})
    with broker() as server:
        if args.waiting:
            return 0 if keep(server, args.waiting) else 1
        return 0 if measure(server, args.events, args.seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
