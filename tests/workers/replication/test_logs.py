"""What the core is told while generations change, and what becomes of groups that it refuses."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

from barco.model.generation import Generation, Gid, GroupHead, Identity
from barco.workers.replication.logs import Logs

LEADER = Identity(0, b"a" * 16)
GENERATION = Generation(Gid(0, 2), 1000, LEADER, 7, (LEADER,), ())
GID = GENERATION.gid


class Core:
    """A reactor that answers as it is told to, and notes what it is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.verdicts: list[str] = []
        self.taken = 0

    def log_state(self) -> dict[str, Any]:
        return {
            "gseq": self.taken,
            "stable_gseq": self.taken,
            "header_crc": 100 + self.taken,
            "stable_crc": 100 + self.taken,
            "settled": True,
        }

    def take_group(self, group: bytes) -> str:
        verdict = self.verdicts.pop(0) if self.verdicts else "taken"
        self.taken += verdict == "taken"
        return verdict

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args: self.calls.append(name)


class Store:
    """Nothing but turns of the loop."""

    epoch = 0

    def __init__(self) -> None:
        self.segment_wanted = asyncio.Event()
        self.segment = asyncio.Event()

    async def restore_state(self, parents: Any) -> None:
        await asyncio.sleep(0)

    async def begin(self, epoch: int, session: int, *, followers: bool = True) -> None:
        await asyncio.sleep(0)
        self.epoch = epoch

    async def next_segment(self) -> tuple[int, int, int]:
        self.segment_wanted.set()
        await self.segment.wait()
        return 0, 5, 4096


def run(test: Callable[[Logs, Core, Store, list[Any]], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        core, store, told = Core(), Store(), []
        logs = Logs(
            core,  # type: ignore[arg-type]
            store,  # type: ignore[arg-type]
            stable=lambda *args: told.append(("stable", *args)),
            refused=lambda *args: told.append(("refused", *args)),
            failed=lambda *args: told.append(("failed", *args)),
            fatal=lambda reason: told.append(("fatal", reason)),
            tail_of=lambda gid: None,
            session_of=lambda gid: 7,
        )
        await test(logs, core, store, told)
        await logs.close()

    asyncio.run(main())


def test_a_lead_given_up_while_its_segment_is_made() -> None:
    async def test(logs: Logs, core: Core, store: Store, told: list[Any]) -> None:
        opened: list[bool] = []
        logs.lead(GENERATION, lambda: opened.append(True))
        await store.segment_wanted.wait()
        logs.abandon(GID)
        store.segment.set()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not opened and logs.leading is None
        assert "open_generation" not in core.calls

    run(test)


def test_a_lead_that_stands() -> None:
    async def test(logs: Logs, core: Core, store: Store, told: list[Any]) -> None:
        store.segment.set()
        opened = asyncio.Event()
        logs.lead(GENERATION, opened.set)
        await asyncio.wait_for(opened.wait(), 10)
        assert logs.leading == GID and core.calls[-1] == "open_generation"

    run(test)


def test_after_a_refusal_nothing_is_left_of_what_came_behind() -> None:
    async def test(logs: Logs, core: Core, store: Store, told: list[Any]) -> None:
        store.segment.set()
        logs.follow(GENERATION)
        while logs.current != GID:
            await asyncio.sleep(0)
        core.verdicts = ["taken", "wait", "wait"]
        for gseq in (1, 2, 3):
            logs.append(GID, GroupHead(gseq, 100 + gseq - 1, 100 + gseq, 4), b"1234")
        assert logs.pending_bytes == 8 and not told
        core.verdicts = ["damaged"]
        logs.landed(1, 101, 2)
        (stable, refused) = told
        assert stable == ("stable", GID, 1, 101)
        assert refused[:4] == ("refused", GID, 1, 101) and "group 2" in refused[4]
        assert logs.pending_bytes == 0 and logs.settled(GID)
        told.clear()
        for gseq in (2, 3):  # Fetched.
            logs.append(GID, GroupHead(gseq, 100 + gseq - 1, 200 + gseq, 4), b"1234")
        logs.landed(2, 202, 2)
        logs.landed(3, 203, 2)
        assert told == [("stable", GID, 2, 202), ("stable", GID, 3, 203)]

    run(test)


def test_a_follower_that_is_behind_keeps_what_it_writes_together() -> None:
    async def test(logs: Logs, core: Core, store: Store, told: list[Any]) -> None:
        rows: list[int] = []

        async def keep(session: int, groups: list[bytes]) -> int:
            assert session == 7 and core.taken in (0, 128)
            rows.append(len(groups))
            await asyncio.sleep(0)
            return core.taken + len(groups)

        store.keep = keep  # type: ignore[attr-defined]
        store.segment.set()
        for gseq in range(1, 201):
            logs.append(GID, GroupHead(gseq, 100 + gseq - 1, 100 + gseq, 4), b"1234")
        logs.follow(GENERATION)
        while core.taken < 128:
            await asyncio.sleep(0)
        assert rows == [128] and core.calls.count("kept") == 1
        logs.landed(128, 228, 2)
        while core.taken < 200:
            await asyncio.sleep(0)
        assert rows == [128, 72] and core.calls.count("kept") == 2 and not logs.pending_bytes

    run(test)


def test_what_was_shut_before_it_was_to_be_followed_stays_a_log_of_files() -> None:
    """Its first segment is there: the core, which would make it, must not begin it any more."""

    async def test(logs: Logs, core: Core, store: Store, told: list[Any]) -> None:
        store.copy = lambda epoch, session: Lineage()  # type: ignore[attr-defined]
        store.lineage = {}  # type: ignore[attr-defined]
        logs.append(GID, GroupHead(1, 0, 101, 4), b"1234")
        logs.release(GID)
        logs.follow(GENERATION)
        for _ in range(10):
            await asyncio.sleep(0)
        assert logs.current is None and not core.calls
        assert told == [("stable", GID, 1, 7)]

    run(test)


def test_what_comes_after_it_was_shut_goes_into_files_too() -> None:
    """It was to be followed, and shut before the core had it: nobody else will write it."""

    async def test(logs: Logs, core: Core, store: Store, told: list[Any]) -> None:
        store.copy = lambda epoch, session: Lineage()  # type: ignore[attr-defined]
        store.lineage = {}  # type: ignore[attr-defined]
        logs.follow(GENERATION)
        assert logs.abandon(GID)
        logs.release(GID)
        logs.append(GID, GroupHead(1, 0, 101, 4), b"1234")
        for _ in range(10):
            await asyncio.sleep(0)
        assert logs.current is None and logs.pending_bytes == 0
        assert told == [("stable", GID, 1, 7)]

    run(test)


def test_what_comes_while_the_core_is_getting_it_waits_for_that() -> None:
    """Shut while it begins: its first segment is the core's to make."""

    async def test(logs: Logs, core: Core, store: Store, told: list[Any]) -> None:
        logs.follow(GENERATION)
        await asyncio.sleep(0)
        assert core.calls == ["fence"]
        logs.abandon(GID)
        logs.release(GID)
        logs.append(GID, GroupHead(1, 0, 101, 4), b"1234")
        for _ in range(10):
            await asyncio.sleep(0)
        assert logs.current == GID and core.taken == 1

    run(test)


class Lineage:
    """Epoch 5 has ended, with all of its history here; epoch 6 has only just begun to come."""

    def __init__(self):
        self.lineage = {5: SimpleNamespace(sealed=True), 6: SimpleNamespace(sealed=False)}
        self.copied = []

    def copy(self, epoch, session):
        return self

    async def append(self, groups):
        self.copied += groups
        return SimpleNamespace(tail=len(groups), header_crc=7)


def test_what_a_deposed_leader_sent_too_much_is_dropped():
    """It does not follow on the log's end, and a log that fails costs a minute of leading."""
    store, stable, failed = Lineage(), [], []

    async def test():
        logs = Logs(
            SimpleNamespace(),
            store,
            stable=lambda *what: stable.append(what),
            refused=lambda *what: failed.append(what),
            failed=lambda *what: failed.append(what),
            fatal=failed.append,
            tail_of=lambda gid: 983,
            session_of=lambda gid: 1,
        )
        for epoch, gseq in ((5, 984), (6, 1)):
            logs.append(Gid(0, epoch), GroupHead(gseq, 0, 7, 4), b"data")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert store.copied == [b"data"] and logs.pending_bytes == 0
        await logs.close()

    asyncio.run(test())
    assert stable == [(Gid(0, 6), 1, 7)] and not failed
