"""What a worker knows of the groups: views that hold only what changed add up to the whole."""

import asyncio
import random
from typing import Any

from barco.cluster.groups.groups import START_LATEST, Groups
from barco.model.placement import Placement
from barco.workers.groups.views import GroupView

RING = Placement(1, 8)
SLICES = [(int(RING.token(0)), index) for index in range(8)]


class NoSupervisor:
    """Nobody asks it."""

    async def request(self, op: str, args: Any) -> dict[str, Any]:
        raise AssertionError(op)


def membership() -> GroupView:
    return GroupView(NoSupervisor(), RING)


def test_differences_add_up_to_the_whole() -> None:
    chance = random.Random(5)
    groups, kept = Groups(SLICES), membership()
    kept.apply(groups.view())
    ended: list[tuple[str, int]] = []
    kept.on_change = lambda gone, moved: ended.extend(gone)
    for _ in range(300):
        for _ in range(chance.randrange(4)):  # Several changes in one view, or none.
            name, group = f"c{chance.randrange(20)}", f"g{chance.randrange(3)}"
            if chance.random() < 0.5 or groups.member(name) is not None:
                groups.goodbye(name)
            else:
                topics = chance.sample(["t", "u", "v"], chance.randrange(1, 4))
                groups.register(name, group=group, topics=topics, start=START_LATEST, now=0)
        before = {member.key for group in kept.groups().values() for member in group.values()}
        ended.clear()
        kept.apply(groups.view(kept.version))
        whole = membership()
        whole.apply(groups.view())
        assert {name: dict(members) for name, members in kept.groups().items()} == whole.groups()
        after = {member.key for group in kept.groups().values() for member in group.values()}
        assert set(ended) == before - after
        assert kept.member_count == len(after)


def test_a_consumer_that_changes_its_group_is_in_the_new_one() -> None:
    groups, kept = Groups(SLICES), membership()
    for name, group in (("a", "g"), ("b", "g"), ("c", "h")):
        groups.register(name, group=group, topics=["t"], start=START_LATEST, now=0)
    kept.apply(groups.view())
    groups.goodbye("b")
    groups.register("b", group="h", topics=["t"], start=START_LATEST, now=0)
    kept.apply(groups.view(kept.version))
    assert set(kept.groups()["g"]) == {"a"} and set(kept.groups()["h"]) == {"b", "c"}
    found = kept.get("b")
    assert found is not None and found.group == "h"


def test_who_is_not_concerned_stays_the_same_member() -> None:
    """Those who wait in a long poll look whether they are: see `Consumption.wait`."""
    groups, kept = Groups(SLICES), membership()
    for number in range(10, 30):
        groups.register(f"c{number}", group="g", topics=["t"], start=START_LATEST, now=0)
    kept.apply(groups.view())
    first, last = kept.get("c10"), kept.get("c29")
    groups.register("c10a", group="g", topics=["t"], start=START_LATEST, now=0)
    kept.apply(groups.view(kept.version))
    assert kept.get("c10") is first and kept.get("c29") is last
    assert kept.get("c11") is not None and kept.get("c11") != first


class Listening:
    """A supervisor that is told who was heard of."""

    def __init__(self) -> None:
        self.heard: list[tuple[float, str]] = []

    async def request(self, op: str, args: Any) -> dict[str, Any]:
        assert op == "touch"
        now = asyncio.get_running_loop().time()
        self.heard += [(now, name) for name in args["consumerIds"]]
        return {}


def test_who_waits_is_heard_of_often_enough_for_its_session() -> None:
    async def check() -> None:
        supervisor, groups = Listening(), Groups(SLICES)
        kept = GroupView(supervisor, RING)
        for name, session_ms in (("quick", 5_000), ("slow", 600_000)):
            groups.register(
                name, group="g", topics=["t"], start=START_LATEST, now=0, session_ms=session_ms
            )
        kept.apply(groups.view())
        with kept.waiting("quick"), kept.waiting("quick"), kept.waiting("slow"):
            await asyncio.sleep(2.0)
        told = [name for _, name in supervisor.heard]
        assert told.count("quick") >= 2 and told.count("slow") == 1
        await asyncio.sleep(1.5)  # What was heard at the end is told.
        told.clear()
        told += [name for _, name in supervisor.heard]
        await asyncio.sleep(1.5)
        assert len(supervisor.heard) == len(told), "nobody waits any more"

    asyncio.run(check())


def test_the_last_sign_is_told_and_how_old_it_is() -> None:
    """Of a sign within a pause as well: a session is counted from it, not from the first."""

    async def check() -> None:
        supervisor, groups = Aged(), Groups(SLICES)
        kept = GroupView(supervisor, RING)
        groups.register("c", group="g", topics=["t"], start=START_LATEST, now=0, session_ms=5_000)
        kept.apply(groups.view())
        began = last = asyncio.get_running_loop().time()
        for _ in range(14):  # 1.4 s: told of twice, and then of the rest.
            last = asyncio.get_running_loop().time()
            kept.heard_of("c")
            await asyncio.sleep(0.1)
        await asyncio.sleep(2.0)
        more = last - began - 1.4  # A busy machine takes longer, and then more are told.
        assert 2 <= len(supervisor.signs) <= 4 + max(0.0, 2 * more)
        assert abs(supervisor.signs[-1] - last) < 0.05

    asyncio.run(check())


class Aged:
    """A supervisor that knows when each sign was."""

    def __init__(self) -> None:
        self.signs: list[float] = []

    async def request(self, op: str, args: Any) -> dict[str, Any]:
        now = asyncio.get_running_loop().time()
        self.signs += [now - age / 1000 for age in args["agesMs"]]
        return {}
