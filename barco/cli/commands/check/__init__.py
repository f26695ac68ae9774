"""`barco check`: is this machine one for a broker, and what to change."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from barco.cli.commands.check import certificates, disk, host, neighbours, starts
from barco.cli.commands.check.finding import FAULT, GOOD, WARNING, Finding
from barco.cli.commands.serve import settings
from barco.cli.shared import talk
from barco.config import resolved
from barco.errors import BarcoError

DESCRIPTION = """\
Look at the machine before a broker is started on it, or while one runs: kernel and io_uring, the
data directory and its disk, limits, clock, certificates, and the other brokers of the cluster. Each
line that is not good says what to change. Nothing is changed but a file of one page in the data
directory, which is written and removed (where there is none yet: in the directory above).

Limits are those of the shell that this is said in; the units of systemd have their own.
"""

EPILOG = """\
Examples:
  barco check --config /etc/barco/barco.toml --data-dir /var/lib/barco
  barco check --certificate /etc/barco/broker-0.crt
  barco check --json | jq '.findings[] | select(.level != "good")'

Exit codes:
  0    nothing is wrong; warnings are none
  2    wrong usage
  78   the configuration was refused
  1    a broker would not start here, would keep no promise, or knows no certificate that is valid
"""
MARKS = {GOOD: "✓", WARNING: "!", FAULT: "✗"}


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "check",
        help="is this machine one for a broker",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="a broker's settings, in TOML")
    parser.add_argument("--data-dir", metavar="DIR", type=Path,
                        help="where its log is, or will be (default: as serve has it)")  # fmt: skip
    parser.add_argument("--certificate", metavar="FILE", type=Path, action="append",
                        help="look at these (default: each *.crt in the directory of --config and"
                        " in /etc/barco/credentials that has its key beside it)")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.set_defaults(workers=None)


def run(args: argparse.Namespace) -> int:
    """Look at everything, whatever the first look finds."""
    config, data_dir = settings(args)
    config = resolved(config)

    def looks() -> Iterator[Finding]:
        yield from host.look(config)
        yield from disk.look(data_dir)
        yield from starts.directory(data_dir, config)
        yield from starts.address(config)
        yield from certificates.look(args.certificate, args.config)
        yield from certificates.configured(config)
        yield from neighbours.look(config)

    findings = list(_survived(looks()))
    if args.json:
        talk.print_json({"findings": [each.plain() for each in findings]})
    else:
        for each in findings:
            mark = MARKS[each.level] if talk.speaks_unicode() else each.level
            print(f"{mark} {each.area:<13} {each.words}")
    return 1 if any(each.level == FAULT for each in findings) else 0


def _survived(looks: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from looks
    except BarcoError as error:
        yield Finding("check", FAULT, error.detail)
