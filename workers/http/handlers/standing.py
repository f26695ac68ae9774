"""Whether the broker is ready, and whether it is in sync: what /status and /ready answer.

Ready: every slice of the ring can be written through this broker. In sync: each shard that it holds
is led by its owner, and all of the shard's copies, this broker's own among them, are there and lack
nothing. Then any one broker may be stopped, and nobody waits for more than a change of leaders.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from barco.errors import BarcoError
from barco.model.ranges import process_of
from barco.workers.http.base.context import Context
from barco.workers.operations.service import NO_ROOM

ASK_SECONDS = 1.0
DOWN, BEHIND, ELSEWHERE, NOBODY = "is down", "is behind", "does not lead", "nobody leads"
ASIDE = "has set aside what only it held, to be exported with barco recover"
NO_VOTE = "has no vote"
FULL = "has a full disk: it refuses events (507) until there is room"
WHAT_HELPS = (
    "it votes again once two others have gone on; if nobody leads, start the broker that is away;"
    " if that does not help, two of three copies have no vote: keep the third, barco replace the"
    " disks of both, and barco recover on the third (docs/operations.md, Two copies without a vote)"
)


class Standing(Struct):
    """One look at the broker."""

    shards: list[dict[str, Any]] = field(default_factory=list)
    """Its processes, as /status lists them."""
    waiting: list[str] = field(default_factory=list)
    """Why it is not ready; empty: it is."""
    degraded: list[str] = field(default_factory=list)
    """Why it is not in sync."""
    disk_full: bool = False
    """A process of this broker has no room for events."""

    @property
    def waits(self) -> bool:
        """Whether all its processes are for ranges that are none of the ring yet."""
        return bool(self.shards) and all(each.get("waits") for each in self.shards)

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
    options = context.options
    own = await context.siblings.broadcast("standing", context.everyone({}), ASK_SECONDS)
    found = Standing(waiting=[] if context.ready else [context.reason])
    access = context.service.access
    if not access.is_heard:
        found.waiting.append(access.unheard)
    leaderless: list[str] = []
    unreached: set[tuple[int, int]] = set()
    for peer, answer in own.items():
        worker = process_of(peer)[1]
        if isinstance(answer, BarcoError):
            starts = context.ready or worker != options.worker
            if starts and not _has_left(context, peer):
                found.waiting.append(f"Worker {worker} is starting.")
            found.shards.append({"worker": worker, "ready": False} | _role(context, peer))
            continue
        if _waits(context, peer, answer):
            found.shards.append({"worker": worker, "ready": True, "waits": True})
            continue
        if _has_left(context, peer):
            found.shards.append({"worker": worker, "ready": True})
            continue
        led = answer["epoch"] > 0 and answer["replication"].get("writable", True)
        full = answer.get("storage", {}).get("diskFull", False)
        found.disk_full |= full
        if not led and options.ring_size > 1:
            leaderless.append(str(worker))
        elif not led and (context.ready or worker != options.worker):
            found.waiting.append(f"Worker {worker} {NO_ROOM if full else 'is starting.'}")
        shard = {"worker": worker, "ready": led} | _role(context, peer)
        if answer["epoch"] > 0 and answer["replication"]:
            shard["replication"] = answer["replication"]
        if answer.get("storage"):
            shard["storage"] = answer["storage"]
        found.shards.append(shard)
        unreached |= {(worker, token) for token in answer["unreached"]}
    if leaderless:
        found.waiting.append(
            f"No leader yet for the shards of workers {', '.join(leaderless)}: that takes two "
            "of a shard's three brokers, and all three at a cluster's first start."
        )
    elif unreached and not found.waiting:
        workers = sorted({worker for worker, _ in unreached})
        tokens = {token for _, token in unreached}
        found.waiting.append(
            f"Workers {', '.join(map(str, workers))} have no connection yet to the leaders of"
            f" {_listed(context, tokens, 'shards')}."
        )
    if options.ring_size > 1 and thorough:
        found.degraded = await _degraded(context, own)
    elif found.disk_full and thorough:
        found.degraded.append(f"broker {options.ordinal} {FULL}")
    if access.fault and access.is_heard:
        found.degraded.append(access.fault)
    return found


def _waits(context: Context, peer: int, answer: Mapping[str, Any]) -> bool:
    """Whether a process was made for a range of which its broker is no member yet, and waits."""
    token = context.ranges.held_by(process_of(peer))
    held = None if token is None else context.ranges.own.holding(token)
    return answer["epoch"] == 0 and held is not None and not held.genesis


def _has_left(context: Context, peer: int) -> bool:
    """Whether a process has no part in the ring: its broker is no member of its range any more, and
    has only history, or not yet."""
    token = context.ranges.held_by(process_of(peer))
    if token is None or not context.ranges.known(token):
        return token is not None
    return context.ranges.me not in context.ranges.members(token)


async def leaders_say(context: Context) -> dict[int, Any]:
    """What the processes that are known to lead say of themselves and of their followers."""
    known = (context.leaders.peer(held.token) for held in context.ranges.all)
    peers = {peer for peer in known if peer is not None}
    return await context.siblings.broadcast("standing", {p: {} for p in peers}, ASK_SECONDS)


def _role(context: Context, peer: int) -> dict[str, Any]:
    """In a cluster: which shard of the ring a process holds, and whether it leads it."""
    if context.options.ring_size == 1:
        return {}
    ranges = context.ranges
    if (token := ranges.held_by(process_of(peer))) is None:
        return {}  # It has just ended.
    role: dict[str, Any] = {"leads": context.service.leaders.peer(token) == peer}
    if (shard := ranges.shard_number(token)) is not None:
        role["shard"] = shard
    members = ranges.members(token)
    if ranges.known(token) and ranges.me in members:
        role["seat"] = members.index(ranges.me)
    return role


async def _degraded(context: Context, own: dict[int, Any]) -> list[str]:
    """Why the broker is not in sync, in words: first of itself, then what leaders say."""
    ranges, leaders = context.ranges, context.leaders
    tokens = {
        peer: ranges.held_by(process_of(peer))
        for peer, answer in own.items()
        if isinstance(answer, BarcoError) or not _waits(context, peer, answer)
    }
    held = {token: peer for peer, token in tokens.items() if token is not None}
    held = {
        token: held[token]
        for token in sorted(held)
        if ranges.known(token) and ranges.me in ranges.members(token)
    }
    wanted = {token: leaders.peer(token) for token in held}
    away: dict[int, dict[str, Any]] = {
        peer: {} for peer in wanted.values() if peer is not None and peer not in own
    }
    answers = own | await context.siblings.broadcast("standing", away, ASK_SECONDS)
    found: dict[tuple[int, str], list[int]] = {}
    for token, peer in held.items():
        answer, leader = own[peer], wanted[token]
        for what in of_itself(answer):
            found.setdefault((context.options.ordinal, what), []).append(token)
        told = answers.get(leader) if leader is not None else None
        if leader is None or not isinstance(told, dict) or not told["leading"]:
            found.setdefault((-1, NOBODY), []).append(token)
            continue
        owner = ranges.members(token)[0]
        if process_of(leader)[0] != owner:
            found.setdefault((owner, ELSEWHERE), []).append(token)
        for each in told["replication"].get("followers", ()):
            if not each["synced"]:
                what = DOWN if each["state"] == "down" else BEHIND
                same = found.setdefault((each["ordinal"], what), [])
                same += [token] if token not in same else []
    return [
        _words(ordinal, what, _listed(context, each))
        for (ordinal, what), each in sorted(found.items())
    ]


def of_itself(answer: dict[str, Any] | BarcoError) -> list[str]:
    """What is wrong with a copy of this broker's own, from what its process says of it."""
    if isinstance(answer, BarcoError):
        return [BEHIND]
    copy, found = answer["replication"], []
    if copy.get("catchingUp"):
        found.append(BEHIND)
    if answer.get("storage", {}).get("setAside"):
        found.append(ASIDE)
    if answer.get("storage", {}).get("diskFull"):
        found.append(FULL)
    if copy.get("suspect"):
        because = f", for {copy['suspectWhy']}" if "suspectWhy" in copy else ""
        says = f", says broker {copy['accusedBy']}" if "accusedBy" in copy else ""
        found.append(f"{NO_VOTE}{because}{says}: {WHAT_HELPS}")
    return found


def _listed(context: Context, tokens: Iterable[int], shards: str = "") -> str:
    """Ranges in words: those of the first cut by their numbers there, others by their slices."""
    ranges, numbers, others = context.ranges, [], []
    for token in sorted(tokens):
        shard, slices = ranges.shard_number(token), ranges.numbers_of(token)
        if shard is not None:
            numbers.append(shard)
        elif slices:
            others.append(f"slices {slices[0]} to {slices[-1]}")
    if numbers:
        word = shards or ("shards" if len(numbers) > 1 else "shard")
        others.insert(0, f"{word} {', '.join(map(str, numbers))}")
    return ", ".join(others)


def _words(ordinal: int, what: str, listed: str) -> str:
    if what == NOBODY:
        return f"{what} {listed}"
    if what == ELSEWHERE:
        return f"broker {ordinal} {what} its {listed}"
    return f"broker {ordinal} {what} ({listed})"
