"""What a broker holds that joins a cluster: the cut of the ring, and the ranges to come."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import barco
from barco.cli.shared.known import ASK_SECONDS, KnownCluster, answers, ask_others
from barco.cli.shared.routes import table_of, target_of
from barco.cli.shared.shown import VARIABLE, own_access
from barco.cluster.ring.cut import Cut
from barco.cluster.ring.growing import wanted_ranges
from barco.cluster.ring.target import Target, TargetBroker, check_shape, first_target
from barco.config import Config
from barco.errors import BarcoError, ConfigError, DataDirError, RequestError
from barco.model.ranges import ProcessTable
from barco.types import Ordinal


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """The cluster that is joined, and the processes that this broker begins with."""

    cluster: KnownCluster
    table: ProcessTable | None
    """None: those of the first cut, of which this broker is one."""


def joining(config: Config, *, lost: str = "") -> Joining:
    """Ask the others of the list; a ConfigError or DataDirError says why this broker can not join.

    lost: the disk that this one stands in for, if it has been there before.
    """
    ordinal = config.broker.ordinal
    if len(config.cluster.brokers) <= 1:
        raise ConfigError(
            "--join is for a broker of a cluster: pass a --config whose cluster.brokers lists all"
            " of its brokers, this one among them"
        )
    told = next(ask_others(config), None)
    if told is None:
        why = next((f" ({each.why})" for each in answers(config)), "")
        raise ConfigError(
            f"no other broker of cluster.brokers answers{why}, and only they know how the ring was"
            " cut: start them, or correct the list; where they ask for a token, or have TLS, name"
            f" {VARIABLE} and BARCO_CA. A new cluster is formatted without --join"
        )
    _check_cut(config, told)
    there = told.disks.get(ordinal)
    if there is not None and there != lost:
        raise DataDirError(
            f"broker {ordinal} of this cluster is known with disk {there}: give this one an ordinal"
            " of its own or, if that disk is lost, run barco replace"
        )
    with barco.Admin(own_access(config, told.endpoint), timeout_s=10 * ASK_SECONDS) as admin:
        topology = admin.topology()
    return Joining(cluster=told, table=_table(config, told, topology))


def _check_cut(config: Config, told: KnownCluster) -> None:
    ordinal, cluster = config.broker.ordinal, config.cluster
    if told.ring_size == 1:
        raise ConfigError(
            f"{told.endpoint} is a single broker, which does not grow: what it holds has one copy;"
            " format three brokers, and load its events into them"
        )
    if ordinal < told.ring_size:
        raise ConfigError(
            f"broker {ordinal} is one of the {told.ring_size} that the cluster was formatted with:"
            " it does not join; if its disk is lost, run barco replace"
        )
    usual = type(cluster)().slices_per_range
    if cluster.slices_per_range not in (usual, told.slices_per_range):
        raise ConfigError(
            f"cluster.slices_per_range = {cluster.slices_per_range}: the cluster was formatted with"
            f" {told.slices_per_range}; leave it out"
        )


def _table(config: Config, told: KnownCluster, topology: Mapping[str, Any]) -> ProcessTable:
    """The processes for the ranges that a ring of those that are there, and this one, has."""
    cut, me = Cut(told.ring_size, told.slices_per_range), config.broker.ordinal
    try:
        routes = table_of(topology, cut)
        target = target_of(topology, cut) or first_target(cut, told.workers)
    except BarcoError as error:
        raise ConfigError(f"{told.endpoint}: {error.detail}") from None
    there = target.joined(routes, ()) | {me}
    known = target.workers
    brokers = tuple(
        TargetBroker(ordinal=each, workers=known.get(each, told.workers)) for each in sorted(there)
    )
    try:
        check_shape(cut, brokers)
    except RequestError as error:
        raise ConfigError(f"broker {me} can not join: {error.detail}") from None
    wanted = Target(target.version, cut, brokers).wanted()
    return ProcessTable(wanted_ranges(wanted, Ordinal(me)))
