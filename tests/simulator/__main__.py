"""`make simulate`: seeds, walks and the exhaustive search, for as long as wanted."""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from .explorer import Bounds, explore, walk
from .mutants import MUTANTS
from .plan import run
from .shrink import KINDS, report


def main() -> int:
    """Runs rounds of seeds until the time or the seeds are used up; 1 if any failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="stop after (60)")
    parser.add_argument("--seeds", type=int, default=10**9, help="stop after so many")
    parser.add_argument("--from", dest="first", type=int, default=1000, help="first seed (1000)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of faults for a seed (30)")
    parser.add_argument("--four", action="store_true", help="only worlds with four brokers")
    for kind in KINDS[1:]:
        parser.add_argument(f"--{kind}", action="store_true", help="only worlds of this kind")
    parser.add_argument("--three", action="store_true", help="only worlds with three brokers")
    parser.add_argument("--walks", type=int, default=30, help="random walks for a seed (30)")
    parser.add_argument("--states", type=int, default=0, help="search so many states first (0)")
    parser.add_argument("--mutant", type=int, help="run this mutant instead")
    args = parser.parse_args()
    mutant = next((each for each in MUTANTS if each.number == args.mutant), None)
    print(f"commit {_commit()}, seeds from {args.first}, {args.seconds:g} s of faults each")
    if args.states:
        for bounds in (Bounds(2, 0, 1), Bounds(2, 1, 0), Bounds(3, 1, 1), Bounds(3, 2, 2, 1)):
            print(bounds, explore(bounds, mutant=mutant, states_max=args.states), flush=True)
    return _rounds(args, mutant)


def _rounds(args: argparse.Namespace, mutant: object) -> int:
    """Every fifth seed with a data directory that goes back, every fifth with journals that are
    hurt, every fifth with a member that lags, every tenth with logs that rot; of the others every
    third with four brokers. Walks
    have none: pings are off in them, so nobody could hear of it."""
    begin, told, failed = time.monotonic(), 0.0, 0
    cpu = 0.0  # Of the clusters alone.
    simulated, steps, acks, walks, seeds = 0.0, 0, 0, 0, 0
    for seed in range(args.first, args.first + args.seeds):
        how: dict[str, object] = {kind: True for kind in KINDS if getattr(args, kind)}
        if not how and not args.three:
            how = {"rollback": seed % 5 == 4, "hurt": seed % 5 == 2, "lag": seed % 5 == 3}
            how["rotting"] = seed % 10 == 1
            how["four"] = seed % 5 < 2 and seed % 3 == 0 and not how["rotting"]
        how["mutant"] = mutant
        start = time.process_time()
        outcome = run(seed, args.seconds, **how)
        cpu += time.process_time() - start
        seeds += 1
        simulated += outcome.seconds
        steps += outcome.steps
        acks += outcome.acks
        if outcome.violation is not None:
            failed += 1
            print(report(seed, args.seconds, **how), flush=True)
        for number in range(seed * args.walks, (seed + 1) * args.walks):
            walked = walk(number, mutant=mutant)
            walks += 1
            steps += walked.steps
            if walked.violation is not None:
                failed += 1
                print(f"walk {number}: {walked.violation}", flush=True)
        now = time.monotonic()
        if now - told > 10 or now - begin > 60 * args.minutes:
            told = now
            hour = simulated / cpu * 3600
            print(
                f"{now - begin:7.0f} s: {seeds} seeds, {walks} walks, {simulated:.0f} cluster-"
                f"seconds ({hour:,.0f} an hour of this core), {steps:,} steps, {acks:,} groups "
                f"acknowledged, {failed} failures",
                flush=True,
            )
        if now - begin > 60 * args.minutes or failed >= 10:
            break
    print(f"{seeds} seeds, {walks} walks, {steps:,} steps: {failed} failures")
    return 1 if failed else 0


def _commit() -> str:
    here = Path(__file__).resolve().parent
    command = ["git", "-C", str(here), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
