"""Hurts rings of three under load, round after round: `make chaos-ring ROUNDS=100 KIND="kill one"`.

Each ring's totals are a line of build/chaos/rings.jsonl; `--table` prints them all. The bar is
zero events lost, stored twice or out of order, whatever was done. A violation keeps the directory,
with the history and the logs. Exit status: 1 after a violation.
"""

import argparse
import math
import random
import sys
import tempfile
from pathlib import Path

from faultlab.campaign import Campaign, again, read_results, table
from faultlab.hurts import KINDS
from faultlab.scene import EASE

from barco.workers.storage.files import layout

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "build" / "chaos" / "rings.jsonl"


def make_root() -> Path:
    """A directory on a file system with direct I/O."""
    directory = Path(tempfile.mkdtemp(prefix="barco-chaos-"))
    layout.check_data_dir(directory)
    return directory


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="default: all")
    parser.add_argument("--rounds", type=int, default=0, help="of each kind; default: all of them")
    parser.add_argument("--seconds", type=float, default=3600, help="for each kind, then no more")
    parser.add_argument("--seed", type=int, default=0, help="of the first ring; default: a new one")
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON lines; appended to")
    parser.add_argument("--keep", type=float, default=math.inf, help="rings without writes so long")
    parser.add_argument(
        "--ease", type=float, default=EASE, help="clients pause so much longer (60)"
    )
    parser.add_argument("--again", type=Path, help="a directory that was kept: only check it again")
    parser.add_argument("--table", action="store_true", help="only print what there is")
    args = parser.parse_args()
    if args.again is not None:
        return int(bool(again(args.again).wrong))
    campaign = Campaign(args.results, make_root, args.keep, args.ease)
    before = len(read_results(args.results))
    if not args.table:
        for name in args.kind or KINDS:
            kind = KINDS[name]
            seed = args.seed or random.randrange(1 << 30)
            campaign.run(kind, args.rounds or kind.rounds, args.seconds, seed)
    for line in table(read_results(args.results)[0 if args.table else before :]):
        print(line)
    return int(campaign.failed)


if __name__ == "__main__":
    sys.exit(main())
