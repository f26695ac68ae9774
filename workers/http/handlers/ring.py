"""The ring as documents: its brokers, its ranges with their slices, its shards, its routes."""

from collections.abc import Mapping
from typing import Any

from barco.errors import BarcoError
from barco.model.ranges import process_of
from barco.workers.http.base.context import Context
from barco.workers.peers.routes import route_table


def described_brokers(context: Context) -> list[dict[str, Any]]:
    """Every broker of the first cut and who came later, with what was heard of it."""
    options = context.options
    if options.ring_size == 1:
        broker = {
            "ordinal": options.ordinal,
            "name": context.service.neighbours.host(options.ordinal),
            "ports": options.ports,
        }
        token = str(int(options.placement.token(0)))
        return [{**broker, "token": token, "diskUuid": options.disk_uuid}]
    found = []
    # The lineage knows the disks of brokers that nobody has heard of since the last start.
    disks = context.service.disks()
    for ordinal in context.service.neighbours.ordinals:
        heard = context.service.neighbours.brokers.get(ordinal)
        endpoints = [
            context.service.neighbours.endpoint(process)
            for process in context.ranges.processes_of(ordinal)
        ]
        broker = {
            "ordinal": ordinal,
            "name": context.service.neighbours.host(ordinal),
            "token": str(context.service.neighbours.position(ordinal)),
            "state": heard.state if heard else "unknown",
            "since": context.service.neighbours.changed_us.get(ordinal),
            "ports": dict(heard.ports) if heard else options.ports,
            "diskUuid": disks.get(ordinal) or (heard.disk_uuid if heard else None),
            "version": heard.version if heard else None,
            "shardEndpoints": endpoints,
        }
        found.append(broker)
    return found


def described_ranges(context: Context) -> list[dict[str, Any]]:
    """Every token range with its slices, and the process that each is written to and read from.

    Where nobody is known to lead, that is the owner's process: it will know first.
    """
    options, leaders = context.options, context.service.leaders
    placement = options.placement
    ranges = []
    for index in range(options.ring_size):
        slices = []
        for slice_ in range(options.slices_per_range):
            token = context.range_of(index * options.slices_per_range + slice_)
            process = leaders.leader(token) or context.ranges.owner(token)
            described = {
                "index": slice_,
                "worker": process[1],
                "endpoint": context.service.neighbours.endpoint(process),
            }
            if options.ring_size > 1:
                described["ordinal"] = process[0]
            slices.append(described)
        owners = [options.ordinal]
        if options.ring_size > 1:
            token = context.range_of(index * options.slices_per_range)
            owners = list(context.ranges.members(token))
        ranges.append(
            {
                "token": str(int(placement.token(index))),
                "leader": owners[0],
                "replicas": owners,
                "slices": slices,
            }
        )
    return ranges


def described_shards(context: Context, answers: Mapping[int, Any]) -> list[dict[str, Any]]:
    """Every range of the ring: who holds it and who leads its newest known generation. One that was
    there when the cluster was formatted has a number, as `shard`.

    answers: what this broker's own processes said; they know the generations that they hold.
    """
    options, ranges, leaders = context.options, context.ranges, context.service.leaders
    mine = {ranges.held_by(process_of(peer)): answer for peer, answer in answers.items()}
    shards = []
    for held in ranges.all:
        answer = mine.get(held.token)
        up = isinstance(answer, Mapping)
        index, first = divmod(held.first, options.slices_per_range)
        process, owner = leaders.leader(held.token), ranges.owner(held.token)
        described: dict[str, Any] = {
            "worker": owner[1],
            "ordinal": options.ordinal,
            "endpoint": context.service.neighbours.endpoint(process or owner),
            "token": str(int(options.placement.token(index))),
            "slices": [first, first + held.slices - 1],
            "up": up,
            "version": answer["epoch"] if isinstance(answer, Mapping) else None,
            "generations": answer["lineage"] if isinstance(answer, Mapping) else [],
        }
        if options.ring_size > 1:
            described |= {
                "ordinal": None if process is None else process[0],
                "worker": None if process is None else process[1],
                "members": [list(holder) for holder in ranges.holders(held.token)],
                "up": process is not None,
                "version": leaders.epoch(held.token) or None,
            }
            if (shard := ranges.shard_number(held.token)) is not None:
                described["shard"] = shard
        shards.append(described)
    return shards


def described_routes(
    context: Context, answers: Mapping[int, Any], copies: Mapping[int, Any] | None = None
) -> dict[str, Any]:
    """The version of the routes, and each of them: `token` and `version` name its generation.

    answers: what this broker's own processes said. copies: what the processes said that are known
    to lead; with it each route says how its followers are, as its leader sees them.
    """
    options, ranges, leaders = context.options, context.ranges, context.service.leaders
    epochs = {
        ranges.held_by(process_of(peer)): int(answer["epoch"])
        for peer, answer in answers.items()
        if not isinstance(answer, BarcoError)
    }
    table = route_table(options, ranges, epochs)
    routes = []
    for route in table:
        led = leaders.leader(route.token) is not None
        described: dict[str, Any] = {
            "first": route.first,
            "slices": route.slices,
            "token": str(int(route.token)),
            "version": route.epoch,
            "leader": route.leader if led else None,
            "members": list(route.members),
            "handed": route.handed,
        }
        if copies is not None:
            peer = leaders.peer(route.token)
            told = copies.get(peer) if peer is not None else None
            described["followers"] = None
            if isinstance(told, Mapping) and told["leading"]:
                described["followers"] = told["replication"].get("followers", [])
        routes.append(described)
    return {"version": table.version, "routes": routes}


def described_target(context: Context, packed: bytes | None = None) -> dict[str, Any]:
    """The brokers of which the cluster shall consist. packed: as who keeps it has answered."""
    return context.service.target.described(packed)
