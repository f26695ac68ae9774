"""`barco pre-stop`: what a pod does before it is stopped."""

import argparse
import sys
import time
from typing import Any

import barco
from barco.cli.commands.pre_stop.leaving import leaving
from barco.cli.shared import talk
from barco.errors import BarcoError

LOOK_SECONDS = 1.0

DESCRIPTION = """\
Wait until every copy of what this broker holds is where it should be, so that no second broker of a
cluster is stopped while one is behind: the preStop hook of packaging/kubernetes. barco itself
drains at SIGTERM, which comes after that.

With --kubernetes it looks whether the pod is to go for good, because spec.replicas leaves it out,
and says that the cluster does not know of it. That takes nobody out of a ring.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Examples:
  barco pre-stop --timeout 60 --kubernetes "$POD_NAMESPACE/$POD_NAME"

Exit codes:
  0    every copy is there
  2    wrong usage
  1    not within --timeout, nobody answers, or the pod is to go for good: it is stopped even so
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = talk.command(
        subparsers, "pre-stop", help="before a pod is stopped: wait for its copies",
        description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("--timeout", metavar="SECONDS", type=talk.seconds, default=60.0,
                        help="wait for so long at most (default: %(default)g)")  # fmt: skip
    parser.add_argument("--kubernetes", metavar="NAMESPACE[/POD]",
                        help="look whether the pod is to go for good")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Wait, and say why not."""
    end, why = time.monotonic() + args.timeout, "it was not asked"
    leaves = leaving(args.kubernetes) if args.kubernetes else ""
    if leaves:
        sys.stderr.write(f"barco: {leaves}\n")
    with barco.Admin(talk.access(args), timeout_s=5.0) as admin:
        while True:
            try:
                status = admin.status()
            except BarcoError as error:
                why = error.detail
            else:
                if "inSync" not in status or status["inSync"]:  # A single broker has no copies.
                    return 1 if leaves else 0
                why = str(status.get("degraded") or status.get("reason") or "it does not say why")
            if time.monotonic() >= end:
                return talk.fail(f"not in sync within {args.timeout:g} s: {why}")
            time.sleep(LOOK_SECONDS)
