"""Taking events from a queue, and what a program makes of each."""

import argparse
import shlex
import subprocess
import time

import barco
from barco.cli.commands.consume import as_json, for_people, values
from barco.cli.shared import talk

QUIET_S = 2.0
WAIT_S = 30.0
BATCH = 100


def take(queue: "barco.Queue", args: argparse.Namespace) -> int:
    """Print each event and acknowledge it, or have the program say whether it is done."""
    command = None if args.run is None else shlex.split(args.run)
    form = values if args.values else as_json if args.json else for_people
    left, failed = args.count, 0
    last = time.monotonic()
    while left is None or left > 0:
        most = 1 if command else min(BATCH, left or BATCH)
        wait_s = WAIT_S if args.follow else max(0.0, last + QUIET_S - time.monotonic())
        batch = queue.lease(most, wait_s)
        if not batch and not args.follow and time.monotonic() >= last + QUIET_S:
            break
        for each in batch:
            if command:
                failed += not _handled(queue, each, command)
        if batch and not command:
            talk.raw(b"".join(form(each.event) for each in batch))
            queue.ack(*batch)
        if batch:
            last = time.monotonic()
            left = None if left is None else left - len(batch)
    return talk.fail(f"{failed:,} events were given back") if failed else 0


def _handled(queue: "barco.Queue", event: "barco.QueueEvent", command: list[str]) -> bool:
    ended = subprocess.run(command, input=event.value or b"", check=False)
    if ended.returncode == 0:
        queue.ack(event)
        return True
    queue.nack(event, reason=f"exit code {ended.returncode}")
    return False
