"""`barco groups`: list, describe, seek, delete."""

import argparse
from typing import Any

import barco
from barco.cli.shared import talk

DESCRIPTION = """\
Look at consumer groups and move their positions. A position is where a group goes on in one slice
of a topic; it is kept in the broker's log, as durable as an event.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Examples:
  barco groups list
  barco groups describe billing
  barco groups seek billing --topic trips --to earliest
  barco groups seek billing --topic trips --to 2026-01-31T12:00:00Z
  barco groups seek billing --topic trips --slice 3 --to 00000002-00000000000003e8
  barco groups delete billing

{talk.EXIT_CODES}"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "groups", help="list, describe, seek, delete consumer groups", description=DESCRIPTION,
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="list|describe|seek|delete", required=True
    )
    _action(actions, "list", "every group that has members or positions", named=False)
    _action(actions, "describe", "members, positions and lag of a group")
    seek = _action(actions, "seek", "move a group's positions in a topic, also back")
    seek.add_argument("--topic", required=True, type=talk.topic)
    seek.add_argument("--to", required=True, metavar="PLACE",
                      help="earliest, latest, timestamp:MICROSECONDS, a time such as"
                      " 2026-01-31T12:00:00Z, or with --slice a cursor")  # fmt: skip
    seek.add_argument("--slice", metavar="N", type=int, help="this slice only, to a cursor")
    _action(actions, "delete", "forget a group without members")


def _action(actions: Any, name: str, text: str, *, named: bool = True) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=text.capitalize() + ".", allow_abbrev=False
    )
    if named:
        parser.add_argument("group", metavar="GROUP")
    talk.add_endpoint(parser)
    parser.add_argument("--json", action="store_true", help="print the broker's answer as JSON")
    return parser


def run(args: argparse.Namespace) -> int:
    """Do one of the actions."""
    actions = {"list": _list, "describe": _describe, "seek": _seek, "delete": _delete}
    with barco.Admin(talk.access(args)) as admin:
        return actions[args.action](admin, args)


def _list(admin: "barco.Admin", args: argparse.Namespace) -> int:
    groups = admin.groups()
    if args.json:
        talk.print_json(groups)
    else:
        rows = ((group.get("group"), group.get("members")) for group in groups)
        talk.print_table(("group", "members"), rows)
    return 0


def _describe(admin: "barco.Admin", args: argparse.Namespace) -> int:
    group = admin.group(args.group)
    if args.json:
        talk.print_json(group)
        return 0
    members = group.get("members", [])
    print(f"group    {group.get('group')}")
    print(f"members  {len(members)}")
    print(f"lag      {group.get('lag', 0):,}")
    print()
    if members:
        rows = (
            (each["consumerId"], each.get("weight", 1), sum(map(len, each["slices"].values())))
            for each in members
        )
        talk.print_table(("consumer", "weight", "slices"), rows)
        print()
    _print_positions(group.get("positions", []))
    return 0


def _print_positions(positions: list[dict[str, Any]]) -> None:
    columns = ("topic", "slice", "position", "end", "lag", "consumer")
    rows = [
        (
            each["topic"],
            each["rangeIndex"],
            int(each["offset"]),
            int(each["endOffset"]),
            each["lag"],
            each.get("consumerId"),
        )
        for each in positions
    ]
    talk.print_table(columns, rows)


def _seek(admin: "barco.Admin", args: argparse.Namespace) -> int:
    to: str | dict[int, str]
    if args.slice is not None:
        to = {args.slice: args.to}
    else:
        try:
            to = talk.place(args.to)
        except argparse.ArgumentTypeError as error:
            return talk.fail(f"argument --to: {error}", 2)
    answer = admin.seek(args.group, args.topic, to)
    if args.json:
        talk.print_json(answer)
    else:
        _print_positions(answer.get("positions", []))
    return 0


def _delete(admin: "barco.Admin", args: argparse.Namespace) -> int:
    admin.delete_group(args.group)
    if args.json:
        talk.print_json({"group": args.group, "deleted": True})
    else:
        talk.say(f"group {args.group} is forgotten")
    return 0
