"""Rings as brokers tell them (GET /v1/topology?copies)."""

from typing import Any

from barco.cluster.ring.cut import Cut, Wanted


def topology(size: int = 3, slices: int = 8, workers: int = 1, cut: int = 0) -> dict[str, Any]:
    """A ring at rest, cut for `cut` brokers (or as it is), as a broker of it tells it."""
    whole = Cut(cut or size, slices)
    wanted = Wanted(whole, dict.fromkeys(range(size), workers))
    routes, shards = [], []
    for each in wanted.ranges():
        index, within = divmod(each.first, slices)
        leader, *others = each.members
        synced = {"state": "live", "groupsBehind": 0, "synced": True}
        routes.append(
            {
                "first": each.first,
                "slices": each.slices,
                "token": str(whole.token(each.first)),
                "version": 3,
                "leader": leader,
                "members": list(each.members),
                "handed": False,
                "followers": [{"ordinal": ordinal, **synced} for ordinal in others],
            }
        )
        shards.append(
            {
                "token": str(whole.token(index * slices)),
                "slices": [within, within + each.slices - 1],
                "generations": [{"epoch": 2, "tail": 7}, {"epoch": 3, "tail": -1}],
            }
        )
    return {
        "cluster": "73a3a87385ea7593",
        "version": "46065f57dae1a992",
        "ringSize": whole.brokers,
        "slicesPerRange": slices,
        "brokers": [
            {"ordinal": each, "name": f"b{each}.test", "state": "alive"} for each in range(size)
        ],
        "ranges": [{"token": str(whole.token(i * slices))} for i in range(whole.brokers)],
        "shards": shards,
        "routes": routes,
    }


def one_down() -> dict[str, Any]:
    """Broker 1 is gone: broker 2 leads its slices."""
    told = topology()
    told["brokers"][1]["state"] = "down"
    told["routes"][1] |= {"leader": 2, "version": 4}
    for route in told["routes"]:
        route["followers"] = [
            {
                "ordinal": each,
                "state": "down" if each == 1 else "live",
                "groupsBehind": 5 * (each == 1),
                "synced": each != 1,
            }
            for each in route["members"]
            if each != route["leader"]
        ]
    return told
