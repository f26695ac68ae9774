"""`barco top`: brokers, topics and groups on one screen, live."""

import argparse
import asyncio
import sys
import time
from typing import Any

from rich.console import Console
from rich.live import Live

from barco.cli.commands.top.rates import Glance, GroupLook, Stages, group_of, stages_of
from barco.cli.commands.top.screen import screen
from barco.cli.shared import talk
from barco.cli.shared.asked import Brokers
from barco.errors import BarcoError

DESCRIPTION = """\
Show on one screen, again and again: whether all is well, in words; what each broker takes in, gives
out and uses; how topics grow, and how far groups are behind. All brokers are asked, also those that
were not named.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Examples:
  barco top
  barco top --every 5 --endpoint 10.77.0.1:9250
  barco top --once                 two looks, one second apart, for a file or a mail

Exit codes:
  0    ended by Ctrl-C or --once
  2    wrong usage
  1    no broker answered at the start
"""

EVERY_SECONDS, SECONDS_MIN = 2.0, 0.5
GROUPS_MAX = 50
"""Groups that are looked at: each is a question to all leaders."""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = talk.command(
        subparsers, "top", help="brokers, topics and groups on one screen, live",
        description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("--every", metavar="SECONDS", type=talk.pause(SECONDS_MIN),
                        default=EVERY_SECONDS,
                        help="look so often (default: %(default)g; 0.5 at least)")  # fmt: skip
    parser.add_argument("--once", action="store_true", help="print one screen and end")
    parser.add_argument("--timeout", metavar="SECONDS", type=talk.seconds, default=5.0,
                        help="wait so long for an answer (default: %(default)g)")  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Look, show, until it is interrupted."""
    try:
        asyncio.run(_run(args))
    except KeyboardInterrupt:
        return 0
    return 0


async def _run(args: argparse.Namespace) -> None:
    brokers = Brokers(talk.access(args), args.timeout)
    terminal = sys.stdout.isatty()
    console = talk.Paper(highlight=False, width=None if terminal else 200)
    try:
        before = await look(brokers)  # Who can not be reached at all ends the command.
        if args.once:
            await asyncio.sleep(1.0)
            console.print(_screen(before, await look(brokers)))
            return
        await _live(console, brokers, before, args.every, terminal=terminal)
    finally:
        await brokers.close()


async def _live(
    console: Console, brokers: Brokers, before: Glance, every: float, *, terminal: bool
) -> None:
    """Without a terminal one screen after the other."""
    shown = Live(console=console, screen=terminal, auto_refresh=False, transient=terminal)
    with shown:
        shown.update(_screen(None, before), refresh=True)
        while True:
            await asyncio.sleep(every)
            try:
                now = await look(brokers)
            except (BarcoError, OSError) as error:
                detail = error.detail if isinstance(error, BarcoError) else str(error)
                shown.update(f"{_clock()}  no answer: {talk.text_of(detail)}", refresh=True)
                continue
            shown.update(_screen(before, now), refresh=True)
            before = now


def _screen(before: Glance | None, now: Glance) -> Any:
    return screen(before, now, _clock(), unicode=talk.speaks_unicode())


def _clock() -> str:
    return time.strftime("%H:%M:%S")


async def look(brokers: Brokers) -> Glance:
    """Asks all brokers. BarcoError: nobody answers."""
    at = time.monotonic()
    asked = await brokers.ask(metrics=True)
    topics: dict[str, int] = {}
    groups: dict[str, GroupLook] = {}
    stages: Stages = {}
    try:
        stages = stages_of(await brokers.first.figures())
        topics = {str(each["topic"]): int(each["events"]) for each in await brokers.first.topics()}
        names = [str(each["group"]) for each in await brokers.first.groups()][:GROUPS_MAX]
        for name in names:
            groups[name] = group_of(await brokers.first.group(name))
    except BarcoError:
        pass  # While a range has no leader some of it can not be told; the health says why.
    return Glance(at, asked, topics, groups, stages)
