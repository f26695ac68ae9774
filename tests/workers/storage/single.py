"""A start of the only member of a shard: the real store, driver and machine, and a core that keeps
what it is given."""

import asyncio

import builder

from barco.cluster.state.core import Settings
from barco.errors import BarcoError
from barco.model.generation import genesis
from barco.workers.replication.alone import one_line
from barco.workers.replication.driver import Driver
from barco.workers.replication.wire import identity
from barco.workers.storage.index.scan import GEN_START, SNAPSHOT, parse_header
from barco.workers.storage.index.sidecar import IndexBuilder
from barco.workers.storage.stores.replicas import ReplicaStore
from barco.workers.storage.stores.retention import Policy

MIB = 1 << 20
ME = identity(0, "ab" * 16)
GENESIS = genesis(builder.TOKEN, 2**63, (0,))
KEEP_ALL = Policy(0, 0, sole_member=True)
SECONDS_MAX = 30.0


class Core:
    """The newest generation as recovery loads it: the last snapshot and the groups after it."""

    def __init__(self):
        self.snapshot, self.groups = b"", []
        self.opened = None
        self.truncated = {}
        self.followers = None
        self.die_at = 0
        self.seen = 0
        self.begin_generation(0, 0)

    def begin_generation(self, epoch, session, followers=True):
        self.epoch, self.session, self.followers = epoch, session, followers
        self.gseq = self.crc = 0
        self.segment, self.used, self.summaries, self.indexes = -1, 0, {}, {}

    def load_segment(self, index, fd, capacity):
        self.segment, self.used = index, 0
        self.indexes[index] = IndexBuilder()

    def load_group(self, group):
        self._count()
        header = parse_header(group)
        self._take(header, group)
        self.indexes[self.segment].add(header, memoryview(group), self.used)
        self.used += header.group_bytes
        self.gseq, self.crc = header.gseq, header.header_crc
        _, first, _, prev, *_ = self.summaries.get(
            self.segment, (0, header.gseq, 0, header.prev_crc)
        )
        self.summaries[self.segment] = (
            *(self.segment, first, self.gseq, prev, self.crc, self.used, 1, header.time_us),
        )

    def _take(self, header, group):
        if header.flags & (GEN_START | SNAPSHOT):
            self.snapshot, self.groups = bytes(group[128:][: header.body_bytes]), []
        elif header.chunk_count:
            self.groups.append(bytes(group))

    def _count(self):
        self.seen += 1
        if self.seen == self.die_at:
            raise KeyboardInterrupt

    def restore(self, snapshot):
        self.snapshot, self.groups = bytes(snapshot or b""), []

    def apply_group(self, group):
        self.groups.append(bytes(group))

    def log_state(self):
        return {
            "gseq": self.gseq,
            "stable_gseq": self.gseq,
            "committed": self.gseq,
            "header_crc": self.crc,
            "stable_crc": self.crc,
            "settled": True,
            "failed": False,
            "segment": self.segment,
            "segment_used": self.used,
            "clock_us": 1,
        }

    def export_index(self, segment):
        return self.indexes[segment].body()

    def segment_summary(self, segment):
        if segment not in self.summaries:
            raise ValueError(segment)
        return self.summaries[segment]

    def open_generation(self, parents):
        self.opened = parents

    def locate(self, *_):
        return []

    def truncate_stream(self, topic, slice_, offset):
        self.truncated[topic, slice_] = offset

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_: None


def make(shard, bulk, errors, policy=KEEP_ALL):
    return ReplicaStore(
        shard, bulk, cluster_uuid=builder.UUID, token=builder.TOKEN, segment_bytes=MIB,
        policy=policy, on_error=builder.kept_in(errors),
    )  # fmt: skip


class Life:
    """From recovery to a generation that may be appended to, as `replication.host` does it."""

    def __init__(self, shard, bulk, *, policy=KEEP_ALL, core=None, session=None):
        self.bulk, self.errors = bulk, []
        self.core = core or Core()
        self.store = make(shard, bulk, self.errors, policy)
        self.found, self.driver = {}, None
        self.session = session or builder.SESSION + 1 + max([*self._epochs(), 0])
        self.epoch = 0
        """Of the generation that it leads."""

    def _epochs(self):
        return [generation.epoch for generation in self.store.lineage.generations()]

    @property
    def parent(self):
        """(epoch, T) of the newest generation that recovery found something of."""
        used = [(epoch, each.tail) for epoch, each in self.found.items() if each.tail]
        return max(used, default=(1, 0))

    async def recover(self):
        self.found = await self.store.recover(self.core)
        return self

    async def lead(self):
        """Also decides where the parent ended, and seals it."""
        loop = asyncio.get_running_loop()
        led = loop.create_future()

        def end(reason, *_):
            if not led.done():
                led.set_exception(BarcoError(reason))

        found = await one_line(self.store, GENESIS, GENESIS.end, ME, self.bulk, self.found)
        self.driver = Driver(
            Settings(me=ME, session=self.session, ranges=(GENESIS,)),
            {},
            reactor=self.core,
            store=self.store,
            bulk=self.bulk,
            group_bytes_max=MIB,
            on_lead=lambda generation: led.done() or led.set_result(generation),
            on_follow=lambda generation: end("there is nobody to follow"),
            on_stop=end,
            fatal=end,
        )
        self.driver.start(found)
        self.generation = await asyncio.wait_for(led, SECONDS_MAX)
        self.epoch = self.generation.gid.epoch
        return self

    async def close(self):
        if self.driver is not None:
            await self.driver.close()
        while self.store._cutting:
            await asyncio.gather(*self.store._cutting)
        await self.store.close()


def start(shard, go, engine="threads", **given):
    """One start and its end, in which nothing is appended; the `Life`, closed."""

    async def test(bulk):
        life = Life(shard, bulk, **given)
        try:
            await life.recover()
            return await life.lead()
        finally:
            await life.close()

    return go(test, engine)
