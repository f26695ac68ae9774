"""`barco ring`: the ring as it is, live if wanted, and what it would become."""

import argparse
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import barco
from barco.cli.commands.ring.svg import plan_svg, ring_svg
from barco.cli.commands.ring.text import Pen, plan_text, ring_text
from barco.cli.shared import talk
from barco.cli.shared.routes import cut_of, table_of
from barco.cluster.ring.cut import Cut
from barco.cluster.ring.plan import RingStep, StepKind, carry_out, plan
from barco.cluster.ring.routes import RouteTable
from barco.cluster.ring.target import Known, Target, TargetBroker, next_target
from barco.errors import BarcoError, RequestError
from barco.limits import BROKERS_MAX
from barco.model.generation import Gid
from barco.model.ring_view import (
    CopyState,
    DrawnBroker,
    DrawnRange,
    RingView,
    troubles,
    view_of,
)
from barco.types import Epoch, Token

SECONDS_MIN = 0.2
"""Between two looks: each asks every leader."""

NAMES = {
    StepKind.SPLIT: "split",
    StepKind.MOVE: "change of members",
    StepKind.HAND_OVER: "hand-over",
    StepKind.JOIN: "join",
}
CLEAR = "\x1b[H\x1b[J"
HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"

DESCRIPTION = """\
Draw the ring: which broker leads which slices and who follows it, how every copy is, the
generations of each range, and first of all, in words, what is not as it should be.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
A preview (--to) shows the ring that other numbers of brokers or workers would give, and the steps
that lead there. It changes nothing: barco scale does.

Examples:
  barco ring
  barco ring --watch                    again each second, until Ctrl-C
  barco ring --svg ring.svg             a picture; with --watch it is written anew
  barco ring --json | jq .troubles
  barco ring --to 6                     what it would become with brokers 3, 4 and 5
  barco ring --to 6 --workers 2 --svg grown.svg

Exit codes:
  0    drawn, whatever it shows: barco status says by its code whether the broker is ready
  2    wrong usage, or no ring is what --to asks for: the reason is said
  1    no broker answers
  130  --watch was ended by Ctrl-C
"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = talk.command(
        subparsers, "ring", help="draw the ring: who leads, who follows, what is wrong",
        description=DESCRIPTION, epilog=EPILOG,
    )  # fmt: skip
    parser.add_argument("--timeout", metavar="SECONDS", type=talk.seconds, default=5.0,
                        help="wait so long for an answer (default: %(default)g)")  # fmt: skip
    parser.add_argument("--watch", metavar="SECONDS", type=talk.pause(SECONDS_MIN), nargs="?",
                        const=1.0,
                        help=f"look again and again (each second, or as given; {SECONDS_MIN:g} at"
                        " least)")  # fmt: skip
    parser.add_argument(
        "--svg", metavar="FILE", type=_file, help="write a picture instead; - is stdout"
    )
    parser.add_argument("--json", action="store_true", help="print what would be drawn as JSON")
    parser.add_argument("--to", metavar="BROKERS", type=talk.count,
                        help="preview: the ring of so many brokers")  # fmt: skip
    parser.add_argument("--workers", metavar="N", type=talk.count,
                        help="with --to: so many for each broker (default: as now)")  # fmt: skip


def _file(text: str) -> str:
    if not text or "\0" in text or Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a file")
    return text


def run(args: argparse.Namespace) -> int:
    """Ask, draw; with --watch until it is interrupted."""
    if args.workers is not None and args.to is None:
        return talk.fail("--workers belongs to --to: it is a preview", 2)
    if args.watch is not None and args.to is not None:
        return talk.fail("--watch shows the ring as it is, --to a preview: give one of them", 2)
    with barco.Admin(talk.access(args), timeout_s=args.timeout) as admin:
        if args.watch is not None:
            _watch(admin, args)
        try:
            _put(_picture(admin.topology(copies=True), args), args.svg)
        except RequestError as error:
            return talk.fail(error.detail, 2)
        except OSError as error:
            if args.svg in (None, "-"):
                raise  # Of stdout: `barco.cli.main` has the words.
            return talk.fail(f"--svg {args.svg}: {error.strerror or error}")
    return 0


def _watch(admin: "barco.Admin", args: argparse.Namespace) -> None:
    """Until Ctrl-C, which leaves the last picture and the cursor where they are."""
    live = sys.stdout.isatty() and not args.json and args.svg is None
    if live:
        sys.stdout.write(HIDE)
    try:
        while True:
            began = time.monotonic()
            try:
                picture = _picture(admin.topology(copies=True), args)
            except (BarcoError, OSError) as error:
                detail = error.detail if isinstance(error, BarcoError) else str(error)
                picture = f"{_now()}  no answer: {detail}\n"
                if args.svg not in (None, "-") or args.json:
                    talk.say(picture.rstrip())
                    picture = ""
            if picture:
                shown = f"{CLEAR}{picture}\n{_now()}, Ctrl-C ends this\n" if live else picture
                _put(shown, args.svg)
            time.sleep(max(SECONDS_MIN, args.watch - (time.monotonic() - began)))
    finally:
        if live:
            sys.stdout.write(f"{SHOW}\n")
            sys.stdout.flush()


def _now() -> str:
    return time.strftime("%H:%M:%S")


def _put(text: str, file: str | None) -> None:
    """To stdout, or whole to a file: who looks at it while it is written sees the one before."""
    if file in (None, "-"):
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    path = Path(str(file))
    if path.exists() and not path.is_file():
        path.write_text(text, "utf-8")  # A device or a pipe takes it; nothing is put in its place.
        return
    new = path.with_name(f".{path.name}.new")
    new.write_text(text, "utf-8")
    new.replace(path)


def _picture(topology: Mapping[str, Any], args: argparse.Namespace) -> str:
    view = view_of(topology)
    columns, rows = shutil.get_terminal_size((100, 40))
    pen = Pen(colour=talk.colours(), unicode=talk.speaks_unicode(), columns=columns)
    if args.to is not None:
        return _preview(view, preview(topology, args.to, args.workers), args, pen)
    if args.json:
        return talk.json_line(document(view))
    if args.svg is not None:
        return ring_svg(view)
    text = ring_text(view, pen)
    if sys.stdout.isatty() and text.count("\n") + 4 > rows:
        text = ring_text(view, pen, circle=False)  # What is wrong stands first, and is to be seen.
    return text + "\n"


def document(view: RingView) -> dict[str, Any]:
    """A ring for programs."""
    return {
        "cluster": view.cluster,
        "version": view.version,
        "slices": view.slices,
        "troubles": troubles(view),
        "brokers": [
            {"ordinal": each.ordinal, "name": each.name, "state": each.state, "new": each.new,
             "leads": view.led_by(each.ordinal)}
            for each in view.brokers
        ],
        "ranges": [
            {
                "first": each.first,
                "slices": each.slices,
                "epoch": each.epoch,
                "leader": each.leader,
                "handed": each.handed,
                "members": [
                    {"ordinal": o, "copy": each.copies.get(o, CopyState.UNKNOWN).value}
                    for o in each.members
                ],
                "generations": list(each.generations),
            }
            for each in view.ranges
        ],
    }  # fmt: skip


# --- What it would become -------------------------------------------------------------------------


class Preview(NamedTuple):
    """The ring after a plan, and the plan."""

    table: RouteTable
    workers: dict[int, int]
    rounds: list[list[RingStep]]


def preview(topology: Mapping[str, Any], size: int, workers: int | None) -> Preview:
    """RequestError with words if the ring can not become so large or so small."""
    cut = cut_of(topology)
    table = table_of(topology, cut)
    if faults := table.faults():
        raise RequestError(f"there is no plan while the ring is not whole: {'; '.join(faults[:3])}")
    if size > BROKERS_MAX:
        raise RequestError(f"{size:,} brokers: a ring has at most {BROKERS_MAX:,}")
    owners = [route.members[0] for route in table]
    now = {ordinal: owners.count(ordinal) for ordinal in sorted(set(owners))}
    current = Target(0, cut, _listed(now))
    wanted = {each: workers or now.get(each, max(now.values())) for each in range(size)}
    known = Known(
        cluster_uuid=str(topology["cluster"]),
        steps_left=[str(step) for steps in plan(table, current.wanted()) for step in steps],
        copies=_copies(topology, cut),
    )
    cluster = known.cluster_uuid
    target = next_target(current, 0, _listed(wanted), cluster_uuid=cluster, known=known)
    rounds = plan(table, target.wanted())
    for steps in rounds:
        for step in steps:
            carry_out(table, step)
    return Preview(table, wanted, rounds)


def _listed(workers: Mapping[int, int]) -> tuple[TargetBroker, ...]:
    return tuple(TargetBroker(ordinal=o, workers=n) for o, n in sorted(workers.items()))


def _copies(topology: Mapping[str, Any], cut: Cut) -> dict[Gid, tuple[int, ...]]:
    """Who holds the generations of which the broker that was asked knows."""
    view = view_of(topology)
    return {
        Gid(Token(cut.token(each.first)), Epoch(epoch)): each.members
        for each in view.ranges
        for epoch in each.generations
        if epoch < each.epoch
    }


def _preview(view: RingView, found: Preview, args: argparse.Namespace, pen: Pen) -> str:
    after = grown(view, found)
    rounds = [[str(step) for step in steps] for steps in found.rounds]
    counts = counted(found)
    if args.json:
        steps = [
            {"round": number, "kind": step.kind.value, "by": step.by, "words": str(step)}
            for number, steps in enumerate(found.rounds, 1)
            for step in steps
        ]
        return talk.json_line({"now": document(view), "then": document(after), "steps": steps})
    if args.svg is not None:
        return plan_svg(view, after, rounds, counts)
    return plan_text(view, after, rounds, counts, pen) + "\n"


def grown(view: RingView, found: Preview) -> RingView:
    """The ring as the plan leaves it, with every copy as it will be."""
    known = {each.ordinal: each for each in view.brokers}
    brokers = tuple(
        known.get(ordinal, DrawnBroker(ordinal, new=True)) for ordinal in sorted(found.workers)
    )
    ranges = tuple(
        DrawnRange(
            first=route.first,
            slices=route.slices,
            epoch=route.epoch,
            leader=route.leader,
            members=route.members,
            copies=dict.fromkeys(route.members, CopyState.SYNCED) | {route.leader: CopyState.LEADS},
        )
        for route in found.table
    )
    return RingView(view.cluster, found.table.version, view.slices, brokers, ranges)


def counted(found: Preview) -> str:
    """The steps in numbers: of what kinds, in how many rounds, and who takes most."""
    steps = [step for each in found.rounds for step in each]
    if not steps:
        return "no steps: the ring is so already"
    kinds = [NAMES[step.kind] for step in steps]
    each = ", ".join(_times(kinds.count(kind), kind) for kind in dict.fromkeys(kinds))
    copies = "" if StepKind.HAND_OVER in {step.kind for step in steps} else "; no event is copied"
    by = [step.by for step in steps]
    most = max(map(by.count, set(by)))
    rounds = len(found.rounds)
    head = f"{_times(len(steps), 'step')} ({each}) in {_times(rounds, 'round')}"
    return f"{head}, at most {most} by one broker{copies}"


def _times(number: int, what: str) -> str:
    """1 step, 2 steps, 3 changes of members."""
    first, space, rest = what.partition(" ")
    return f"{number} {first}{'' if number == 1 else 's'}{space}{rest}"
