"""The state that a generation begins with: of the history that is here, or from who has it.

`restore` makes it the core's. `state_at` makes it beside, for others: of a generation that has
ended, behind its last group, for any of its slices; whatever the core has is not touched.
"""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from msgspec import Struct
from msgspec.structs import replace

from barco._native import ShardState, state_cut, state_union
from barco.errors import BarcoError, NotReadyError
from barco.limits import GROUP_BYTES_MAX, GROUP_HEADER_BYTES
from barco.model.generation import Gid, Parent
from barco.types import Epoch, MiB, Token
from barco.workers.storage.files import layout
from barco.workers.storage.files.bulk import BulkIo
from barco.workers.storage.files.errors import CorruptLogError, explain
from barco.workers.storage.files.lineage import Lineage
from barco.workers.storage.files.records import Generation
from barco.workers.storage.index import scan
from barco.workers.storage.reading.groups import GroupFiles
from barco.workers.storage.stores.loading import (
    LogCore,
    StateReplay,
    walk_generation,
)
from barco.workers.storage.stores.recovery import sources_of
from barco.workers.storage.stores.scrub import Scrub

REPLAYS_MAX, REPLAY_SECONDS = 20, 0.5
"""A generation can not begin before the state is there: so often and so long what is damaged of it
is asked for, then the process ends and another leads."""


WALK_BYTES = 4 * MiB
"""Read at once."""

State = tuple[int, int]
"""(epoch, gseq): the history that a state is the sum of; (0, 0): none."""


class StateAt(NamedTuple):
    """What a generation has come to."""

    header_crc: int
    """Of the header of its last group."""
    state: bytes


class Part(NamedTuple):
    """One of several histories that are continued as one."""

    parent: Parent
    slices: range | None
    """What comes of it, numbered in the token range; None: what the core has."""
    here: Generation | None
    """As far as its groups are here."""
    tags: scan.Tags


class StateSource(Protocol):
    """Other processes, who may have what is not here."""

    async def fetch(
        self, gid: Gid, tail: int, header_crc: int | None, slices: range | None = None
    ) -> bytes:
        """The state behind group `tail`, the last of a generation, of these slices; None: of those
        that the core has.

        `header_crc`: that group's, if it is known. NotReadyError: nobody gives it, and why.
        """
        ...


def resolve(lineage: Lineage, parents: Sequence[tuple[int, int]]) -> State:
    """The nearest ancestor with a group; a generation without any hands on its parents'."""
    for epoch, tail in parents:
        generation = lineage.get(epoch)
        if generation is not None and generation.lost is not None:
            tail = generation.tail or 0  # An operator gave up the rest, perhaps after its end.
        if tail:
            return (epoch, tail)
        if generation is not None and (found := resolve(lineage, generation.parents)) != (0, 0):
            return found
    return (0, 0)


def as_ended(
    generation: Generation | None, tail: int, core: Mapping[str, int] | None
) -> Generation | None:
    """A generation that ends with this group, if its groups up to there are here and stable: that
    is noted, or the core has them, which may be before it is noted. core: how it stands, if it has
    this generation."""
    if generation is None or generation.expired or not tail:
        return None
    if generation.sealed:
        return generation if generation.tail == tail else None
    if core is None or core["stable_gseq"] < tail:
        return None
    segment, used = core["segment"], core["segment_used"]
    return replace(generation, tail=tail, end_segment=segment, end_bytes=used)


def state_at(shard: Path, generation: Generation, tags: scan.Tags, slices: range) -> StateAt:
    """Of a sealed generation, of these slices. Blocks: for a thread.

    Reads the last segment in pieces of a few MiB; if anything in it is not as it was written, all
    that a scan looks at. Raises CorruptLogError and what reading raises (BarcoError); ValueError,
    in words, where the slices are not the generation's.
    """
    assert generation.tail, "it has ended, with a group"
    sources = sources_of(shard, generation, history=True)
    behind = ShardState(slices.start, len(slices))
    found = _walked(behind, sources[-1].name, tags, generation.tail)
    if found is not None:
        return StateAt(found, state_cut(behind.snapshot(), slices.start, len(slices)))
    behind = ShardState(slices.start, len(slices))
    walk = scan.scan_generation(
        sources, tags, _feed(behind), first=generation.begin[1:], tail=generation.tail
    )

    def read_at(wish: scan.Read) -> bytes:
        name = sources[wish.which].name
        try:
            return _read(name, wish.offset, wish.length)
        except OSError as error:
            raise explain(error, name, "read") from error

    result = scan.run(walk, read_at)
    return StateAt(result.last_crc, state_cut(behind.snapshot(), slices.start, len(slices)))


def _walked(behind: ShardState, name: str, tags: scan.Tags, tail: int) -> int | None:
    """The header_crc of the last group, after a look at nothing but the last segment, which begins
    with a state: a tenth of what a scan takes, which says what is wrong. None: something is."""
    if tags.session is None:
        return None
    of = tags.cluster_uuid, tags.token, tags.epoch, tags.session
    offset = gseq = crc = 0
    size = WALK_BYTES
    while gseq < tail:
        try:
            data = _read(name, offset, size)
        except OSError:
            return None
        if data[: len(scan.MAGIC)] != scan.MAGIC:
            return None
        used, gseq, crc = behind.walk(data, *of, gseq, crc, tail)
        offset += used
        if used == 0:
            size *= 4  # A group may be larger.
            if len(data) < size // 4 or size > 2 * GROUP_BYTES_MAX:
                return None
    return crc


def _feed(behind: ShardState) -> scan.OnGroup:
    def feed(header: Any, group: memoryview, segment: int, at: int) -> None:
        if header.flags & (scan.GEN_START | scan.SNAPSHOT):
            behind.restore(group[GROUP_HEADER_BYTES:][: header.body_bytes])
        elif header.chunk_count:
            behind.apply_group(group)

    return feed


def _read(name: str, offset: int, length: int) -> bytes:
    """Through the page cache, and out of it again: nobody reads the end of a log twice."""
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.pread(fd, length, offset)
        os.posix_fadvise(fd, offset, length, os.POSIX_FADV_DONTNEED)
        return data
    finally:
        os.close(fd)


class Restoring(Struct, frozen=True):
    """What it takes to make a history's state the core's."""

    core: LogCore
    shard: Path
    bulk: BulkIo
    groups: GroupFiles
    scrub: Scrub | None
    states: StateSource | None
    on_error: Callable[[BarcoError], None]

    async def restore(self, generation: Generation | None, tags: scan.Tags, tail: int) -> None:
        """The state behind group `tail` of the generation with these tags; `generation`: what is
        here of it. Raises CorruptLogError or NotReadyError: nobody has it, after ten seconds."""
        assert tail > 0
        epoch, gid = tags.epoch, Gid(Token(tags.token), Epoch(tags.epoch))
        here = generation is not None and not generation.expired
        if generation is not None and (
            self.states is None or (here and layout.segment_indexes(self.shard, epoch))
        ):
            await self._replay(generation, tags, tail)
        elif self.states is not None:
            await self._ask(gid, tail, await self.groups.header_crc(epoch, tail))

    async def restore_joined(self, parts: Sequence[Part]) -> None:
        """The states behind several generations as one, or the one behind a generation of another
        range. As `restore`."""
        assert parts, "it continues something"
        state = b""
        for part in parts:
            found = await self._part(part)
            try:
                state = state_union(state, found) if state else found
            except ValueError as error:
                raise NotReadyError(f"{part.parent.gid} can not be joined: {error}") from error
        self._take(state, parts[0].parent.tail)

    async def _part(self, part: Part) -> bytes:
        (gid, tail), here = part.parent, part.here
        if here is not None and here.tail and not here.expired and part.slices is not None:
            try:
                return (await self.state_at(here, part.tags, part.slices)).state
            except (BarcoError, ValueError) as error:
                self.on_error(NotReadyError(f"The state of {gid} is asked for: {error}"))
        if self.states is None:
            raise NotReadyError(f"The state of {gid} can not be had here.")
        crc = await self.groups.header_crc(gid.epoch, tail) if here is not None else None
        return await self.states.fetch(gid, tail, crc, part.slices)

    async def state_at(self, generation: Generation, tags: scan.Tags, slices: range) -> StateAt:
        """As the function of that name, in a thread; damage is told to who repairs it."""
        try:
            return await self.bulk.run(state_at, self.shard, generation, tags, slices)
        except CorruptLogError as error:
            if self.scrub is not None:
                for key in self.scrub.keys_at(error.path):
                    self.scrub.suspect(key)
            raise

    async def _replay(self, generation: Generation, tags: scan.Tags, tail: int) -> None:
        for attempt in range(REPLAYS_MAX):
            try:
                sources = sources_of(self.shard, generation, history=True)
                of = (generation, tags, self.bulk)
                await walk_generation(*of, sources, StateReplay(self.core), tail=tail)
                return
            except CorruptLogError as error:
                if attempt == REPLAYS_MAX - 1 or self.scrub is None or self.scrub.source is None:
                    raise
                self.on_error(error.to_be_repaired())
                self.core.restore(None)
                # What is named may be sound, and the one behind it missing.
                path = layout.generation_path(self.shard, generation.epoch)
                for key in self.scrub.keys_at(str(path) if attempt else error.path):
                    await self.scrub.suspect(key)
                gid = Gid(Token(tags.token), Epoch(tags.epoch))
                if attempt and await self._asked(gid, tail):
                    return  # It is repaired beside.
                await asyncio.sleep(REPLAY_SECONDS * (attempt > 0))

    async def _asked(self, gid: Gid, tail: int) -> bool:
        if self.states is None:
            return False
        try:
            await self._ask(gid, tail, await self.groups.header_crc(gid.epoch, tail))
        except NotReadyError as error:
            self.on_error(error)
            return False
        return True

    async def _ask(self, gid: Gid, tail: int, header_crc: int | None) -> None:
        assert self.states is not None
        self._take(await self.states.fetch(gid, tail, header_crc), tail)

    def _take(self, state: bytes, tail: int) -> None:
        try:
            self.core.restore(state)
        except ValueError as error:
            raise NotReadyError(f"The state behind group {tail} is none: {error}") from error
