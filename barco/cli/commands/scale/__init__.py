"""`barco scale`: how many brokers the cluster shall consist of, with how many workers."""

import argparse
import time
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

import barco
from barco.cli.commands.scale.left import away, facts_of, left, listed, words_of
from barco.cli.shared import talk
from barco.cli.shared.routes import current_target, print_rounds, rounds_to, steps_of
from barco.cluster.ring.target import Target, TargetBroker, check_shape
from barco.errors import BarcoError, ConflictError, RequestError
from barco.limits import BROKERS_MAX

LOOK_SECONDS = 1.0

DESCRIPTION = """\
Say how many brokers the cluster shall consist of, and watch it get there. New brokers join first
(barco format --join, barco serve), in any order, or later: whoever has joined gets its share.
With --workers: into how many ranges each broker's share is cut, each led by a process of its own.

No event is copied, no key changes its slice, and clients do nothing. Each range is taken over by
itself, a few at a time, so at most a quarter of a broker's slices wait for a moment.

The command only says what is wanted, and looks on: it may be interrupted, and given again. A target
that is not reached yet is refused another one; the same one again goes on looking.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Examples:
  barco scale --to 6 --plan             which steps that would be; nothing is changed
  barco scale --to 6                    until the ring is so
  barco scale --to 6 --no-wait          only say so
  barco scale --workers 2               two processes lead at each broker, not one
  barco scale --workers 4 --broker 1    only broker 1, whose machine has more cores now
  barco ring --watch                    look on from elsewhere

Exit codes:
  0    the ring is as it shall be; with --plan, or --no-wait, it can become so
  2    wrong usage, or no ring is what --to asks for: the reason is said
  1    refused, or no broker answers; with --timeout, the time was over
  130  interrupted: what was said stays, and is carried out
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = talk.command(
        subparsers, "scale", help="say how many brokers and workers the cluster shall have",
        description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("--to", metavar="BROKERS", type=talk.count,
                        help="so many brokers: ordinals from 0 (default: as now)")  # fmt: skip
    parser.add_argument("--workers", metavar="N", type=talk.count,
                        help="so many for each broker (default: as it has, a new one as the"
                        " others)")  # fmt: skip
    parser.add_argument("--broker", metavar="ORDINAL", type=talk.ordinal,
                        help="--workers are for this one only")  # fmt: skip
    parser.add_argument("--plan", action="store_true",
                        help="print the steps, and change nothing")  # fmt: skip
    parser.add_argument("--no-wait", action="store_true", help="do not look on")
    parser.add_argument("--timeout", metavar="SECONDS", type=talk.seconds,
                        help="look on for so long at most")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="one line of JSON for each change")


def run(args: argparse.Namespace) -> int:
    """Say what is wanted, and look on until it is so."""
    if args.to is None and args.workers is None:
        return talk.fail("say how many brokers (--to), or how many workers each (--workers)", 2)
    if args.broker is not None and args.workers is None:
        return talk.fail("--broker belongs to --workers", 2)
    with barco.Admin(talk.access(args), timeout_s=30.0) as admin:
        try:
            topology = admin.topology()
            wanted = _wanted(topology, args.to, args.workers, args.broker)
            if args.plan:
                return _print_plan(topology, wanted, as_json=args.json)
            told = admin.set_target(wanted.asked(topology["cluster"]))
        except ConflictError as error:
            return talk.fail(error.detail)
        except RequestError as error:
            return talk.fail(error.detail, 2)
        talk.news(args, f"the target is version {told['version']}", {"target": told})
        if args.no_wait:
            return 0
        return _look_on(admin, args, wanted, int(told["version"]))


def _wanted(
    topology: Mapping[str, Any], size: int | None, workers: int | None, only: int | None
) -> Target:
    """Those of the target as they are, and new ones like them; with so many workers each, or one of
    them (`only`)."""
    if (size or 0) > BROKERS_MAX:
        raise RequestError(f"{size:,} brokers: a ring has at most {BROKERS_MAX:,}")
    current = current_target(topology)
    known = {each.ordinal: each for each in current.brokers}
    usual = max(each.workers for each in current.brokers)
    ordinals = sorted(known) if size is None else range(size)
    if only is not None and only not in ordinals:
        raise RequestError(f"there is no broker {only} among {', '.join(map(str, ordinals))}")
    brokers = [known.get(each) or TargetBroker(ordinal=each, workers=usual) for each in ordinals]
    if workers is not None:
        brokers = [
            replace(each, workers=workers) if only in (None, each.ordinal) else each
            for each in brokers
        ]
    check_shape(current.cut, brokers)
    return Target(current.version, current.cut, tuple(brokers))


# --- The plan -------------------------------------------------------------------------------------


def _print_plan(topology: Mapping[str, Any], wanted: Target, *, as_json: bool) -> int:
    rounds = rounds_to(topology, wanted)
    absent = away(topology, wanted)
    if as_json:
        talk.print_json({"steps": steps_of(rounds), "missing": absent})
        return 0
    print_rounds(rounds, "the ring is so already")
    if absent:
        print(f"brokers {listed(absent)} have not joined yet: barco format --join, barco serve")
    return 0


# --- Looking on -----------------------------------------------------------------------------------


def _look_on(admin: "barco.Admin", args: argparse.Namespace, wanted: Target, version: int) -> int:
    """Until the ring is so; each change is one line. The target has later versions without anybody
    asking for them: who takes copies of what leaves is part of it."""
    end = None if args.timeout is None else time.monotonic() + args.timeout
    said = ""
    while True:
        try:
            work = left(admin.topology())
        except BarcoError as error:
            words, facts = f"no answer: {error.detail}", {"error": error.detail}
        else:
            if work.target.version > version and work.target.workers != wanted.workers:
                return talk.fail(
                    f"the target was changed meanwhile: it is version {work.target.version},"
                    f" and not {version}"
                )
            words, facts = words_of(work), facts_of(work)
            if work.done and work.target.version >= version:
                talk.news(args, words, facts)
                return 0
        if words != said:
            said = words
            talk.news(args, words, facts)
        if end is not None and time.monotonic() >= end:
            return talk.fail(f"not reached in {args.timeout:g} s; what was said stays: {words}")
        time.sleep(LOOK_SECONDS)
