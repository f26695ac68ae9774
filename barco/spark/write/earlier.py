"""What earlier runs of a write have left at the shards, and what a driver says if its rows differ.

A shard knows a repeated write by its counts. A plan that is not deterministic gives others, each
time; nothing but a decision helps then, which the message names: option `skipBatch`, or another
writer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barco.client.wire.access import Access
from barco.client.wire.ring import Ring
from barco.errors import BarcoError, NotFoundError
from barco.spark.base.fetch import Brokers

PATIENCE_SECONDS = 2.0

Counts = dict[tuple[str, str, int], int]
"""By shard (its first holder), topic and slice: events."""

OTHERS = (
    "batch {batch} of writer {writer} was stored by an earlier run of it, with other rows: "
    "{stored} events of that, in {there} slices, are visible, and this run has {count} in {here}."
    "{lacking} If its rows can be had again, run it with those: they are recognised, in any order. "
    "Else either keep what is stored and drop what this run has of it: option skipBatch={batch}, "
    "for one run; or store all of this run besides, so that rows come twice: another name (option "
    "writerId; a stream: another checkpoint begins anew at its startingOffsets)"
)
LACKING = (
    " {lacking} of the slices of this run have nothing of it: the driver before may have died "
    "between two shards, and what it had for those is lost if it is not run again."
)
SAME = (
    "but an earlier run of it was, or some of it: {stored} events of that are visible. Run it "
    "again with the same rows, which are recognised in any order"
)


@dataclass
class Earlier:
    """What the shards tell of a write."""

    stored: Counts = field(default_factory=dict)
    known: bool = False
    """Something of it is stored, or has begun to be; or a later batch is stored."""
    all_told: bool = True

    def words(self, writer: str, batch: int, wanted: Counts) -> str:
        """For whoever could not prepare what is wanted."""
        there = sum(self.stored.values())
        if any(wanted.get(place, 0) != count for place, count in self.stored.items()):
            missing = len(wanted.keys() - self.stored.keys())
            return OTHERS.format(
                batch=batch,
                writer=writer,
                stored=there,
                there=len(self.stored),
                count=sum(wanted.values()),
                here=len(wanted),
                lacking=LACKING.format(lacking=missing) if missing else "",
            )
        if self.known:
            return SAME.format(stored=there)
        if not self.all_told:
            return "by this run; whether one before it was, not every shard tells"
        return "nothing of it is visible"


def earlier_of(access: Access, path: str, ring: Ring) -> Earlier:
    """Asks one holder of each shard, or the next if it does not answer."""
    found = Earlier()
    for holders in sorted({*ring.holders.values()}):
        told = _told(access, path, holders)
        if told is None:
            found.all_told = False
            continue
        found.known |= bool(told["committed"] or told.get("begun") or told.get("laterBatches"))
        for topic, slices in told["committed"].items():
            for index, count in slices.items():
                found.stored[holders[0], topic, int(index)] = count
    return found


def _told(access: Access, path: str, holders: Sequence[str]) -> Mapping[str, Any] | None:
    """What a shard knows of a write, from whoever knows most of it; None if nobody tells."""
    found: Mapping[str, Any] | None = None
    for holder in holders:
        try:
            told = Brokers(access.to(holder), PATIENCE_SECONDS).get(path)
        except NotFoundError:
            told = {"committed": {}}
        except (BarcoError, OSError):
            continue
        if (
            found is None
            or _events(told) > _events(found)
            or (told.get("begun") and not found.get("begun"))
        ):
            found = told
    return found


def _events(told: Mapping[str, Any]) -> int:
    return sum(n for slices in told["committed"].values() for n in slices.values())
