"""What the core is told while generations change, and what becomes of groups that it refuses."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barco.cluster.logs import events as le
from barco.cluster.state import effects as fx
from barco.cluster.state import events as ev
from barco.model.generation import Generation, Gid, Identity
from barco.types import Epoch, Token
from barco.workers.replication.carrier import Carrier

LEADER = Identity(0, b"a" * 16)
GENERATION = Generation(Gid(0, 2), 1000, LEADER, 7, (LEADER,), ())
GID = GENERATION.gid


class Core:
    """A reactor that answers as it is told to, and notes what it is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.verdicts: list[str] = []
        self.taken = 0
        self.landed: int | None = None
        """The last stable group; None: the last one taken."""

    def log_state(self) -> dict[str, Any]:
        stable = self.taken if self.landed is None else self.landed
        return {
            "gseq": self.taken,
            "stable_gseq": stable,
            "header_crc": 100 + self.taken,
            "stable_crc": 100 + stable,
            "settled": stable == self.taken,
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
        self.lineage: dict[int, Any] = {}
        self.expected: list[int] = []
        self.segment_wanted = asyncio.Event()
        self.segment = asyncio.Event()

    def expect(self, epoch: int) -> None:
        self.expected.append(epoch)

    async def restore_state(self, parents: Any, slices: Any) -> None:
        await asyncio.sleep(0)

    async def begin(self, epoch: int, session: int, *, followers: bool = True) -> None:
        await asyncio.sleep(0)
        self.epoch = epoch

    async def next_segment(self) -> tuple[int, int, int]:
        self.segment_wanted.set()
        await self.segment.wait()
        return 0, 5, 4096


def carrier(
    core: Any, store: Any, told: list[Any], opened: list[Any], tail: int | None = None
) -> Carrier:
    return Carrier(
        core,
        store,
        tell=told.append,
        opened=opened.append,
        fatal=told.append,
        guarded=lambda call, *args: call(*args),
        eased=lambda: None,
        tail_of=lambda gid: tail,
        session_of=lambda gid: 7,
        shares=lambda generation: [],
    )


def run(test: Callable[[Carrier, Core, Store, list[Any], list[Any]], Any]) -> None:
    async def main() -> None:
        core, store, told, opened = Core(), Store(), [], []
        logs = carrier(core, store, told, opened)
        await test(logs, core, store, told, opened)
        await logs.close()

    asyncio.run(main())


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_lead_given_up_while_its_segment_is_made() -> None:
    async def test(logs: Carrier, core: Core, store: Store, told: Any, opened: Any) -> None:
        logs.step(fx.Lead(GENERATION))
        await store.segment_wanted.wait()
        logs.step(fx.StopLeading(GID, ""))
        store.segment.set()
        await turns()
        assert not opened and logs.machine.leading is None
        assert "open_generation" not in core.calls

    run(test)


def test_a_lead_that_stands() -> None:
    async def test(logs: Carrier, core: Core, store: Store, told: Any, opened: Any) -> None:
        store.segment.set()
        logs.step(fx.Lead(GENERATION))
        await turns()
        assert opened == [GENERATION]
        assert logs.machine.leading == GID and core.calls[-1] == "open_generation"

    run(test)


def test_after_a_refusal_nothing_is_left_of_what_came_behind() -> None:
    async def test(logs: Carrier, core: Core, store: Store, told: Any, opened: Any) -> None:
        logs.step(fx.Follow(GENERATION))
        await turns()
        core.verdicts = ["taken", "wait", "wait"]
        for _ in range(3):
            logs.step(le.Arrived(GID, b"1234"))
        assert logs.pending_bytes == 8 and not told
        core.verdicts = ["damaged"]
        logs.step(le.Landed(1, 101, 2))
        (stable, refused) = told
        assert stable == ev.Stable(GID, 1, 101)
        assert isinstance(refused, ev.Refused) and "group 2" in refused.reason
        assert (refused.gid, refused.gseq, refused.header_crc) == (GID, 1, 101)
        assert logs.pending_bytes == 0 and logs.idle
        told.clear()
        for _ in range(2):  # Fetched.
            logs.step(le.Arrived(GID, b"1234"))
        logs.step(le.Landed(2, 202, 2))
        logs.step(le.Landed(3, 203, 2))
        assert told == [ev.Stable(GID, 2, 202), ev.Stable(GID, 3, 203)]

    run(test)


def test_a_follower_that_is_behind_keeps_what_it_writes_together() -> None:
    async def test(logs: Carrier, core: Core, store: Store, told: Any, opened: Any) -> None:
        rows: list[int] = []

        async def keep(session: int, groups: list[bytes]) -> int:
            assert session == 7 and core.taken in (0, 128)
            rows.append(len(groups))
            await asyncio.sleep(0)
            return core.taken + len(groups)

        store.keep = keep  # type: ignore[attr-defined]
        for _ in range(200):
            logs.step(le.Arrived(GID, b"1234"))
        logs.step(fx.Follow(GENERATION))
        while core.taken < 128:
            await asyncio.sleep(0)
        assert rows == [128] and core.calls.count("kept") == 1
        logs.step(le.Landed(128, 228, 2))
        await turns()
        assert rows == [128, 72] and core.calls.count("kept") == 2 and not logs.pending_bytes
        assert core.taken == 200

    run(test)


def test_what_was_shut_before_it_was_to_be_followed_stays_a_log_of_files() -> None:
    """Its first segment is there: the core, which would make it, must not begin it any more."""

    async def test(logs: Carrier, core: Core, store: Store, told: Any, opened: Any) -> None:
        files = Files()
        store.copy = lambda epoch, session: files  # type: ignore[attr-defined]
        logs.step(le.Arrived(GID, b"1234"))
        logs.step(fx.Drain(GID))
        logs.step(fx.Follow(GENERATION))
        await turns()
        assert logs.current is None and not core.calls
        assert told == [ev.Stable(GID, 1, 7), ev.Drained(GID, 1, 7)]

    run(test)


def test_what_comes_after_it_was_shut_goes_into_files_too() -> None:
    """It was to be followed, and shut before the core had it: nobody else will write it."""

    async def test(logs: Carrier, core: Core, store: Store, told: Any, opened: Any) -> None:
        files = Files()
        store.copy = lambda epoch, session: files  # type: ignore[attr-defined]
        logs.step(fx.Lead(Generation(Gid(0, 1), 1000, LEADER, 7, (LEADER,), ())))  # Takes long.
        logs.step(fx.Follow(GENERATION))
        logs.step(fx.Drain(GID))
        logs.step(le.Arrived(GID, b"1234"))
        store.segment.set()
        await turns()
        assert logs.current == Gid(0, 1) and logs.pending_bytes == 0
        assert told == [ev.Stable(GID, 1, 7), ev.Drained(GID, 1, 7)]

    run(test)


def test_what_comes_while_the_core_is_getting_it_waits_for_that() -> None:
    """Shut while it begins: its first segment is the core's to make."""

    async def test(logs: Carrier, core: Core, store: Store, told: Any, opened: Any) -> None:
        store.copy = lambda epoch, session: Files()  # type: ignore[attr-defined]
        logs.step(fx.Follow(GENERATION))
        assert core.calls == ["fence"]
        logs.step(fx.Drain(GID))
        logs.step(le.Arrived(GID, b"1234"))
        await turns()
        assert logs.current == GID and core.taken == 1

    run(test)


@pytest.mark.parametrize("late", [False, True])
def test_where_a_log_ends_that_is_being_left_the_core_says(late: bool) -> None:
    """Its last append lands, and the next generation waits for nothing but that. `late`: it is
    shut when the core is leaving it already. Its files end nowhere before that is done."""

    async def test(logs: Carrier, core: Core, store: Store, told: Any, opened: Any) -> None:
        following = Generation(Gid(Token(0), Epoch(3)), 1000, LEADER, 8, (LEADER,), ())
        ends: dict[int, Any] = {}
        begin = store.begin

        async def leave(epoch: int, session: int, *, followers: bool = True) -> None:
            before = store.epoch
            await begin(epoch, session, followers=followers)
            ends[before] = SimpleNamespace(tail=core.taken, header_crc=100 + core.taken)

        def copy(epoch: int, session: int) -> Any:
            return SimpleNamespace(position=ends.get(epoch, SimpleNamespace(tail=0, header_crc=0)))

        store.begin, store.copy = leave, copy  # type: ignore[method-assign,attr-defined]
        logs.step(fx.Follow(GENERATION))
        await turns()
        logs.step(le.Arrived(GID, b"1234"))
        core.landed = 0
        if not late:
            logs.step(fx.Drain(GID))
            await turns()
        logs.step(fx.Follow(following))
        await turns()
        assert not told and logs.current == GID
        core.landed = None
        logs.step(le.Landed(1, 101, 2))
        if late:
            logs.step(fx.Drain(GID))
        await turns()
        assert told == [ev.Stable(GID, 1, 101), ev.Drained(GID, 1, 101)]
        assert logs.current == following.gid

    run(test)


class Files:
    """A log of files."""

    def __init__(self) -> None:
        self.copied: list[bytes] = []
        self.position = SimpleNamespace(tail=0, header_crc=0)

    async def append(self, groups: list[bytes]) -> None:
        self.copied += groups
        self.position = SimpleNamespace(tail=len(self.copied), header_crc=7)


def test_what_a_deposed_leader_sent_too_much_is_dropped() -> None:
    """It does not follow on the log's end, and a log that fails costs a minute of leading."""
    store, files, told = Store(), Files(), []
    store.lineage = Sealed({5: SimpleNamespace(epoch=5, sealed=True)})
    store.copy = lambda epoch, session: files  # type: ignore[attr-defined]

    async def test() -> None:
        logs = carrier(Core(), store, told, [], tail=983)
        logs.adopt(0)  # type: ignore[arg-type]
        for epoch in (5, 6):
            logs.step(le.Arrived(Gid(0, epoch), b"data"))  # type: ignore[arg-type]
        await turns()
        assert files.copied == [b"data"] and logs.pending_bytes == 0
        await logs.close()

    asyncio.run(test())
    assert told == [ev.Stable(Gid(0, 6), 1, 7)]  # type: ignore[arg-type]


class Sealed(dict[int, Any]):
    """As lineage.log has it."""

    def generations(self) -> list[Any]:
        return list(self.values())
