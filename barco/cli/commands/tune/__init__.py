"""`barco tune`: what this machine could be set to, for a broker's sake."""

import argparse
import os
from pathlib import Path
from typing import Any

from barco.cli.commands.tune import knobs
from barco.cli.shared import talk

DESCRIPTION = """\
Print what the kernel, the disks and the network card could be set to so that a broker is served
better, with the reason, and how it is now. What is right already is left out, unless with --all.

--apply, as root, writes what can be written: into /proc/sys and /sys for now, and into
/etc/sysctl.d/60-barco.conf and /etc/udev/rules.d/60-barco.rules for the next start; it says what it
has written. Interrupts and the governor of the processors are advice only.
"""

EPILOG = """\
Examples:
  barco tune
  barco tune --data-dir /var/lib/barco --apply
  barco tune --json

Exit codes:
  0    printed, or written
  2    wrong usage
  1    anything else: --apply without root, or something could not be written
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "tune",
        help="what this machine could be set to",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--data-dir", metavar="DIR", type=Path, default=Path("/var/lib/barco"),
                        help="whose disk is meant (default: %(default)s)")  # fmt: skip
    parser.add_argument("--all", action="store_true", help="what is right already, too")
    parser.add_argument("--apply", action="store_true", help="write what can be written (root)")
    parser.add_argument("--json", action="store_true", help="print it as JSON")


def run(args: argparse.Namespace) -> int:
    """Look, and print or write."""
    root = Path("/")
    found = knobs.look(root, args.data_dir)
    off = [knob for knob in found if not knob.right]
    shown = found if args.all else off
    if args.apply and os.geteuid() != 0:
        return talk.fail("--apply writes settings of the machine: say it as root")
    written, refused = knobs.apply(off, root) if args.apply else ([], [])
    if args.json:
        plain = [knob.plain() for knob in shown]
        talk.print_json({"knobs": plain, "written": written, "refused": refused})
    else:
        for knob in shown:
            print(f"{'✓' if knob.right and talk.speaks_unicode() else '-'} {knob.advice()}")
        if not shown:
            print("all is as it should be")
        for line in written:
            print(f"wrote {line}")
        for line in refused:
            talk.say(f"barco: could not write {line}")
    return 1 if refused else 0
