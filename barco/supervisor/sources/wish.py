"""Brokers that are to be in the cluster as well: a wish, made to whoever keeps the target.

A wish only ever adds. What is there already is left as it is, so whoever wishes for less, or for
the same again, changes nothing, and all brokers of a cluster may do it at once.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from barco.cluster.ring.target import Target, TargetBroker, check_shape, unpack_target
from barco.errors import ConfigError, ConflictError
from barco.model.options import cluster_mark

TRIES = 8
"""Of a compare and set: whoever was first is heard of a moment later, and may have said it all."""

PAUSE_SECONDS = 1.0

ASK_SECONDS = 30.0
"""Longer than a change of leaders takes."""


class HeardCluster(Struct, frozen=True, kw_only=True):
    """What this broker has heard of the cluster, now."""

    target: Target
    hosts: Mapping[int, str]
    """By ordinal, where those are who have joined."""


def wished(heard: HeardCluster, listed: Sequence[str]) -> Target | None:
    """The target with brokers 0 to len(listed) in it; None if it has them all.

    listed: their addresses by ordinal; an empty one says nothing. ConfigError if somebody else has
    said that one of them is at another address, RequestError if no ring has so many.
    """
    listed = [each and str(ipaddress.ip_address(each)) for each in listed]
    known, first = heard.target.workers, heard.target.cut.brokers
    for each in heard.target.brokers:
        said = heard.hosts.get(each.ordinal) or each.host
        mine = listed[each.ordinal] if first <= each.ordinal < len(listed) else ""
        if said and mine and said != mine:
            raise ConfigError(
                f"cluster.brokers has broker {each.ordinal} at {mine}, and it"
                f" {'is' if each.ordinal in heard.hosts else 'was listed by another broker'} at"
                f" {said}: correct the file that is wrong"
            )
    missing = [each for each in range(len(listed)) if each not in known]
    if not missing:
        return None
    usual = max(known.values())
    new = [TargetBroker(ordinal=each, workers=usual, host=listed[each]) for each in missing]
    brokers = sorted((*heard.target.brokers, *new), key=lambda broker: broker.ordinal)
    check_shape(heard.target.cut, brokers)
    return replace(heard.target, brokers=tuple(brokers))


class Wisher:
    """Makes wishes for one broker."""

    def __init__(
        self,
        ask: Callable[[str, Mapping[str, Any], float], Awaitable[Any]],
        cluster_uuid: str,
        heard: Callable[[], HeardCluster],
    ) -> None:
        """ask: an operation, for whoever leads slice 0 (`asking.Asker.ask`)."""
        self._ask = ask
        self._mark = cluster_mark(cluster_uuid)
        self._heard = heard

    async def wish(self, listed: Sequence[str]) -> str:
        """The brokers of this list shall be in the cluster; what came of it, in words.

        listed: addresses by ordinal, empty where they are not known. A BarcoError if it is refused,
        or if nobody who could set the target has answered; it may be set then, or not.
        """
        assert listed, "somebody is there"
        tries = 0
        while (wanted := wished(self._heard(), listed)) is not None:
            try:
                changed = await self._change(wanted)
            except ConflictError:
                if (tries := tries + 1) == TRIES:
                    raise
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                return f"the target is version {changed.version}, of {len(changed.brokers)} brokers"
        target = self._heard().target
        count = len(target.brokers)
        return f"the target, version {target.version}, of {count} brokers, has them already"

    async def _change(self, target: Target) -> Target:
        packed = await self._ask("target_change", target.change_args(self._mark), ASK_SECONDS)
        return unpack_target(target.cut, packed)
