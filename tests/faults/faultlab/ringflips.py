"""A bit flips in the log or the votes of a broker in a ring: told, repaired, refused, never wrong.

The broker is down meanwhile. What it then serves goes into the history, where the checker holds it
against what all three have in the end. Damage that the ring has not repaired by then is taken back
(rule A4 and promise D2: one damaged broker for a slice, until its repair has finished).
"""

import os
import random
import re
import time
from dataclasses import dataclass
from pathlib import Path

from barco.limits import GROUP_HEADER_BYTES, PAGE_BYTES
from barco.workers.storage.files import layout
from faultlab.broker import StartError, range_paths
from faultlab.drain import CHUNKS
from faultlab.flips import groups, segments
from faultlab.load import chunk_events, slice_path
from faultlab.ring import Node
from faultlab.scene import RingScene
from faultlab.wire import Wire

REGIONS = ("sealed", "stable", "tail", "votes")
"""Of an older generation or a full segment; of the last segment, known to be stable; its end; one
of the two copies of what was voted, and of what is known of the generations."""

TAKE_OVER_S = 1.0
"""The end of a log that only its leader is known to have must be on another broker's as well."""

READ_S = 20.0


@dataclass(frozen=True, slots=True)
class Flip:
    """One bit, and the page around it as it was."""

    path: Path
    at: int
    good: bytes
    bad: bytes

    @property
    def there(self) -> bool:
        """Whether nobody has repaired it, or let go of the file."""
        return self.path.exists() and self._page() == self.bad

    def take_back(self) -> None:
        """The disk tells the truth again."""
        with self.path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), self.good, self._start)
            os.fsync(file.fileno())

    def make(self) -> None:
        """The disk lies."""
        with self.path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), self.bad, self._start)
            os.fsync(file.fileno())

    @property
    def _start(self) -> int:
        return self.at // PAGE_BYTES * PAGE_BYTES

    def _page(self) -> bytes:
        with self.path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), PAGE_BYTES, self._start)


def choose(data_dir: Path, region: str, rng: random.Random) -> Flip | None:
    """Somewhere in a group of one of the three shards; None if there is no such region."""
    shard = range_paths(data_dir)[rng.randrange(3)]
    if region == "votes":
        path = shard / rng.choice((layout.LINEAGE_NAME, layout.LINEAGE_COPY_NAME))
        return one_bit(path, rng.randrange(path.stat().st_size), rng)
    paths = segments(shard)
    if not paths or region == "sealed" and len(paths) < 2:
        return None
    path = rng.choice(paths[:-1]) if region == "sealed" else paths[-1]
    found = groups(path)
    durable = max(header.durable_upto for _, header in found)
    if region == "tail":
        found = found[-1:]
    elif region == "stable":
        found = [each for each in found if each[1].gseq <= durable]
    if not found:
        return None
    start, header = rng.choice(found)
    # Half of them in a header, which is small: a body has room for much more.
    size = GROUP_HEADER_BYTES + header.body_bytes * (rng.random() < 0.5)
    return one_bit(path, start + rng.randrange(size), rng)


def one_bit(path: Path, at: int, rng: random.Random) -> Flip:
    """Any of the byte at this place."""
    page = at // PAGE_BYTES * PAGE_BYTES
    data = path.read_bytes()
    good = data[page : page + PAGE_BYTES]
    bad = bytearray(good)
    bad[at - page] ^= 1 << rng.randrange(8)
    return Flip(path, at, good, bytes(bad))


def flip(scene: RingScene, node: Node, number: int) -> None:
    """One round: down, hurt, up, whole; everything is read; what is still damaged is taken back."""
    region = REGIONS[number % len(REGIONS)]
    node.kill()
    time.sleep(TAKE_OVER_S)
    flip = choose(node.data_dir, region, scene.random)
    if flip is not None:
        flip.make()
    outcome = "served"
    node.begin()
    try:
        node.await_ready()
    except StartError as error:
        outcome = "start refused"
        assert flip is not None and "Traceback" not in error.log, error
        flip.take_back()
        node.begin()
        node.await_ready()
    scene.become_whole(f"flip in {region}")
    if flip is None:
        scene.outcomes["no such region"] += 1
        return
    refused = read_everything(scene, node)
    if flip.there:
        # Not all damage is in the way of anybody: headers of full segments are not read again.
        outcome = "reads refused" if refused else outcome
        flip.take_back()
    elif outcome == "served":
        outcome = "repaired"
    scene.outcomes[f"{region} {outcome}"] += 1


def read_everything(scene: RingScene, node: Node) -> int:
    """All that one broker serves, for the history; how many places it refused."""
    wire = Wire(node.port, READ_S)
    refused = 0
    try:
        for place in range(node.placement.size * node.placement.slices_per_range):
            refused += _read_slice(scene, node, wire, place)
    finally:
        wire.close()
    return refused


def _read_slice(scene: RingScene, node: Node, wire: Wire, place: int) -> int:
    cursor, refused, until = "earliest", 0, time.monotonic() + READ_S
    while True:
        target = slice_path(node.placement, scene.topic, place) + f"?from={cursor}"
        answer = wire.call("GET", f"{target}&maxBytes=4000000", headers={"Accept": CHUNKS})
        if answer.status == 204:
            return refused
        if answer.status == 200:
            events = chunk_events(answer, place, node.placement.slices_per_range)
            scene.history.add(
                {
                    "f": "read",
                    "t1": time.monotonic(),
                    "proc": f"around {node.ordinal}",
                    "session": scene.tried,
                    "topic": scene.topic,
                    "events": events,
                }
            )
            cursor = answer.headers["barco-next-cursor"]
            continue
        text = answer.body.decode("utf-8", "replace")
        bad = re.search(r"offsets (\d+) to (\d+) of", text)
        if bad is None:
            assert answer.status >= 500 and time.monotonic() < until, answer
            time.sleep(0.2)
            continue
        refused += 1
        cursor = f"{0:08x}-{int(bad[2]) + 1:016x}"
