"""What /status and the metrics say of a replica."""

from collections.abc import Iterable
from typing import Any

from barco.cluster.replica import Replica
from barco.workers.replication.link import Link


def status_of(machine: Replica | None, role: str) -> dict[str, Any]:
    """The role, and for a leader how its followers are. None: it has not started yet."""
    if machine is None:  # Siblings may ask already.
        return {"role": role, "catchingUp": True, "uncleanEnds": 0}
    found: dict[str, Any] = {
        "role": role,
        "catchingUp": machine.catching_up(),
        "uncleanEnds": machine.unclean(),
    }
    for view in machine.status():
        if view["leading"]:
            found["uncommittedGroups"] = view["tail"] - min(view["committed"], view["tail"])
            found["followers"] = [
                {"ordinal": ordinal, "state": each["state"], "groupsBehind": each["lacks"]}
                for ordinal, each in sorted(view["followers"].items())
            ]
    return found


def stats_of(
    status: dict[str, Any], leading: bool, links: Iterable[Link], served: int
) -> dict[str, int]:
    """For the metrics: what `status_of` gave, as numbers, and the links."""
    followers, links = status.get("followers", []), list(links)
    return {
        "replicas_leading": int(leading),
        "replicas_catching_up": int(status["catchingUp"]),
        "followers_live": sum(each["state"] == "live" for each in followers),
        "followers_not_live": sum(each["state"] != "live" for each in followers),
        "replication_groups_behind": max((e["groupsBehind"] for e in followers), default=0),
        "replication_unclean_ends": int(status["uncleanEnds"]),
        "replication_links_up": sum(link.connected for link in links),
        "replication_frames_dropped": sum(link.dropped for link in links),
        "replication_sent_bytes": sum(link.sent_bytes for link in links),
        "replication_groups_served": served,
    }
