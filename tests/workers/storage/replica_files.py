"""The files of one replica in an empty directory, and a core that has next to nothing."""

import builder

from barco.workers.storage.stores.replicas import ReplicaStore
from barco.workers.storage.stores.retention import Policy

MIB = 1 << 20


class Core:
    """Has one generation, and one full segment of it."""

    def begin_generation(self, epoch, session, followers=True):
        self.epoch = epoch

    def log_state(self):
        return {"gseq": 0, "stable_gseq": 0, "header_crc": 0, "segment": 0, "segment_used": 0}

    def export_index(self, segment):
        return b""

    def segment_summary(self, segment):
        return (segment, 1, 1, 0, 0, 0, 4096, 0)

    def locate(self, *_):
        return []

    def locate_timestamp(self, *_):
        return None

    def locate_appended(self, *_):
        return None

    def truncate_stream(self, *_):
        pass


class Loading(Core):
    """Takes what recovery loads."""

    def begin_generation(self, epoch, session, followers=True):
        self.groups = 0

    def load_segment(self, index, fd, capacity):
        pass

    def load_group(self, group):
        self.groups += 1

    def restore(self, snapshot):
        self.groups = 0

    def apply_group(self, group):
        self.groups += 1

    def log_state(self):
        return super().log_state() | {"committed": 0}


def make(shard, bulk, errors, policy=Policy(0, 0)):  # noqa: B008 - it is frozen.
    return ReplicaStore(
        shard, bulk, cluster_uuid=builder.UUID, token=builder.TOKEN, segment_bytes=MIB,
        policy=policy, on_error=builder.kept_in(errors),
    )  # fmt: skip
