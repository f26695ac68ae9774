"""The actions of `barco schemas`."""

import argparse
import sys
from pathlib import Path
from typing import Any

from barco.cli.shared import talk
from barco.client.schemas import Schemas, schema_of


def every(schemas: Schemas, args: argparse.Namespace) -> int:
    """Of all subjects the newest version."""
    found = schemas.subjects(args.prefix)
    if args.json:
        talk.print_json(found)
    else:
        rows = ((s["subject"], s["version"], s["id"], s.get("schemaType", "AVRO")) for s in found)
        talk.print_table(("subject", "version", "id", "type"), rows)
    return 0


def show(schemas: Schemas, args: argparse.Namespace) -> int:
    """One version."""
    found = schemas.version(args.subject, args.version)
    if args.json:
        talk.print_json(found)
    else:
        kind = found.get("schemaType", "AVRO")
        talk.say(f"{args.subject} version {found['version']}, id {found['id']}, {kind}")
        print(found["schema"])
    return 0


def _given(args: argparse.Namespace) -> dict[str, Any]:
    text = sys.stdin.read() if args.file == "-" else Path(args.file).read_text("utf-8")
    return schema_of(text, args.type, args.reference)


def add(schemas: Schemas, args: argparse.Namespace) -> int:
    """A new version."""
    found = schemas.add(args.subject, _given(args))
    if args.json:
        talk.print_json(found)
    else:
        talk.say(f"{args.subject} version {found['version']}, id {found['id']}")
    return 0


def check(schemas: Schemas, args: argparse.Namespace) -> int:
    """Whether it may follow; exit code 1 if not."""
    messages = schemas.check(args.subject, _given(args))
    if args.json:
        talk.print_json({"compatible": not messages, "messages": messages})
    elif messages:
        for each in messages:
            talk.say(each)
    else:
        talk.say("it may follow")
    return 1 if messages else 0
