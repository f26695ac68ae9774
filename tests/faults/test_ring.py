"""Three brokers under load, hurt in every way: nothing that was acknowledged is lost."""

import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from faultlab import partition
from faultlab.campaign import one_ring
from faultlab.hurts import KINDS, crash, cut_off
from faultlab.prober import percentile
from faultlab.scene import RingScene

ROUNDS = int(os.environ.get("BARCO_CHAOS_ROUNDS", "6"))
SECONDS_MAX = float(os.environ.get("BARCO_CHAOS_SECONDS", "60"))
"""For each kind of fault: after that no further one is begun, and the table says how many were."""


@pytest.fixture
def scene(root: Path, seed: int, request: pytest.FixtureRequest) -> Iterator[RingScene]:
    name = request.node.originalname.removeprefix("test_")
    scene = RingScene(root, seed, "ring: " + name.replace("_", " "))
    try:
        yield scene
    finally:
        scene.close()


# --- A little of everything --------------------------------------------------------------------


# A deposed leader's 409 made one run of five fail. It waits for a committed group now; this stays
# with the chaos for as long as nobody has run it often enough since.
@pytest.mark.chaos
def test_short(scene: RingScene) -> None:
    """One broker dies, one is cut off, all die."""
    scene.inflict("kill 0", partial(crash, scene.ring.nodes[0], 1.5))
    if not partition.why_not():
        cuts = partition.shapes()["1 alone"]
        scene.inflict("cut: 1 alone", partial(cut_off, scene.ring, cuts, [3.0]))
    scene.inflict("kill all", scene.kill_and_restart)
    scene.judge()


# --- Every kind of fault -----------------------------------------------------------------------


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", KINDS)
def test_rounds(root: Path, seed: int, name: str) -> None:
    """A few of each; `make chaos-ring` does as many as it takes to believe it."""
    kind = KINDS[name]
    if reason := kind.why_not():
        pytest.skip(reason)
    ring = one_ring(kind, root, seed, ROUNDS, time.monotonic() + SECONDS_MAX, print)
    assert not ring["wrong"], ring["wrong"]
    assert ring["rounds"] > 0 and ring["acked"] > 100


# --- No fault at all ---------------------------------------------------------------------------


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_busy_machine(scene: RingScene) -> None:
    """Two saturated cores for a minute: nobody is taken for dead."""
    before = scene.ring.epochs()
    with scene.ring.busy(cores=2):
        scene.run_load()
        time.sleep(60)
    assert scene.ring.epochs() == before, "a fail-over without a fault"
    scene.judge()


def test_outages_are_measured() -> None:
    assert percentile([], 0.99) == 0.0
    assert percentile([0.1, 0.2, 0.3], 0.99) == 0.3 and percentile([1.0] * 99 + [9.0], 0.5) == 1.0
