"""Dead letters as they are read."""

import argparse
from collections.abc import Iterator

import barco
from barco.cli.shared import talk
from barco.client import read

PREFIX = "barco-dead-"
"""Of the headers that tell of a death."""


def letters(args: argparse.Namespace) -> Iterator["barco.Event"]:
    """Those that were asked for."""
    topic = args.dead or f"{args.topic}.dead"
    for event in read(topic, talk.access(args)):
        if args.slice is not None and event.slice != args.slice:
            continue
        if args.offset is not None and event.offset != args.offset:
            continue
        yield event


def told(event: "barco.Event") -> dict[str, str]:
    """The headers that tell of its death, without what they all begin with."""
    return {
        name.removeprefix(PREFIX): value.decode("utf-8", "replace")
        for name, value in event.headers
        if name.startswith(PREFIX)
    }
