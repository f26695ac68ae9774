"""What /status and the metrics say of a replica."""

from collections.abc import Iterable
from typing import Any

from barco.cluster.replica.replica import Replica
from barco.workers.replication.link import Link


def status_of(machine: Replica | None, role: str, *, busy: bool) -> dict[str, Any]:
    """The role, and for a leader how its followers are. None: it has not started yet.

    catchingUp: this copy lacks groups, of the open generation or of history; or the log is behind
    the machine (`busy`). writable: the open generation has a leader who gets groups committed, as
    far as is known here. suspectWhy, accusedBy: of a copy without a vote, why, and which broker
    said so, if it was not found here.
    """
    if machine is None:  # Siblings may ask already.
        return {
            "role": role,
            "catchingUp": True,
            "writable": False,
            "uncleanEnds": 0,
            "suspect": False,
        }
    views = machine.status()
    caught_up = bool(views) and all(view["caught_up"] for view in views)
    found: dict[str, Any] = {
        "role": role,
        "catchingUp": busy or machine.catching_up() or not caught_up,
        "writable": bool(views) and all(view["committing"] for view in views),
        "uncleanEnds": machine.unclean(),
        "suspect": machine.forgetful(),
    }
    if machine.forgetful():
        _blame(found, "its votes are forgotten", machine.accuser())
    for view in views:
        if view["suspect"]:
            _blame(found, view["why"], view["accuser"])
        if view["leading"]:
            found["uncommittedGroups"] = view["tail"] - min(view["committed"], view["tail"])
            found["followers"] = [
                {
                    "ordinal": ordinal,
                    "state": each["state"],
                    "groupsBehind": each["lacks"],
                    "synced": each["synced"],
                }
                for ordinal, each in sorted(view["followers"].items())
            ]
    return found


def _blame(found: dict[str, Any], why: str, accuser: int) -> None:
    found["suspect"], found["suspectWhy"] = True, why
    if accuser >= 0:
        found["accusedBy"] = accuser


def stats_of(
    status: dict[str, Any], leading: bool, links: Iterable[Link], served: int
) -> dict[str, int]:
    """For the metrics: what `status_of` gave, as numbers, and the links."""
    followers, links = status.get("followers", []), list(links)
    return {
        "replicas_leading": int(leading),
        "replicas_suspect": int(status["suspect"]),
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
