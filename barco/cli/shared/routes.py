"""Routes and target as GET /v1/topology tells them, and the steps from the one to the other."""

from collections.abc import Mapping, Sequence
from typing import Any

from barco.cluster.ring.cut import Cut
from barco.cluster.ring.plan import RingStep, plan
from barco.cluster.ring.routes import RangeRoute, RouteTable
from barco.cluster.ring.target import Target, TargetBroker, check_shape
from barco.errors import ConflictError, ProtocolError
from barco.limits import SLICES_PER_RANGE_MAX
from barco.model.placement import RING_SIZE_MAX


def cut_of(topology: Mapping[str, Any]) -> Cut:
    """How the ring was cut when the cluster was formatted; ProtocolError if it does not say."""
    try:
        return sound_cut(topology["ringSize"], topology["slicesPerRange"])
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"GET /v1/topology: {error!r}") from error


def sound_cut(brokers: Any, slices_per_range: Any) -> Cut:
    """A cut as it came; ValueError if it is larger than any: its tables would take all memory."""
    cut = Cut(int(brokers), int(slices_per_range))
    if not (
        1 <= cut.brokers <= RING_SIZE_MAX and 1 <= cut.slices_per_range <= SLICES_PER_RANGE_MAX
    ):
        raise ValueError(f"a ring cut into {cut.brokers} times {cut.slices_per_range} slices")
    return cut


def table_of(topology: Mapping[str, Any], cut: Cut) -> RouteTable:
    """The routes that a broker tells; ProtocolError if they are none."""
    table = RouteTable(cut)
    try:
        for each in topology["routes"]:
            members = tuple(map(int, each["members"]))
            first, slices = int(each["first"]), int(each["slices"])
            if not (0 <= first < first + slices <= cut.slices and members):
                raise ValueError(f"slices {first} to {first + slices - 1}")
            leader = members[0] if each["leader"] is None else int(each["leader"])
            epoch, handed = int(each["version"]), bool(each["handed"])
            table.merge(RangeRoute(first, slices, cut.token(first), epoch, leader, members, handed))
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"GET /v1/topology: {error!r}") from error
    return table


def target_of(topology: Mapping[str, Any], cut: Cut) -> Target | None:
    """The target that a broker tells; None of one that knows none. ProtocolError if it is none."""
    told = topology.get("target")
    if told is None:
        return None
    try:
        brokers = tuple(
            TargetBroker(
                ordinal=int(each["ordinal"]),
                workers=int(each["workers"]),
                host=str(each.get("host", "")),
                disk_uuid=str(each.get("diskUuid", "")),
            )
            for each in told["brokers"]
        )
        target = Target(int(told["version"]), cut, brokers)
        check_shape(cut, brokers)
    except (KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"GET /v1/topology: {error!r}") from error
    return target


def routes_of(topology: Mapping[str, Any], cut: Cut) -> RouteTable:
    """The routes; the only broker of a ring of one counts as broker 0, whatever it is called."""
    told = table_of(topology, cut)
    if cut.brokers > 1:
        return told
    table = RouteTable(cut)
    for route in told:
        table.merge(route._replace(leader=0, members=(0,)))
    return table


def current_target(topology: Mapping[str, Any]) -> Target:
    """The target; ProtocolError if a broker tells none."""
    target = target_of(topology, cut_of(topology))
    if target is None:
        raise ProtocolError("this broker tells no target: it is older than this command")
    return target


# --- Plans ----------------------------------------------------------------------------------------


def rounds_to(topology: Mapping[str, Any], wanted: Target) -> list[list[RingStep]]:
    """The steps to a target, in rounds; ConflictError while the routes are not whole."""
    table = routes_of(topology, wanted.cut)
    if faults := table.faults():
        raise ConflictError(f"there is no plan while the ring is not whole: {'; '.join(faults)}")
    return plan(table, wanted.wanted())


def steps_of(rounds: Sequence[Sequence[RingStep]]) -> list[dict[str, Any]]:
    """For JSON; rounds count from 1."""
    return [
        {"round": number, "kind": step.kind.value, "by": step.by, "words": str(step)}
        for number, steps in enumerate(rounds, 1)
        for step in steps
    ]


def print_rounds(rounds: Sequence[Sequence[RingStep]], none: str) -> None:
    """A line for each step; none: why there is none."""
    for number, steps in enumerate(rounds, 1):
        for step in steps:
            print(f"round {number}  {step}")
    if not rounds:
        print(f"no steps: {none}")
