"""`barco dead`: list, show, resend."""

import argparse
from typing import Any

import barco
from barco.cli.commands.consume import as_json, for_people
from barco.cli.commands.dead.letters import PREFIX, letters, told
from barco.cli.shared import talk

DESCRIPTION = """\
Dead letters: events that a queue has given out too often without an acknowledgement. They are in a
topic of their own, TOPIC.dead unless the queue says another one, with reason, count and origin as
headers.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Examples:
  barco dead list orders
  barco dead show orders --slice 3 --offset 17
  barco dead resend orders --slice 3 --offset 17
  barco dead resend orders --all

`resend` produces those that came from TOPIC to it, with key, value and headers. They stay where
they are, for as long as the topic keeps them: each call sends them again.

{talk.EXIT_CODES}"""

REST_S = 30.0


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "dead", help="list, show, resend dead letters", description=DESCRIPTION,
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="list|show|resend", required=True
    )
    for name, text in (
        ("list", "where each one came from, and why"),
        ("show", "all of them, or one, as they are"),
        ("resend", "send those that came from a topic, or one of them, to it"),
    ):
        action = actions.add_parser(
            name, help=text, description=text.capitalize() + ".", allow_abbrev=False
        )
        action.add_argument("topic", metavar="TOPIC", type=talk.topic, help="the origin")
        action.add_argument("--dead", metavar="TOPIC", type=talk.topic,
                            help="where they are (default: TOPIC.dead)")  # fmt: skip
        action.add_argument("--slice", metavar="N", type=talk.ordinal, help="of this slice only")
        action.add_argument("--offset", metavar="N", type=talk.ordinal, help="this one only")
        action.add_argument("--json", action="store_true", help="print an object a line")
        talk.add_endpoint(action)
        if name == "resend":
            action.add_argument("--all", action="store_true", help="all of them")


def run(args: argparse.Namespace) -> int:
    """Do one of the actions."""
    if args.action == "resend":
        if not args.all and args.offset is None:
            return talk.fail("name one (--slice, --offset), or say --all", 2)
        return _resend(args)
    if args.action == "show":
        for event in letters(args):
            talk.raw(as_json(event) if args.json else for_people(event))
        return 0
    rows = []
    for event in letters(args):
        facts = told(event)
        if args.json:
            talk.print_json({"slice": event.slice, "offset": event.offset, **facts})
        names = ("group", "topic", "slice", "cursor", "count", "reason")
        rows.append((event.slice, event.offset, *(facts.get(name, "-") for name in names)))
    if not args.json:
        columns = ("slice", "offset", "group", "from", "its slice", "its cursor", "count", "reason")
        talk.print_table(columns, rows)
    return 0


def _resend(args: argparse.Namespace) -> int:
    """To the topic that was named, and nowhere else: who may produce dead letters may write any
    origin into them, and is not the one who resends."""
    sent, others = [], 0
    with barco.Producer(talk.access(args)) as producer:
        for event in letters(args):
            if told(event).get("topic", args.topic) != args.topic:
                others += 1
                continue
            headers = [pair for pair in event.headers if not pair[0].startswith(PREFIX)]
            sent.append(producer.send(args.topic, event.value, event.key, headers=headers or None))
        for delivery in sent:
            delivery.result(REST_S)
    if args.json:
        talk.print_json({"sent": len(sent), "others": others})
    else:
        talk.say(f"{len(sent):,} sent")
    if others:
        talk.say(f"{others:,} came from other topics: name those to resend them")
    return 0 if sent else talk.fail("there is no such dead letter")
