"""Dead letters as they are read."""

import argparse
from collections.abc import Iterator

import barco
from barco.cli.shared import talk
from barco.client import read
from barco.errors import NotFoundError
from barco.model.queues import DEAD_PREFIX, GRAVEYARD, MARK, MARKED_OFFSET


def letters(args: argparse.Namespace) -> Iterator["barco.Event"]:
    """Those that were asked for; those that were sent again or dropped only if that was."""
    try:
        yield from _letters(args, args.dead or args.topic + GRAVEYARD)
    except NotFoundError:
        if args.dead:
            raise
        with barco.Admin(talk.access(args)) as admin:
            admin.topic(args.topic)  # It has none; or is misspelt, which this says.


def _letters(args: argparse.Namespace, topic: str) -> Iterator["barco.Event"]:
    done = {} if args.marked else marks(args, topic)
    for event in read(topic, talk.access(args)):
        if args.slice is not None and event.slice != args.slice:
            continue
        if args.offset is not None and event.offset != args.offset:
            continue
        if (event.token, event.slice, str(event.offset)) in done or MARK in told(event):
            continue
        yield event


def marks(args: argparse.Namespace, topic: str) -> dict[tuple[int, int, str], str]:
    """What has become of those that somebody has looked at. Marks are behind the letters: all are
    read before."""
    found = {}
    for event in read(topic, talk.access(args)):
        if mark := (facts := told(event)).get(MARK):
            found[event.token, event.slice, facts.get(MARKED_OFFSET, "")] = mark
    return found


def told(event: "barco.Event") -> dict[str, str]:
    """The headers that tell of its death, without what they all begin with."""
    return {
        name.removeprefix(DEAD_PREFIX): value.decode("utf-8", "replace")
        for name, value in event.headers
        if name.startswith(DEAD_PREFIX)
    }
