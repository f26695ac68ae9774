"""`barco queue`: make, take, describe, delete."""

import argparse
from typing import Any

import barco
from barco.cli.commands.queue.taking import take
from barco.cli.shared import talk

DESCRIPTION = """\
Queues: groups whose events are leased and acknowledged one by one, by any number of programs. What
is not acknowledged in time, or fails, is given again; after --max-deliveries it is a dead letter
(see `barco dead`).
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Examples:
  barco queue make billing --topic orders --max-deliveries 5 --retry 1
  barco queue take billing --topic orders --values
  barco queue take billing --topic orders --run 'python bill.py'
  barco queue describe billing
  barco queue delete billing

`take` prints each event and acknowledges it, or runs a program with the event's value as its input:
exit code 0 acknowledges it, any other gives it back.

{talk.EXIT_CODES}"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "queue", help="make queues, take events from them", description=DESCRIPTION,
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="make|take|describe|delete", required=True
    )
    make = _action(actions, "make", "make a group a queue of a topic, or give it other settings")
    make.add_argument("--topic", required=True, type=talk.topic)
    make.add_argument("--start", choices=("earliest", "latest"), default="earliest",
                      help="where a new one begins (default: %(default)s)")  # fmt: skip
    make.add_argument("--lease", metavar="SECONDS", type=talk.seconds, default=30.0,
                      help="how long an event is somebody's (default: %(default)g)")  # fmt: skip
    make.add_argument("--max-in-flight", metavar="N", type=talk.count, default=1000,
                      help="of each slice (default: %(default)s)")  # fmt: skip
    make.add_argument("--ordered", action="store_true", help="events of one key one by one")
    make.add_argument("--max-deliveries", metavar="N", type=talk.count, default=0,
                      help="then it is a dead letter (default: never)")  # fmt: skip
    make.add_argument("--retry", metavar="SECONDS", type=talk.seconds, default=0.0,
                      help="before the second time; doubles each time (default: 0)")  # fmt: skip
    make.add_argument("--dead", metavar="TOPIC", type=talk.topic, help="default: TOPIC.dead")
    taken = _action(actions, "take", "take events, and acknowledge them")
    taken.add_argument("--topic", required=True, type=talk.topic)
    taken.add_argument("--run", metavar="COMMAND", help="for each event, with its value as input")
    taken.add_argument("--count", metavar="N", type=talk.count, help="stop after N events")
    taken.add_argument("--follow", action="store_true", help="go on with new events")
    taken.add_argument("--values", action="store_true", help="print values only")
    _action(actions, "describe", "settings and state of a queue")
    _action(actions, "delete", "forget a queue")


def _action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=text.capitalize() + ".", allow_abbrev=False
    )
    parser.add_argument("group", metavar="GROUP")
    talk.add_endpoint(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Do one of the actions."""
    if args.action in ("make", "take"):
        with barco.Queue(args.topic, args.group, talk.access(args)) as queue:
            return _make(queue, args) if args.action == "make" else take(queue, args)
    with barco.Admin(talk.access(args)) as admin:
        return _describe(admin, args) if args.action == "describe" else _delete(admin, args)


def _make(queue: "barco.Queue", args: argparse.Namespace) -> int:
    more: dict[str, Any] = {} if args.dead is None else {"dead": args.dead}
    made = queue.make(
        start=args.start,
        lease_seconds=args.lease,
        max_in_flight=args.max_in_flight,
        ordered="key" if args.ordered else "no",
        max_deliveries=args.max_deliveries,
        retry_seconds=args.retry,
        **more,
    )
    if args.json:
        talk.print_json(made)
    else:
        talk.say(f"group {args.group} is a queue of {args.topic}")
    return 0


def _describe(admin: "barco.Admin", args: argparse.Namespace) -> int:
    group = admin.group(args.group)
    if args.json:
        talk.print_json(group)
        return 0
    queues = group.get("queues")
    if not queues:
        return talk.fail(f"group {args.group} is no queue")
    for topic, settings in queues.items():
        told = ", ".join(f"{name} {value}" for name, value in settings.items() if name != "type")
        print(f"{topic}: {told}")
    print()
    columns = ("topic", "slice", "oldest", "end", "in flight", "waiting", "acknowledged", "dying")
    rows = [
        (
            *(each["topic"], each["rangeIndex"], int(each["offset"]), int(each["endOffset"])),
            *(each["queue"][name] for name in ("inFlight", "waiting", "acknowledged", "dying")),
        )
        for each in group.get("positions", [])
        if "queue" in each
    ]
    talk.print_table(columns, rows)
    return 0


def _delete(admin: "barco.Admin", args: argparse.Namespace) -> int:
    admin.delete_group(args.group)
    if args.json:
        talk.print_json({"group": args.group, "deleted": True})
    else:
        talk.say(f"queue {args.group} is forgotten")
    return 0
