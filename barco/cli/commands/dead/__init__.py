"""`barco dead`: list, show, resend, drop."""

import argparse
from typing import Any

import barco
from barco.cli.commands.consume import as_json, for_people
from barco.cli.commands.dead.letters import letters, told
from barco.cli.shared import talk
from barco.model.queues import LETTERS_MAX

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
  barco dead drop orders --slice 3 --offset 17

`resend` produces those that came from TOPIC to it, with key, value and headers; `drop` gives them
up. What was sent or dropped stays where it is, for as long as the topic keeps it, with a mark
behind it, and is passed over from then on; --marked takes it as well.

{talk.EXIT_CODES}"""


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "dead", help="list, show, resend, drop dead letters", description=DESCRIPTION,
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="list|show|resend|drop", required=True
    )
    for name, text in (
        ("list", "where each one came from, and why"),
        ("show", "all of them, or one, as they are"),
        ("resend", "send those that came from a topic, or one of them, to it"),
        ("drop", "give those that came from a topic, or one of them, up"),
    ):
        action = actions.add_parser(
            name, help=text, description=text.capitalize() + ".", allow_abbrev=False
        )
        action.add_argument("topic", metavar="TOPIC", type=talk.topic, help="the origin")
        action.add_argument("--dead", metavar="TOPIC", type=talk.topic,
                            help="where they are (default: TOPIC.dead)")  # fmt: skip
        action.add_argument("--slice", metavar="N", type=talk.ordinal, help="of this slice only")
        action.add_argument("--offset", metavar="N", type=talk.ordinal, help="this one only")
        action.add_argument("--marked", action="store_true",
                            help="also those that were sent again or dropped before")  # fmt: skip
        action.add_argument("--json", action="store_true", help="print an object a line")
        talk.add_endpoint(action)
        if name in ("resend", "drop"):
            action.add_argument("--all", action="store_true", help="all of them")


def run(args: argparse.Namespace) -> int:
    """Do one of the actions."""
    if args.action in ("resend", "drop"):
        if not args.all and args.offset is None:
            return talk.fail("name one (--slice, --offset), or say --all", 2)
        return _done_with(args)
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


def _done_with(args: argparse.Namespace) -> int:
    """Sent to the topic that was named and nowhere else, or dropped where that is what they say:
    who may produce dead letters may write any origin into them, and is not the one who resends."""
    found, others = [], 0
    for event in letters(args):
        if told(event).get("topic", args.topic) == args.topic:
            found.append(event)
        else:
            others += 1
    done = marked = 0
    with barco.Admin(talk.access(args)) as admin:
        act = admin.resend_dead if args.action == "resend" else admin.drop_dead
        for at in range(0, len(found), LETTERS_MAX):
            answer = act(args.topic, found[at : at + LETTERS_MAX])
            done += answer["done"]
            marked += answer["marked"]
            if answer["why"]:
                return talk.fail(f"{done:,} of {len(found):,} are done: {answer['why']}")
    word = "sent" if args.action == "resend" else "dropped"
    if args.json:
        talk.print_json({word: done, "marked": marked, "others": others})
    else:
        talk.say(f"{done:,} {word}")
        if marked < done:
            talk.say(f"{done - marked:,} have no mark, since you may not produce where they are")
    if others:
        talk.say(f"{others:,} came from other topics: name those to {args.action} them")
    return 0 if done else talk.fail("there is no such dead letter")
