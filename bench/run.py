"""Measure everything and print the table of bars: `python bench/run.py`, or `make bench`."""

import argparse
import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

DESCRIPTION = """\
Start real brokers, load them, and print what was measured beside the bars: one line a row, median
(lowest-highest) of the rounds. The samples behind it go to build/bench/results.json; with --page
the rows go to bench/results/<date>-<machine>.md as well, which is kept in the repository. The
machine should have nothing else to do: two cores, one for the server and one for the load.
"""
EPILOG = """\
Questions are the files bench/test_*.py: run.py keys topics runs two of them.
Exit code: 0 every bar passed, 1 one did not or a question failed, 2 usage.
"""


def main() -> int:
    """Parse, hand the settings on through the environment, run pytest, judge."""
    parser = argparse.ArgumentParser(
        description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("question", nargs="*", help="names such as keys, vs_redis (default: all)")
    parser.add_argument("--rounds", type=int, help="rounds of every case (default 7)")
    parser.add_argument("--seconds", type=float, help="measured seconds of one run (default 2)")
    parser.add_argument("--recovery-gib", type=float, help="log of the recovery (default 10)")
    parser.add_argument("--replay-gib", type=float, help="log of the replay (default 2)")
    parser.add_argument("--quick", action="store_true", help="a minute or two: shows that it works")
    parser.add_argument("--page", action="store_true", help="write bench/results/ as well")
    args = parser.parse_args()
    if args.page and args.quick:
        parser.error("--quick measures nothing that is worth a page")
    values = {
        "ROUNDS": args.rounds or (1 if args.quick else None),
        "SECONDS": args.seconds or (0.5 if args.quick else None),
        "WARMUP": 0.2 if args.quick else None,
        "RECOVERY_GIB": args.recovery_gib or (0.5 if args.quick else None),
        "REPLAY_GIB": args.replay_gib or (0.25 if args.quick else None),
        "LATENCY_SAMPLES": 50 if args.quick else None,
        "SPARK_SCALE": 0.1 if args.quick else None,
        "PRESSURE_SECONDS": 5 if args.quick else None,
        "GENERATIONS": 500 if args.quick else None,
        "QUEUE_EVENTS": 6_000 if args.quick else None,
        "PAGE": 1 if args.page else None,
    }
    for name, value in values.items():
        if value is not None:
            os.environ[f"BARCO_BENCH_{name}"] = str(value)
    paths = [ROOT / "bench" / f"test_{name}.py" for name in args.question]
    for path in paths:
        if not path.exists():
            known = sorted(found.stem[5:] for found in path.parent.glob("test_*.py"))
            parser.error(f"no question {path.stem[5:]!r}; there are: {', '.join(known)}")
    return _run([str(path) for path in paths] or [str(ROOT / "bench")])


def _run(paths: list[str]) -> int:
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)
    import pytest  # After the arguments: --help works without it.

    if importlib.util.find_spec("pytest_benchmark") is None:
        print("pytest-benchmark is missing: `make bench` installs it, or pip install '.[bench]'")
        return 2
    from bench.harness import LAB

    options = ["-q", "--benchmark-columns=min,median,max,rounds", "--benchmark-sort=fullname"]
    (ROOT / "build" / "bench").mkdir(parents=True, exist_ok=True)
    options.append("--benchmark-json=build/bench/pytest-benchmark.json")
    failed = int(pytest.main([*options, *paths]))
    return 1 if failed or any(result.verdict == "FAIL" for result in LAB.results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
