"""Rings that grow and shrink under load, in rounds: `make elastic-chaos ROUNDS=20 SECONDS=1800`.

Each round is a ring of three that becomes one of four, of six, and of three again (or of the SIZES
that are asked for: `make elastic-chaos SIZES=6,12,6,3`); in every second one a broker is killed in
each step and comes back, is cut off, or loses power (`FAULTS=kill,partition,power`; HURT=always).
A line for each, and the bar is zero events lost, stored twice or out of order. A violation keeps
the directory. Exit status: 1 after a violation.
"""

import argparse
import itertools
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from subprocess import SubprocessError

from faultlab.beside import FAULTS, WHY_NOT, faults, hurt
from faultlab.broker import StartError
from faultlab.drain import ReadError
from faultlab.growth import BROKERS_MAX, GrowthScene, Round
from faultlab.prober import percentile
from faultlab.ring import SIZE
from faultlab.scene import EASE
from faultlab.steps import Costs

from barco.workers.storage.files import layout

SIZES = (4, 6, 3)


def sizes(text: str) -> tuple[int, ...]:
    """Of "6,12,3"; ValueError: such a ring is none, or has no place here."""
    found = tuple(int(each) for each in text.split(","))
    if not all(SIZE <= each <= BROKERS_MAX for each in found):
        raise ValueError(f"{SIZE} to {BROKERS_MAX} brokers")
    return found


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=0, help="default: as the seconds allow")
    parser.add_argument("--seconds", type=float, default=3600, help="then no other round begins")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the first round; default: a new one"
    )
    parser.add_argument(
        "--ease", type=float, default=EASE, help="clients pause so much longer (60)"
    )
    parser.add_argument("--sizes", type=sizes, default=SIZES, help="one after the other (4,6,3)")
    parser.add_argument(
        "--hurt", choices=("never", "second", "always"), default="second", help="of the rounds"
    )
    parser.add_argument(
        "--faults", type=faults, default=("kill",), help=f"one a step: {','.join(FAULTS)}"
    )
    args = parser.parse_args()
    for name in args.faults if args.hurt != "never" else ():
        if reason := WHY_NOT[name]():
            parser.error(reason)
    seed = args.seed or random.randrange(1 << 30)
    until = time.monotonic() + args.seconds
    done: list[Round] = []
    for number in range(args.rounds) if args.rounds else itertools.count():
        if time.monotonic() > until:
            break
        hurts = args.faults if _hurt(args.hurt, number) else ()
        root = Path(tempfile.mkdtemp(prefix="barco-elastic-"))
        layout.check_data_dir(root)
        found = one_round(root, seed + number, args.ease, args.sizes, hurts)
        done.append(found)
        print(f"{number + 1}: {found}", flush=True)
        if found.wrong:
            print(f"kept: {root}")
        else:
            shutil.rmtree(root, ignore_errors=True)
    waits = [wait for each in done for wait in each.waits]
    print(
        f"{len(done)} rounds, {sum(each.acked for each in done)} acknowledged,"
        f" {sum(map(bool, (each.wrong for each in done)))} with findings; a slice waited"
        f" p50 {percentile(waits, 0.5):.2f} s, p99 {percentile(waits, 0.99):.2f} s,"
        f" max {percentile(waits, 1.0):.2f} s"
    )
    for hurts in (False, True):
        costs = Costs()
        for number, each in enumerate(done):
            if hurts == _hurt(args.hurt, number):
                costs.add(each.costs)
        if costs.split:
            print(f"{'with' if hurts else 'without'} faults: {costs}")
    return int(any(each.wrong for each in done))


def _hurt(when: str, number: int) -> bool:
    """Whether something befalls the ring in each step of a round."""
    return when == "always" or (when == "second" and number % 2 == 1)


def one_round(
    root: Path, seed: int, ease: float, ring: tuple[int, ...], hurts: tuple[str, ...]
) -> Round:
    """A ring that grows and shrinks, hurt by one of these in each step; whatever goes wrong is in
    the result."""
    scene = GrowthScene(root, seed, "growth", ease=ease, powered="power" in hurts)
    rng, done = random.Random(seed), list[str]()

    def beside() -> None:
        if hurts:
            done.append(hurt(scene, rng, hurts))

    try:
        for size in ring:
            scene.grow(size, beside)
        scene.shed(ring[-1], beside)
        return scene.round()
    except (AssertionError, OSError, EOFError, ReadError, StartError, SubprocessError) as error:
        return Round(0, scene.took, scene.waits, f"{error!r}"[:3000])
    finally:
        print(f"{seed}: {', '.join(done) or 'not hurt'}", flush=True)
        scene.close()


if __name__ == "__main__":
    sys.exit(main())
