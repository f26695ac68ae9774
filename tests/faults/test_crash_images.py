"""Recovery on every image that a crash of a recorded run may leave, and on some as real files."""

import asyncio
import os
import random
import secrets
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from faultlab.images import Disk, images
from faultlab.recorder import (
    EPOCH,
    SEGMENT_BYTES,
    SESSION,
    TOKEN,
    UUID,
    Core,
    Recording,
    make_reactor,
    produce_request,
    record,
)
from faultlab.round import TOTALS

from barco.cluster.state.core import Settings
from barco.limits import GROUP_HEADER_BYTES
from barco.model.generation import genesis
from barco.workers.replication.alone import one_line
from barco.workers.replication.driver import Driver
from barco.workers.replication.wire import identity
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import open_bulk
from barco.workers.storage.files.errors import CorruptLogError
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.index import scan
from barco.workers.storage.stores.replicas import ReplicaStore
from barco.workers.storage.stores.retention import Policy

ME = identity(0, "ab" * 16)
GENESIS = genesis(TOKEN, 2**63, (0,))

IMAGES_SHORT = 10_000
IMAGES_LONG = 100_000


ROTTEN = ("garbage", "ones", "another epoch", "a bit", "garbage, then a group")
"""No crash makes these of a segment that was zeros, with sectors that are stored whole or not."""


def check_image(disk: Disk, submitted: int, how: str, *, trust: bool) -> None:
    """The scan finds exactly the groups that are there whole, and calls nothing corrupt; but what
    no crash can have made it does not take for torn."""
    recording = disk.recording
    fed: list[scan.GroupHeader] = []
    wanted = disk.tail(submitted)
    if how in ROTTEN and wanted < submitted:  # Else the bit is one of padding.
        with pytest.raises(CorruptLogError) as caught:
            disk.scan(fed, trust=trust)
        assert caught.value.gseq == wanted + 1
        return
    result = disk.scan(fed, trust=trust)
    assert result.tail == wanted >= disk.stable
    if wanted:
        last = fed[-1].gseq if fed else 0
        # What is walked begins with a snapshot and goes on without a gap to the tail.
        assert last == wanted and fed[0].flags & (scan.GEN_START | scan.SNAPSHOT)
        expected = [group.header for group in recording.groups[fed[0].gseq - 1 : wanted]]
        assert fed[-len(expected) :] == expected


def run_images(recording: Recording, wanted: int, rng: random.Random) -> Counter[str]:
    """About `wanted` images, spread over all states of the run."""
    states = list(recording.states())
    left = sum(submitted > stable for submitted, stable in states)
    disk = Disk(recording)
    made: Counter[str] = Counter()
    for submitted, stable in states:
        disk.advance(stable)
        flying = recording.groups[stable:submitted]
        assert len(flying) <= 3
        share = -(-(wanted - made.total()) // max(1, left))
        left -= bool(flying)
        candidates = list(images(flying, rng, recording.groups[:stable]))
        while flying and len(candidates) < share:
            candidates += images(flying, rng, recording.groups[:stable])
        for how, pieces in rng.sample(candidates, max(1, min(len(candidates), share))):
            before = disk.lay(pieces)
            try:
                check_image(disk, submitted, how, trust=rng.random() < 0.9)
            except (AssertionError, CorruptLogError) as error:
                raise AssertionError(f"{how}, S={submitted}, A={stable}") from error
            disk.lay(before)
            made[how] += 1
    return made


@pytest.fixture
def recording(root: Path, seed: int) -> Recording:
    print(f"seed {seed}")
    return record(root, seed, 300)


def count(made: Counter[str], recording: Recording, began: float) -> None:
    print(f"{made.total()} images in {time.monotonic() - began:.1f} s: {dict(made)}")
    row = TOTALS.setdefault("crash images", {"acked": 0, "lost": 0, "twice": 0, "other": 0})
    for name in ("tried", "survived"):
        row[name] = row.get(name, 0) + made.total()
    row["acked"] += sum(recording.groups[-1].ends.values())
    row["worst s"] = 0


def test_images(recording: Recording, seed: int) -> None:
    began = time.monotonic()
    made = run_images(recording, IMAGES_SHORT, random.Random(seed))
    count(made, recording, began)
    assert made.total() >= IMAGES_SHORT


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_images_often(root: Path, seed: int) -> None:
    total = 0
    number = 0
    while total < IMAGES_LONG:
        number += 1
        directory = root / str(number)
        directory.mkdir()
        recording = record(directory, seed + number, 400)
        began = time.monotonic()
        made = run_images(recording, IMAGES_LONG - total, random.Random(seed + number))
        count(made, recording, began)
        total += made.total()


# --- Real files, the whole recovery ----------------------------------------------------------


def write_shard(shard: Path, disk: Disk) -> None:
    """An image as a shard's directory, as a worker that died would leave it."""
    Lineage.load(shard).opened(EPOCH, SESSION, [(1, 0)])
    for index, data in enumerate(disk.files):
        path = layout.segment_path(shard, EPOCH, index)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class Dying:
    """A core whose process dies when it is given its `die_at`-th group."""

    def __init__(self, reactor: Any, die_at: int) -> None:
        self._reactor, self._left = reactor, die_at

    def load_group(self, group: memoryview) -> None:
        self._left -= 1
        if self._left == 0:
            raise KeyboardInterrupt
        self._reactor.load_group(group)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)


def recover(shard: Path, reactor: Any, *, die_at: int = 0) -> int:
    """A start of the only member of the shard, with a real core, until it leads; the tail that it
    found. With `die_at` it dies at this group."""

    async def main() -> int:
        bulk = open_bulk("threads")
        store = ReplicaStore(
            shard,
            bulk,
            cluster_uuid=UUID,
            token=TOKEN,
            segment_bytes=SEGMENT_BYTES,
            policy=Policy(0, 0, sole_member=True),
            on_error=lambda error: None,
        )
        try:
            core = Dying(reactor, die_at)
            found = await store.recover(core)
            led = asyncio.get_running_loop().create_future()
            driver = Driver(
                Settings(me=ME, session=secrets.randbits(62), ranges=(GENESIS,)),
                {},
                reactor=core,  # type: ignore[arg-type]
                store=store,
                bulk=bulk,
                group_bytes_max=SEGMENT_BYTES,
                on_lead=led.set_result,
                on_follow=lambda generation: led.cancel(),
                on_stop=lambda reason: led.cancel(),
                fatal=lambda *reason: led.cancel(),
            )
            driver.start(await one_line(store, GENESIS, GENESIS.end, ME, bulk, found))
            await asyncio.wait_for(led, 60)
            await driver.close()
            return max(((e, each.tail) for e, each in found.items() if each.tail))[1]
        finally:
            await store.close()
            bulk.close()

    return asyncio.run(main())


def ends(reactor: Any) -> dict[tuple[str, int], int]:
    """Where each stream ends."""
    return {(topic, slice_): end for topic, slice_, _, end, _ in reactor.streams() if end}


def test_images_as_files(root: Path, recording: Recording, seed: int) -> None:
    """Recovered, interrupted and repeated: the same T and the same state every time."""
    rng = random.Random(seed)
    states = [state for state in recording.states() if state[1]]
    for number, (submitted, stable) in enumerate(rng.sample(states, 12)):
        disk = Disk(recording)
        disk.advance(stable)
        flying = recording.groups[stable:submitted]
        if flying:
            made = images(flying, rng, recording.groups[:stable])
            disk.lay(rng.choice([pieces for how, pieces in made if how not in ROTTEN]))
        wanted = disk.tail(submitted)
        shard = root / f"image-{number}"
        shard.mkdir()
        write_shard(shard, disk)
        walked: list[scan.GroupHeader] = []
        disk.scan(walked, trust=True)  # One, where the last group is a snapshot.
        with pytest.raises(KeyboardInterrupt):
            recover(shard, make_reactor(epoch=0), die_at=min(1 + number % 2, len(walked)))
        for _ in range(2):
            reactor = make_reactor(epoch=0)
            assert recover(shard, reactor) == wanted
            assert ends(reactor) == recording.groups[wanted - 1].ends
            reactor.close()


def test_what_recovery_believes_is_made_stable_first(
    root: Path, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last append of a killed process may be in the device's cache, or lost by a sync that
    failed and still be read: synced, then read, then voted on."""
    disk = Disk(recording)
    disk.advance(recording.stable)
    write_shard(root, disk)
    steps: list[str] = []
    sync, sealed, vote, walk = (
        os.fdatasync,
        Lineage.sealed,
        Lineage.add_journal,
        scan.scan_generation,
    )

    def walked(*given: Any, **named: Any) -> Any:
        steps.append("read")
        return walk(*given, **named)

    monkeypatch.setattr(scan, "scan_generation", walked)
    monkeypatch.setattr(os, "fdatasync", lambda fd: (steps.append("sync"), sync(fd)))
    monkeypatch.setattr(Lineage, "sealed", lambda *given: (steps.append("sealed"), sealed(*given)))
    monkeypatch.setattr(Lineage, "add_journal", lambda *g: (steps.append("vote"), vote(*g)))
    recover(root, make_reactor(epoch=0))
    count = len(disk.files)
    assert steps[: count + 2] == [*["sync"] * count, "read", "vote"]
    assert "sealed" in steps


# --- What producers are told after a crash ---------------------------------------------------


def replay(recording: Recording, tail: int, core: Core) -> None:
    """The state after group `tail`, as recovery rebuilds it without sidecars of two segments."""
    first = recording.groups[tail - 1].segment - 1  # Its snapshot replaces what was before it.
    for group in recording.groups[:tail]:
        if group.segment < first:
            continue
        if group.header.flags & (scan.GEN_START | scan.SNAPSHOT):
            core.reactor.restore(group.data[GROUP_HEADER_BYTES:][: group.header.body_bytes])
        elif group.header.chunk_count:
            core.reactor.apply_group(group.data)


def test_producers_after_a_crash(root: Path, recording: Recording, seed: int) -> None:
    """At every tail: what is stored is a duplicate, what is not stored is taken as new.

    A snapshot once told of sequences whose events only waited for the next group: a crash between
    the two made the retry of a lost event a duplicate.
    """
    rng = random.Random(seed)
    snapshots = [g.header.gseq for g in recording.groups if g.header.flags & scan.SNAPSHOT]
    others = rng.sample(range(1, len(recording.groups) + 1), 6)
    assert snapshots
    for number, tail in enumerate([*snapshots, *others]):
        directory = root / f"core-{number}"
        directory.mkdir()
        core = Core(directory, epoch=3, session=7)
        try:
            replay(recording, tail, core)
            core.open()
            sequences = recording.groups[tail - 1].sequences
            calls = []
            for (topic, key), last in recording.producers(sequences).items():
                calls.append((topic, key, last, 204) if last >= 0 else (topic, key, 0, 200))
                calls.append((topic, key, last + 1, 200 if last >= 0 else 204))
            answers = core.ask(
                [produce_request(topic, key, [b"again"], last) for topic, key, last, _ in calls]
            )
        finally:
            core.close()
        for call, answer in zip(calls, answers, strict=True):
            assert answer.status == call[3], (tail, call, answer)
