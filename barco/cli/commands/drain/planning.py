"""What a drain asks for, and what would be done."""

import argparse
from collections.abc import Mapping
from typing import Any

import barco
from barco.cli.shared import talk
from barco.cli.shared.leaving import size
from barco.cli.shared.routes import current_target, print_rounds, rounds_to, steps_of
from barco.cluster.ring.target import Target, check_shape
from barco.errors import RequestError


def targets(topology: Mapping[str, Any], ordinal: int) -> tuple[Target, Target]:
    """The target, and the one without a broker: the same if it is out of it."""
    current = current_target(topology)
    known = {int(each["ordinal"]) for each in topology["brokers"]}
    if ordinal not in known | current.workers.keys():
        raise RequestError(
            f"there is no broker {ordinal}: those that are known are {sorted(known)}"
        )
    stays = tuple(each for each in current.brokers if each.ordinal != ordinal)
    if len(stays) == len(current.brokers):
        return current, current
    check_shape(current.cut, stays)
    return current, Target(current.version, current.cut, stays)


def print_plan(
    admin: "barco.Admin", topology: Mapping[str, Any], wanted: Target, args: argparse.Namespace
) -> int:
    """The steps, and what would be copied."""
    rounds = rounds_to(topology, wanted)
    told = told_of(admin.drains([args.ordinal]), args.ordinal) or {}
    if args.json:
        talk.print_json({"steps": steps_of(rounds), "drain": told})
        return 0
    print_rounds(rounds, "it holds no range")
    if told:
        count, copies = told["generations"], told["copies"]
        print(f"of {count} generations that have ended, {copies} to be copied:"
              f" {size(int(told['bytesLeft']))}; what is open now comes to that")  # fmt: skip
        for words in told["waits"]:
            print(f"it would wait: {words}")
    return 0


def told_of(drains: Mapping[str, Any], ordinal: int) -> dict[str, Any] | None:
    """What is told of one broker."""
    return next((each for each in drains["brokers"] if each["ordinal"] == ordinal), None)
