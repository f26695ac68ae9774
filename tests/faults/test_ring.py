"""Three brokers under load, hurt in every way: nothing that was acknowledged is lost."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from faultlab import mount, partition
from faultlab.mount import NOLOGFLUSH, Mount
from faultlab.prober import Prober, percentile
from faultlab.ring import Node, Ring
from faultlab.round import Scene, outage

CHECK_EVERY = 10
SECONDS_MAX = float(os.environ.get("BARCO_CHAOS_SECONDS", "300"))
"""For each kind of fault: after that no further one is begun, and the table says how many were."""

RECOVER_S = 6.0
"""After a fault is over, until the next one: what it takes to be whole again is in here."""


class RingScene(Scene):
    """A ring, its load, and how long nothing could be written."""

    ring: Ring

    def __init__(self, root: Path, seed: int, name: str, disks: list[Mount] | None = None) -> None:
        self.ring = Ring(root, disks=disks or ())
        super().__init__(root, seed=seed, name=name, ring=self.ring)
        self.ring.start()
        self.prober = Prober(self.ring)
        self.tried = 0
        self._end = time.monotonic() + SECONDS_MAX

    def inflict(
        self, what: str, fault: Callable[[], object], *, recover_s: float = RECOVER_S
    ) -> None:
        """One fault, from its begin to some time after its end; how long writes waited."""
        if time.monotonic() > self._end:
            return
        self.tried += 1
        if self.load is None:
            self.run_load()
            time.sleep(1)
        since = time.monotonic()
        fault()
        self.history.fault(what, since)
        time.sleep(recover_s)
        for gap in self.prober.gaps(since, time.monotonic()):
            outage(self.name, gap)

    def judge(self) -> None:
        """Heals, reads everything back from every broker, checks the whole history."""
        self.end_load()
        self.ring.wait_ready()
        report = self.verdict()
        self.total(report, self.tried)
        assert not report.wrong, str(report)
        assert report.acked > 100

    def close(self) -> None:
        self.prober.stop()
        super().close()


@pytest.fixture
def scene(root: Path, seed: int, request: pytest.FixtureRequest) -> Iterator[RingScene]:
    name = request.node.originalname.removeprefix("test_").removesuffix("_often")
    scene = RingScene(root, seed, "ring: " + name.replace("_", " "))
    try:
        yield scene
    finally:
        scene.close()


# --- A little of everything --------------------------------------------------------------------


# A deposed leader's 409 made one run of five fail. It waits for a committed group now; this is chaos
# for as long as nobody has run it often enough since.
@pytest.mark.chaos
def test_short(scene: RingScene) -> None:
    """One broker dies, one is cut off, all die."""
    scene.inflict("kill 0", partial(crash, scene.ring.nodes[0]), recover_s=1)
    if not partition.why_not():
        cuts = partition.shapes()["1 alone"]
        scene.inflict("cut: 1 alone", partial(cut_off, scene.ring, cuts, 3), recover_s=1)
    scene.inflict("kill all", scene.kill_and_restart, recover_s=1)
    scene.judge()


# --- Crashes -----------------------------------------------------------------------------------


def crash(node: Node) -> None:
    """SIGKILL to all of one broker; it comes back when the others have taken over."""
    node.kill()
    time.sleep(1.5)
    node.begin()
    node.await_ready()


def kill_one(scene: RingScene, times: int) -> None:
    for number in range(times):
        node = scene.ring.nodes[(number + scene.random.randrange(2)) % 3]
        scene.inflict(f"kill {node.ordinal}", partial(crash, node))
        if number % CHECK_EVERY == CHECK_EVERY - 1:
            scene.end_load()
    scene.judge()


def kill_all(scene: RingScene, times: int) -> None:
    for number in range(times):
        scene.inflict("kill all", scene.kill_and_restart, recover_s=1.0)
        if number % CHECK_EVERY == CHECK_EVERY - 1:
            scene.end_load()
    scene.judge()


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_kill_one_often(scene: RingScene) -> None:
    kill_one(scene, 100)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_kill_all_often(scene: RingScene) -> None:
    kill_all(scene, 50)


# --- Planned restarts --------------------------------------------------------------------------


def restart(node: Node) -> None:
    """SIGTERM: it hands over, ends, and comes back."""
    assert node.stop() == 0, node.log[-2000:]
    node.begin()
    node.await_ready()


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_planned_restart(scene: RingScene) -> None:
    for number in range(12):
        node = scene.ring.nodes[number % 3]
        scene.inflict(f"restart {node.ordinal}", partial(restart, node))
    scene.judge()


# --- Pauses ------------------------------------------------------------------------------------


def stand_still(nodes: list[Node], seconds: float) -> None:
    """SIGSTOP to all processes of these brokers, and SIGCONT later."""
    for node in nodes:
        node.signal(signal.SIGSTOP)
    time.sleep(seconds)
    for node in nodes:
        node.signal(signal.SIGCONT)


def pause(scene: RingScene, lengths: list[float]) -> None:
    for number, seconds in enumerate(lengths):
        nodes = [scene.ring.nodes[number % 3]] if number % 5 < 4 else scene.ring.nodes
        scene.inflict(f"pause {len(nodes)}, {seconds} s", partial(stand_still, nodes, seconds))
    scene.judge()


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_pause_often(scene: RingScene) -> None:
    pause(scene, [0.5, 1, 2, 3, 5, 8, 0.7, 1.5, 4, 20] * 4 + [60, 30, 60, 10, 1] * 2)


# --- Partitions --------------------------------------------------------------------------------


def cut_off(ring: Ring, cuts: list[partition.Cut], seconds: float) -> None:
    with partition.cut(ring.hosts, cuts):
        time.sleep(seconds)


def partitions(scene: RingScene, shapes: list[str], seconds: float) -> None:
    for shape in shapes:
        cuts = partition.shapes()[shape]
        scene.inflict(f"cut: {shape}", partial(cut_off, scene.ring, cuts, seconds))
    scene.judge()


@pytest.fixture
def cuttable() -> None:
    if reason := partition.why_not():
        pytest.skip(reason)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("cuttable")
def test_partition_often(scene: RingScene) -> None:
    shapes = list(partition.shapes()) * 9
    scene.random.shuffle(shapes)
    partitions(scene, shapes[:100], 5)


# --- Loss of power -----------------------------------------------------------------------------


@pytest.fixture
def powered(root: Path, seed: int) -> Iterator[RingScene]:
    """Each broker on a file system of its own."""
    if reason := mount.why_not():
        pytest.skip(reason)
    with ExitStack() as stack:
        disks = []
        for ordinal in range(3):
            (root / f"power-{ordinal}").mkdir()
            try:
                disks.append(Mount(root / f"power-{ordinal}"))
            except AssertionError as error:
                pytest.skip(f"loop mounts do not work here: {error}")
            stack.callback(disks[-1].close)
        scene = RingScene(root, seed, "ring: power cut", disks)
        stack.callback(scene.close)
        yield scene


def lose_power(scene: RingScene, nodes: list[Node]) -> None:
    """Their disks go first, the processes a moment later."""
    for node in nodes:
        scene.ring.disks[node.ordinal].cut(NOLOGFLUSH)
    time.sleep(scene.random.choice((0.0, 0.0, 0.05, 0.5)))
    for node in nodes:
        node.close()
    for node in nodes:
        scene.ring.disks[node.ordinal].unmount()
        scene.ring.disks[node.ordinal].mount()
    for node in nodes:
        node.begin()
    for node in nodes:
        node.await_ready()


def power_cuts(scene: RingScene, times: int) -> None:
    for number in range(times):
        nodes = scene.ring.nodes if number % 2 == 0 else [scene.ring.nodes[number % 3]]
        scene.inflict(f"power cut of {len(nodes)}", partial(lose_power, scene, nodes))
        if number % CHECK_EVERY == CHECK_EVERY - 1:
            scene.end_load()
    scene.judge()


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_power_cut_often(powered: RingScene) -> None:
    power_cuts(powered, 40)


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
