"""Whether the broker is ready, and whether it is in sync: what /status and /ready answer.

Ready: every slice of the ring can be written through this broker. In sync: each shard that it holds
is led by its owner, and all of the shard's copies, this broker's own among them, are there and lack
nothing. Then any one broker may be stopped, and nobody waits for more than a change of leaders.
"""

from dataclasses import dataclass, field
from typing import Any

from barco.errors import BarcoError
from barco.workers.http.base.context import Context

ASK_SECONDS = 1.0
DOWN, BEHIND, ELSEWHERE, NOBODY = "is down", "is behind", "does not lead", "nobody leads"
ASIDE = "has set aside what only it held, to be exported with barco recover"
NO_VOTE = "has no vote"
WHAT_HELPS = (
    "it votes again once two others have gone on; if nobody leads, start the broker that is away,"
    " and if its disk is lost, barco replace and then barco recover"
)


@dataclass(slots=True)
class Standing:
    """One look at the broker."""

    shards: list[dict[str, Any]] = field(default_factory=list)
    """Its processes, as /status lists them."""
    waiting: list[str] = field(default_factory=list)
    """Why it is not ready; empty: it is."""
    degraded: list[str] = field(default_factory=list)
    """Why it is not in sync."""

    @property
    def ready(self) -> bool:
        """Every slice can be written through this broker."""
        return not self.waiting

    @property
    def in_sync(self) -> bool:
        """Ready, and no copy is missing or behind."""
        return not self.waiting and not self.degraded


async def look(context: Context, *, thorough: bool = True) -> Standing:
    """As it is now. thorough: leaders elsewhere are asked how their followers are."""
    options, replicas = context.options, context.replicas
    own = await context.siblings.broadcast("standing", context.everyone({}), ASK_SECONDS)
    found = Standing(waiting=[] if context.ready else [context.reason])
    leaderless, unreached = [], set()
    for peer, answer in own.items():
        worker = replicas.process(peer)[1]
        if isinstance(answer, BarcoError):
            if context.ready or worker != options.worker:
                found.waiting.append(f"Worker {worker} is starting.")
            found.shards.append({"worker": worker, "ready": False} | _role(context, peer))
            continue
        led = answer["epoch"] > 0 and answer["replication"].get("writable", True)
        if not led and options.ring_size > 1:
            leaderless.append(str(worker))
        elif not led and (context.ready or worker != options.worker):
            found.waiting.append(f"Worker {worker} is starting.")
        shard = {"worker": worker, "ready": led} | _role(context, peer)
        if answer["epoch"] > 0 and answer["replication"]:
            shard["replication"] = answer["replication"]
        if answer.get("storage"):
            shard["storage"] = answer["storage"]
        found.shards.append(shard)
        unreached |= {(worker, each) for each in answer["unreached"]}
    if leaderless:
        found.waiting.append(
            f"No leader yet for the shards of workers {', '.join(leaderless)}: that takes two "
            "of a shard's three brokers, and all three at a cluster's first start."
        )
    elif unreached and not found.waiting:
        workers = sorted({worker for worker, _ in unreached})
        found.waiting.append(
            f"Workers {', '.join(map(str, workers))} have no connection yet to the leaders of"
            f" shards {', '.join(map(str, sorted({shard for _, shard in unreached})))}."
        )
    if options.ring_size > 1 and thorough:
        found.degraded = await _degraded(context, own)
    return found


def _role(context: Context, peer: int) -> dict[str, Any]:
    """In a cluster: which shard of the ring a process holds, and whether it leads it."""
    replicas = context.replicas
    if context.options.ring_size == 1:
        return {}
    shard = replicas.shard_of(replicas.process(peer))
    seat = replicas.process(peer)[1] // replicas.workers
    leads = context.service.leaders.peer(shard) == peer
    return {"shard": shard, "seat": seat, "leads": leads}


async def _degraded(context: Context, own: dict[int, Any]) -> list[str]:
    """Why the broker is not in sync, in words: first of itself, then what leaders say."""
    replicas, leaders = context.replicas, context.leaders
    held = {replicas.shard_of(replicas.process(peer)): peer for peer in own}
    wanted = {shard: leaders.peer(shard) for shard in held}
    away: dict[int, dict[str, Any]] = {
        peer: {} for peer in wanted.values() if peer is not None and peer not in own
    }
    answers = own | await context.siblings.broadcast("standing", away, ASK_SECONDS)
    found: dict[tuple[int, str], list[int]] = {}
    for shard, peer in sorted(held.items()):
        answer, leader = own[peer], wanted[shard]
        for what in of_itself(answer):
            found.setdefault((context.options.ordinal, what), []).append(shard)
        told = answers.get(leader) if leader is not None else None
        if leader is None or not isinstance(told, dict) or not told["leading"]:
            found.setdefault((-1, NOBODY), []).append(shard)
            continue
        owner = replicas.holders(shard)[0]
        if replicas.process(leader) != owner:
            found.setdefault((owner[0], ELSEWHERE), []).append(shard)
        for each in told["replication"].get("followers", ()):
            if not each["synced"]:
                what = DOWN if each["state"] == "down" else BEHIND
                shards = found.setdefault((each["ordinal"], what), [])
                shards += [shard] if shard not in shards else []
    return [_words(ordinal, what, shards) for (ordinal, what), shards in sorted(found.items())]


def of_itself(answer: dict[str, Any] | BarcoError) -> list[str]:
    """What is wrong with a copy of this broker's own, from what its process says of it."""
    if isinstance(answer, BarcoError):
        return [BEHIND]
    copy, found = answer["replication"], []
    if copy.get("catchingUp"):
        found.append(BEHIND)
    if answer.get("storage", {}).get("setAside"):
        found.append(ASIDE)
    if copy.get("suspect"):
        because = f", for {copy['suspectWhy']}" if "suspectWhy" in copy else ""
        says = f", says broker {copy['accusedBy']}" if "accusedBy" in copy else ""
        found.append(f"{NO_VOTE}{because}{says}: {WHAT_HELPS}")
    return found


def _words(ordinal: int, what: str, shards: list[int]) -> str:
    listed = f"shard{'s' if len(shards) > 1 else ''} {', '.join(map(str, shards))}"
    if what == NOBODY:
        return f"{what} {listed}"
    if what == ELSEWHERE:
        return f"broker {ordinal} {what} its {listed}"
    return f"broker {ordinal} {what} ({listed})"
