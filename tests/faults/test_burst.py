"""More at once than one group can hold: it is taken in several."""

import time
from pathlib import Path
from threading import Thread

from faultlab.recorder import Core, produce_request
from faultlab.wire import Wire

CLIENTS, PIPELINED = 24, 120


def test_a_burst_of_tiny_events_is_stored(root: Path) -> None:
    """By its bounds the queue once needed more than a segment, and nothing was stored any more."""
    core = Core(root)
    statuses: list[int] = []

    def client(number: int) -> None:
        wire = Wire(("127.0.0.1", core.port), 100)
        wire.send(produce_request("a", f"k{number}", [b"x"], None) * PIPELINED)
        statuses.extend(wire.answer().status for _ in range(PIPELINED))
        wire.close()

    try:
        core.open()
        clients = [Thread(target=client, args=(number,), daemon=True) for number in range(CLIENTS)]
        until = time.monotonic() + 100
        for thread in clients:
            thread.start()
        while any(thread.is_alive() for thread in clients) and time.monotonic() < until:
            core.turn()
    finally:
        core.close()
    assert statuses == [200] * (CLIENTS * PIPELINED)
