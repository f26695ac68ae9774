"""The cluster as one broker sees it: its brokers, and who leads which range of the ring.

Made of facts; handed to the workers as what changed since they were last told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barco.cluster.gossip.facts import BROKER, LEADER, BrokerInfo, Fact, LeaderInfo
from barco.protocol import messages

ENTRIES_MAX = 256
"""In one frame to a worker: a broker with all processes that it may have takes 18 KiB."""


class Topology:
    """Brokers by ordinal, leaders by the token of their range, each with the version in which it
    last changed."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerInfo] = {}
        self.leaders: dict[int, LeaderInfo] = {}
        self._version = 0
        self._changed: dict[tuple[str, int], int] = {}

    @property
    def version(self) -> int:
        """Grows with every change."""
        return self._version

    def apply(self, fact: Fact) -> None:
        """Take a fact about a broker or a leader, newer than what was known."""
        if fact.kind == BROKER:
            self.brokers[int(fact.key)] = BrokerInfo.of(fact)
        elif fact.kind == LEADER:
            info, before = LeaderInfo.of(fact), self.leaders.get(int(fact.key))
            route, epoch = info.route, before.route.epoch if before else 0
            assert route.epoch >= epoch, "epochs do not go back"
            self.leaders[route.token] = info
        else:
            return
        self._version += 1
        name = (fact.kind, int(fact.key))
        self._changed.pop(name, None)  # To the end: the changes stay in order.
        self._changed[name] = self._version

    def frames(self, since: int) -> list[dict[str, Any]]:
        """What changed after a version, as messages to a worker; everything for 0."""
        brokers: list[dict[str, Any]] = []
        routes: list[bytes] = []
        for (kind, key), version in reversed(self._changed.items()):
            if version <= since:
                break
            if kind == BROKER:
                brokers.append(broker_to_dict(self.brokers[key]))
            else:
                routes.append(self.leaders[key].route.packed())
        frames = []
        for start in range(0, max(len(brokers), len(routes), 1), ENTRIES_MAX):
            frames.append(
                {
                    "type": messages.CLUSTER,
                    "version": self._version,
                    "brokers": brokers[start : start + ENTRIES_MAX],
                    "routes": routes[start : start + ENTRIES_MAX],
                    "hints": [],
                }
            )
        return frames

    def ranks(self) -> bool:
        """Whether all brokers that are known can read of consumers' ranks, those that are down
        too: they come back as they were."""
        return all(info.ranked for info in self.brokers.values())

    def counts(self) -> Mapping[str, int]:
        """Brokers by state."""
        counts = dict.fromkeys(("alive", "suspect", "down", "left"), 0)
        for info in self.brokers.values():
            counts[info.state_name] += 1
        return counts


def broker_to_dict(info: BrokerInfo) -> dict[str, Any]:
    """For a frame."""
    return {
        "ordinal": info.ordinal,
        "disk_uuid": info.disk_uuid,
        "session": info.session,
        "address": info.address,
        "host": info.host,
        "ports": dict(info.ports),
        "workers": info.workers,
        "processes": [list(each) for each in info.processes],
        "version": info.version,
        "incarnation": info.incarnation,
        "state": info.state_name,
    }
