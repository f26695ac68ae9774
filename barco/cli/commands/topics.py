"""`barco topics`: list, create, alter, describe, delete."""

import argparse
import sys
from typing import Any

import barco
from barco.cli.shared import talk
from barco.model.options import CHECKS, COMPRESSIONS, TIMESTAMPS

DESCRIPTION = """\
List, create, alter, look at and delete topics. A topic needs no creation: it exists from its
first event on, unless the broker was configured otherwise. Creating it is for giving it settings;
alter refuses a topic that is not there, so a misspelt name makes none.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Examples:
  barco topics list
  barco topics create trips --retention-hours 720
  barco topics alter trips --retention-bytes 0         no limit; other settings stay
  barco topics create photos --compression none        for values that LZ4 cannot shrink
  barco topics create trips --schema-check reject      see docs/schemas.md
  barco topics describe trips --json
  barco topics delete trips --yes

{talk.EXIT_CODES}"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "topics", help="list, create, alter, describe, delete topics", description=DESCRIPTION,
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    actions = parser.add_subparsers(
        title="actions",
        dest="action",
        metavar="list|create|alter|describe|delete",
        required=True,
    )
    _action(actions, "list", "every topic with its settings")
    create = "create a topic, or change the settings given"
    _settings(_action(actions, "create", create, named=True))
    alter = "change the settings given of a topic that there is"
    _settings(_action(actions, "alter", alter, named=True))
    _action(actions, "describe", "one topic and its slices", named=True)
    delete = _action(actions, "delete", "delete a topic and all its events", named=True)
    delete.add_argument("--yes", action="store_true", help="do not ask")


def _action(actions: Any, name: str, text: str, *, named: bool = False) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=text.capitalize() + ".", allow_abbrev=False
    )
    if named:
        parser.add_argument("topic", metavar="TOPIC", type=talk.topic)
    talk.add_endpoint(parser)
    parser.add_argument("--json", action="store_true", help="print the broker's answer as JSON")
    return parser


def _settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--retention-hours", metavar="N", type=_whole, help="0: no limit")
    parser.add_argument("--retention-bytes", metavar="N", type=_whole, help="0: no limit")
    parser.add_argument(
        "--compression", choices=COMPRESSIONS, help="of what the broker packs itself from now on"
    )
    parser.add_argument(
        "--timestamps", choices=TIMESTAMPS, help="any: also far from now (10 years, 1 day ahead)"
    )
    parser.add_argument(
        "--schema-check", choices=CHECKS, help="of values that are of no schema of TOPIC-value"
    )


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Do one of the actions."""
    actions = {"list": _list, "create": _create, "alter": _alter}
    actions |= {"describe": _describe, "delete": _delete}
    with barco.Admin(talk.access(args)) as admin:
        return actions[args.action](admin, args)


def _list(admin: "barco.Admin", args: argparse.Namespace) -> int:
    topics = admin.topics()
    if args.json:
        talk.print_json(topics)
    else:
        columns = ("topic", "events", "retention hours", "retention bytes", "compression")
        fields = ("topic", "events", "retentionHours", "retentionBytes", "compression")
        talk.print_table(columns, ([topic.get(f) for f in fields] for topic in topics))
    return 0


def _alter(admin: "barco.Admin", args: argparse.Namespace) -> int:
    given = (args.retention_hours, args.retention_bytes, args.compression)
    if all(each is None for each in (*given, args.timestamps, args.schema_check)):
        return talk.fail("nothing is to be changed: name a setting (barco topics alter --help)", 2)
    admin.topic(args.topic)  # NotFoundError, instead of another topic.
    return _create(admin, args)


def _create(admin: "barco.Admin", args: argparse.Namespace) -> int:
    topic = admin.create_topic(
        args.topic,
        retention_hours=args.retention_hours,
        retention_bytes=args.retention_bytes,
        compression=args.compression,
        timestamps=args.timestamps,
        schema_check=args.schema_check,
    )
    if args.json:
        talk.print_json(topic)
    else:
        hours, size = topic.get("retentionHours") or "no limit", topic.get("retentionBytes")
        talk.say(
            f"topic {args.topic}: retention {hours}{' h' if hours != 'no limit' else ''},"
            f" {talk.size_of(size) if size else 'no limit in bytes'},"
            f" compression {topic.get('compression')},"
            f" schema check {topic.get('schemaCheck')}"
        )
    return 0


def _describe(admin: "barco.Admin", args: argparse.Namespace) -> int:
    topic = admin.topic(args.topic)
    if args.json:
        talk.print_json(topic)
        return 0
    created = topic.get("createdAt")
    print(f"topic            {topic.get('topic')}")
    print(f"events           {topic.get('events', 0):,}")
    print(f"retention hours  {topic.get('retentionHours') or 'no limit'}")
    print(f"retention bytes  {topic.get('retentionBytes') or 'no limit'}")
    print(f"compression      {topic.get('compression')}")
    print(f"timestamps       {topic.get('timestamps')}")
    print(f"schema check     {topic.get('schemaCheck')}")
    print(f"created          {talk.time_of(created) if created else 'by its first event'}")
    print()
    rows = []
    for each in topic.get("slices", []):
        start, end = int(each["startOffset"]), int(each["endOffset"])
        last = each.get("lastTimestamp")
        rows.append((each["rangeIndex"], start, end, end - start, last and talk.time_of(last)))
    talk.print_table(("slice", "start", "end", "events", "last event"), rows)
    return 0


def _delete(admin: "barco.Admin", args: argparse.Namespace) -> int:
    if not args.yes:
        if not sys.stdin.isatty():
            return talk.fail("deleting a topic deletes its events: say --yes", 2)
        if input(f"Delete topic {args.topic} and all its events? [y/N] ").lower() not in (
            "y",
            "yes",
        ):
            return talk.fail("nothing was deleted")
    admin.delete_topic(args.topic)
    if args.json:
        talk.print_json({"topic": args.topic, "deleted": True})
    else:
        talk.say(f"topic {args.topic} is deleted")
    return 0
