"""The kinds of faults of a ring: each makes one round, ready to be inflicted."""

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from faultlab import clocks, mount, partition, ringflips, rolling, upgrading
from faultlab.mount import LOGFLUSH, NOLOGFLUSH
from faultlab.ring import Node, Ring
from faultlab.scene import RingScene

Round = tuple[str, Callable[[], object]]
"""What is done, and the doing."""


@dataclass(frozen=True)
class Kind:
    """One row of the table of bars."""

    name: str
    rounds: int
    """How often, to be believed."""
    rounds_per_ring: int
    """A history is checked and a new ring begun after so many."""
    make: Callable[[RingScene, int], Round]
    patient: bool = False
    """Whether the ring must be whole before the next one."""
    powered: bool = False
    """Each broker on a file system of its own, that can be cut off."""
    why_not: Callable[[], str] = lambda: ""
    prepare: Callable[[Ring], None] = lambda ring: None
    """Before the ring is started."""


# --- Crashes -----------------------------------------------------------------------------------


def back(node: Node) -> None:
    """Starts it again."""
    node.begin()
    node.await_ready()


def crash(node: Node, seconds: float) -> None:
    """SIGKILL to all of one broker, which comes back so much later."""
    node.kill()
    time.sleep(seconds)
    back(node)


def kill_one(scene: RingScene, number: int) -> Round:
    """Any one of them."""
    node = scene.random.choice(scene.ring.nodes)
    seconds = scene.random.choice(
        (0.0, 0.2, 0.5, 1.0, 1.5)
    )  # Before the others take over, or after.
    return f"kill {node.ordinal} for {seconds} s", partial(crash, node, seconds)


def kill_all(scene: RingScene, number: int) -> Round:
    """All at one moment."""
    return "kill all", scene.kill_and_restart


def restart(node: Node) -> None:
    """SIGTERM: it hands over, ends, and comes back."""
    assert node.stop() == 0, node.log[-2000:]
    back(node)


def planned(scene: RingScene, number: int) -> Round:
    """One after the other."""
    node = scene.ring.nodes[number % 3]
    return f"restart {node.ordinal}", partial(restart, node)


# --- Silence -----------------------------------------------------------------------------------


def stand_still(nodes: list[Node], seconds: float) -> float | None:
    """SIGSTOP to all processes of these brokers, and SIGCONT later.

    Two of three can not be done without: then it returns when they were back.
    """
    for node in nodes:
        node.signal(signal.SIGSTOP)
    time.sleep(seconds)
    for node in nodes:
        node.signal(signal.SIGCONT)
    return time.monotonic() if len(nodes) > 1 else None


def pause(scene: RingScene, number: int) -> Round:
    """0.5 to 60 s, half of them below 2.5 s; now and then of two or of all."""
    seconds = round(0.5 * 120 ** (scene.random.random() ** 1.5), 1)
    count = scene.random.choice((1, 1, 1, 1, 1, 1, 2, 3))
    nodes = scene.random.sample(scene.ring.nodes, count)
    names = "+".join(str(node.ordinal) for node in nodes)
    return f"pause {names} {seconds} s", partial(stand_still, nodes, seconds)


def cut_off(ring: Ring, cuts: list[partition.Cut], seconds: list[float]) -> None:
    """Cut, whole, cut ... for so long each."""
    for number, each in enumerate(seconds):
        if number % 2 == 0:
            with partition.cut(ring.hosts, cuts):
                time.sleep(each)
        else:
            time.sleep(each)


def cut(scene: RingScene, number: int) -> Round:
    """Each shape in turn; one in five flaps, the others last 0.5 to 6 s."""
    shapes = partition.shapes()
    shape = list(shapes)[number % len(shapes)]
    rng = scene.random
    if rng.random() < 0.2:
        seconds = [rng.uniform(0.1, 1.2) for _ in range(7)]
        what = f"flap: {shape}"
    else:
        seconds = [rng.choice((0.5, 1.0, 2.0, 2.5, 3.0, 4.0, 6.0))]
        what = f"cut: {shape} {seconds[0]} s"
    return what, partial(cut_off, scene.ring, shapes[shape], seconds)


# --- Loss of power -----------------------------------------------------------------------------


def lose_power(scene: RingScene, nodes: list[Node], how: int) -> None:
    """Their disks go first, the processes a moment later."""
    for node in nodes:
        scene.ring.disks[node.ordinal].cut(how)
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


def power_of(count: int) -> Callable[[RingScene, int], Round]:
    """Of one, or of all at once; the journal of the file system mostly goes as well."""

    def make(scene: RingScene, number: int) -> Round:
        nodes = scene.random.sample(scene.ring.nodes, count)
        how = scene.random.choice((NOLOGFLUSH, NOLOGFLUSH, LOGFLUSH))
        names = "+".join(str(node.ordinal) for node in nodes)
        return f"power of {names}, {how}", partial(lose_power, scene, nodes, how)

    return make


# --- The clock lies ----------------------------------------------------------------------------


def wrong_clock(scene: RingScene, number: int) -> Round:
    """A broker's wall clock jumps while it runs (after its first round), and it starts with it."""
    node = scene.random.choice(scene.ring.nodes)
    ahead = scene.random.choice(clocks.WRONG)
    seconds = scene.random.choice((0.0, 0.5, 1.5))
    clock = clocks.WrongClock(node.config.parent, "wall")
    node.env |= clock.environment

    def jump() -> None:
        clock.set(ahead)
        time.sleep(0.5)
        crash(node, seconds)

    return f"clock of {node.ordinal} {ahead:+.0f} s, kill for {seconds} s", jump


# --- The disk lies -----------------------------------------------------------------------------


def flip(scene: RingScene, number: int) -> Round:
    """A bit of the log of one broker that is down."""
    node = scene.random.choice(scene.ring.nodes)
    return f"flip at {node.ordinal}", partial(ringflips.flip, scene, node, number)


KINDS = {
    kind.name: kind
    for kind in (
        Kind("kill one", 100, 25, kill_one),
        Kind("kill all", 50, 25, kill_all),
        Kind("restart", 30, 30, planned, patient=True),
        Kind("rolling", 20, 10, rolling.rolling, patient=True),
        Kind("second kill", 50, 25, rolling.second_kill, patient=True),
        Kind("pause", 50, 25, pause),
        Kind("partition", 100, 25, cut, why_not=partition.why_not),
        Kind("power of one", 20, 10, power_of(1), powered=True, why_not=mount.why_not),
        Kind("power of all", 20, 10, power_of(3), powered=True, why_not=mount.why_not),
        Kind("clocks", 100, 25, wrong_clock, why_not=clocks.why_not),
        Kind("bit flips", 100, 20, flip, patient=True),
        Kind(
            *("upgrade", 30, len(upgrading.STEPS), upgrading.upgrade),
            why_not=upgrading.why_not,
            prepare=upgrading.begin_older,
        ),
    )
}
"""By name, with the counts of the table of bars; planned restarts are no fault: ours is 30,
and 20 times the whole ring."""
