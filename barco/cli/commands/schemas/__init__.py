"""`barco schemas`: list, show, add, check."""

import argparse
from typing import Any

from barco.cli.commands.schemas import doing
from barco.cli.shared import talk
from barco.client.schemas import LATEST, Schemas

DESCRIPTION = """\
Schemas of events, kept by the brokers. A subject has versions of one schema; TOPIC-value is that of
a topic's values, TOPIC-key of its keys. Clients of Avro's users find the registry at
http://HOST:PORT/registry.
"""

EPILOG = f"""\
{talk.ENDPOINT_HELP}
Examples:
  barco schemas list
  barco schemas add trips-value trip.avsc
  barco schemas add trips-value trip.json --type JSON
  barco schemas check trips-value trip2.avsc            would it be taken? exit code 1: no
  barco schemas show trips-value
  barco schemas show trips-value --version 1

{talk.EXIT_CODES}"""

TYPES = ("AVRO", "JSON", "PROTOBUF")


def add_parser(subparsers: Any) -> None:
    """Describe the command."""
    parser = subparsers.add_parser(
        "schemas", help="list, show, add, check schemas", description=DESCRIPTION,
        epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    actions = parser.add_subparsers(
        title="actions", dest="action", metavar="list|show|add|check", required=True
    )
    listed = _action(actions, "list", "every subject, with its newest version")
    listed.add_argument("--prefix", metavar="TEXT", default="", help="only subjects that begin so")
    show = _action(actions, "show", "the schema of a version", named=True)
    show.add_argument("--version", metavar="N", default=LATEST, help="default: the newest")
    for name, text in (
        ("add", "register a schema: a new version, if it is not there"),
        ("check", "say whether a schema may follow what the subject has"),
    ):
        action = _action(actions, name, text, named=True)
        action.add_argument("file", metavar="FILE", help="its text; - is standard input")
        action.add_argument("--type", choices=TYPES, default="AVRO", help="default: %(default)s")
        action.add_argument(
            "--reference",
            metavar="NAME=SUBJECT:VERSION",
            action="append",
            default=[],
            type=_reference,
            help="what NAME in it means; may be repeated",
        )


def _action(actions: Any, name: str, text: str, *, named: bool = False) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=text, description=text.capitalize() + ".", allow_abbrev=False
    )
    if named:
        parser.add_argument("subject", metavar="SUBJECT")
    talk.add_endpoint(parser)
    parser.add_argument("--json", action="store_true", help="print the broker's answer as JSON")
    return parser


def _reference(text: str) -> tuple[str, str, int]:
    name, _, meant = text.partition("=")
    subject, _, version = meant.rpartition(":")
    if not name or not subject or not version.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=SUBJECT:VERSION")
    return name, subject, int(version)


def run(args: argparse.Namespace) -> int:
    """Do one of the actions."""
    actions = {"list": doing.every, "show": doing.show, "add": doing.add, "check": doing.check}
    with Schemas(talk.access(args)) as schemas:
        return actions[args.action](schemas, args)
