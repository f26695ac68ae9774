"""What is told of brokers as they come and go: to the log, and of this one to the others."""

import logging
from collections.abc import Mapping
from typing import Any

from barco.cluster.gossip.facts import BrokerInfo, Fact
from barco.cluster.ring.target import Target
from barco.model.ranges import ProcessTable
from barco.protocol import messages

log = logging.getLogger("barco.cluster")


def log_change(info: BrokerInfo, before: Fact | None) -> None:
    """One line if a broker is in another state than before, or has begun another life."""
    was = None if before is None else BrokerInfo.of(before)
    if was is not None and was.state_name == info.state_name and was.session == info.session:
        return
    extra = {"broker": info.ordinal, "address": info.address, "incarnation": info.incarnation}
    if info.state_name == "alive":
        log.info("broker is alive", extra=extra)
    elif info.state_name == "left":
        log.info("broker has left in an orderly way", extra=extra)
    elif info.state_name == "suspect":
        log.warning("broker does not answer: it is suspected", extra=extra | {"by": info.by})
    else:
        log.error("broker is down", extra=extra)


def told(
    table: ProcessTable, sessions: Mapping[int, int] | None = None
) -> tuple[tuple[int, int, int], ...]:
    """A broker's processes, as gossip tells them. sessions: of those that are ready, by number."""
    ready = sessions or {}
    return tuple((held.number, held.token, ready.get(held.number, 0)) for held in table)


def home_of(info: BrokerInfo) -> tuple[Any, ...]:
    """Where a broker is, and with which processes."""
    return info.host, [(number, token) for number, token, _ in info.processes]


def target_frame(target: Target) -> dict[str, Any]:
    """For a worker."""
    return {"type": messages.TARGET, "target": target.packed()}
