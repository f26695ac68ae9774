"""What a drain asks for, and what would be done."""

import argparse
from collections.abc import Mapping
from typing import Any

import barco
from barco.cli.shared import talk
from barco.cli.shared.leaving import size
from barco.cli.shared.routes import cut_of, table_of, target_of
from barco.cluster.ring.plan import plan
from barco.cluster.ring.target import Target, check_shape
from barco.errors import ConflictError, ProtocolError, RequestError


def targets(topology: Mapping[str, Any], ordinal: int) -> tuple[Target, Target]:
    """The target, and the one without a broker: the same if it is out of it."""
    cut = cut_of(topology)
    current = target_of(topology, cut)
    if current is None:
        raise ProtocolError("this broker tells no target: it is older than this command")
    known = {int(each["ordinal"]) for each in topology["brokers"]}
    if ordinal not in known | current.workers.keys():
        raise RequestError(
            f"there is no broker {ordinal}: those that are known are {sorted(known)}"
        )
    stays = tuple(each for each in current.brokers if each.ordinal != ordinal)
    if len(stays) == len(current.brokers):
        return current, current
    check_shape(cut, stays)
    return current, Target(current.version, cut, stays)


def asked(topology: Mapping[str, Any], wanted: Target) -> dict[str, Any]:
    """As PUT /v1/topology takes it."""
    brokers = []
    for each in wanted.brokers:
        told: dict[str, Any] = {"ordinal": each.ordinal, "workers": each.workers}
        told |= {"host": each.host} if each.host else {}
        told |= {"diskUuid": each.disk_uuid} if each.disk_uuid else {}
        brokers.append(told)
    return {"cluster": topology["cluster"], "version": wanted.version, "brokers": brokers}


def print_plan(
    admin: "barco.Admin", topology: Mapping[str, Any], wanted: Target, args: argparse.Namespace
) -> int:
    """The steps, and what would be copied."""
    table = table_of(topology, wanted.cut)
    if faults := table.faults():
        raise ConflictError(f"there is no plan while the ring is not whole: {'; '.join(faults)}")
    rounds = plan(table, wanted.wanted())
    told = told_of(admin.drains([args.ordinal]), args.ordinal) or {}
    if args.json:
        steps = [str(step) for steps in rounds for step in steps]
        talk.print_json({"steps": steps, "drain": told})
        return 0
    for number, found in enumerate(rounds, 1):
        for step in found:
            print(f"round {number}  {step}")
    if not rounds:
        print("no steps: it holds no range")
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
