"""`python -m tests.simulator.growth`: rings that grow and shrink under faults, seed after seed."""

import argparse
import gc
import sys
import time
from collections import Counter

from .plan import LARGE, SMALL, run


def main() -> int:
    """Runs seeds until they or the minutes are used up; 1 after a violation."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.growth", description=__doc__)
    parser.add_argument("--from", dest="first", type=int, default=1000, help="first seed (1000)")
    parser.add_argument("--seeds", type=int, default=10**9, help="stop after so many")
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after (60)")
    parser.add_argument(
        "--small", action="store_true", help="small worlds: less of each, and many more seeds"
    )
    args = parser.parse_args()
    scale = SMALL if args.small else LARGE
    gc.disable()  # A world is one cycle: looking at it again and again is a third of all work.
    began, failed, seeds, seen = time.monotonic(), 0, 0, Counter[str]()
    acks = steps = generations = 0
    for seed in range(args.first, args.first + args.seeds):
        seeds += 1
        try:
            outcome = run(seed, scale)
        except AssertionError as error:  # The machine notices it itself.
            failed += 1
            print(f"seed {seed}: {error!r}", flush=True)
        else:
            acks, steps = acks + outcome.acks, steps + outcome.steps
            generations += outcome.generations
            seen.update(outcome.seen)
            if outcome.violation is not None:
                failed += 1
                print(f"seed {seed}: {outcome.violation}", flush=True)
        if seeds % 10 == 0:
            gc.collect()
        if seeds % 50 == 0:
            print(
                f"{time.monotonic() - began:6.0f} s: {seeds} seeds, {failed} violations", flush=True
            )
        if time.monotonic() - began > 60 * args.minutes or failed >= 10:
            break
    print(
        f"seeds {args.first} to {args.first + seeds - 1} in {time.monotonic() - began:.0f} s:"
        f" {steps:,} steps, {generations:,} generations, {acks:,} groups acknowledged,"
        f" {failed} violations"
    )
    for what, times in sorted(seen.items()):
        print(f"  {what}: in {times} worlds")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
