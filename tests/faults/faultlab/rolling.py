"""Restarts that wait for nothing but what the broker says of itself: `/ready?insync`."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import barco
from barco.errors import BarcoError
from faultlab.ring import KEYS, Node, Ring, lacking
from faultlab.scene import RingScene

IN_SYNC_S = 120.0
"""Until a broker that came back has what it lacked, on a machine that has other things to do."""

GAP_S = 3.0
"""D8, for any single fault; on an idle machine it is a tenth of this."""

PACE_S = 0.02


def await_in_sync(node: Node) -> None:
    """As an operator's script does."""
    until = time.monotonic() + IN_SYNC_S
    while found := lacking(node):
        assert time.monotonic() < until, found
        time.sleep(PACE_S)


@contextmanager
def sends(ring: Ring, failed: list[str]) -> Iterator[None]:
    """An ordinary producer, which tries again as it always does; what it gave up goes to a list."""
    stopping = threading.Event()
    addresses = [f"{host}:{port}" for host, port in (node.port for node in ring.nodes)]

    def run() -> None:
        with barco.Producer(addresses) as producer:
            futures = []
            number = 0
            while not stopping.is_set():
                key = KEYS[number % len(KEYS)]
                futures.append(producer.send("rolling", b"%d" % number, key=key))
                number += 1
                time.sleep(PACE_S)
            for future in futures:
                try:
                    future.result(60)
                except (BarcoError, TimeoutError) as error:
                    failed.append(f"a send failed: {error!r}")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(120)


def roll(scene: RingScene) -> None:
    """SIGTERM to each broker in turn; the next one as soon as the one before says so."""
    since = time.monotonic()
    with sends(scene.ring, scene.slow):
        for node in scene.ring.nodes:
            assert node.stop() == 0, node.log[-2000:]
            node.begin()
            node.await_ready()
            await_in_sync(node)
    _bar(scene, since, "rolling")


def kill_two(scene: RingScene, first: Node, second: Node, seconds: float) -> None:
    """SIGKILL to one; to another as soon as the first one says that all is as it was."""
    first.kill()
    time.sleep(seconds)
    first.begin()
    first.await_ready()
    await_in_sync(first)
    since = time.monotonic()
    with sends(scene.ring, scene.slow):
        second.kill()
        scene.prober.await_all(time.monotonic() + IN_SYNC_S)
        _bar(scene, since, "second kill")
        second.begin()
        second.await_ready()


def _bar(scene: RingScene, since: float, what: str) -> None:
    worst = max(scene.prober.gaps(since, time.monotonic()))
    if worst.seconds > GAP_S:
        scene.slow.append(f"{what}: no write for {worst}")


def rolling(scene: RingScene, number: int) -> tuple[str, partial[None]]:
    """The whole ring, under load."""
    return "rolling restart", partial(roll, scene)


def second_kill(scene: RingScene, number: int) -> tuple[str, partial[None]]:
    """Any two."""
    first, second = scene.random.sample(scene.ring.nodes, 2)
    seconds = scene.random.choice((0.2, 1.0, 3.0, 6.0))
    what = f"kill {first.ordinal} for {seconds} s, then {second.ordinal}"
    return what, partial(kill_two, scene, first, second, seconds)
