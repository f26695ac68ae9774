"""`barco upgrade-check`: may a broker be restarted with this version, and now."""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import barco
from barco.cli.commands.check.finding import FAULT, GOOD, WARNING, Finding
from barco.cli.commands.serve import settings
from barco.cli.commands.upgrade_check import keys, now, versions
from barco.cli.shared import talk
from barco.config import Config, data_dir_default
from barco.errors import BarcoError

LOOK_SECONDS = 1.0
NO_TIME_HELPS = {keys.AREA, versions.AREA}

DESCRIPTION = """\
Say, with the version that is installed, whether the broker that runs here may be restarted with it:
whether this version takes the configuration (each key that it does not know is named), reads the
data directory and leaves a way back, speaks with the brokers that run now, and whether the cluster
can do without this broker for a moment: every copy is there, nothing moves, the disk has room.

Nothing is changed. Say it on each host after the new version was installed and before the restart:
the old one goes on running until then.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Examples:
  barco upgrade-check --config /etc/barco/barco.toml --data-dir /var/lib/barco
  barco upgrade-check --wait 600 && systemctl restart barco
      until the brokers that were restarted before are in sync
  barco upgrade-check --json | jq -r '.findings[] | select(.level == "fault").words'

Exit codes:
  0    restart it
  1    not now, or not one broker at a time: the lines say why
  2    wrong usage
  78   the configuration was refused: edit it first
"""
MARKS = {GOOD: "✓", WARNING: "!", FAULT: "✗"}


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = talk.command(
        subparsers, "upgrade-check", help="may a broker be restarted with this version",
        description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("--config", metavar="FILE", type=Path, help="the broker's settings")
    parser.add_argument("--data-dir", metavar="DIR", type=Path,
                        help="where its log is (default: as serve has it)")  # fmt: skip
    parser.add_argument("--wait", metavar="SECONDS", type=talk.seconds, default=0.0,
                        help="look again for so long, if it is only not now")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.set_defaults(workers=None)


def run(args: argparse.Namespace) -> int:
    """Look at everything, until it is all well or the time is over."""
    until = time.monotonic() + args.wait
    while True:
        findings = list(_looks(args))
        faults = {each.area for each in findings if each.level == FAULT}
        if not faults or faults & NO_TIME_HELPS or time.monotonic() >= until:
            break
        time.sleep(LOOK_SECONDS)
    if args.json:
        told = [each.plain() for each in findings]
        talk.print_json({"version": barco.__version__, "restart": not faults, "findings": told})
    else:
        for each in findings:
            mark = MARKS[each.level] if talk.speaks_unicode() else each.level
            print(f"{mark} {each.area:<13} {each.words}")
    return 78 if keys.AREA in faults else int(bool(faults))


def _looks(args: argparse.Namespace) -> Iterator[Finding]:
    config: Config | None = None
    data_dir = args.data_dir or data_dir_default()
    yield from keys.look(args.config)
    try:
        config, data_dir = settings(args)
    except BarcoError as error:
        yield Finding(keys.AREA, FAULT, error.detail)
    yield from versions.directory(data_dir, config)
    with barco.Admin(talk.access(args), timeout_s=now.ANSWER_SECONDS) as admin:
        try:
            status = admin.status()
        except BarcoError as error:
            yield Finding(now.AREA, FAULT, f"no broker answers here: {error.detail}")
            return
        yield from versions.spoken(status)
        yield from now.ready(status)
        if "peers" not in status:
            words = "a single broker: whoever writes or reads waits until it is back"
            yield Finding(now.AREA, WARNING, words)
        else:
            yield from now.ring(admin, status)
    yield from now.room(data_dir)
