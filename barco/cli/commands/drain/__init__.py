"""`barco drain`: take a broker out of the cluster, with copies of what it holds elsewhere."""

import argparse
import time
from typing import Any

import barco
from barco.cli.commands.drain.planning import print_plan, targets, told_of
from barco.cli.shared import talk
from barco.cli.shared.leaving import words_of
from barco.errors import BarcoError, ConflictError, RequestError

LOOK_SECONDS = 1.0

DESCRIPTION = """\
Take a broker out of the cluster. Its ranges go to those that stay; then, of all events that it
holds and that fewer than two others have, another broker takes a copy, and reads it again from its
disk. The command ends when nothing is on it alone: then it may be stopped and removed.

Nothing is removed from it before. The command only says what is wanted, and looks on: it may be
interrupted, and given again; whatever process is killed meanwhile, it goes on.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Examples:
  barco drain 5 --plan                  which steps, and what would be copied; nothing is changed
  barco drain 5                         until broker 5 may be stopped and removed
  barco drain 5 --no-wait               only say so

Exit codes:
  0    it is drained; with --plan, or --no-wait, it can be
  2    wrong usage, or there is no ring without it: the reason is said
  1    refused, or no broker answers; with --timeout, the time was over
  130  interrupted: what was said stays, and is carried out
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = talk.command(
        subparsers, "drain", help="take a broker out of the cluster",
        description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("ordinal", metavar="ORDINAL", type=talk.ordinal, help="of the broker")
    parser.add_argument("--plan", action="store_true",
                        help="print what would be done, and change nothing")  # fmt: skip
    parser.add_argument("--no-wait", action="store_true", help="do not look on")
    parser.add_argument("--timeout", metavar="SECONDS", type=talk.seconds,
                        help="look on for so long at most")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one line of JSON for each change")


def run(args: argparse.Namespace) -> int:
    """Say what is wanted, and look on until it is so."""
    with barco.Admin(talk.access(args), timeout_s=30.0) as admin:
        try:
            topology = admin.topology()
            current, wanted = targets(topology, args.ordinal)
            if args.plan:
                return print_plan(admin, topology, wanted, args)
            if wanted is not current:
                told = admin.set_target(wanted.asked(topology["cluster"]))
                talk.news(args, f"the target is version {told['version']}", {"target": told})
        except ConflictError as error:
            return talk.fail(error.detail)
        except RequestError as error:
            return talk.fail(error.detail, 2)
        return 0 if args.no_wait else _look_on(admin, args)


# --- Looking on -----------------------------------------------------------------------------------


def _look_on(admin: "barco.Admin", args: argparse.Namespace) -> int:
    """Until it is drained; each change is one line."""
    end = None if args.timeout is None else time.monotonic() + args.timeout
    said, began = "", (0, 0.0)
    while True:
        try:
            told = told_of(admin.drains(), args.ordinal)
        except BarcoError as error:
            words, facts = f"no answer: {error.detail}", {"error": error.detail}
        else:
            if told is None and args.ordinal in _named(admin):
                return talk.fail("the target was changed meanwhile: it names the broker again")
            now, left = time.monotonic(), int((told or {}).get("bytesLeft", 0))
            if left > began[0]:
                began = (left, now)
            rate = (began[0] - left) / max(0.001, now - began[1])
            facts = told or {"ordinal": args.ordinal, "error": "nobody knows of it"}
            words = "nobody knows of it yet" if told is None else words_of(told, rate)
            if told is not None and told["drained"]:
                talk.news(args, f"broker {args.ordinal} is {words}", facts)
                return 0
        if words != said:
            said = words
            talk.news(args, words, facts)
        if end is not None and time.monotonic() >= end:
            return talk.fail(f"not drained in {args.timeout:g} s; what was said stays: {words}")
        time.sleep(LOOK_SECONDS)


def _named(admin: "barco.Admin") -> set[int]:
    return {int(each["ordinal"]) for each in admin.topology()["target"]["brokers"]}
