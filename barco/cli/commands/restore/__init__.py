"""`barco restore`: a data directory from a backup."""

import argparse
from pathlib import Path
from typing import Any

from barco.cli.commands.backup import manifest
from barco.cli.commands.restore.putting import copy, put_back
from barco.cli.commands.serve import settings
from barco.cli.shared import talk
from barco.errors import DataDirError

DESCRIPTION = """\
Make a data directory of what `barco backup` has copied: each file is compared with its checksum on
the way, and only when all are there and stable is the directory one that a broker starts with.

A single broker goes on from the moment of its backup. Of a cluster this is for the case that all
its brokers are lost: restore each from its own backup (--whole-cluster says that this is so), then
start them. The backups may be of different moments: what was acknowledged before the oldest one
began is there; of what came later some may be. One broker of a cluster that goes on is not
restored: it gets a new disk (barco replace), and the others give it what it had. A restored one
does not start beside brokers that were not.
"""

EPILOG = """\
Examples:
  barco restore /mnt/backups/b0-2026-11-26 --check
  barco restore /mnt/backups/b0-2026-11-26 --data-dir /var/lib/barco
  barco restore /mnt/backups/b1-2026-11-26 --data-dir /var/lib/barco --whole-cluster

Exit codes:
  0    it is there; with --check, the backup is whole
  2    wrong usage
  78   no backup, or the target can not be used; the words say what to do
  1    a file is not what it was: nothing can be started with what is there by now
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "restore",
        help="make a data directory of a backup",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("backup", metavar="BACKUP", type=Path, help="what barco backup has made")
    parser.add_argument("--config", metavar="FILE", type=Path, help="the broker's settings")
    parser.add_argument("--data-dir", metavar="DIR", type=Path,
                        help="an empty directory, or none (default: as serve has it)")  # fmt: skip
    parser.add_argument("--whole-cluster", action="store_true",
                        help="no broker of the cluster goes on: all are restored")  # fmt: skip
    parser.add_argument("--check", action="store_true",
                        help="only read the backup, and compare its checksums")  # fmt: skip
    parser.set_defaults(workers=None)


def run(args: argparse.Namespace) -> int:
    """Read all of it, and put it there."""
    made = manifest.read(args.backup)
    if args.check:
        for each in made.files:
            copy(args.backup, None, each)
        print(f"{args.backup}: {len(made.files)} files, {talk.size_of(made.size)}, as of"
              f" {made.began}: all as it was copied")  # fmt: skip
        return 0
    target = settings(args)[1]
    if made.ring_size > 1 and not args.whole_cluster:
        raise DataDirError(
            f"{args.backup} is of broker {made.ordinal} of a cluster. If others go on it gets a"
            " new disk: barco replace. If all of them are restored say --whole-cluster for each"
        )
    put_back(args.backup, made, target)
    print(f"{target}: {len(made.files)} files, {talk.size_of(made.size)}, as of {made.began}")
    for words in made.damaged:
        talk.say(f"barco: damaged, as it was when it was copied: {words}")
    return 0
