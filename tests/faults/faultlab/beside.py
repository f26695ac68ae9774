"""What befalls a ring of any size while it grows: a broker is killed, cut off, or loses power."""

import random
import time
from collections.abc import Callable
from functools import partial

from faultlab import mount, partition
from faultlab.growth import GrowthScene
from faultlab.hurts import crash, cut_off, lose_power
from faultlab.mount import LOGFLUSH, NOLOGFLUSH

Fault = tuple[str, Callable[[], object]]
"""What is done, and the doing: it returns when it is over."""

BEGINS_S = 2.0
"""At the latest so long after a step was asked for."""


def kill(scene: GrowthScene, rng: random.Random) -> Fault:
    """SIGKILL to all of one broker, which comes back before the others take over, or after."""
    node, seconds = rng.choice(scene.ring.nodes), rng.choice((0.0, 0.3, 1.5))
    return f"kill {node.ordinal} for {seconds} s", partial(crash, node, seconds)


def cut(scene: GrowthScene, rng: random.Random) -> Fault:
    """Packets between some of them are dropped."""
    name, cuts = partition.any_shape(rng, len(scene.ring.nodes))
    seconds = rng.choice((0.5, 1.0, 2.0, 3.0, 5.0))
    return f"cut: {name} {seconds} s", partial(cut_off, scene.ring, cuts, [seconds])


def power(scene: GrowthScene, rng: random.Random) -> Fault:
    """What a broker's file system had not made stable is gone, mostly with its journal."""
    node, how = rng.choice(scene.ring.nodes), rng.choice((NOLOGFLUSH, NOLOGFLUSH, LOGFLUSH))
    return f"power of {node.ordinal}, {how}", partial(lose_power, scene, [node], how)


FAULTS = {"kill": kill, "partition": cut, "power": power}

WHY_NOT = {"kill": lambda: "", "partition": partition.why_not, "power": mount.why_not}
"""By fault: why this machine can not do it, or nothing."""


def faults(text: str) -> tuple[str, ...]:
    """Of "kill,power"; ValueError: there is none of that name."""
    found = tuple(text.split(","))
    if unknown := set(found) - set(FAULTS):
        raise ValueError(f"{unknown} is none of {', '.join(FAULTS)}")
    return found


def hurt(scene: GrowthScene, rng: random.Random, names: tuple[str, ...]) -> str:
    """One of these faults, soon; what it was."""
    name = rng.choice(names)
    time.sleep(rng.random() * BEGINS_S)
    what, doing = FAULTS[name](scene, rng)
    since = time.monotonic()
    doing()
    scene.history.fault(what, since)
    return what
